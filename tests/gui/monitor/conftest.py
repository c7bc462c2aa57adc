"""Fixtures for the Monitor page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from gui.alerts.watcher import Alerts
from gui.monitor.page import MonitorPage
from gui.sources.devices.hosts import Hosts
from gui.sources.devices.sampler import SamplerProcess
from gui.sources.run_intervals import RunIntervals
from gui.sources.settings import Settings
from tests.gui.monitor.watching import Watching
from tests.support.widgets import ShowWidget


@pytest.fixture
def sampler_options() -> tuple[str, ...]:
    """Return additional command-line arguments for the local sampler."""
    return ()


@pytest.fixture
def watching(show_widget: ShowWidget, tmp_path: Path, sampler_options: tuple[str, ...]) -> Watching:
    """Return a Monitor page with its data sources.

    The page has the size that it has in a window of 1440 x 900 pixels.
    """
    settings = Settings(tmp_path / "settings")
    local = SamplerProcess(arguments=["-m", "engine.gpus", *sampler_options]) if sampler_options else None
    hosts, intervals = Hosts(local=local), RunIntervals()
    alerts = Alerts(folder=tmp_path / "settings")
    page = show_widget(MonitorPage(hosts, intervals, alerts, settings), 1440, 780)
    return Watching(hosts, hosts.history, intervals, alerts, page)


@pytest.fixture
def hosts(qtbot: QtBot, tmp_path: Path) -> Iterator[Hosts]:
    """Yield hosts whose samplers haven't been started."""
    hosts = Hosts()
    yield hosts
    hosts.stop()
