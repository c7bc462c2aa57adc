"""Labels of axes, and painting of curves."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.plots.axes import BottomAxis, LeftAxis, compute_log_ticks, compute_round_ticks, format_elapsed
from gui.plots.group import AxisKind, PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot, create_percent_plot
from gui.plots.readout import format_position
from gui.plots.themed import ThemedPlot
from gui.plots.view import Curve
from gui.plots.view_box import ViewBox
from gui.sources.columns import Floats
from gui.style import theme
from tests.support.plots import get_vertical_range


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (5.4, "0:05"), (760, "12:40"), (11050, "3:04:10"), (-65, "-1:05"), (-5, "-0:05")]
)
def test_elapsed_format(seconds: float, text: str) -> None:
    assert format_elapsed(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1, "0:00.10"), (0.15, "0:00.15"), (59.999, "1:00.00"), (3725.5, "1:02:05.50"), (-0.001, "0:00.00")],
)
def test_elapsed_format_of_close_ticks(seconds: float, text: str) -> None:
    assert format_elapsed(seconds, 0.05) == text


@given(st.floats(-6, 6), st.floats(0.05, 12), st.floats(3, 20))
def test_log_ticks_are_round(low: float, length: float, limit: float) -> None:
    ticks = compute_log_ticks(low, low + length, limit)
    assert ticks == sorted(set(ticks))
    assert all(low <= tick <= low + length for tick in ticks)
    assert all(after - before >= length / limit * 0.99 for before, after in pairwise(ticks))
    assert compute_log_ticks(0, 2, 3) == [0, 1, 2]
    assert [round(10**tick) for tick in compute_log_ticks(0.3, 2.2, 6)] == [3, 10, 30, 100]
    for tick in ticks:
        mantissa = 10 ** (tick - math.floor(tick + 1e-9))
        assert math.isclose(mantissa, round(mantissa), rel_tol=1e-6)


@pytest.mark.parametrize("size", [200.0, 700.0])
@pytest.mark.parametrize("length", [0.3, 7.0, 90.0, 4000.0, 90_000.0, 3e6])
def test_time_axis_tick_count(qapp: QApplication, size: float, length: float) -> None:
    axis = BottomAxis(ViewBox(), PlotGroup("elapsed"))
    step, _ = axis.compute_spacing(0.0, length, size)
    assert step * size / length >= 50
    assert step < length
    labels = axis.format_labels([0.0, step], step)
    assert labels[0] != labels[1]


def test_count_axis_has_integer_labels(qapp: QApplication) -> None:
    axis = BottomAxis(ViewBox(), PlotGroup("count"))
    assert axis.compute_spacing(0.0, 3.0, 700.0) == (1.0, 0.0)
    assert axis.format_labels([12_000.0], 1000.0) == ["12,000"]


def test_axis_steps_are_round(qapp: QApplication) -> None:
    assert BottomAxis(ViewBox(), PlotGroup("epochs")).compute_spacing(0.0, 90.0, 700.0) == (20, 0)
    assert BottomAxis(ViewBox(), PlotGroup("epochs")).format_labels([1.25], 0.25) == ["1.25"]
    assert BottomAxis(ViewBox(), PlotGroup("elapsed")).compute_spacing(0.0, 525.0, 700.0) == (60, 0)
    assert BottomAxis(ViewBox(), PlotGroup("elapsed")).compute_spacing(0.0, 3e8, 700.0) == (14 * 30 * 86_400, 0)
    assert [compute_round_ticks(highest, 5) for highest in (0.0, 0.3, 10.0, 11.0)] == [
        [0],
        [0, 0.1, 0.2, 0.3],
        [0, 2, 4, 6, 8, 10],
        [0, 5, 10],
    ]


def test_clock_axis_has_minute_labels(qapp: QApplication) -> None:
    group = PlotGroup("clock", span=600)
    group.origin = 1_700_000_015.0
    axis = BottomAxis(ViewBox(), group)
    step, offset = axis.compute_spacing(0.0, 600.0, 700.0)
    assert step % 60 == 0
    assert (group.origin + offset) % 60 == 0
    assert [len(axis.format_labels([0.0], spacing)[0]) for spacing in (30, 60)] == [len("12:34:56"), len("12:34")]


@pytest.fixture
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the time zone of Kolkata, which is 5:30 hours ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("kolkata")
def test_clock_axis_follows_local_days(qapp: QApplication) -> None:
    group = PlotGroup("clock", span=86_400)
    group.origin = 1_700_000_015.0
    axis = BottomAxis(ViewBox(), group)
    step, offset = axis.compute_spacing(0.0, 86_400.0, 500.0)
    assert step % 3600 == 0
    ticks = [offset + number * step for number in range(int(86_400 // step))]
    hours = [time.localtime(group.origin + tick).tm_hour % (step // 3600) for tick in ticks]
    assert set(hours) == {0}
    labels = axis.format_labels(ticks, step)
    assert len(set(labels)) == len(labels)
    assert [label for label in labels if ":" not in label] == ["16 Nov"]
    assert axis.format_labels([72_985.0, 73_045.0], 60.0) == ["16 Nov", "00:01"]
    assert axis.format_labels([0.0, 86_400.0], 86_400.0) == ["15 Nov", "16 Nov"]


def test_axes_grow_with_text(qapp: QApplication) -> None:
    axes = BottomAxis(ViewBox(), PlotGroup("count")), LeftAxis(ViewBox())
    try:
        theme.choose("system", 200)
        for axis in axes:
            axis.recolor()
        assert axes[0].minimumHeight() == 44
        assert axes[1].minimumWidth() == 2 * LeftAxis.WIDTH
    finally:
        theme.choose("system", 100)


@pytest.mark.usefixtures("normal_text")
@pytest.mark.parametrize("percent", [70, 100, 200])
def test_axis_labels_are_inside_the_view(styled: QApplication, qtbot: QtBot, percent: int) -> None:
    theme.choose("system", percent)
    plot = show_plot(create_percent_plot("Accuracy", PlotGroup("elapsed")), qtbot, 400)
    view = plot._view
    corners: set[float] = set()
    for end in np.linspace(50, 120, 36):  # moves the last label of the bottom axis across the right edge
        view.box.set_x_range(0, end)
        view.box.set_y_range(0, end)
        plot.grab()
        for axis in (view.bottom_axis, view.left_axis):
            for rect in axis.label_rects():
                place = axis.mapRectToScene(rect)
                corners.add(place.right())
                assert view.sceneRect().contains(place), (end, place)
                assert not view.box.sceneBoundingRect().contains(place.center())
    assert max(corners) > view.width() - 4 * percent / 100


def test_left_axis_digits(qapp: QApplication) -> None:
    axis = LeftAxis(ViewBox())
    assert axis.format_labels([0.15, 0.2], 0.05) == ["0.15", "0.20"]
    assert axis.format_labels([1000.0, 2000.0], 1000.0) == ["1,000", "2,000"]
    assert axis.format_labels([0.000001, 0.000002], 0.000001) == ["1e-06", "2e-06"]
    axis.log = True
    assert axis.format_labels([-1.0, 2.0], 1.0) == ["0.1", "100"]


@pytest.mark.usefixtures("kolkata")
def test_format_position_names_another_day(qapp: QApplication) -> None:
    group = PlotGroup("clock")
    group.origin = time.time()
    assert format_position(group, 0.0) == time.strftime("%H:%M:%S", time.localtime(group.origin))
    today = time.localtime(group.origin)
    same_days = [
        time.mktime((today.tm_year, today.tm_mon - months, today.tm_mday, 12, 0, 0, 0, 0, -1))
        for months in range(1, 13)
    ]
    for moment in (group.origin - 86_400, *same_days):
        assert format_position(group, moment - group.origin).startswith(time.strftime("%a ", time.localtime(moment)))


@pytest.mark.parametrize(
    ("axis", "text"), [("count", "step 1,201"), ("epochs", "epoch 1,200.50"), ("elapsed", "20:01")]
)
def test_format_position_names_the_quantity(qapp: QApplication, axis: AxisKind, text: str) -> None:
    assert format_position(PlotGroup(axis), 1200.5 if axis == "epochs" else 1201.0) == text


def show_plot(plot: LinePlot, qtbot: QtBot, height: int) -> LinePlot:
    """Show a plot with a line that rises from 0 to 100 in 100 seconds, and return the plot."""
    qtbot.addWidget(plot)
    plot.resize(500, height)
    plot.add_line("a", LineStyle("a", lambda: "#ff0000"))
    plot.set_data("a", np.arange(101.0), np.arange(101.0))
    plot.group.set_extent(0, 100)
    plot.show()
    plot.redraw()
    return plot


def test_bottom_axis_follows_unit(styled: QApplication, qtbot: QtBot) -> None:
    plot = show_plot(LinePlot("Loss", PlotGroup("elapsed")), qtbot, 220)
    as_time = plot.grab().toImage()
    assert plot.grab().toImage() == as_time
    plot.group.axis = "count"
    plot.redraw()
    assert plot.grab().toImage() != as_time
    before = plot._view.bottom_axis.label_rects()
    plot.group.show_range(50, plot.group.range[1])
    plot.redraw()
    plot.grab()
    assert plot._view.bottom_axis.label_rects() != before


def test_axes_have_grid_edge_and_labels(styled: QApplication, qtbot: QtBot) -> None:
    plot = show_plot(LinePlot("Loss", PlotGroup("elapsed"), low=0.0, high=100.0), qtbot, 220)
    view, box, scheme = plot._view, plot._view.box, theme.colors()
    image = view.grab().toImage()
    near_corner = [
        image.pixelColor(view.mapFromScene(box.mapToScene(30, box.height + row))).name() for row in (-1, 0, 1)
    ]
    assert scheme.border in near_corner
    grid = {image.pixelColor(view.mapFromScene(box.mapToScene(column, 12))).name() for column in range(int(box.width))}
    assert scheme.grid in grid
    plot.set_log(True)
    plot.redraw()
    plot.grab()
    assert {"1", "10", "100"} <= {text.text() for _corner, text in view.left_axis._texts}
    (rect, *_) = view.bottom_axis.label_rects()
    place = view.mapFromScene(view.bottom_axis.mapRectToScene(rect)).boundingRect()
    label = view.grab(place).toImage()
    shades = [label.pixelColor(x, y) for x in range(label.width()) for y in range(label.height())]
    farthest = max(shades, key=lambda shade: abs(shade.lightness() - QColor(scheme.panel).lightness()))
    assert abs(farthest.lightness() - QColor(scheme.muted).lightness()) < 40


@pytest.mark.parametrize(("low", "high"), [(0.0, 100.0), (0.0, None)])
def test_left_axis_keeps_within_limits(styled: QApplication, qtbot: QtBot, low: float, high: float | None) -> None:
    plot = show_plot(LinePlot("Utilization", PlotGroup("elapsed"), unit="%", low=low, high=high), qtbot, 1100)
    plot.grab()
    numbers = [int(text.text()) for _corner, text in plot._view.left_axis._texts]
    assert numbers == list(range(0, 101 if high else 106, 5))


@pytest.mark.parametrize("shares", [(0.99, 1.0), (1.0, 1.0), (0.0, 0.01), (0.0, 0.0), (0.0, 1.0)])
def test_percent_plot_range_stays_possible(styled: QApplication, qtbot: QtBot, shares: tuple[float, float]) -> None:
    plot = show_plot(create_percent_plot("Accuracy", PlotGroup("elapsed")), qtbot, 900)
    plot.clear_data()
    plot.set_data("a", np.arange(101.0), np.linspace(*shares, 101))
    plot.redraw()
    plot.grab()
    numbers = [float(text.text()) for _corner, text in plot._view.left_axis._texts]
    assert min(numbers) >= 0
    assert max(numbers) <= 100
    low, high = get_vertical_range(plot)
    room = 0.1 * (high - low)
    assert -room <= low < 100 * shares[0] + room
    assert 100 * shares[1] - room < high <= 100 + room


@pytest.mark.parametrize("side", ["bottom", "left"])
def test_themed_plot_has_no_ticks_beyond_bounds(qapp: QApplication, qtbot: QtBot, side: str) -> None:
    plot = ThemedPlot("Accuracy by trial")
    qtbot.addWidget(plot)
    plot.set_bounds(side, 0, 100)
    ticks = [tick for _spacing, values in plot.getAxis(side).tickValues(-20, 120, 900) for tick in values]
    assert (min(ticks), max(ticks)) == (0, 100)
    plot.label(side, "a<b")
    assert plot.getAxis(side).labelText == "a&lt;b"
    plot.set_drawing(lambda: plot.plot([0, 1], [0, 1]))
    plot.recolor()
    assert len(plot.listDataItems()) == 1


RED = QColor("#ff0000")
SIZE = 100


def paint_curve(x: Floats, y: Floats, dots: bool = False, **edges: float) -> QImage:
    """Paint a red curve on white, and return the image. Each pixel is one unit wide and high, and both axes start at 0.

    If `dots`, each point is a dot. `edges` overrides the x values of the left and right edge.
    """
    image = QImage(SIZE, SIZE, QImage.Format.Format_RGB32)
    image.fill(QColor("white"))
    curve = Curve(dots=dots)
    curve.set_color(RED)
    curve.set_data(x, y)
    painter = QPainter(image)
    curve.paint(painter, (edges.get("left", 0.0), edges.get("right", 100.0), 0.0, 100.0, SIZE, SIZE))
    painter.end()
    return image


def find_red_columns(image: QImage) -> set[int]:
    """Return the pixel columns of an image from `paint_curve` that aren't entirely white."""
    white = QColor("white").rgb()
    return {x for x in range(SIZE) if any(image.pixel(x, y) != white for y in range(SIZE))}


def test_curve_spans_all_points(qapp: QApplication) -> None:
    assert set(range(21, 60)) <= find_red_columns(paint_curve(np.array([20.0, 60.0]), np.array([10.0, 90.0])))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_curve_keeps_gap_and_single_point(qapp: QApplication, kind: type[np.floating]) -> None:  # type: ignore[type-arg]
    x = np.arange(100.0)
    y = np.full(100, 50, kind)
    y[20:40] = np.nan
    y[30] = 50
    columns = find_red_columns(paint_curve(x, y))
    assert columns & set(range(22, 26)) == set()
    assert {29, 30, 31} <= columns
    assert columns & set(range(34, 38)) == set()
    assert set(range(42, 98)) <= columns


def test_curve_dots(qapp: QApplication) -> None:
    columns = find_red_columns(paint_curve(np.array([20.0, 60.0]), np.array([50.0, 50.0]), dots=True))
    assert columns & set(range(26, 54)) == set()
    assert {20, 60} <= columns


def test_curve_clips_distant_points(qapp: QApplication) -> None:
    x = np.array([-1e12, 40.0, 50.0, 1e12])
    image = paint_curve(x, np.full(4, 50.0), left=40.0, right=40.001)
    assert find_red_columns(image) == set(range(SIZE))
    assert find_red_columns(paint_curve(np.array([20.0, 60.0]), np.array([-1e30, 1e30]))) <= {39, 40, 41}


@pytest.mark.parametrize("values", [[], [np.nan, np.nan]])
def test_curve_without_points(qapp: QApplication, values: list[float]) -> None:
    assert find_red_columns(paint_curve(np.arange(float(len(values))), np.array(values))) == set()


def test_curve_extremes() -> None:
    curve = Curve()
    assert curve.set_data(np.arange(3.0), np.array([3.0, np.nan, -1.0])) == (-1.0, 3.0)
    assert curve.set_data(np.arange(1.0), np.array([np.nan])) is None
