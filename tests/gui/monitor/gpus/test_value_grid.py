"""Widget that paints a grid of labeled values."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QToolTip, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from gui.monitor.gpus.value_grid import GAP, LabeledValue, ValueGrid, compute_column_widths
from gui.style import theme
from tests.support.painted import describe_painting
from tests.support.widgets import ShowWidget, request_tool_tip

FEW = tuple(LabeledValue(f"f{n}", f"Label {n}", f"{n} W", f"Meaning {n}") for n in range(6))


@pytest.fixture
def place(show_widget: ShowWidget) -> QWidget:
    widget = QWidget()
    QVBoxLayout(widget)
    return show_widget(widget, 500, 300)


def put(figures: ValueGrid, place: QWidget) -> ValueGrid:
    place.layout().addWidget(figures)
    place.layout().activate()
    return figures


@pytest.mark.parametrize(
    ("width", "columns"), [(1000, 4), (4 * 50 + 3 * GAP, 4), (4 * 50 + 3 * GAP - 1, 3), (60, 1), (10, 1)]
)
def test_columns_for_fits_width(width: int, columns: int) -> None:
    assert len(compute_column_widths([50, 50, 50, 50], width)) == columns


def test_column_is_as_wide_as_widest_value() -> None:
    assert compute_column_widths([10, 80, 90, 20], 90 + 80 + GAP) == [90, 80]


def test_grid_leaves_out_last_values(place: QWidget, qtbot: QtBot) -> None:
    figures = put(ValueGrid(max_rows=1), place)
    figures.show_figures(FEW)
    place.resize(220, 300)
    qtbot.waitUntil(lambda: figures.width() < 220)
    assert 0 < len(figures.visible_figures) < len(FEW)
    assert figures.visible_figures == FEW[: len(figures.visible_figures)]
    assert figures.height() == figures.row_height
    assert "Label 5 5 W" in figures.text()
    figures.set_max_rows(len(FEW))
    assert figures.visible_figures == FEW


def test_grid_is_read_row_by_row_and_explains_values(place: QWidget, qtbot: QtBot) -> None:
    figures = put(ValueGrid(), place)
    figures.show_figures([LabeledValue(name, name, "1,000,000,000 W", f"Meaning of {name}") for name in "abcd"])
    place.resize(330, 400)
    qtbot.waitUntil(lambda: figures.height() == 2 * figures.row_height)
    rows = [QPoint(5, 5), QPoint(figures.width() - 60, 5), QPoint(5, figures.row_height + 5)]
    assert [figure and figure.id for figure in map(figures.figure_at, rows)] == ["a", "b", "c"]
    found = [figure and figure.id for figure in (figures.figure_at(QPoint(x, 5)) for x in range(figures.width()))]
    assert found.index("b") == found.count("a") + GAP
    request_tool_tip(figures, rows[2])
    assert QToolTip.text().splitlines() == ["c 1,000,000,000 W", "Meaning of c"]
    request_tool_tip(figures, QPoint(5, figures.height()))
    qtbot.waitUntil(lambda: not QToolTip.isVisible(), timeout=5000)  # it would expire after 10 s


def test_grid_paints_alarming_values_unless_faded(place: QWidget) -> None:
    figures = put(ValueGrid(), place)
    warning = QColor(theme.colors().warning)
    for is_alarming, is_faded in ((True, False), (True, True), (False, False)):
        figures.show_figures([LabeledValue("a", "", "████", alarming=is_alarming)], faded=is_faded)
        image = figures.grab().toImage()
        pixels = {image.pixelColor(x, y).name() for x in range(20) for y in range(image.height())}
        assert (warning.name() in pixels) is (is_alarming and not is_faded)


def test_grid_paints_each_value_and_its_line_in_their_colors(place: QWidget) -> None:
    figures = put(ValueGrid(), place)
    marked = LabeledValue("a", "A", "1 W", alarming=True, color=lambda: theme.colors().accent)
    figures.show_figures([marked, LabeledValue("b", "B", "2 W")])
    assert describe_painting(figures) == "“A” muted, “B” muted, “1 W” warning, “2 W” text, 1 accent"
    figures.show_figures([LabeledValue("b", "B", "2 W")], faded=True)
    assert describe_painting(figures) == "“B” muted, “2 W” muted"


def test_grid_without_limit_shows_all(place: QWidget, qtbot: QtBot) -> None:
    figures = put(ValueGrid(), place)
    figures.show_figures(FEW)
    place.resize(150, 400)
    assert figures.visible_figures == FEW
    qtbot.waitUntil(lambda: figures.height() > figures.row_height)


def test_grid_reserves_longest_form(place: QWidget) -> None:
    figures = put(ValueGrid(max_rows=1), place)
    figures.show_figures([LabeledValue("a", "", "1,000 W"), LabeledValue("b", "", "5 W")])
    figures.grab()
    at = next(x for x in range(400) if (found := figures.figure_at(QPoint(x, 5))) is not None and found.id == "b")
    figures.show_figures([LabeledValue("a", "", "1 W"), LabeledValue("b", "", "5 W")])
    found = figures.figure_at(QPoint(at, 5))
    assert found.id == "b"
    before = figures.figure_at(QPoint(at - 2, 5))
    assert before is None or before.id == "a"


def test_grid_follows_text_size(place: QWidget) -> None:
    figures = put(ValueGrid(max_rows=1), place)
    figures.show_figures(FEW)
    usual, large = figures.font(), figures.font()
    large.setPointSizeF(3 * usual.pointSizeF())
    figures.setFont(large)
    assert len(figures.visible_figures) < len(FEW)
    figures.setFont(usual)
    assert figures.visible_figures == FEW


def test_grid_rearranges_changed_values(place: QWidget) -> None:
    figures = put(ValueGrid(max_rows=2), place)
    figures.show_figures(FEW)
    figures.show_figures(FEW[1:])
    assert figures.visible_figures == FEW[1:]
    first = figures.figure_at(QPoint(1, 1))
    assert first.id == "f1"


def test_grid_without_values(place: QWidget) -> None:
    figures = put(ValueGrid(max_rows=1), place)
    figures.show_figures(FEW)
    figures.show_figures(())
    figures.grab()
    assert figures.text() == ""
    assert figures.figure_at(QPoint(1, 1)) is None
