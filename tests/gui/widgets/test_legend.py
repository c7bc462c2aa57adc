"""Legends of images: whole where there is room, else what is in the images."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.legend import LegendEntry
from gui.widgets.legend import SWATCH, Legend

FEW = (LegendEntry("road", ""), LegendEntry("car", "#ff00ff"))
MANY = tuple(LegendEntry(f"a class of number {number}", f"#{number:02x}80ff") for number in range(90))


@pytest.fixture
def legend(styled: QApplication, qtbot: QtBot) -> Legend:
    made = Legend()
    qtbot.addWidget(made)
    made.resize(500, 40)
    made.show()
    return made


def test_that_a_short_legend_is_shown_whole_with_its_colours(legend: Legend) -> None:
    legend.show_legend(FEW, [1])
    assert legend.shown() == ([0, 1], 0)
    assert legend.accessibleDescription() == "In the images: car"
    image = legend.grab().toImage()
    there = {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(SWATCH)}
    assert QColor("#ff00ff").name() in there


def test_that_of_a_long_one_what_is_in_the_images_is_shown_as_far_as_there_is_room(legend: Legend) -> None:
    legend.show_legend(MANY, [3, 8])
    assert legend.shown() == ([3, 8], 0)
    legend.show_legend(MANY, range(90))
    shown, more = legend.shown()
    assert shown == list(range(len(shown)))
    assert len(shown) + more == 90
    assert 2 < len(shown) < 20
    assert not legend.grab().isNull()
    assert "a class of number 89" in legend.toolTip()


def test_that_its_height_is_that_of_two_lines_at_most_whatever_is_in_the_images(legend: Legend) -> None:
    legend.show_legend(FEW, [])
    one = legend.heightForWidth(500)
    legend.show_legend(MANY, [])
    assert one < legend.heightForWidth(500) < 3 * one
    assert legend.heightForWidth(500) == legend.heightForWidth(900)


def test_that_without_entries_nothing_is_shown_and_places_that_are_not_there_are_passed_over(legend: Legend) -> None:
    legend.show_legend((), [4])
    assert not legend.isVisible()
    legend.show_legend(FEW, [1, 7, -1])
    assert legend.isVisible()
    assert legend.accessibleDescription() == "In the images: car"
