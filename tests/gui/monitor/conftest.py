"""The Monitor page by itself, with what feeds it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.alerts.watcher import Alerts
from gui.monitor.page import MonitorPage
from gui.sources.devices.hosts import Hosts
from gui.sources.devices.sampler import SamplerProcess
from gui.sources.run_intervals import RunIntervals
from gui.sources.settings import Settings
from tests.gui.monitor.watching import Watching


@pytest.fixture
def sampler_options() -> tuple[str, ...]:
    """Of this machine's sampler, beyond the usual ones."""
    return ()


@pytest.fixture
def watching(styled: QApplication, qtbot: QtBot, tmp_path: Path, sampler_options: tuple[str, ...]) -> Watching:
    """The Monitor page, as large as it is in a window of 1440 by 900 without the panels at its sides."""
    settings = Settings(tmp_path / "settings")
    local = SamplerProcess(arguments=["-m", "engine.gpus", *sampler_options]) if sampler_options else None
    hosts, intervals = Hosts(local=local), RunIntervals()
    alerts = Alerts(folder=tmp_path / "settings")
    page = MonitorPage(hosts, intervals, alerts, settings)
    qtbot.addWidget(page)
    page.resize(1440, 780)
    page.show()
    return Watching(hosts, hosts.history, intervals, alerts, page)
