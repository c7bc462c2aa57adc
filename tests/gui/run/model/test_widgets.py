"""Texts about evaluations in the model view, and choices of heat maps."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from engine.contract.inference.explanation import ExplainRequest
from engine.runs.folder import RunFolder
from gui.run.model.samples.heat_maps import HeatMaps
from gui.run.model.widgets import format_classes
from gui.sources.evaluations import open_evaluation
from tests.gui.run.model.saved_evaluations import save_evaluation
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


@pytest.mark.parametrize("change", ["first", "second", "both", "same", "sample", "evaluation"])
def test_heat_maps_of_something_else_are_discarded(
    show_widget: ShowWidget, qtbot: QtBot, run: RunFolder, dataset: Path, change: str
) -> None:
    maps = show_widget(HeatMaps())
    opened = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    maps.show_evaluation(opened, ("cpu", "cpu"))
    maps.show_sample(dataset / "a.png", "cedar")
    maps.on.setChecked(True)
    maps.maps = [("ash", QImage(2, 2, QImage.Format.Format_RGB32))]
    requests: list[ExplainRequest] = []
    maps.child.start = requests.append  # type: ignore[method-assign,assignment]
    with qtbot.waitSignal(maps.changed):
        if change == "sample":
            maps.show_sample(dataset / "b.png", "birch")
        elif change == "evaluation":
            maps.show_evaluation(opened, ("cpu",))
        else:
            first, second = {"first": "0 ", "second": " 0", "both": "12", "same": "00"}[change]
            for editor, value in ((maps.first, first), (maps.second, second)):
                if value != " ":
                    editor.set_value(value)
    assert maps.maps == []
    assert maps._delay.isActive() == (change != "evaluation")
    if change != "evaluation":
        maps._request_maps()
        (request,) = requests
        assert (request.run, request.devices) == (str(run.path), ("cpu",))
        assert request.paths == (str(dataset / ("b.png" if change == "sample" else "a.png")),)
        classes = {"first": ("ash",), "second": ("cedar", "ash"), "both": ("birch", "cedar"), "same": ("ash",)}
        assert request.classes == classes.get(change, ())
    maps.close_work()
