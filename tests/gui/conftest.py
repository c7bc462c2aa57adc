"""Fixtures for the real window: style, leak checks, and replacements for ssh and NVML."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QLocale
from PySide6.QtGui import QCursor
from PySide6.QtWidgets import QApplication, QDialog
from pytestqt.qtbot import QtBot

from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import inspector_options
from gui import format as window_format
from gui.form import cached_disk
from gui.form.followers import create_sample_job
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.main_window import MainWindow
from gui.pages import TRAIN
from gui.sources import background
from gui.sources.devices.sampler import SamplerProcess
from gui.sources.estimator import MemoryProcess
from gui.sources.inspector import Inspector
from gui.sources.launcher import Launcher
from gui.style import theme
from gui.widgets import file_dialogs
from tests.conftest import use_home
from tests.support.nvml_stub import NvmlStub, build_once
from tests.support.widgets import HoldCalls, OpenWindow, ShowWidget, W, suspend_style_sheet

OFFSCREEN_NOISE = "This plugin does not support"
"""Start of Qt's messages about size hints and raising windows, which it prints only on the offscreen platform."""
NO_TRAY_NOISE = "No such signal QPlatformNativeInterface::systemTrayWindowChanged"
"""Message about tray icons that Qt prints because the offscreen platform has no tray."""

ROOT = Path(__file__).parents[2]
SAMPLE = [create_sample_job().data.dataset, *inspector_options(create_sample_job(), load_catalogue())]
"""Arguments of the inspector process with which the window inspects the sample dataset."""
_SSH = """#!/bin/sh
echo "$@" >> "$FAKE_SSH/calls"
while [ "$1" = -o ]; do shift 2; done
[ "$1" = -- ] && shift
host=$1
shift
if [ -e "$FAKE_SSH/$host.fails" ]; then
    if [ "$LC_ALL" = C ]; then cat "$FAKE_SSH/$host.fails"; else echo "ssh: Verbindung unterbrochen"; fi >&2
    exit "$(cat "$FAKE_SSH/$host.code")"
fi
echo $$ > "$FAKE_SSH/$host.pid"
exec sh -c "exec $*"
"""
_FOOTPLATE = """#!/bin/sh
cd "{root}" && exec "{python}" footplate.py "$@"
"""


@dataclass(frozen=True)
class FakeSsh:
    """Replacement for ssh. Hosts are reachable unless a test makes the connection fail."""

    folder: Path

    def fail(self, host: str, message: str, code: int = 255) -> None:
        """Make later connections to `host` print `message` and exit with `code`."""
        (self.folder / f"{host}.code").write_text(str(code))
        (self.folder / f"{host}.fails").write_text(message + "\n")

    def recovers(self, host: str) -> None:
        (self.folder / f"{host}.fails").unlink()

    def pid(self, host: str) -> int:
        """Return the process id of the most recent connection to `host`."""
        return int((self.folder / f"{host}.pid").read_text())

    @property
    def calls(self) -> list[str]:
        """Return the arguments of each connection, joined to a string."""
        return (self.folder / "calls").read_text().splitlines()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/gui" in item.path.as_posix():
            item.add_marker(pytest.mark.qt_log_ignore(OFFSCREEN_NOISE, NO_TRAY_NOISE))


@pytest.fixture
def normal_text() -> Iterator[None]:
    """Restore the normal text size after the test."""
    yield
    theme.choose("system", 100)


@pytest.fixture(scope="session")
def styled(qapp: QApplication) -> QApplication:
    theme.apply(qapp)
    return qapp


@pytest.fixture
def show_widget(styled: QApplication, qtbot: QtBot) -> ShowWidget:
    """Return a function that shows a widget until the end of the test.

    At the end, the function `close` is called with the widget, so that it ends its background work. By default, this is
    the widget's method `close_work` if it has one.
    """

    def show(widget: W, width: int = 0, height: int = 0, *, close: Callable[[W], object] | None = None) -> W:
        end = getattr(type(widget), "close_work", None) if close is None else close
        qtbot.addWidget(widget, before_close_func=end)
        if width:
            widget.resize(width, height)
        widget.show()
        return widget

    return show


@pytest.fixture
def hold_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[HoldCalls]:
    """Yield a function that makes calls wait, such as for a slow disk. At the end of the test, they no longer wait."""
    events: list[threading.Event] = []

    def hold(
        owner: object,
        name: str,
        condition: Callable[..., bool] = lambda *_arguments: True,
        error: Exception | None = None,
    ) -> threading.Event:
        event, function = threading.Event(), getattr(owner, name)
        events.append(event)

        def call_late(*arguments: Any) -> Any:
            if condition(*arguments):
                event.wait()
                if error is not None:
                    raise error
            return function(*arguments)

        monkeypatch.setattr(owner, name, call_late)
        return event

    yield hold
    for event in events:
        event.set()


@pytest.fixture
def job_panel(styled: QApplication, show_widget: ShowWidget) -> JobPanel:
    """Return the job panel without a main window, with an empty dataset field."""
    with suspend_style_sheet(styled):
        panel = JobPanel()
    return show_widget(panel, 380, 760)


@pytest.fixture
def form(job_panel: JobPanel) -> JobForm:
    """Return the form for a new job, with an empty dataset field."""
    return job_panel.form


@pytest.fixture
def sampler_is_never_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the silence of samplers, whose messages and alerts would depend on the load of the machine."""
    monkeypatch.setattr(SamplerProcess, "_on_silence", lambda _sampler: None)


@pytest.fixture
def german() -> Iterator[None]:
    """Use the number and date formats of a German desktop."""
    window_format.use_locale(QLocale(QLocale.Language.German, QLocale.Country.Germany))
    yield
    window_format.use_locale(QLocale.c())


@pytest.fixture
def preloader() -> None:
    """Let windows start the preloader, as in the real program; see `quick_windows`."""


@pytest.fixture
def computed_memory() -> None:
    """Let the form compute the memory of its job, as in the real program; see `quick_windows`."""


@pytest.fixture(scope="session")
def sample_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inspect the sample dataset once, and return the file with the inspector's output."""

    def inspect_once(file: Path) -> Path:
        if not file.exists():
            command = [sys.executable, "-m", "engine.data", *SAMPLE]
            file.write_bytes(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        return file

    return build_once(tmp_path_factory, "sample", inspect_once)


@pytest.fixture
def real_inspector() -> None:
    """Let windows inspect the sample dataset, as in the real program; see `quick_windows`."""


@pytest.fixture(autouse=True)
def quick_windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, sample_report: Path) -> None:
    """Keep windows from slow work that the test doesn't request, and from what depends on the machine or earlier tests.

    - The time limits for disks are long, so that a busy machine isn't mistaken for a slow disk. Tests that simulate a
      slow disk set limits of their own.
    - The mouse pointer is outside of all windows. An earlier test may have left it at a place where a plot will appear.
    - Windows start no preloader, and forms don't compute the memory of their job. Both import torch.
    - The inspector's output for the sample dataset is replayed. Every window inspects it when it opens, and a real
      inspection would take as long as opening the window.
    """
    monkeypatch.setattr(cached_disk, "GRACE_S", 60.0)
    monkeypatch.setattr(file_dialogs, "PATIENCE_S", 60.0)
    monkeypatch.setattr(background, "GRACE_S", 60.0)
    if QApplication.instance() is not None:
        QCursor.setPos(-1000, -1000)
    if "preloader" not in request.fixturenames:
        monkeypatch.setattr(Launcher, "preload", lambda _launcher: None)
    if "computed_memory" not in request.fixturenames:
        monkeypatch.setattr(MemoryProcess, "start", lambda _process, _job: None)
    if "real_inspector" not in request.fixturenames:
        replay_report(monkeypatch, sample_report)


def replay_report(patch: pytest.MonkeyPatch, output_file: Path) -> None:
    """Make inspectors of the sample dataset print the content of `output_file`."""
    command = Inspector.command

    def known(inspector: Inspector, arguments: list[str]) -> tuple[str, list[str]]:
        return ("cat", [str(output_file)]) if arguments == SAMPLE else command(inspector, arguments)

    patch.setattr(Inspector, "command", known)


@pytest.fixture
def open_window(styled: QApplication, qtbot: QtBot) -> Iterator[OpenWindow]:
    """Return a function that opens windows as the program does. They are closed after the test."""
    opened: list[MainWindow] = []

    def open_one() -> MainWindow:
        with suspend_style_sheet(styled):
            window = MainWindow()
        opened.append(window)
        qtbot.addWidget(window)
        with qtbot.waitSignal(window.completed):
            window.show()
        return window

    yield open_one
    for window in opened:
        window.close()


@pytest.fixture(scope="module")
def window_of_file(
    styled: QApplication,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    sample_report: Path,
) -> Iterator[MainWindow]:
    """Yield the window that all tests in a file share, with its own home folder and a check for leaks."""
    bot = QtBot(request)
    with use_home(tmp_path_factory.mktemp("window")), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Launcher, "preload", lambda _launcher: None)
        patch.setattr(cached_disk, "GRACE_S", 60.0)
        replay_report(patch, sample_report)
        with suspend_style_sheet(styled):
            created = MainWindow()
        with bot.waitSignal(created.completed):
            created.show()
        bot.waitUntil(created.form.train.isEnabled)
        yield created
        created.close()
        created.deleteLater()


@pytest.fixture
def window(window_of_file: MainWindow, qtbot: QtBot) -> Iterator[MainWindow]:
    """Yield the shared window, ready to train on the sample dataset.

    Dialogs and pages that a test has opened are closed after the test.
    """
    with qtbot.waitActive(window_of_file):
        window_of_file.activateWindow()
    yield window_of_file
    for dialog in window_of_file.findChildren(QDialog):
        dialog.close()
    window_of_file.header.show_page(TRAIN)


@pytest.fixture
def trash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty trash, and return its folder, which doesn't exist yet."""
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    return data / "Trash"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Create a folder for images, which stays empty, and return its path."""
    folder = tmp_path / "images"
    folder.mkdir()
    return folder


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSsh:
    """Put a replacement for ssh and the `footplate` command first on the PATH. Its messages are in German by default."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    for name, text in (("ssh", _SSH), ("footplate", _FOOTPLATE.format(root=ROOT, python=sys.executable))):
        script = folder / name
        script.write_text(text)
        script.chmod(0o755)
    monkeypatch.setenv("FAKE_SSH", str(folder))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return FakeSsh(folder)


@pytest.fixture
def nvml_stub(compiled_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    """Make all processes of this test use the NVML stub, and return it. Its answers come from a file of this test."""
    return _in_use(compiled_stub, tmp_path, monkeypatch)


@pytest.fixture
def old_nvml_stub(compiled_old_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    """Make all processes of this test use the NVML stub of an old driver, and return it. It lacks newer functions."""
    return _in_use(compiled_old_stub, tmp_path, monkeypatch)


def _in_use(compiled: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    stub = NvmlStub(compiled.folder, tmp_path / "profile")
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    return stub
