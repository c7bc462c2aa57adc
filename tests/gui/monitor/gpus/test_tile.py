"""Tile of one GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QApplication, QMenu
from pytestqt.qtbot import QtBot

from engine.contract.devices import Gpu, Pcie
from engine.gpus.quantities import BY_ID
from gui.format import clock, energy
from gui.monitor.gpus.gpu_fields import line_scale, list_graph_quantities, list_tile_figures, make_current_reader
from gui.monitor.gpus.tiles import Tile
from gui.monitor.gpus.watched_gpu import EnergyCounters, WatchedGpu, list_watched_gpus
from gui.plots.group import PlotGroup
from gui.sources.devices import device_format
from gui.style import theme
from tests.gui.monitor.watching import START, full_gpu, make_history, make_watched_gpu, plain_gpu
from tests.gui.sources.devices.snapshots import held_by, snapshot
from tests.support.widgets import ShowWidget, request_context_menu


@pytest.fixture
def group(qtbot: QtBot) -> PlotGroup:
    return PlotGroup("clock", span=600.0)


ShowTile = Callable[[WatchedGpu], Tile]


@pytest.fixture
def show_tile(show_widget: ShowWidget, group: PlotGroup) -> ShowTile:
    """Return a function that shows a tile with one minute of constant readings."""

    def show(each: WatchedGpu) -> Tile:
        history = make_history(each.gpu)
        group.origin = history.origin
        group.set_extent(0.0, 59.0)
        tile = show_widget(Tile(each, group, EnergyCounters()), 700, 400)
        tile.show_gpu(each, history)
        return tile

    return show


def figures(tile: Tile) -> dict[str, str]:
    return {figure.label: figure.text for figure in tile.figures.figures}


def test_tile_values_have_units_and_limits(show_tile: ShowTile) -> None:
    tile = show_tile(make_watched_gpu(full_gpu()))
    expected = {
        "Utilization": "87%", "Power": "512 of 700 W", "GPU temp.": "61 °C", "SM clock": "1,755 of 1,980 MHz",
        "PCIe 4 ×16": "↓ 1.20 ↑ 0.40 GB/s", "NVLink ×3": "↓ 12.00 ↑ 4.00 GB/s", "SMs active": "64%", "Fan": "35%",
        "Memory": "41.0 of 141.0 GiB", "Memory temp.": "70 °C", "Memory clock": "3,201 of 3,201 MHz", "Encoder": "0%",
        "Decoder": "12%", "Tensor": "22%", "Memory bandwidth": "31%",
    }  # fmt: skip
    assert expected.items() <= figures(tile).items()
    assert "Power 512 of 700 W" in tile.accessibleDescription()
    colors = {figure.id: figure.color() for figure in tile.figures.figures if figure.color is not None}
    scheme = theme.colors()
    assert colors == {
        "utilization_percent": theme.device_color(tile.key), "memory_used_bytes": scheme.text, "power_w": scheme.muted,
        "temperature_c": scheme.error,
    }  # fmt: skip
    (memory,) = (figure for figure in tile.figures.figures if figure.id == "memory_used_bytes")
    assert memory.meaning.endswith(" The driver reserves another 0.5 GiB.")


@pytest.mark.parametrize(
    ("slowdown_c", "shutdown_c", "limits"),
    [
        (87.0, 92.0, "It slows down at 87 °C and shuts down at 92 °C."),
        (87.0, None, "It slows down at 87 °C."),
        (None, 92.0, "It shuts down at 92 °C."),
        (None, None, ""),
    ],
)
def test_tile_explains_temperature_limits(slowdown_c: float | None, shutdown_c: float | None, limits: str) -> None:
    gpu = plain_gpu(slowdown_c=slowdown_c, shutdown_c=shutdown_c)
    found = {each.id: each.meaning for each in list_tile_figures(make_watched_gpu(gpu), make_current_reader(gpu), None)}
    assert found["temperature_c"] == f"{BY_ID['temperature_c'].meaning} {limits}".strip()


@pytest.mark.parametrize(
    ("pcie", "figure"),
    [
        (Pcie(), {}),
        (Pcie(width=16), {"PCIe": "×16"}),
        (Pcie(generation=4, width=16), {"PCIe": "4 ×16"}),
        (Pcie(generation=4, received_bytes_per_s=0.0), {"PCIe 4": "↓ 0.00 GB/s"}),
        (Pcie(width=8, sent_bytes_per_s=4e8), {"PCIe ×8": "↑ 0.40 GB/s"}),
    ],
)
def test_tile_shows_reported_values_of_pcie(pcie: Pcie, figure: dict[str, str]) -> None:
    gpu = Gpu(uuid="GPU-a", name="A GPU", nvml_index=0, pcie=pcie)
    assert {
        each.label: each.text for each in list_tile_figures(make_watched_gpu(gpu), make_current_reader(gpu), None)
    } == figure


def test_tile_leaves_out_unreported_values(show_tile: ShowTile, qtbot: QtBot) -> None:
    gpu = plain_gpu(utilization_percent=None, power_w=None, memory_used_bytes=None, memory_total_bytes=None)
    tile = show_tile(make_watched_gpu(gpu))
    assert figures(tile) == {"GPU temp.": "61 °C"}
    qtbot.waitUntil(lambda: "Latest" in tile.plot.accessibleDescription())
    assert tile.plot.accessibleDescription() == "Latest: Temperature 61 °C"
    idle = plain_gpu(utilization_percent=None, power_w=0.0, memory_used_bytes=0, temperature_c=None)
    found = list_tile_figures(make_watched_gpu(idle), make_current_reader(idle), None)
    assert [each.text for each in found] == ["0.0 of 141.0 GiB", "0 of 700 W"]


@pytest.mark.parametrize(
    ("gpu", "scales"),
    [
        (plain_gpu(), [1.0, 100 / (141 << 30), 100 / 700, 1.0]),
        (plain_gpu(memory_total_bytes=None, power_limit_w=None), [1.0, None, None, 1.0]),
    ],
)
def test_tile_lines_are_fractions(gpu: Gpu, scales: list[float | None]) -> None:
    assert [line_scale(gpu, line) for line in list_graph_quantities(lambda _quantity: True)] == scales


def test_tile_draws_activity_without_utilization(show_tile: ShowTile, qtbot: QtBot) -> None:
    tile = show_tile(make_watched_gpu(full_gpu(utilization_percent=None, power_w=None, temperature_c=None)))
    qtbot.waitUntil(lambda: "Latest" in tile.plot.accessibleDescription())
    assert tile.plot.accessibleDescription() == "Latest: Memory in use 41.0 GiB, SM activity 64%"
    (active,) = (figure for figure in tile.figures.figures if figure.id == "sm_active_percent")
    assert active.color is not None
    assert active.color() == theme.device_color(tile.key)
    tile.show_gpu(make_watched_gpu(full_gpu()), make_history(full_gpu()))
    qtbot.waitUntil(lambda: "Utilization" in tile.plot.accessibleDescription())
    assert "SM activity" not in tile.plot.accessibleDescription()


def test_tile_lost_gpu_is_faded(show_tile: ShowTile) -> None:
    tile = show_tile(make_watched_gpu(full_gpu(lost=True, lost_since=START)))
    assert tile.state.text() == f"⚠ Lost since {clock(START)}"
    assert tile.state.objectName() == "warning"
    assert figures(tile)["Utilization"] == "87%"


def test_tile_sleeping_gpu(show_tile: ShowTile) -> None:
    asleep = Gpu(uuid="GPU-a", name="NVIDIA RTX 4060 Laptop", nvml_index=0, asleep=True)
    tile = show_tile(make_watched_gpu(asleep))
    assert (tile.state.text(), tile.state.objectName()) == ("Asleep, not woken", "muted")
    assert figures(tile) == {}
    assert tile.plot.describe() == "Asleep"


@pytest.mark.parametrize(
    "case",
    [
        ([], "", ""),
        ([], "flowers", "Run flowers"),
        (["anna"], "", "Busy: anna, 12.0 GiB"),
        (["me"], "", "In use by you, 12.0 GiB"),
        (["me"], "flowers", "Run flowers, in use by you, 12.0 GiB"),
        (["me", "anna"], "flowers", "⚠ Run flowers, also used by anna, 12.0 GiB"),
        ([None], "flowers", "Run flowers, busy: process 1, 12.0 GiB"),
    ],
)
def test_tile_names_users_and_run(
    show_tile: ShowTile, monkeypatch: pytest.MonkeyPatch, case: tuple[list[str | None], str, str]
) -> None:
    users, run, text = case
    monkeypatch.setattr(device_format, "current_user", lambda: "me")
    processes = tuple(process for user in users for process in held_by(user, 12 << 30))
    tile = show_tile(make_watched_gpu(full_gpu(processes=processes), run=run))
    assert tile.who.text() == text
    assert tile.who.isHidden() is not bool(text)
    assert tile.who.objectName() == ("warning" if "also" in text else "")


def test_tile_values_stay_in_gap(styled: QApplication, group: PlotGroup, qtbot: QtBot) -> None:
    history = make_history(full_gpu(), seconds=5)
    history.add(snapshot(full_gpu(lost=True), time=START + 5))
    each = make_watched_gpu(full_gpu())
    tile = Tile(each, group, EnergyCounters())
    qtbot.addWidget(tile)
    tile.show_gpu(each, history)
    ids = [figure.id for figure in tile.figures.figures]
    group.set_cursor(5.0)
    tile.show_gpu(each, history)
    assert [figure.id for figure in tile.figures.figures] == ids
    assert figures(tile)["Power"] == "– of 700 W"
    assert figures(tile)["PCIe 4 ×16"] == "↓ – ↑ – GB/s"


def test_tile_shows_values_at_crosshair(styled: QApplication, group: PlotGroup, qtbot: QtBot) -> None:
    history = make_history(full_gpu(utilization_percent=10.0), seconds=30)
    history.add(snapshot(full_gpu(utilization_percent=90.0), time=START + 30))
    each = make_watched_gpu(full_gpu(utilization_percent=90.0))
    group.origin = history.origin
    group.set_extent(0.0, 30.0)
    tile = Tile(each, group, EnergyCounters())
    qtbot.addWidget(tile)
    tile.show_gpu(each, history)
    assert figures(tile)["Utilization"] == "90%"
    group.set_cursor(12.2)
    tile.show_gpu(each, history)
    assert figures(tile)["Utilization"] == "10%"
    assert figures(tile)["SM clock"] == "1,755 of 1,980 MHz"
    group.set_cursor(None)
    tile.show_gpu(each, history)
    assert figures(tile)["Utilization"] == "90%"


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Enter])
def test_tile_keyboard(show_tile: ShowTile, group: PlotGroup, qtbot: QtBot, key: Qt.Key) -> None:
    each = make_watched_gpu(full_gpu())
    tile = show_tile(each)
    tile.setFocus()
    assert tile.focusProxy() is tile.plot
    with qtbot.waitSignal(tile.opened) as opened:
        qtbot.keyClick(tile.plot, key)
    assert opened.args == [each.key]
    qtbot.keyClick(tile.plot, Qt.Key.Key_Left)
    assert group.cursor is not None


def test_tile_opens_detail_by_mouse(show_tile: ShowTile, qtbot: QtBot) -> None:
    tile = show_tile(make_watched_gpu(full_gpu()))
    with qtbot.waitSignal(tile.opened):
        qtbot.mouseDClick(tile.figures, Qt.MouseButton.LeftButton)
    more = next(
        button for button in tile.findChildren(QAbstractButton) if button.accessibleName() == "Details of GPU 0"
    )
    assert more.toolTip() == "Details of GPU 0 (Enter)"
    with qtbot.waitSignal(tile.opened):
        more.click()


@pytest.mark.parametrize("energy_j", [1_000_000.0, None])
def test_tile_menu(show_tile: ShowTile, qtbot: QtBot, energy_j: float | None) -> None:
    tile = show_tile(make_watched_gpu(full_gpu(energy_j=energy_j)))
    request_context_menu(tile.figures)
    (menu,) = tile.findChildren(QMenu)
    details, reset, _section, *lines = menu.actions()
    assert all(line.isChecked() for line in lines)
    assert len(lines) > 1
    with qtbot.waitSignal(tile.opened):
        details.trigger()
    assert reset.isEnabled() is (energy_j is not None)
    if energy_j is not None:
        with qtbot.waitSignal(tile.reset_energy) as requested:
            reset.trigger()
        assert requested.args == [tile.key]
    menu.close()


def test_energy_counter_reset() -> None:
    counters = EnergyCounters()

    def used(joules: float, at: float) -> tuple[float, float]:
        counted = counters.measure(make_watched_gpu(full_gpu(energy_j=joules), time=START + at))
        return counted.joules, counted.since - START

    assert used(1000.0, 0) == (0.0, 0)
    assert used(4600.0, 60) == (3600.0, 0)
    counters.reset(full_gpu().uuid)
    assert used(4600.0, 60) == (0.0, 60)
    assert used(5.0, 90) == (0.0, 90)  # a reloaded driver counts from 0
    assert counters.measure(make_watched_gpu(plain_gpu())) is None


@pytest.mark.parametrize(("joules", "text"), [(0.0, "0.0 kJ"), (41_234.0, "41.2 kJ"), (4_464_000.0, "1.24 kWh")])
def test_energy_units(joules: float, text: str) -> None:
    assert energy(joules) == text


def test_watched_gpus_mark_silent_hosts() -> None:
    here = snapshot(full_gpu(1), full_gpu(0), time=START)
    remote = snapshot(full_gpu(0), time=START)
    stuck = snapshot(full_gpu(3), time=START, status="not_answering", message="NVML does not answer.")
    found = list_watched_gpus(
        {"ws2": remote, "": here, "ws3": stuck},
        {"ws2": "can't be reached"},
        {here.gpus[0].uuid: "The first"},
        {here.gpus[0].uuid: "flowers"},
    )
    assert [each.key for each in found] == [
        here.gpus[1].uuid, here.gpus[0].uuid, f"ws2:{remote.gpus[0].uuid}", f"ws3:{stuck.gpus[0].uuid}",
    ]  # fmt: skip
    assert [each.run for each in found] == ["", "flowers", "", ""]
    assert [each.title for each in found] == ["GPU 0", "The first", "GPU 0", "GPU 3"]
    assert [each.is_outdated for each in found] == [False, False, True, True]
    assert found[2].states[0].text == f"no data since {clock(START)}"


@pytest.mark.usefixtures("normal_text")
def test_tile_arrow_follows_text_size(show_tile: ShowTile) -> None:
    arrow = show_tile(make_watched_gpu(plain_gpu())).findChild(QAbstractButton)
    assert arrow is not None
    size = arrow.size()
    theme.choose("system", 200)
    assert arrow.size() == 2 * size
