"""Texts about evaluations in the model view, and choices of heat maps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from engine.contract.inference.evaluation import SkippedSample
from engine.contract.inference.explanation import ExplainedImage, ExplainRequest, Explanation, HeatMap
from engine.runs.folder import RunFolder
from gui.format import format_time_or_date
from gui.run.model.samples.drawings import make_full_caption, make_short_caption
from gui.run.model.samples.heat_maps import HeatMaps
from gui.run.model.widgets import describe_skipped, evaluation_title, format_classes
from gui.sources.background import Background
from gui.sources.evaluations import SampleTable, open_evaluation
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


@pytest.mark.parametrize(
    ("named", "count", "text"),
    [
        ("a", 1, "Skipped 1 file: a: bad."),
        ("abcde", 5, "Skipped 5 files: a: bad; b: bad; c: bad; d: bad; e: bad."),
        ("abcdef", 6, "Skipped 6 files: a: bad; b: bad; c: bad; d: bad; e: bad; and 1 more."),
        ("ab", 1002, "Skipped 1,002 files: a: bad; b: bad; and 1,000 more."),
    ],
)
def test_describe_skipped_names_the_first_five(named: str, count: int, text: str) -> None:
    assert describe_skipped([SkippedSample(name, "bad") for name in named], count, "file") == text


@pytest.mark.parametrize(
    ("date", "text"), [("2001-05-06T12:00:00-20:00", "2001-05-07"), ("gone", format_time_or_date(0))]
)
def test_evaluation_title_has_the_date(run: RunFolder, dataset: Path, date: str, text: str) -> None:
    saved = save_evaluation(run, dataset, "20261125-100000-val", date=date)
    assert evaluation_title(saved.evaluation) == f"{text} · validation · trees · best.pt"


def test_captions_show_what_is_known(run: RunFolder, dataset: Path) -> None:
    opened = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    numbers = {
        "losses": np.array([0.5, np.nan]),
        "confidence": np.array([0.626, 0.1]),
        "correct": np.array([0.754, 1.0]),
    }
    samples = replace(opened.samples, **numbers)
    several = replace(samples, true=((0, 2), (1,)), true_class=None)
    for table, row, short, full in (
        (samples, 0, ("ash", "loss 0.50 · 63% sure"), "Truth: ash · Prediction: ash · Loss 0.5000 · Confidence 62.6%"),
        (several, 0, ("ash, cedar → ash", "loss 0.50 · 63% sure · 75% correct"), "Truth: ash, cedar · Prediction: ash · Loss 0.5000 · Confidence 62.6% · 75.4% correct"),
        (several, 1, ("birch", "10% sure · 100% correct"), "Truth: birch · Prediction: birch · Confidence 10.0% · 100.0% correct"),
        (SampleTable(paths=("val/a.png",), splits=("val",), predicted=((1,),)), 0, ("val/a.png", ""), "Prediction: birch"),
    ):  # fmt: skip
        captioned = replace(opened, samples=table)
        assert make_short_caption(captioned, row) == short
        assert make_full_caption(captioned, row) == full
    assert make_full_caption(captioned, 0, "a tree") == "Truth: a tree · Prediction: birch"


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
            names = {"first": ("ash", ""), "second": ("", "ash"), "both": ("birch", "cedar"), "same": ("ash", "ash")}
            for editor, name in zip((maps.first, maps.second), names[change], strict=True):
                if name:
                    editor.box.setCurrentText(name)
    assert maps.maps == []
    assert maps._delay.isActive() == (change != "evaluation")
    if change != "evaluation":
        maps._request_maps()
        (request,) = requests
        assert (request.run, request.checkpoint, request.devices) == (str(run.path), "best.pt", ("cpu",))
        assert request.paths == (str(dataset / ("b.png" if change == "sample" else "a.png")),)
        classes = {"first": ("ash",), "second": ("cedar", "ash"), "both": ("birch", "cedar"), "same": ("ash",)}
        assert request.classes == classes.get(change, ())
        assert Path(request.out).parent.is_dir()
        maps._request_maps()
        assert requests.pop().out != request.out
    closed: list[bool] = []
    maps.child.close = lambda: closed.append(True)  # type: ignore[method-assign]
    maps.close_work()
    assert closed
    assert not any(Path(request.out).parent.exists() for request in requests)


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
        images=(ExplainedImage(path="", maps=found, reason="It is small."),),
    )  # fmt: skip
    file.write_bytes(msgspec.json.encode(explanation))
    with qtbot.waitSignal(maps.changed):
        maps.child.done.emit(str(file))
    assert [title for title, _image in maps.maps] == ["For ash (50.0%)", "No evidence for oak", "Evidence"]
    assert maps.maps[-1][1] == "missing.png is missing."
    assert maps.progress_line.problems.text().splitlines() == ["It is small.", "The map is coarse."]
    for other in (dataset / "b.png", None):
        maps.child.done.emit(str(file))
        maps.show_sample(other)
        qtbot.waitUntil(lambda: not maps.findChildren(Background))
        assert (maps.maps, maps.progress_line.problems.text()) == ([], "")
    for content, text in (
        (b"{", "Couldn't read explanation.json"),
        (msgspec.json.encode(msgspec.structs.replace(explanation, images=())), "The image wasn't explained."),
    ):
        file.write_bytes(content)
        maps.child.done.emit(str(file))
        qtbot.waitUntil(lambda text=text: text in join_visible_texts(maps.progress_line))
    maps.close_work()
