"""Texts about evaluations in the model view, and choices of heat maps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from engine.contract.inference.explanation import ExplainedImage, ExplainRequest, Explanation, HeatMap
from engine.runs.folder import RunFolder
from gui.run.model.samples.heat_maps import HeatMaps
from gui.run.model.widgets import format_classes
from gui.sources.evaluations import open_evaluation
from tests.gui.run.evaluated_run import draw
from tests.gui.run.model.saved_evaluations import save_evaluation
from tests.support.widgets import ShowWidget, join_visible_texts


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


def test_heat_maps_are_read_with_titles_and_remarks(
    show_widget: ShowWidget, qtbot: QtBot, run: RunFolder, dataset: Path, tmp_path: Path
) -> None:
    maps, file = show_widget(HeatMaps()), tmp_path / "explanation.json"
    opened = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    maps.show_evaluation(opened, ("cpu",))
    maps.child.start = lambda _request: None  # type: ignore[method-assign,assignment]
    maps.on.setChecked(True)
    draw(tmp_path / "ash.png", "#ff0000")
    found = (
        HeatMap(class_name="ash", overlay="ash.png", raw="", score=0.5, note="The map is coarse."),
        HeatMap(class_name="oak", overlay="ash.png", raw="", empty=True, note="The map is coarse."),
        HeatMap(class_name="", overlay="missing.png", raw=""),
    )
    explanation = Explanation(
        run="", checkpoint="", task="classification", method="grad-cam", layer="", grid=(1, 1),
        images=(ExplainedImage(path="", maps=found),),
    )  # fmt: skip
    file.write_bytes(msgspec.json.encode(explanation))
    with qtbot.waitSignal(maps.changed):
        maps.child.done.emit(str(file))
    assert [title for title, _image in maps.maps] == ["For ash (50.0%)", "No evidence for oak", "Evidence"]
    assert maps.maps[-1][1] == "missing.png is missing."
    assert maps.progress_line.problems.text() == "The map is coarse."
    file.write_text("{")
    maps.child.done.emit(str(file))
    qtbot.waitUntil(lambda: "Couldn't read" in join_visible_texts(maps.progress_line))
    maps.close_work()
