"""Legend of images."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QColor

from engine.contract.images import LegendEntry
from gui.widgets.legend import SWATCH, Legend
from tests.support.widgets import ShowWidget

FEW = (LegendEntry("road", ""), LegendEntry("car", "#ff00ff"))
MANY = tuple(LegendEntry(f"a class of number {number}", f"#{number:02x}80ff") for number in range(90))


@pytest.fixture
def legend(show_widget: ShowWidget) -> Legend:
    return show_widget(Legend(), 500, 40)


def test_legend_shows_all_entries(legend: Legend) -> None:
    legend.show_legend(FEW, [1])
    assert legend.shown() == ([0, 1], 0)
    assert legend.accessibleDescription() == "In the images: car"
    image = legend.grab().toImage()
    there = {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(SWATCH)}
    assert QColor("#ff00ff").name() in there


def test_legend_shows_present_entries_that_fit(legend: Legend) -> None:
    legend.show_legend(MANY, [3, 8])
    assert legend.shown() == ([3, 8], 0)
    legend.show_legend(MANY, range(90))
    shown, more = legend.shown()
    assert shown == list(range(len(shown)))
    assert len(shown) + more == 90
    assert 2 < len(shown) < 20
    assert not legend.grab().isNull()
    assert "a class of number 89" in legend.toolTip()


def test_legend_height_is_two_lines_at_most(legend: Legend) -> None:
    legend.show_legend(FEW, [])
    one = legend.heightForWidth(500)
    legend.show_legend(MANY, [])
    assert one < legend.heightForWidth(500) < 3 * one
    assert legend.heightForWidth(500) == legend.heightForWidth(900)


def test_legend_ignores_unknown_indices(legend: Legend) -> None:
    legend.show_legend((), [4])
    assert not legend.isVisible()
    legend.show_legend(FEW, [1, 7, -1])
    assert legend.isVisible()
    assert legend.accessibleDescription() == "In the images: car"
