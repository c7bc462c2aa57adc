"""Real window with the real sampler while NVIDIA's library hangs, crashes and loses GPUs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from gui.main_window import MainWindow
from gui.monitor.page import MonitorPage
from gui.monitor.toolbar import VIEWS
from gui.pages import MONITOR, TABS
from tests.gui.monitor.watching import read_texts
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import NvmlStub, find_obstacle, make_gpu_profile, uuid_of
from tests.support.pulse import StallMeter
from tests.support.widgets import OpenWindow

pytestmark = [
    pytest.mark.skipif(find_obstacle() is not None, reason=find_obstacle() or ""),
]

LONGEST_STALL_S = 0.5
"""Maximum time in seconds that the window may block, excluding time when no CPU core was free."""


@pytest.fixture
def monitor(open_window: OpenWindow, nvml_stub: NvmlStub) -> Callable[[], tuple[MainWindow, MonitorPage]]:
    """Return a function that opens a window and its Monitor page, and returns both."""

    def show() -> tuple[MainWindow, MonitorPage]:
        window = open_window()
        assert TABS[MONITOR].title == "Monitor"
        window.header.show_page(MONITOR)
        return window, window.workspace.monitor

    return show


def test_every_view_can_be_rendered(
    monitor: Callable[[], tuple[MainWindow, MonitorPage]], nvml_stub: NvmlStub, qtbot: QtBot
) -> None:
    MACHINES["eight"].write(nvml_stub)
    window, page = monitor()
    qtbot.waitUntil(lambda: len(page.gpus.tiles.tiles) == 8)
    images = []
    for view in range(len(VIEWS)):
        page.show_view(view)
        images.append(window.grab().toImage())  # immediately, before the view has been painted
    assert {(image.width(), image.height()) for image in images} == {(window.width(), window.height())}
    assert all(one != other for one, other in pairwise(images))


@pytest.mark.long
def test_nvml_hang_is_reported_and_recovers(
    monitor: Callable[[], tuple[MainWindow, MonitorPage]], nvml_stub: NvmlStub, tmp_path: Path, qtbot: QtBot
) -> None:
    hanging = tmp_path / "hanging"
    nvml_stub.write([make_gpu_profile(0), make_gpu_profile(1)], hang_file=hanging)
    window, page = monitor()
    tiles = page.gpus.tiles.tiles
    qtbot.waitUntil(lambda: len(tiles) == 2)
    pulse = StallMeter()
    hanging.touch()
    qtbot.waitUntil(lambda: "NVML is not answering" in read_texts(page.errors))
    assert "stale" in tiles[uuid_of(0)].state.text()
    assert "NVML is not answering" in read_texts(window.workspace.devices)
    hanging.unlink()
    qtbot.waitUntil(lambda: not page.errors.isVisible())
    pulse.stop()
    assert "stale" not in tiles[uuid_of(0)].state.text()
    assert pulse.longest_s < LONGEST_STALL_S


@pytest.mark.long
def test_long_nvml_hang_is_reported_and_recovers(
    monitor: Callable[[], tuple[MainWindow, MonitorPage]], nvml_stub: NvmlStub, tmp_path: Path, qtbot: QtBot
) -> None:
    hanging = tmp_path / "hanging"
    nvml_stub.write([make_gpu_profile(0, wave=1)], hang_file=hanging)
    window, page = monitor()
    tiles = page.gpus.tiles.tiles
    qtbot.waitUntil(lambda: len(tiles) == 1)
    pulse = StallMeter()
    hanging.touch()
    started_at = time.monotonic()
    qtbot.waitUntil(lambda: "NVML is not answering" in read_texts(page.errors))
    silent_s: list[int] = []

    def is_over() -> bool:
        assert page.errors.isVisible()
        silent_s.extend(map(int, re.findall(r"for (\d+) s", page.errors.text())))
        return time.monotonic() - started_at > 30

    qtbot.waitUntil(is_over)
    assert silent_s == sorted(silent_s)
    assert silent_s[-1] >= 25
    assert "NVML is not answering" in read_texts(window.workspace.devices)
    last = tiles[uuid_of(0)].figures.text()
    hanging.unlink()
    qtbot.waitUntil(lambda: not page.errors.isVisible())
    qtbot.waitUntil(lambda: tiles[uuid_of(0)].figures.text() != last)
    pulse.stop()
    assert pulse.longest_s < LONGEST_STALL_S


def test_nvml_crash_and_lost_gpu_are_reported(
    monitor: Callable[[], tuple[MainWindow, MonitorPage]], nvml_stub: NvmlStub, tmp_path: Path, qtbot: QtBot
) -> None:
    crashing, fallen = tmp_path / "crashing", tmp_path / "fallen"
    nvml_stub.write([make_gpu_profile(0), make_gpu_profile(1, lost_file=fallen)], abort_file=crashing)
    window, page = monitor()
    tiles = page.gpus.tiles.tiles
    qtbot.waitUntil(lambda: len(tiles) == 2)
    crashing.touch()
    qtbot.waitUntil(lambda: "NVML crashed (SIGABRT)" in read_texts(page.errors))
    assert "Utilization" in tiles[uuid_of(0)].figures.text()
    crashing.unlink()
    qtbot.waitUntil(lambda: not page.errors.isVisible())
    assert not page.alert_banner.isVisible()
    fallen.touch()
    qtbot.waitUntil(lambda: "Lost since" in tiles[uuid_of(1)].state.text())
    assert "Utilization" in tiles[uuid_of(1)].figures.text()
    qtbot.waitUntil(page.alert_banner.isVisible)
    assert [alert.kind for alert in window.workspace.alerts.active_alerts] == ["lost"]
