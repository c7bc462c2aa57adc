"""Process of the window: requirements for its start, its imports, and error reports."""

from __future__ import annotations

import builtins
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer, qWarning
from PySide6.QtWidgets import QApplication, QLabel, QProgressBar, QWidget
from pytestqt.qtbot import QtBot

from gui import app
from gui import error_log as faults
from gui.main_window import MainWindow
from gui.preferences.store import Preferences
from gui.single_instance import OpenRequest, SingleInstance
from gui.sources.settings import Settings

ROOT = Path(__file__).parents[2]
HEAVY = {
    "PySide6.QtNetwork",
    "email.message",
    "gui.form.model_panel",
    "gui.sources.run_list",
    "gui.workspace",
    "importlib.metadata",
    "numpy",
    "psutil",
    "pyqtgraph",
    "torch",
}
"""Modules that would delay the window's first frame."""
OPEN_AND_CLOSE = """
import locale, sys
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from gui import app, main_window
from gui.format import localized
from gui.style import theme
add_pages = main_window.MainWindow.add_pages
def add_pages_and_close(window):
    modules_of_first_frame = sorted(sys.modules)
    add_pages(window)
    instance = QApplication.instance()
    sizes = [each.font().pointSizeF() for each in (instance, window.menuBar(), window.form.train)]
    facts = locale.localeconv()["decimal_point"], localized(0.5, 1), sizes.count(sizes[0]), theme.scale_pixels(100)
    print(*facts, instance.applicationName(), instance.desktopFileName(), instance.windowIcon().isNull())
    print(*modules_of_first_frame)
    print(*sorted(sys.modules))
    QTimer.singleShot(0, window.close)
main_window.MainWindow.add_pages = add_pages_and_close
sys.exit(app.main())
"""


def test_missing_display_is_reported() -> None:
    without = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    done = subprocess.run(
        [sys.executable, "footplate.py"], cwd=ROOT, env=without, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "footplate train" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_dead_display_is_reported() -> None:
    if not all(map(app._can_load, app.X_LIBRARIES)):
        pytest.skip("the libraries for an X window are missing here, which would be told of first")
    stale = {k: v for k, v in os.environ.items() if k not in ("WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    stale["DISPLAY"] = ":987"
    done = subprocess.run(
        [sys.executable, "footplate.py"], cwd=ROOT, env=stale, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert ":987 does not respond" in done.stderr
    assert "footplate train" in done.stderr


def test_missing_x_libraries_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "xcb")
    monkeypatch.setattr(app, "X_LIBRARIES", ("libfootplate-surely-missing.so.0",))
    why = app.find_display_problem()
    assert why is not None
    assert "libfootplate-surely-missing.so.0" in why
    assert "sudo apt install" in why
    assert "libxcb-cursor0" in why


@pytest.mark.parametrize(
    ("platform", "display", "wayland", "is_reported"),
    [
        ("", "", "", True),
        ("", "", "wayland-0", False),
        ("", ":0", "wayland-0", False),
        ("", ":0", "", True),
        ("xcb", "", "wayland-0", True),
        ("offscreen", "", "", False),
    ],
)
def test_only_used_displays_are_checked(
    monkeypatch: pytest.MonkeyPatch, platform: str, display: str, wayland: str, is_reported: bool
) -> None:
    for name, value in (("QT_QPA_PLATFORM", platform), ("DISPLAY", display), ("WAYLAND_DISPLAY", wayland)):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(app, "X_LIBRARIES", ("libfootplate-surely-missing.so.0",))
    assert (app.find_display_problem() is not None) == is_reported
    monkeypatch.setattr(sys, "platform", "darwin")
    assert app.find_display_problem() is None


def test_window_opens_with_large_texts_and_few_imports() -> None:
    Preferences(Settings()).set("text_percent", 150)
    environment = {**os.environ, "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}
    output = subprocess.run(
        [sys.executable, "-c", OPEN_AND_CLOSE], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert output.returncode == 0, output.stderr
    facts, *modules = map(str.split, output.stdout.splitlines())
    assert facts == [".", "0,5", "3", "150", "Footplate", "footplate", "False"]
    at_first_frame, later = map(set, modules)
    assert HEAVY & at_first_frame == set()
    assert "pyqtgraph" in later
    assert {"gui.help", "torch", "torchvision"} & later == set()


def test_window_opens_if_an_open_one_does_not_respond(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_instance: SingleInstance, request: OpenRequest) -> bool:
        raise TimeoutError(f"the window for {Path(request.path).name} does not respond")

    monkeypatch.setattr(builtins, "__import__", builtins.__import__)
    monkeypatch.setattr(gc, "disable", lambda: None)
    monkeypatch.setattr(app, "find_display_problem", lambda: None)
    monkeypatch.setattr(SingleInstance, "forward_request", refuse)
    monkeypatch.setattr(app, "_show_window", lambda request, _instance: len(Path(request.path).name))
    assert app.main("flowers") == len("flowers")
    message = "footplate: opening another window, since the window for flowers does not respond.\n"
    assert capsys.readouterr().err == message


@pytest.fixture
def reporting_window(window: MainWindow, monkeypatch: pytest.MonkeyPatch) -> Iterator[MainWindow]:
    """Yield a window that reports unhandled errors, like the window of the real program."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    faults.install_handlers(window.show_message)
    yield window
    window.show_message("")
    monkeypatch.undo()
    faults.open_log.cache_clear()
    log = logging.getLogger(faults.LOG_NAME)
    for handler in log.handlers[:]:
        handler.close()
        log.removeHandler(handler)


def raise_in_slot() -> None:
    QTimer.singleShot(0, lambda: {}["gone"])


def raise_on_thread() -> None:
    threading.Thread(target=lambda: {}["gone"], name="a reader").start()


@pytest.mark.parametrize("go_wrong", [raise_in_slot, raise_on_thread])
def test_unexpected_exception_is_logged_and_reported(
    reporting_window: MainWindow, qtbot: QtBot, caplog: pytest.LogCaptureFixture, go_wrong: Callable[[], None]
) -> None:
    window = reporting_window
    go_wrong()
    qtbot.waitUntil(window.message.isVisible)
    assert "KeyError: 'gone'" in window.message.text()
    assert str(faults.log_file()) in window.message.text()
    assert "Traceback" in faults.log_file().read_text()
    caplog.clear()


def test_interrupts_are_not_logged_but_warnings_of_qt_are(
    reporting_window: MainWindow, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "KeyboardInterrupt\n"
    assert not reporting_window.message.isVisible()
    qWarning("odd")
    log = faults.log_file().read_text()  # Qt may have logged other messages
    assert log.endswith("WARNING Qt: odd\n")
    assert "KeyboardInterrupt" not in log
    caplog.clear()


def test_log_without_a_folder_is_standard_error(reporting_window: MainWindow, caplog: pytest.LogCaptureFixture) -> None:
    faults.log_file().parent.parent.mkdir(parents=True, exist_ok=True)
    faults.log_file().parent.write_text("not a folder")
    assert faults.log_exception(KeyError("gone")) == "standard error"
    caplog.clear()


def test_void_calls_keep_references_to_none(styled: QApplication, qtbot: QtBot) -> None:
    """Check that calls which return nothing don't change the reference count of None.

    PySide6 6.12 on Python 3.11 decrements it with each such call, until the interpreter aborts.
    """
    if sys.version_info >= (3, 12):
        pytest.skip("None is immortal from Python 3.12 on")
    label, bar, widget = QLabel(), QProgressBar(), QWidget()
    for each in (label, bar, widget):
        qtbot.addWidget(each)
    calls = 500
    gc.collect()
    before = sys.getrefcount(None)
    for number in range(calls):
        label.setText(str(number))
        bar.setValue(number)
        widget.update()
        label.setVisible(False)
    assert sys.getrefcount(None) > before - calls // 10


def test_interrupt_closes_the_window_cleanly(separate_home: Path) -> None:
    code = OPEN_AND_CLOSE.replace("QTimer.singleShot(0, window.close)", "print('open', flush=True)")
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        while "open" not in output.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    assert (separate_home / "window.json").is_file()
