"""Texts about evaluations in the model view, and choices of heat maps."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from gui.run.model.samples.heat_maps import HeatMaps
from gui.run.model.widgets import format_classes
from tests.support.widgets import ShowWidget


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ((), "nothing"),
        ((1,), "birch"),
        ((2, 0), "cedar, ash"),
        ((1, 1), "birch × 2"),
        ((0, 2, 0, 0, 2), "ash × 3, cedar × 2"),
        ((3,), "none of them"),
        ((-1, 1), "none of them, birch"),
    ],
)
def test_format_classes_counts_repeated_ones(indices: tuple[int, ...], text: str) -> None:
    assert format_classes(("ash", "birch", "cedar"), indices, "nothing") == text


@pytest.mark.parametrize("name", ["first", "second"])
def test_choice_of_another_class_discards_the_heat_maps(show_widget: ShowWidget, qtbot: QtBot, name: str) -> None:
    maps = show_widget(HeatMaps())
    editor = {"first": maps.first, "second": maps.second}[name]
    editor.reset_choices([("", "any", ""), ("1", "ash", "")])
    maps.on.setChecked(True)
    maps.maps = [("ash", QImage(2, 2, QImage.Format.Format_RGB32))]
    with qtbot.waitSignal(maps.changed):
        editor.set_value("1")
    assert maps.maps == []
