"""Monitor views of several kinds of machines. The NVML stub simulates them, and the real sampler reads it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from gui.monitor.gpus.tiles import Tile
from tests.gui.monitor.watching import Watching
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import NvmlStub, find_obstacle, instance_uuid_of, make_gpu_profile, uuid_of

pytestmark = pytest.mark.skipif(find_obstacle() is not None, reason=find_obstacle() or "")

Show = Callable[[str], dict[str, Tile]]


@pytest.fixture
def sampling(watching: Watching, nvml_stub: NvmlStub) -> Iterator[Watching]:
    """Yield a page with a real local sampler, which the test starts with `hosts.start()`."""
    yield watching
    watching.hosts.stop()


@pytest.fixture
def show(sampling: Watching, nvml_stub: NvmlStub, qtbot: QtBot) -> Show:
    """Return a function that shows a machine of the NVML stub and returns its tiles by UUID."""

    def start(machine: str) -> dict[str, Tile]:
        MACHINES[machine].write(nvml_stub)
        sampling.hosts.start()
        tiles = sampling.page.gpus.tiles.tiles
        qtbot.waitUntil(lambda: bool(tiles))
        return tiles

    return start


def ids(tile: Tile) -> set[str]:
    return {figure.id for figure in tile.figures.figures}


@pytest.mark.parametrize(("machine", "count"), [("one", 1), ("eight", 8), ("sixteen", 16)])
def test_machine_every_gpu_has_tile(show: Show, machine: str, count: int) -> None:
    tiles = show(machine)
    assert list(tiles) == [uuid_of(index) for index in range(count)]
    assert all("Utilization" in tile.figures.text() for tile in tiles.values())


def test_machine_desktop_gpu_values(show: Show) -> None:
    (tile,) = show("one").values()
    assert ids(tile).isdisjoint({"memory_temperature_c", "nvlink", "sm_active_percent", "tensor_active_percent"})
    assert "fan_percent" in ids(tile)


def test_machine_datacenter_gpu_values(show: Show, sampling: Watching, qtbot: QtBot) -> None:
    tiles = show("everything")
    tile = tiles[uuid_of(0)]
    rare = {
        "sm_active_percent",
        "tensor_active_percent",
        "memory_temperature_c",
        "nvlink",
        "pcie",
        "energy",
        "fan_percent",
    }
    qtbot.waitUntil(lambda: rare <= ids(tile))
    assert "power limit" in tile.state.text()


def test_machine_wddm_memory(show: Show, sampling: Watching, qtbot: QtBot) -> None:
    (tile,) = show("wddm").values()
    qtbot.waitUntil(lambda: tile.who.text() != "")
    assert "GiB" not in tile.who.text()
    assert "memory_used_bytes" in ids(tile)


def test_machine_mig_instances_follow_gpu(show: Show) -> None:
    tiles = show("mig")
    assert list(tiles) == [uuid_of(0), *(instance_uuid_of(0, number) for number in range(3)), uuid_of(1)]
    titles = [tile.title.text() for tile in tiles.values()]
    assert titles == ["GPU 0 (MIG)", "GPU 0 MIG 7", "GPU 0 MIG 8", "GPU 0 MIG 9", "GPU 1"]
    assert "utilization_percent" not in ids(tiles[uuid_of(0)])


def test_machine_mig_activity_in_compact_rows(sampling: Watching, nvml_stub: NvmlStub, qtbot: QtBot) -> None:
    MACHINES["mig"].write(nvml_stub)
    sampling.page.bar.compact.click()
    sampling.hosts.start()
    model = sampling.page.gpus.lines.gpus
    qtbot.waitUntil(lambda: model.position(instance_uuid_of(0, 0)) is not None)
    qtbot.waitUntil(lambda: model.index(model.position(instance_uuid_of(0, 0)) or 0, 1).data() == "15%")


def test_machine_unified_memory_is_left_out(show: Show) -> None:
    (tile,) = show("unified_memory").values()
    assert "memory_used_bytes" not in ids(tile)
    assert "utilization_percent" in ids(tile)


def test_machine_garbage_is_left_out(show: Show) -> None:
    (tile,) = show("garbage").values()
    assert ids(tile).isdisjoint({"utilization_percent", "temperature_c", "power_w", "fan_percent", "sm_clock_mhz"})


def test_machine_old_driver(show: Show, old_nvml_stub: NvmlStub) -> None:
    (tile,) = show("old_driver").values()
    assert {"utilization_percent", "memory_used_bytes", "temperature_c", "power_w"} <= ids(tile)
    assert "Memory 6.5 of 24.0 GiB" in tile.figures.text()  # includes half a GiB that newer drivers report separately


@pytest.mark.parametrize(("machine", "expected"), [("no_permission", "may not use"), ("mismatch", "restart")])
def test_machine_without_gpu_explains(
    sampling: Watching, nvml_stub: NvmlStub, qtbot: QtBot, machine: str, expected: str
) -> None:
    MACHINES[machine].write(nvml_stub)
    sampling.hosts.start()
    qtbot.waitUntil(lambda: expected in sampling.page.errors.text().lower())
    assert sampling.page.errors.isVisible()
    assert "can be monitored" in sampling.page.gpus.empty.text()


@pytest.mark.parametrize("sampler_options", [("--again", "0.5")])
def test_machine_lost_gpu_returns(sampling: Watching, nvml_stub: NvmlStub, tmp_path: Path, qtbot: QtBot) -> None:
    fallen = tmp_path / "fallen"
    nvml_stub.write([make_gpu_profile(0), make_gpu_profile(1, wave=1, lost_file=fallen)])
    sampling.hosts.start()
    tiles = sampling.page.gpus.tiles.tiles
    qtbot.waitUntil(lambda: bool(tiles))
    tile = tiles[uuid_of(1)]
    fallen.touch()
    qtbot.waitUntil(lambda: "Lost since" in tile.state.text())
    last = tile.figures.text()
    fallen.unlink()
    qtbot.waitUntil(lambda: "Lost" not in tile.state.text())
    qtbot.waitUntil(lambda: tile.figures.text() != last)
    assert list(tiles.values()) == [tiles[uuid_of(0)], tile]


def test_machine_recovers_from_hanging_nvml(
    sampling: Watching, nvml_stub: NvmlStub, tmp_path: Path, qtbot: QtBot
) -> None:
    page, at_fault = sampling.page, tmp_path / "fault"
    nvml_stub.write([make_gpu_profile(0)], hang_file=at_fault)
    sampling.hosts.start()
    qtbot.waitUntil(lambda: bool(page.gpus.tiles.tiles))
    (tile,) = page.gpus.tiles.tiles.values()
    at_fault.touch()
    qtbot.waitUntil(page.errors.isVisible)
    assert tile.state.text().startswith("⚠")
    assert "Utilization" in tile.figures.text()
    at_fault.unlink()
    qtbot.waitUntil(page.errors.isHidden)
    assert not tile.state.text().startswith("⚠")


def test_machine_recovers_from_killed_sampler(show: Show, sampling: Watching, qtbot: QtBot) -> None:
    show("one")
    page, pid = sampling.page, sampling.hosts.local.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    qtbot.waitUntil(page.errors.isVisible)
    (tile,) = page.gpus.tiles.tiles.values()
    assert tile.state.text().startswith("⚠ No data since")
    qtbot.waitUntil(lambda: not tile.state.text().startswith("⚠"))
    assert page.errors.isHidden()
