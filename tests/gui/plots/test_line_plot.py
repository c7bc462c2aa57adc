"""Line plot: live data, and operation with mouse, keyboard and screen reader."""

from __future__ import annotations

import sys
from itertools import cycle

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QImage, QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QApplication, QLabel, QMenu
from pytestqt.qtbot import QtBot
from shiboken6 import delete

from gui.plots.group import PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot
from gui.style import fills, theme
from gui.widgets.labels import RichLabel
from tests.support.painted import describe_painting
from tests.support.plots import get_horizontal_range, get_vertical_range
from tests.support.widgets import ShowWidget, request_context_menu, scroll


class PlotOnScreen:
    """Visible plot in which the line `train` is drawn."""

    def __init__(self, qtbot: QtBot, **options: object) -> None:
        self.group = PlotGroup("elapsed")
        self.plot = LinePlot("Loss", self.group, **options)  # type: ignore[arg-type]
        self.plot.add_line("train", LineStyle("training", lambda: theme.colors().accent, smooth=True))
        qtbot.addWidget(self.plot)
        self.plot.resize(700, 260)
        self.qtbot = qtbot
        with qtbot.waitExposed(self.plot):
            self.plot.show()

    def data(self, count: int, values: np.ndarray | None = None) -> None:
        x = np.arange(float(count))
        self.plot.set_data("train", x, 1 / (1 + x) if values is None else values)
        self.group.set_extent(0.0, count - 1.0)
        self.plot.redraw()

    @property
    def visible_range(self) -> tuple[float, float]:
        return get_horizontal_range(self.plot)

    @property
    def values(self) -> str:
        return self.plot._readout.text.replace("\u00a0", " ")


@pytest.fixture
def screen(styled: QApplication, qtbot: QtBot) -> PlotOnScreen:
    return PlotOnScreen(qtbot)


def test_plot_zoom_stays_until_home(screen: PlotOnScreen) -> None:
    screen.data(1000)
    screen.qtbot.keyClick(screen.plot, Qt.Key.Key_Plus)
    zoomed = screen.visible_range
    assert zoomed[1] - zoomed[0] < 800
    assert not screen.group.following
    screen.data(5000)
    assert screen.visible_range == pytest.approx(zoomed)
    screen.qtbot.keyClick(screen.plot, Qt.Key.Key_Home)
    assert screen.group.following
    assert screen.visible_range[1] >= 4999


@pytest.mark.parametrize("height", [0.5, 0.98])
def test_plot_wheel_zooms_at_pointer(screen: PlotOnScreen, height: float) -> None:
    """Turn the wheel in the middle of the plot, and over the axis below it."""
    screen.data(1000)
    viewport = screen.plot._view.viewport()
    place = QPointF(viewport.width() * 0.75, viewport.height() * height)
    box = screen.plot._view.box
    before = box.pixel_to_x(box.mapFromScene(place).x())
    scroll(viewport, place, 4)
    low, high = screen.visible_range
    assert high - low < 900
    assert box.pixel_to_x(box.mapFromScene(place).x()) == pytest.approx(before, rel=0.01)
    assert screen.group.range == pytest.approx((low, high))
    screen.qtbot.mouseDClick(viewport, Qt.MouseButton.LeftButton, pos=place.toPoint())
    assert screen.group.following
    assert screen.visible_range[0] == pytest.approx(0)


@pytest.mark.parametrize("height", [0.5, 0.98])
@pytest.mark.parametrize("button", [Qt.MouseButton.LeftButton, Qt.MouseButton.MiddleButton])
def test_plot_drag_pans(screen: PlotOnScreen, button: Qt.MouseButton, height: float) -> None:
    screen.data(1000)
    screen.group.show_range(400, 600)
    screen.plot.redraw()
    viewport, box = screen.plot._view.viewport(), screen.plot._view.box
    start = QPoint(viewport.width() // 2, int(viewport.height() * height))
    x_under_pointer = box.pixel_to_x(box.mapFromScene(start).x())
    screen.qtbot.mousePress(viewport, button, pos=start)
    rows = cycle((0, 1))

    def dragged() -> bool:
        # A move that follows another too soon is passed over, and so is one to where the pointer is already.
        at = start + QPoint(-100, next(rows))
        local, buttons = QPointF(at), Qt.MouseButton(button)
        no_keys = Qt.KeyboardModifier.NoModifier
        move = QMouseEvent(QEvent.Type.MouseMove, local, viewport.mapToGlobal(local), button, buttons, no_keys)
        QApplication.sendEvent(viewport, move)
        return box.pixel_to_x(box.mapFromScene(at).x()) == pytest.approx(x_under_pointer, abs=2)

    screen.qtbot.waitUntil(dragged)
    screen.qtbot.mouseRelease(viewport, button, pos=start + QPoint(-100, 0))
    assert not screen.group.following
    low, high = screen.group.range
    assert high - low == pytest.approx(200)
    assert low > 410
    assert screen.visible_range == pytest.approx((low, high))


def test_plot_crosshair_follows_pointer(screen: PlotOnScreen) -> None:
    screen.data(1000)
    without = screen.plot._view.grab().toImage()
    screen.group.set_cursor(300.0)
    screen.plot.redraw()
    with_it = screen.plot._view.grab().toImage()
    changed = {x for x in range(without.width()) if without.copy(x, 0, 1, 200) != with_it.copy(x, 0, 1, 200)}
    box = screen.plot._view.box
    (column,) = changed
    assert abs(column - box.mapToScene(box.x_to_pixel(300.0), 0).x()) <= 1
    QApplication.sendEvent(screen.plot._view, QEvent(QEvent.Type.Leave))
    screen.plot.redraw()
    assert screen.plot._view.grab().toImage() == without


def test_group_range_after_each_change() -> None:
    group, following, moved, ranges = PlotGroup("elapsed", span=100), [], [], []
    group.range_changed.connect(lambda: ranges.append(group.range))
    group.following_changed.connect(following.append)
    group.cursor_changed.connect(lambda: moved.append(group.cursor))
    for act, expected in (
        (lambda: group.set_extent(0, 5), (-5, 5)),
        (lambda: group.set_extent(0, 50), (0, 50)),
        (lambda: group.set_extent(0, 500), (400, 500)),
        (lambda: group.set_cursor(420), (400, 500)),
        (lambda: group.zoom(0.5), (410, 460)),
        (lambda: group.pan(0.5), (435, 485)),
        (lambda: group.pan(-0.2), (425, 475)),
        (lambda: group.set_cursor(10), (425, 475)),
        (lambda: group.zoom(2), (400, 500)),
        (lambda: group.set_extent(0, 600), (400, 500)),
        (lambda: group.show_range(-1e6, 1e6), (-600, 600)),
        (lambda: group.show_range(5000, 5010), (595, 605)),
        (group.follow, (500, 600)),
        (lambda: group.show_range(10, 20), (10, 20)),
        (lambda: group.set_span(40), (560, 600)),
        (lambda: group.set_span(None), (0, 624)),
        (lambda: group.set_extent(0, 610), (0, 624)),
        (lambda: group.set_extent(0, 700), (0, 728)),
        (lambda: group.show_range(0, 750), (0, 750)),
        (group.follow, (0, 728)),
        (lambda: group.set_axis("count"), (0, 728)),
        (lambda: group.set_extent(0, 300), (0, 312)),
        (lambda: group.set_cursor(0), (0, 312)),
        (lambda: group.zoom(0.5), (0, 156)),
        (lambda: group.zoom(0), (0 - 0.015, 0.015)),
    ):
        act()
        assert group.range == pytest.approx(expected)
        assert ranges[-1] == group.range
    assert (following, moved) == ([False, True] * 3 + [False], [420, 10, None, 0])
    assert ranges.count((0, 728)) == 3
    group.set_extent(9, 3)
    assert group.extent == (9, 9)


@pytest.mark.parametrize(
    ("options", "lines", "expected"),
    [
        ({}, ((0.0, 1.0), (-3.0, 10.0)), (-3.78, 10.78)),
        ({}, ((0.0, 0.0),), (-1, 1)),
        ({}, ((50.0, 50.0),), (47.5, 52.5)),
        ({"low": 0.0}, ((40.0, 50.0),), (-3.18, 53)),
        ({"high": 80.0}, ((40.0, 50.0),), (37.6, 82.544)),
    ],
)
def test_plot_vertical_range_includes_all_lines(
    styled: QApplication, qtbot: QtBot, options: dict[str, float], lines: tuple[tuple[float, float], ...],
    expected: tuple[float, float],
) -> None:  # fmt: skip
    screen = PlotOnScreen(qtbot, **options)
    for number, ends in enumerate(lines):
        screen.plot.add_line(str(number), LineStyle(str(number), lambda: "#ff0000"))
        screen.plot.set_data(str(number), np.arange(2.0), np.array(ends))
    screen.group.set_extent(0, 1)
    screen.plot.redraw()
    assert get_vertical_range(screen.plot) == pytest.approx(expected)


def test_plot_range_follows_smaller_values_and_raw_peaks(styled: QApplication, qtbot: QtBot) -> None:
    screen = PlotOnScreen(qtbot, scale=100)
    screen.data(10, np.linspace(0.0, 1.0, 10))
    screen.data(9, np.linspace(0.40, 0.45, 9))
    assert get_vertical_range(screen.plot) == pytest.approx((39.7, 45.3))
    screen.plot.set_smoothing(0.9)
    screen.plot.clear_data()
    assert get_vertical_range(screen.plot) == (0, 1)
    screen.data(10, np.array([0.01] * 9 + [1.0]))
    assert get_vertical_range(screen.plot)[1] > 100
    screen.plot.set_log(True)
    screen.plot.redraw()
    assert get_vertical_range(screen.plot) == pytest.approx((-0.12, 2.12))


def test_plot_keys_move_the_range_and_the_crosshair(screen: PlotOnScreen) -> None:
    screen.data(1000)
    screen.plot.add_line("short", LineStyle("short", lambda: "#ff0000"))
    screen.plot.set_data("short", np.arange(3.0), np.arange(3.0))
    shift, none = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.NoModifier
    for key, keys, expected in (
        (Qt.Key.Key_Left, shift, (380, 580)),
        (Qt.Key.Key_Right, shift, (420, 620)),
        (Qt.Key.Key_Equal, none, (500 - 100 / 1.4, 500 + 100 / 1.4)),
        (Qt.Key.Key_Minus, none, (360, 640)),
    ):
        screen.group.show_range(400, 600)
        screen.qtbot.keyClick(screen.plot, key, keys)
        assert screen.group.range == pytest.approx(expected)
    screen.group.show_range(400, 600)
    screen.qtbot.keyClick(screen.plot, Qt.Key.Key_Left)
    assert screen.group.cursor == 600
    for cursor, value in ((1.4, "0.5"), (1.5, "0.3333"), (1.6, "0.3333")):
        screen.group.set_cursor(cursor)
        assert screen.plot.read("train") == value
    for is_accepted in (True, False):
        event = QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_Escape, none)
        QApplication.sendEvent(screen.plot, event)
        assert event.isAccepted() == is_accepted


def test_plot_group_shares_range(show_widget: ShowWidget, qtbot: QtBot) -> None:
    first = PlotOnScreen(qtbot)
    second = show_widget(LinePlot("Accuracy", first.group))
    first.data(1000)
    qtbot.keyClick(first.plot, Qt.Key.Key_Plus)
    assert get_horizontal_range(second) == pytest.approx(first.visible_range)


def test_plot_crosshair_by_keyboard(screen: PlotOnScreen) -> None:
    screen.data(100, np.linspace(0, 9.9, 100))
    screen.qtbot.keyClick(screen.plot, Qt.Key.Key_Left)
    assert screen.group.cursor == 99
    assert "9.9" in screen.values
    for _ in range(9):
        screen.qtbot.keyClick(screen.plot, Qt.Key.Key_Left)
    assert screen.group.cursor == 90
    assert "1:30" in screen.values
    assert "9" in screen.values
    assert screen.plot.describe() == "Latest: training 9.9. At 1:30: training 9"
    screen.qtbot.keyClick(screen.plot, Qt.Key.Key_Right)
    assert screen.group.cursor == 91
    for cursor, key in ((99, Qt.Key.Key_Right), (0, Qt.Key.Key_Left)):
        screen.group.set_cursor(cursor)
        screen.qtbot.keyClick(screen.plot, key)
        assert screen.group.cursor == cursor
    screen.qtbot.keyClick(screen.plot, Qt.Key.Key_Escape)
    assert screen.group.cursor is None
    screen.data(100_000)
    for _ in range(2):
        screen.qtbot.keyClick(screen.plot, Qt.Key.Key_Left)
    assert screen.group.cursor < 99_999 - 100, "steps are at least a pixel wide"


@pytest.mark.parametrize("edges", [{}, {"low": 0.0, "high": 110.0}])
def test_plot_log_axis_drops_nonpositive(styled: QApplication, qtbot: QtBot, edges: dict[str, float]) -> None:
    screen = PlotOnScreen(qtbot, **edges)
    screen.plot.set_log(True)
    screen.data(4, np.array([100.0, 0.0, -5.0, 1.0]))
    low, high = get_vertical_range(screen.plot)
    assert low < 0
    assert 2 < high < 2.5
    assert np.isnan(screen.plot._lines["train"]._curve.y).tolist() == [False, True, True, False]
    screen.plot.set_log(False)
    screen.data(4, np.array([100.0, 0.0, -5.0, 1.0]))
    assert get_vertical_range(screen.plot)[1] > 100


def test_plot_vertical_range_is_stable(screen: PlotOnScreen) -> None:
    random = np.random.default_rng(2)
    values = random.uniform(0, 1, 2000)
    values[:2] = 0, 1
    ranges = set()
    for count in range(100, 2000, 100):
        screen.data(count, values[:count])
        ranges.add(get_vertical_range(screen.plot))
    assert len(ranges) == 1


def test_plot_readout_is_smoothed(screen: PlotOnScreen) -> None:
    screen.data(3, np.array([0.0, 0.0, 4.0]))
    assert "<b>4</b>" in screen.values
    screen.plot.set_smoothing(0.5)
    screen.plot.redraw()
    # (0.5 · 4) / (1 - 0.5³)
    assert "2.286" in screen.values
    screen.group.set_cursor(2)
    assert "2.286" in screen.values


def test_plot_shorter_series_restarts(screen: PlotOnScreen) -> None:
    screen.plot.set_smoothing(0.9)
    screen.data(100, np.full(100, 50.0))
    screen.data(3, np.full(3, 1.0))
    assert screen.plot.describe() == "Latest: training 1"


def test_plot_describes_gaps_and_missing_data(screen: PlotOnScreen) -> None:
    screen.plot.set_empty_text("Appears after the first steps")
    assert screen.plot.describe() == "Appears after the first steps"
    empty = next(label for label in screen.plot.findChildren(QLabel) if "Appears" in label.text())
    assert empty.isVisible()
    screen.data(3, np.array([1.0, np.nan, np.nan]))
    screen.plot.add_line("other", LineStyle("other", lambda: "#ff0000"))
    screen.plot.redraw()
    assert not empty.isVisible()
    assert screen.plot.describe() == "Latest: training 1"
    screen.group.set_cursor(2)
    assert screen.plot.describe() == "Latest: training 1"
    screen.group.set_cursor(None)
    screen.data(3, np.full(3, np.nan))
    assert "–" in screen.values


def test_plot_describes_latest_values(styled: QApplication, qtbot: QtBot) -> None:
    screen = PlotOnScreen(qtbot, unit="%", scale=100, write=lambda value: f"{value:.1f}%")
    assert screen.plot.accessibleName() == "Loss"
    screen.data(10, np.linspace(0.1, 0.934, 10))
    screen.plot.schedule_redraw()
    qtbot.waitUntil(lambda: screen.plot.accessibleDescription() == "Latest: training 93.4%")


def test_plot_hidden_draws_when_visible(screen: PlotOnScreen) -> None:
    screen.plot.hide()
    screen.data(500)
    line = screen.plot._lines["train"]
    assert line._drawn_state is None or line._drawn_state[1] != 500
    screen.plot.show()
    screen.qtbot.waitUntil(lambda: line._drawn_state is not None and line._drawn_state[1] == 500)


@pytest.mark.parametrize("dark", [False, True])
def test_plot_follows_scheme(screen: PlotOnScreen, monkeypatch: pytest.MonkeyPatch, dark: bool) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: dark)
    theme.notifier.changed.emit()
    screen.plot.set_smoothing(0.9)
    screen.data(1000, np.repeat([0.0, 1.0], 500))
    scheme = theme.DARK if dark else theme.LIGHT
    image = screen.plot.grab().toImage()
    view = screen.plot._view.geometry()
    assert image.pixelColor(view.right() - 2, view.top() + 2) == QColor(scheme.panel)
    found = {image.pixelColor(x, y).name() for x in range(0, 700, 2) for y in range(view.top(), 260)}
    assert found >= {QColor(scheme.accent).name(), fills.blend(scheme.accent, scheme.panel, 0.4).name()}


@pytest.mark.parametrize("label", ["RTX PRO 6000 Blackwell Workstation Edition", 200 * "x"])
def test_plot_long_line_name_keeps_width(screen: PlotOnScreen, label: str) -> None:
    before = screen.plot.minimumSizeHint().width()
    screen.plot.add_line("long", LineStyle(label, lambda: theme.colors().accent))
    screen.data(40)
    assert label in screen.values
    assert screen.plot.minimumSizeHint().width() == before


def test_plot_without_room_has_names_in_tool_tip_only(screen: PlotOnScreen) -> None:
    for number in range(5):
        screen.plot.add_line(str(number), LineStyle(f"line {number}", lambda: theme.colors().accent))
        screen.plot.set_data(str(number), np.arange(3.0), np.full(3, number + 0.5))
    for width, has_names in ((700, True), (200, False), (420, True)):  # the last in two rows
        screen.plot.resize(width, 260)
        screen.data(3)
        tips = [label.toolTip() for label in screen.plot.findChildren(RichLabel)]
        assert ("line 4" in screen.values) == has_names
        assert any("line 4 4.5" in tip for tip in tips) != has_names


def test_plot_readout_drops_units_without_room_and_keeps_its_width(styled: QApplication, qtbot: QtBot) -> None:
    screen = PlotOnScreen(qtbot, unit="images/s")
    for number in range(3):
        screen.plot.add_line(str(number), LineStyle(f"line {number}", lambda: theme.colors().accent))
        screen.plot.set_data(str(number), np.arange(3.0), np.full(3, number + 0.5))
    for width, has_units in ((1500, True), (500, False)):
        screen.plot.resize(width, 260)
        screen.data(3, np.array([0.0, 0.0, 123.4]))
        assert (screen.values.count("images/s"), "line 2" in screen.values) == (4 * has_units, True)
    screen.data(4, np.array([0.0, 0.0, 123.4, 7.0]))
    assert "<b>\u2007\u2007\u2007\u20077</b>" in screen.values


def test_plot_erases_hidden_and_removed_lines(styled: QApplication, qtbot: QtBot) -> None:
    screen = PlotOnScreen(qtbot, low=0.0, high=1.0)
    screen.plot.set_empty_text("")
    screen.plot.remove_lines()
    screen.plot.add_line("train", LineStyle("training", lambda: "#ff0000", smooth=True, markers=True))

    def draw() -> QImage:
        screen.plot.redraw()
        return screen.plot._view.grab().toImage()

    def count_red(image: QImage) -> int:
        red = QColor("#ff0000").rgb()
        return sum(image.pixel(x, y) == red for x in range(image.width()) for y in range(image.height()))

    screen.data(4, np.full(4, np.nan))
    blank = draw()
    screen.plot.clear_data()
    screen.data(4, np.array([0.0, 1.0, 0.5, 0.5]))
    plain = draw()
    assert count_red(plain) > 80, "the markers are dots"
    screen.plot.set_smoothing(0.9)
    smoothed = draw()
    assert smoothed != plain
    screen.plot.show_line("train", False)
    assert draw() == blank
    screen.plot.show_line("train", True)
    assert draw() == smoothed
    screen.group.show_range(2.2, 2.8)
    zoomed = draw()
    assert count_red(zoomed) > 0, "the line between two points outside of the plot"
    box = screen.plot._view.box
    left = screen.plot._view.mapFromScene(box.mapToScene(0, 0)).x()
    axes = [image.copy(0, 0, left - 1, int(box.height) - 20) for image in (blank, zoomed)]
    assert axes[0] == axes[1]  # no curve is drawn over the vertical axis
    screen.group.follow()
    screen.plot.remove_lines()
    assert draw() == blank


def test_plot_group_forgets_deleted_plots(styled: QApplication, qtbot: QtBot) -> None:
    screen = PlotOnScreen(qtbot)
    delete(LinePlot("Deleted", screen.group))
    screen.data(3)
    qtbot.waitUntil(lambda: screen.plot.accessibleDescription().startswith("Latest"))


def test_plot_shows_its_focus_and_menu(screen: PlotOnScreen, qtbot: QtBot) -> None:
    screen.qtbot.waitActive(screen.plot)
    screen.plot.clearFocus()
    assert "accent" not in describe_painting(screen.plot)
    screen.plot.setFocus()
    assert "accent" in describe_painting(screen.plot)
    dense = LinePlot("Dense", screen.group, dense=True)
    qtbot.addWidget(dense)
    for plot in (screen.plot, dense):
        plot.add_line("other", LineStyle("other", lambda: "#ff0000"))
        assert request_context_menu(plot) == (plot is screen.plot)
    (menu,) = screen.plot.findChildren(QMenu)
    assert [action.text() for action in menu.actions()] == ["training", "other"]
    menu.close()
    screen.plot.remove_lines()
    screen.plot.add_line("train", LineStyle("training", lambda: "#ff0000"))
    assert not request_context_menu(screen.plot)


def test_plot_empty_range_is_ignored(screen: PlotOnScreen) -> None:
    screen.data(100)
    box = screen.plot._view.box
    before = (box.x_range, box.y_range)
    for low, high in ((5.0, 5.0), (6.0, 5.0)):
        box.set_x_range(low, high)
        box.set_y_range(low, high)
    assert (box.x_range, box.y_range) == before


FRAMES = 100


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None is immortal from Python 3.12 on")
def test_live_plot_keeps_references_of_none(styled: QApplication, qtbot: QtBot) -> None:
    group = PlotGroup("elapsed")
    plot = LinePlot("Loss", group)
    qtbot.addWidget(plot)
    plot.add_line("train", LineStyle("training", lambda: theme.colors().accent, smooth=True))
    plot.resize(400, 200)
    plot.show()

    def frame(count: int) -> None:
        x = np.arange(float(count))
        plot.set_data("train", x, x)
        group.set_extent(0.0, count - 1.0)
        plot.redraw()
        plot.grab()

    for count in range(2, 10):
        frame(count)
    before = sys.getrefcount(None)
    for count in range(10, 10 + FRAMES):
        frame(count)
    # A faulty release lost some thirty in every frame.
    assert before - sys.getrefcount(None) < FRAMES


def test_plot_hides_chosen_line(qtbot: QtBot) -> None:
    plot = LinePlot("Numbers", PlotGroup("elapsed"))
    qtbot.addWidget(plot)
    for key, highest in (("low", 1.0), ("high", 100.0)):
        plot.add_line(key, LineStyle(key, lambda: "#ff0000"))
        plot.set_data(key, np.arange(10.0), np.linspace(0.0, highest, 10))
    plot.group.set_extent(0.0, 9.0)
    plot.show()
    qtbot.waitUntil(lambda: get_vertical_range(plot)[1] > 50)
    menu = QMenu(plot)
    _low, high = plot.line_actions(menu)
    high.trigger()
    qtbot.waitUntil(lambda: get_vertical_range(plot)[1] < 50)
    assert "high" not in plot.describe()
    plot.show_line("low", False)
    assert [action.isChecked() for action in plot.line_actions(menu)] == [False, False]
    plot.show_line("low", True)
    plot.remove_lines()
    plot.add_line("high", LineStyle("high", lambda: "#ff0000"))
    assert not plot.line_actions(menu)[0].isChecked()
    plot.show_line("high", True)
    assert plot.line_actions(menu)[0].isChecked()


def test_plot_meaning_is_tool_tip_of_title_only(styled: QApplication, qtbot: QtBot) -> None:
    plot = LinePlot("Loss", PlotGroup("elapsed"), meaning="Lower is better.")
    qtbot.addWidget(plot)
    assert {label.text() for label in plot.findChildren(QLabel) if label.toolTip() == "Lower is better."} == {"Loss"}
    assert plot.toolTip() == plot._view.toolTip() == ""
