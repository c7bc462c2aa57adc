"""Thresholds, time markers, and lines with a second unit in plots."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QRect, QRectF
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from gui.plots.annotations import Threshold
from gui.plots.group import Mark, PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot
from gui.style import theme
from tests.support.painted import PaintedRegions
from tests.support.plots import get_vertical_range

RED, GREEN, BLUE = "#ff0000", "#00ff00", "#0000ff"


class TwoPlots:
    """Two stacked plots in a group, with a common time axis.

    Each plot shows a line that rises from 0 to 99 over 100 seconds.
    """

    def __init__(self, qtbot: QtBot, **options: object) -> None:
        self.group = PlotGroup("elapsed", span=100)
        self.window = QWidget()
        self.plots = [LinePlot(title, self.group, low=0, high=100, **options) for title in ("One", "Two")]  # type: ignore[arg-type]
        layout = QVBoxLayout(self.window)
        x = np.arange(100.0)
        for plot in self.plots:
            layout.addWidget(plot)
            plot.add_line("line", LineStyle("line", lambda: "#888888"))
            plot.set_data("line", x, x.astype(np.float32))
        self.group.set_extent(0.0, 99.0)
        qtbot.addWidget(self.window)
        self.window.resize(700, 500)
        with qtbot.waitExposed(self.window):
            self.window.show()
        self.redraw()

    def redraw(self) -> None:
        for plot in self.plots:
            plot.redraw()

    def image(self, number: int = 0) -> QImage:
        return self.plots[number]._view.grab().toImage()

    def values(self, number: int = 0) -> str:
        return self.plots[number]._readout.text.replace("\u00a0", " ")


@pytest.fixture
def two(styled: QApplication, qtbot: QtBot) -> TwoPlots:
    return TwoPlots(qtbot)


def find_rows(image: QImage, color: str) -> list[int]:
    """Return the pixel rows of `image` that contain a horizontal line in `color`."""
    target = QColor(color).rgb()
    return [
        y
        for y in range(image.height())
        if sum(image.pixel(x, y) == target for x in range(image.width())) > image.width() / 3
    ]


def find_columns(image: QImage, color: str) -> list[int]:
    target = QColor(color).rgb()
    return [
        x
        for x in range(image.width())
        if sum(image.pixel(x, y) == target for y in range(image.height())) > image.height() / 2
    ]


def test_threshold_position(two: TwoPlots) -> None:
    plot = two.plots[0]
    plot.set_thresholds([Threshold(83, "slows down", lambda: RED), Threshold(17, "low", lambda: GREEN)])
    image = two.image()
    (red,), (green,) = find_rows(image, RED), find_rows(image, GREEN)
    box = plot._view.box
    for value, row in ((83, red), (17, green)):
        target = plot._view.mapFromScene(box.mapToScene(box.x_to_pixel(50), box.y_to_pixel(value))).y()
        assert abs(row - target) <= 1.5
    assert find_rows(two.image(1), RED) == []
    plot.set_thresholds([])
    assert find_rows(two.image(), RED) == []


def test_crosshair_is_drawn_in_every_plot(two: TwoPlots) -> None:
    images = [two.image(0), two.image(1)]
    two.group.set_cursor(50.0)
    for number, before in enumerate(images):
        plot, image = two.plots[number], two.image(number)
        box = plot._view.box
        column = plot._view.mapFromScene(box.mapToScene(box.x_to_pixel(50), 0)).x()
        changed = [y for y in range(image.height()) if image.pixel(column, y) != before.pixel(column, y)]
        assert len(changed) > 0.3 * box.height  # the line is dashed
    two.group.set_cursor(None)
    assert [two.image(0), two.image(1)] == images


def test_plot_repaints_after_changes(two: TwoPlots, qtbot: QtBot) -> None:
    view = two.plots[0]._view
    axes = [  # without their edges, which repainted curves may touch
        view.mapFromScene(axis.mapRectToScene(axis.rect())).boundingRect().adjusted(6, 6, -6, -6)
        for axis in (view.bottom_axis, view.left_axis)
    ]
    painted = PaintedRegions(view.viewport())
    colors = [BLUE]
    inside = view.mapFromScene(view.box.sceneBoundingRect()).boundingRect().center()
    for change, area in (
        (lambda: two.group.set_cursor(49.5), QRect(inside, inside)),
        (lambda: two.group.set_marks([Mark(49.5, "", lambda: colors[0])]), QRect(inside, inside)),
        (lambda: view.box.set_x_range(40, 60), axes[0]),
        (lambda: view.box.set_y_range(40, 60), axes[1]),
        (lambda: two.plots[0].show_line("line", False), QRect(inside, inside)),
    ):
        two.redraw()
        QApplication.processEvents()
        painted.found.clear()
        change()
        qtbot.waitUntil(lambda area=area: any(region.intersects(area) for region in painted.found))
    colors[0] = GREEN
    theme.notifier.changed.emit()
    assert find_columns(two.image(), GREEN)


def test_threshold_out_of_range_is_hidden(styled: QApplication, qtbot: QtBot) -> None:
    group = PlotGroup("elapsed")
    plot = LinePlot("Temperature", group)
    qtbot.addWidget(plot)
    plot.add_line("line", LineStyle("line", lambda: "#888888"))
    plot.resize(500, 300)
    plot.show()
    plot.set_data("line", np.arange(50.0), np.linspace(40, 50, 50))
    group.set_extent(0, 49)
    plot.set_thresholds([Threshold(87, "slows down", lambda: RED)])
    plot.redraw()
    assert get_vertical_range(plot)[1] < 60
    assert find_rows(plot._view.grab().toImage(), RED) == []
    plot.set_data("line", np.arange(51.0), np.linspace(40, 95, 51))
    group.set_extent(0, 50)
    plot.redraw()
    assert len(find_rows(plot._view.grab().toImage(), RED)) == 1


def test_marks_are_in_every_plot(two: TwoPlots) -> None:
    two.group.set_marks([Mark(30, "begins", lambda: GREEN), Mark(70, "ends", lambda: BLUE, ends=True)])
    two.redraw()
    for number, plot in enumerate(two.plots):
        image = two.image(number)
        for place, color in ((30, GREEN), (70, BLUE)):
            (column,) = find_columns(image, color)
            box = plot._view.box
            target = plot._view.mapFromScene(box.mapToScene(box.x_to_pixel(place), 0)).x()
            assert abs(column - target) <= 1.5
            left, right, *_rows = find_extent(image, color)
            assert (right - left > 20) == (number == 0)  # only the upper plot has labels
    before = find_columns(two.image(), GREEN)
    two.group.show_range(20, 60)
    two.redraw()
    zoomed = find_columns(two.image(), GREEN)
    two.window.resize(500, 500)
    assert len(before) == len(zoomed) == len(find_columns(two.image(), GREEN)) == 1
    assert before > zoomed > find_columns(two.image(), GREEN)
    two.group.set_marks([])
    two.redraw()
    assert find_columns(two.image(), GREEN) == []


def find_extent(image: QImage, color: str) -> tuple[int, int, int, int]:
    """Return the lowest and highest column, and the lowest and highest row, with pixels close to a color."""
    image = image.convertToFormat(QImage.Format.Format_RGB32)  # owns the memory of its bits
    pixels = np.frombuffer(image.constBits(), np.uint8)
    pixels = pixels.reshape(image.height(), image.width(), 4)[..., 2::-1].astype(int)
    rows, columns = np.nonzero(np.abs(pixels - QColor(color).getRgb()[:3]).sum(2) < 200)
    return int(columns.min()), int(columns.max()), int(rows.min()), int(rows.max())


def test_label_of_highest_threshold_is_above_its_line(two: TwoPlots) -> None:
    named = [Threshold(60, "high", lambda: RED), Threshold(40, "low", lambda: GREEN), Threshold(20, "", lambda: BLUE)]
    two.plots[0].set_thresholds(named[::-1])
    image = two.image()
    reach = []
    for color in (RED, GREEN, BLUE):
        (line,) = find_rows(image, color)
        _left, _right, top, bottom = find_extent(image, color)
        reach.append((line - top > 4, bottom - line > 4))
    assert reach == [(True, False), (False, True), (False, False)]
    two.plots[0].set_thresholds([Threshold(10, "", lambda: RED)])
    two.plots[0].set_log(True)
    two.redraw()
    (line,) = find_rows(two.image(), RED)
    view = two.plots[0]._view
    assert abs(line - view.mapFromScene(view.box.mapToScene(0, view.box.y_to_pixel(1))).y()) <= 1.5


@pytest.mark.parametrize(
    ("mark", "side"),
    [
        (Mark(50, "flowers started", lambda: GREEN), 1),
        (Mark(50, "flowers: completed", lambda: GREEN, ends=True), -1),
        (Mark(58, "flowers started", lambda: GREEN), -1),
        (Mark(42, "flowers: completed", lambda: GREEN, ends=True), 1),
        (Mark(50, 200 * "x", lambda: GREEN), -1),
    ],
)
def test_mark_has_its_label_at_its_side_within_the_plot(two: TwoPlots, mark: Mark, side: int) -> None:
    two.group.show_range(40, 60)
    two.group.set_marks([Mark(30, "before", lambda: RED), mark, Mark(70, "after", lambda: BLUE)])
    two.redraw()
    image = two.image()
    (column,) = find_columns(image, GREEN)
    left, right, _top, _bottom = find_extent(image, GREEN)
    assert (column - left > 20, right - column > 20) == (side < 0, side > 0)
    assert find_columns(image, RED) == find_columns(image, BLUE) == []


def test_mark_flag_direction(two: TwoPlots) -> None:
    two.group.set_marks([Mark(30, "", lambda: GREEN), Mark(70, "", lambda: GREEN, ends=True)])
    two.redraw()
    image = two.image(1)
    target = QColor(GREEN).rgb()
    first, last = find_columns(image, GREEN)
    top = int(two.plots[1]._view.box.sceneBoundingRect().top()) + 2
    assert image.pixel(first + 2, top) == target
    assert image.pixel(first - 2, top) != target
    assert image.pixel(last - 2, top) == target
    assert image.pixel(last + 2, top) != target


def test_topmost_visible_plot_names_marks(two: TwoPlots) -> None:
    two.group.set_marks([Mark(30, "flowers started", lambda: GREEN)])
    two.redraw()
    two.group.set_cursor(30.2)
    assert "0:30 · flowers started" in two.values(0)
    assert "flowers" not in two.values(1)
    two.group.set_cursor(60.0)
    assert "flowers" not in two.values(0)
    two.plots[0].hide()
    two.redraw()
    two.group.set_cursor(30.2)
    assert "flowers started" in two.values(1)


def test_mark_without_room_has_no_label(two: TwoPlots) -> None:
    images = []
    for older, newer in (("first", "newest"), ("second", "newest"), ("second", "newer")):
        two.group.set_marks([Mark(0.5, older, lambda: RED), Mark(1.5, newer, lambda: GREEN)])
        two.redraw()
        images.append(two.image())
    assert images[0] == images[1] != images[2]


def test_no_line_crosses_a_label(two: TwoPlots) -> None:
    plot = two.plots[0]
    plot.set_thresholds([Threshold(95, "shuts down 95 °C", lambda: RED), Threshold(90, "slows down", lambda: RED)])
    starts = [Mark(x, f"run at {x}", lambda: BLUE) for x in (0.5, 4, 50, 98)]
    ends = [Mark(x, f"run at {x}: completed", lambda: BLUE, ends=True) for x in (3, 54, 80, 98.9)]
    two.group.set_marks([*starts, *ends, Mark(40, "", lambda: BLUE)])
    two.redraw()
    plot.grab()
    items = plot._view.annotations._laid_out_lines
    assert items
    labels = [item.label_rect for item in items if item.label_rect is not None]
    assert len(labels) > 4
    for item in items:
        if item.flag is not None:
            assert not any(item.flag.boundingRect().intersects(label) for label in labels)
            assert item.sections[-1].p2().y() == plot._view.box.height
            for section in item.sections:
                crossed = QRectF(section.p1(), section.p2()).adjusted(0, 0, 1, 0)
                assert not any(crossed.intersects(label) for label in labels), item.label


def test_mark_splits_at_label_of_threshold(two: TwoPlots) -> None:
    plot = two.plots[0]
    plot.set_thresholds([Threshold(50, "slows down", lambda: RED)])
    two.group.set_marks([Mark(1, "started", lambda: BLUE), Mark(2, "", lambda: GREEN)])
    two.redraw()
    image, box = two.image(), plot._view.box
    (column,) = find_columns(image, GREEN)
    (threshold,) = find_rows(image, RED)
    green = QColor(GREEN).rgb()
    assert not any(image.pixel(column, threshold - offset) == green for offset in range(3, 12))
    assert image.pixel(column, threshold + 5) == green
    top = int(box.sceneBoundingRect().top())
    assert not any(image.pixel(column, top + offset) == green for offset in range(2, 12))
    assert image.pixel(column, top + 20) == green


def test_mark_tool_tip(two: TwoPlots, qtbot: QtBot) -> None:
    two.group.set_marks([Mark(10, "before", lambda: RED), Mark(30, "flowers started", lambda: GREEN)])
    two.group.show_range(20, 60)
    two.redraw()
    view = two.plots[1]._view
    on = view.mapFromScene(view.box.mapToScene(view.box.x_to_pixel(30), view.box.y_to_pixel(50)))

    rows = cycle((0, 1))

    def reads_at(where: QPoint) -> str:
        # A move that follows another too soon is passed over, and so is one to where the pointer is already.
        qtbot.mouseMove(view.viewport(), where + QPoint(0, next(rows)))
        return view.toolTip()

    qtbot.waitUntil(lambda: reads_at(on) == "flowers started")
    assert two.group.cursor == pytest.approx(30, abs=0.1)
    qtbot.waitUntil(lambda: reads_at(on + QPoint(100, 0)) == "")
    qtbot.waitUntil(lambda: reads_at(QPoint(on.x(), view.height() - 5)) == "" and two.group.cursor is None)


def test_line_scale_and_format(styled: QApplication, qtbot: QtBot) -> None:
    two = TwoPlots(qtbot, scale=2)
    plot = two.plots[0]
    style = LineStyle("memory", lambda: GREEN, scale=100 / 64, write=lambda value: f"{value:.0f} GiB", dashed=True)
    plot.add_line("memory", style)
    plot.set_data("memory", np.arange(100.0), np.full(100, 32, np.float32))
    plot.redraw()
    assert "32 GiB" in two.values()
    assert "╍" in two.values()
    assert "198" in two.values()
    assert plot.read("memory") == "32 GiB"
    assert set(plot._lines["memory"]._curve.y) == {50}
    image, box = two.image(), plot._view.box
    middle = plot._view.mapFromScene(box.mapToScene(0, box.y_to_pixel(50))).y()
    line = image.copy(0, middle - 2, image.width(), 5)
    greenish = [any(line.pixelColor(x, y).saturation() > 100 for y in range(5)) for x in range(line.width())]
    assert 0.3 * box.width < sum(greenish) < 0.9 * box.width  # the line is dashed


def test_dense_plot_has_no_readout(styled: QApplication, qtbot: QtBot) -> None:
    plain, dense = TwoPlots(qtbot), TwoPlots(qtbot, dense=True, unit="%")
    assert dense.plots[0]._view.box.width > plain.plots[0]._view.box.width
    assert dense.plots[0]._view.height() > plain.plots[0]._view.height()
    assert dense.plots[0].read("line") == "99%"
    dense.group.set_cursor(12.3)
    assert dense.plots[0].read("line") == "12%"
    assert dense.plots[0].describe() == "Latest: line 99%. At 0:12: line 12%"
