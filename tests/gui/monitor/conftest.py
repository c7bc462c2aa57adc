"""A page to look at, and a stand-in for ssh that runs the command on this machine, before the stub of NVIDIA's libraries."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.devices.history import DeviceHistory
from gui.devices.sampler import SamplerProcess
from gui.monitor.alerts.watcher import Alerts
from gui.monitor.hosts import Hosts
from gui.monitor.marks import RunMarks
from gui.monitor.page import MonitorPage
from gui.settings import Settings
from tests.gui.monitor.watching import Watching
from tests.support.nvml_stub import NvmlStub, compile_stub, why_not

ROOT = Path(__file__).parents[3]
_SSH = """#!/bin/sh
echo "$@" >> "$FAKE_SSH/calls"
while [ "$1" = -o ]; do shift 2; done
host=$1
shift
if [ -e "$FAKE_SSH/$host.fails" ]; then
    cat "$FAKE_SSH/$host.fails" >&2
    exit "$(cat "$FAKE_SSH/$host.code")"
fi
echo $$ > "$FAKE_SSH/$host.pid"
exec "$@"
"""
_FOOTPLATE = """#!/bin/sh
cd "{root}" && exec "{python}" footplate.py "$@"
"""


@dataclass(frozen=True)
class FakeSsh:
    """What stands in for ssh: a host is reached at once unless it is told to fail."""

    folder: Path

    def fails(self, host: str, said: str, code: int = 255) -> None:
        """From now on ssh to `host` says this and ends."""
        (self.folder / f"{host}.code").write_text(str(code))
        (self.folder / f"{host}.fails").write_text(said + "\n")

    def recovers(self, host: str) -> None:
        (self.folder / f"{host}.fails").unlink()

    def pid(self, host: str) -> int:
        """The process that the last connection to `host` has become."""
        return int((self.folder / f"{host}.pid").read_text())

    @property
    def calls(self) -> list[str]:
        """The arguments of each connection, joined."""
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSsh:
    """Puts the stand-in, and `footplate`, before all else on PATH."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    for name, text in (("ssh", _SSH), ("footplate", _FOOTPLATE.format(root=ROOT, python=sys.executable))):
        script = folder / name
        script.write_text(text)
        script.chmod(0o755)
    monkeypatch.setenv("FAKE_SSH", str(folder))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return FakeSsh(folder)


@pytest.fixture(scope="session")
def compiled_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    if reason := why_not():
        pytest.skip(reason)
    return compile_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def compiled_old_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    if reason := why_not():
        pytest.skip(reason)
    return compile_stub(tmp_path_factory.mktemp("old_nvml"), old_driver=True)


@pytest.fixture
def nvml_stub(compiled_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    """The stub with a profile of this test's own, for all processes that the test starts."""
    return _in_use(compiled_stub, tmp_path, monkeypatch)


@pytest.fixture
def old_nvml_stub(compiled_old_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    """The same as an old driver, which lacks newer functions."""
    return _in_use(compiled_old_stub, tmp_path, monkeypatch)


def _in_use(compiled: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    stub = NvmlStub(compiled.folder, tmp_path / "profile")
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    return stub


@pytest.fixture
def sampler_options() -> tuple[str, ...]:
    """Of this machine's sampler, beyond the usual ones."""
    return ()


@pytest.fixture
def watching(styled: QApplication, qtbot: QtBot, tmp_path: Path, sampler_options: tuple[str, ...]) -> Watching:
    """The Monitor page, as large as it is in a window of 1440 by 900 without the panels at its sides."""
    settings = Settings(tmp_path / "settings")
    local = SamplerProcess(arguments=["-m", "engine.gpus", *sampler_options]) if sampler_options else None
    history, hosts, marks = DeviceHistory(), Hosts(settings, local=local), RunMarks()
    alerts = Alerts(folder=tmp_path / "settings")
    page = MonitorPage(history, hosts, marks, alerts, settings)
    qtbot.addWidget(page)
    page.resize(1440, 780)
    page.show()
    return Watching(hosts, history, marks, alerts, page)
