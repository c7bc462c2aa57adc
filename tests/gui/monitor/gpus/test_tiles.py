"""Overview of all GPUs as tiles and as rows."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.devices import Gpu, GpuProcess, Xid
from engine.gpus.quantities import BY_ID
from gui.monitor.gpus.compact import COLUMNS, CompactModel, CompactView
from gui.monitor.gpus.tiles import GAP, MIN_HEIGHT, MIN_WIDTH, choose_column_count
from gui.style import theme
from gui.widgets.column_model import BAR_COLOR
from tests.gui.monitor.watching import GIB, START, Watching, full_gpu, make_watched_gpu, plain_gpu
from tests.support.painted import describe_painting
from tests.support.widgets import ShowWidget


def gpus(count: int) -> list[Gpu]:
    return [full_gpu(n) for n in range(count)]


def test_columns_for_maximizes_tiles() -> None:
    columns = {count: choose_column_count(count, 1420, 690) for count in (1, 2, 3, 4, 6, 8, 16)}
    assert columns == {1: 1, 2: 1, 3: 2, 4: 2, 6: 2, 8: 3, 16: 4}
    assert choose_column_count(8, MIN_WIDTH - 50, 2000) == 1
    both = 2 * MIN_WIDTH + GAP
    assert [choose_column_count(2, both, 2 * MIN_HEIGHT + GAP - missing) for missing in (0, 1)] == [1, 2]
    assert [choose_column_count(8, both - missing, MIN_HEIGHT) for missing in (0, 1)] == [2, 1]
    assert choose_column_count(3, 3 * MIN_WIDTH + 2 * GAP, 2 * MIN_HEIGHT + GAP - 1) == 3


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_tiles_fit_without_scrolling(watching: Watching, qtbot: QtBot, count: int) -> None:
    watching.deliver(*gpus(count))
    view = watching.page.gpus.tiles
    qtbot.waitUntil(lambda: len(view.tiles) == count and all(tile.isVisible() for tile in view.tiles.values()))
    watching.page.grab()  # lays out the tiles
    assert view.verticalScrollBar().maximum() == 0
    for tile in view.tiles.values():
        assert tile.width() >= MIN_WIDTH
        assert tile.height() >= MIN_HEIGHT
        assert tile.plot.height() >= 50
        assert len(tile.figures.visible_figures) >= 4


def test_tiles_eight_fit_in_window(watching: Watching, qtbot: QtBot) -> None:
    watching.page.resize(790, 780)
    watching.deliver(*gpus(8))
    view = watching.page.gpus.tiles
    watching.page.grab()
    qtbot.waitUntil(lambda: view.columns == 2)
    assert view.verticalScrollBar().maximum() == 0


def test_tile_larger_shows_more_values(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(*gpus(16))
    watching.page.grab()
    view = watching.page.gpus.tiles
    few = min(len(tile.figures.visible_figures) for tile in view.tiles.values())
    watching.deliver(*gpus(1), at=1)
    watching.page.grab()
    (tile,) = view.tiles.values()
    qtbot.waitUntil(lambda: len(tile.figures.visible_figures) == len(tile.figures.figures))
    assert len(tile.figures.visible_figures) > few


def compact_texts(watching: Watching) -> list[str]:
    return [watching.page.gpus.lines.gpus.index(0, column).data() for column in range(len(COLUMNS))]


def test_compact_sixteen_gpus(watching: Watching, qtbot: QtBot) -> None:
    watching.page.resize(790, 780)
    watching.deliver(*gpus(16))
    watching.page.bar.compact.click()
    table = watching.page.gpus.lines
    assert table.model().rowCount() == 16
    watching.page.grab()
    qtbot.waitUntil(lambda: table.verticalScrollBar().maximum() == 0)
    *texts, state = compact_texts(watching)
    assert texts == ["GPU 0\nNVIDIA H200", "87%", "41.0 of 141.0 GiB", "512 of 700 W", "61 °C"]
    assert "limited by the power limit" in state.lower()
    widths = [table.columnWidth(column) for column in range(len(COLUMNS))]
    assert (widths[0], sum(widths)) == (round(0.16 * table.viewport().width()), table.viewport().width())
    assert "“41.0 of 141.0 GiB”" in describe_painting(table.viewport())
    image, second = table.viewport().grab().toImage(), table.visualRect(table.model().index(1, 0))
    assert image.pixelColor(second.left() + 1, second.center().y()) == QColor(theme.device_color(full_gpu(1).uuid))
    watching.page.resize(480, 780)
    watching.page.grab()
    painted = describe_painting(table.viewport())
    assert "“41.0 GiB”" in painted
    assert "“41.0 of" not in painted


def test_compact_row_leaves_out_unreported_values(watching: Watching) -> None:
    watching.deliver(plain_gpu(utilization_percent=None, power_w=None))
    watching.page.bar.compact.click()
    assert compact_texts(watching)[1:5] == ["", "41.0 of 141.0 GiB", "", "61 °C"]


@pytest.mark.parametrize(
    ("changes", "gpu_changes", "colors"),
    [
        ({}, {}, ["text", "text", "muted"]),
        ({"run": "flowers"}, {}, ["text", "text", "muted"]),
        ({}, {"processes": (GpuProcess(1, GIB, user="somebody else"),)}, ["text", "text", "muted"]),
        (
            {"run": "flowers"}, {"processes": (GpuProcess(1, GIB, user="somebody else"),)}, ["text", "text", "warning"],
        ),
        ({}, {"throttled": ("power_cap",)}, ["text", "text", "muted"]),
        ({}, {"xids": (Xid(START, 79),)}, ["text", "text", "warning"]),
        ({"silence": "no data"}, {}, ["text", "muted", "warning"]),
    ],
)  # fmt: skip
def test_compact_row_warns_by_color(
    styled: QApplication, changes: dict[str, object], gpu_changes: dict[str, object], colors: list[str]
) -> None:
    row, model = make_watched_gpu(plain_gpu(**gpu_changes), **changes), CompactModel()
    found = [model.cell_data(row, column, Qt.ItemDataRole.ForegroundRole) for column in (0, 1, len(COLUMNS) - 1)]
    assert [color.name() for color in found] == [getattr(theme.colors(), color) for color in colors]


def test_compact_row_has_short_texts_and_bars(styled: QApplication) -> None:
    gpu = full_gpu()
    assert [column.short(gpu) for column in COLUMNS] == ["", "", "41.0 GiB", "512 W", "", ""]
    highest = BY_ID["temperature_c"].highest(gpu)
    assert [column.filled(gpu) for column in COLUMNS] == [None, 0.87, 41 / 141, 512 / 700, 61 / highest, None]
    bare = plain_gpu(utilization_percent=None, sm_active_percent=64.0, memory_total_bytes=None, power_limit_w=None)
    assert [column.filled(bare) for column in COLUMNS[1:4]] == [0.64, None, None]
    assert [column.text(make_watched_gpu(bare)) for column in COLUMNS[1:4]] == ["64%", "41.0 GiB", "512 W"]
    idle = full_gpu(utilization_percent=0.0)
    assert (COLUMNS[1].filled(idle), COLUMNS[1].text(make_watched_gpu(idle))) == (0.0, "0%")
    model = CompactModel()
    for silence, color in (("", theme.device_color(gpu.uuid)), ("no data", theme.colors().muted)):
        assert model.cell_data(make_watched_gpu(gpu, silence=silence), 1, BAR_COLOR) == color
    tip = model.cell_data(make_watched_gpu(gpu, run="flowers"), 1, Qt.ItemDataRole.ToolTipRole)
    assert (tip.splitlines()[0], tip.splitlines()[-1]) == ("NVIDIA H200", "Run flowers")
    assert model.cell_data(make_watched_gpu(gpu), 1, Qt.ItemDataRole.DecorationRole) is None


def test_compact_keyboard_navigation(watching: Watching, qtbot: QtBot) -> None:
    watching.page.bar.compact.click()
    watching.deliver(*gpus(3))
    watching.page.activateWindow()
    table = watching.page.gpus.lines
    table.setFocus()
    table.select([0])
    qtbot.keyClick(table, Qt.Key.Key_Down)
    qtbot.keyClick(table, Qt.Key.Key_Return)
    assert watching.page.gpus.detail.key == gpus(3)[1].uuid
    qtbot.keyClick(watching.page.gpus.detail, Qt.Key.Key_Escape)
    assert watching.page.focusWidget() is table
    assert table.selected_rows() == [1]


def test_gpus_sort_by_load(watching: Watching, qtbot: QtBot) -> None:
    def load(first: float, second: float | None, at: float) -> None:
        watching.deliver(full_gpu(0, utilization_percent=first), full_gpu(1, utilization_percent=second), at=at)

    def order() -> list[str]:
        tiles, keys = watching.page.gpus.tiles.tiles, watching.page.gpus.keys
        qtbot.waitUntil(lambda: sorted(keys, key=lambda key: (tiles[key].y(), tiles[key].x())) == list(keys))
        return [tiles[key].title.text() for key in keys]

    load(10, 90, 0)
    load(10, None, 0.5)
    assert order() == ["GPU 0", "GPU 1"]
    watching.page.bar.load.click()
    assert order() == ["GPU 1", "GPU 0"]
    # A short peak changes nothing, and neither does anything within a few seconds.
    load(100, 90, 1)
    assert order() == ["GPU 1", "GPU 0"]
    for second in range(2, 40):
        load(100, 5, second)
    assert order() == ["GPU 0", "GPU 1"]
    for second in range(48, 90, 9):
        load(5, 100, second)
    assert order() == ["GPU 1", "GPU 0"]
    watching.page.bar.load.click()
    load(10, 90, 91)
    assert order() == ["GPU 0", "GPU 1"]


def test_lost_gpus_sort_last(watching: Watching) -> None:
    watching.page.bar.load.click()
    watching.deliver(full_gpu(0, lost=True), full_gpu(1, utilization_percent=0.0))
    assert watching.page.gpus.keys == (full_gpu(1).uuid, full_gpu(0).uuid)


def test_gpus_without_utilization_sort_by_activity(watching: Watching) -> None:
    watching.page.bar.load.click()
    watching.deliver(*(full_gpu(n, utilization_percent=None, sm_active_percent=10.0 * n) for n in range(2)))
    assert watching.page.gpus.keys == (full_gpu(1).uuid, full_gpu(0).uuid)


def test_reset_energy_of_one_or_all(watching: Watching) -> None:
    def received() -> list[str]:
        tiles = watching.page.gpus.tiles.tiles.values()
        return [figure.text for tile in tiles for figure in tile.figures.figures if figure.id == "energy"]

    watching.deliver(full_gpu(0, energy_j=0.0), full_gpu(1, energy_j=0.0))
    watching.deliver(full_gpu(0, energy_j=7e4), full_gpu(1, energy_j=7e4), at=60)
    assert received() == ["70.0 kJ", "70.0 kJ"]
    tile = watching.page.gpus.tiles.tiles[full_gpu(1).uuid]
    tile.reset_energy.emit(tile.key)
    assert received() == ["70.0 kJ", "0.0 kJ"]
    watching.page.bar.acts["energy"].trigger()
    assert received() == ["0.0 kJ", "0.0 kJ"]


@pytest.mark.usefixtures("normal_text")
def test_compact_rows_have_two_lines_of_any_text_size(show_widget: ShowWidget) -> None:
    table = show_widget(CompactView())
    table.show_gpus([make_watched_gpu(full_gpu())])
    for percent in (100, 200):
        theme.choose("system", percent)
        assert 2 <= table.rowHeight(0) / table.fontMetrics().height() < 3
