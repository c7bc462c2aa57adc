"""Top row of the page of a run, curve options and live prediction."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from engine.contract.events import CheckpointSaved, RunFinished
from engine.contract.inference.prediction import Predicted, PredictedRow, PredictRequest
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from gui.actions import Actions
from gui.run.cards import worst_class
from gui.run.header import CURVES, EVALUATE, PREDICT
from gui.run.hero import RunHero, best_metric
from gui.run.page import RunPage
from gui.run.request_pages import InferenceChild
from gui.sources.background import Background
from gui.sources.remote_runs import QueryFailed
from gui.sources.run_data import RunData
from gui.sources.run_series import ClassFigures
from gui.sources.run_status import RunStatus, StatusLabel
from tests.gui.run.evaluated_run import a_predicted_run
from tests.gui.sources.written_runs import a_plan, a_run, append, job, supervise_here
from tests.support.drops import drop_files
from tests.support.widgets import ShowWidget

Open = Callable[[RunFolder], RunPage]


STATES: tuple[tuple[StatusLabel, float | None], ...] = (
    ("Starting", None),
    ("Waiting", None),
    ("Running", 0.5),
    ("Paused", 0.5),
    ("Failed", 0.5),
    ("Completed", 1.0),
)


def test_hero_keeps_its_height(show_widget: ShowWidget, qtbot: QtBot) -> None:
    window = show_widget(QWidget(), 900, 200)
    actions = Actions(window)
    hero = show_widget(RunHero(actions), 900, 60)
    empty, full = RunData(), RunData()
    run = a_run(80)
    full.apply_all(list(run.events()))
    heights = set()
    for data in (empty, full):
        for label, fraction in STATES:
            for action in (actions.pause, actions.stop):
                action.allow("" if label == "Running" else "It has ended")
            hero.show_run(run, job(), data, RunStatus(label=label, text=label, fraction=fraction, seconds_left=90.0))
            heights.add(hero.sizeHint().height())
    assert len(heights) == 1


def test_hero_shows_best_metric_state_and_time_left(show: Open, qtbot: QtBot) -> None:
    page = show(supervise_here(a_run(80, None)))
    hero = page.header.hero
    qtbot.waitUntil(lambda: "Running" in hero.state.text())
    assert (hero.best.text(), hero.best_note.text()) == ("80.0%", "top-1, epoch 1")
    assert hero.state.text().startswith("▶ Running · epoch")
    assert hero.time.text().endswith("left")
    assert "images/s" in hero.time_note.text()
    assert hero.progress.isVisible()


def test_best_metric_follows_its_direction() -> None:
    data = RunData()
    data.apply_all(list(a_run(8).events()))
    top1 = best_metric(data)
    assert (top1.value, top1.title) == ("80.0%", "top-1")
    assert best_metric(RunData()).epoch is None


def test_hero_of_completed_run_names_the_worst_class(show: Open) -> None:
    page = show(a_predicted_run())
    assert page.next_steps.isVisible()
    assert "worst class: ash (F1 " in page.header.hero.state.text()
    data = RunData(plan=a_plan(classes=("ash", "birch")))
    assert worst_class(data) == ""
    for number, values in enumerate(([0.5, 0.5], [0.9, 0.3], [0.2, 0.4]), 1):
        data.validation_details.classes.append(ClassFigures(number, number, {"F1": np.array(values)}, None))
        data.finished = RunFinished(outcome="completed", best_epoch=number)
    expected = {1: "", 2: "worst class: birch (F1 30.0%)", 3: "worst class: ash (F1 20.0%)"}
    for number, words in expected.items():
        data.finished.best_epoch = number
        assert worst_class(data) == words
    data.finished = None
    assert worst_class(data) == expected[3]


def test_mistakes_without_an_evaluation_start_one(show: Open, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[object] = []
    monkeypatch.setattr(InferenceChild, "start", lambda _child, request: requests.append(request))
    page = show(a_run(80))
    page.next_steps.mistakes.click()
    qtbot.waitUntil(lambda: len(requests) == 1)


def test_page_of_failed_run_contains_the_cause_once(show: Open) -> None:
    page = show(a_run(12, "failed", cause="Out of memory on NVIDIA H200 at step 12"))
    assert page.header.hero.state.text() == "✖ Failed"
    assert page.advice.cause.text() == "Failed: Out of memory on NVIDIA H200 at step 12"


def test_curve_options_open_by_keyboard(show: Open, qtbot: QtBot) -> None:
    page = show(a_run(80))
    header = page.header
    assert not header.controls.isVisible()
    header.options.setFocus()
    qtbot.keyClick(header.options, Qt.Key.Key_Space)
    assert header.controls.isVisible()
    qtbot.keyClick(header.controls.window(), Qt.Key.Key_Escape)
    assert not header.controls.isVisible()
    header.tabs.setCurrentIndex(EVALUATE)
    assert not header.options.isVisible()


def saved(step: int, kind: str = "last") -> CheckpointSaved:
    return CheckpointSaved(
        kind=kind, path=f"checkpoints/{kind}.pt", epoch=1, step=step, bytes=1, seconds=0.1, time=time.time()
    )


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    image = QImage(8, 8, QImage.Format.Format_RGB32)
    image.fill(QColor("red"))
    image.save(str(tmp_path / "boot.png"))
    return tmp_path / "boot.png"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[PredictRequest]:
    """Return a list that collects requests for predictions. They aren't executed."""
    found: list[PredictRequest] = []

    def start(child: InferenceChild, request: PredictRequest) -> None:
        child.request = request
        found.append(request)

    monkeypatch.setattr(InferenceChild, "start", start)
    return found


def answer(child: InferenceChild, request: PredictRequest, text: str, folder: Path) -> None:
    """Emit a prediction with the text `text` as the child's result for a request."""
    result = Predicted(
        run=request.run,
        checkpoint="last.pt",
        sha256="",
        task="classification",
        classes=("a", "b"),
        request=request,
        samples=1,
        predicted=1,
        skipped_count=0,
        skipped=(),
        class_counts=(1, 0),
        images_per_second=None,
        seconds=1.0,
        rows=(PredictedRow(path=request.paths[0], text=text),),
        files=(),
        finished_at=0.0,
    )
    file = folder / "predictions.json"
    file.write_bytes(msgspec.json.encode(result))
    child.done.emit(str(file))


def test_dropped_image_is_predicted_at_each_checkpoint(
    page: RunPage, requests: list[PredictRequest], picture: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    run = supervise_here(a_run(8, None))
    page.session.open(run)
    qtbot.waitUntil(lambda: not page.session.loading and page.charts is not None)
    page.header.tabs.setCurrentIndex(EVALUATE)
    drop_files(page, picture)
    live = page.live_prediction
    assert page.header.tabs.currentIndex() == CURVES
    assert live.isVisible()
    (request,) = requests
    assert (request.paths, request.devices) == ((str(picture),), ("cpu",))
    assert (request.at_once, request.checkpoint) == (True, "best")
    answer(live.child, request, "Coat 61%", tmp_path)
    qtbot.waitUntil(lambda: live.history.count() == 1)
    append(run, saved(20))
    qtbot.waitUntil(lambda: len(requests) == 2)
    assert requests[-1].checkpoint == "last"
    answer(live.child, requests[-1], "Shirt 72%", tmp_path)
    qtbot.waitUntil(lambda: live.history.count() == 2)
    assert "Shirt 72%" in live.history.item(0).text()
    live.stop.click()
    assert not live.isVisible()


@pytest.mark.parametrize("signal", ["refused", "failed"])
def test_failed_prediction_continues_with_newer_checkpoint(
    page: RunPage, requests: list[PredictRequest], picture: Path, qtbot: QtBot, signal: str
) -> None:
    run = supervise_here(a_run(8, None))
    page.session.open(run)
    qtbot.waitUntil(lambda: not page.session.loading and page.charts is not None)
    drop_files(page, picture)
    live = page.live_prediction
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(live.child), "running", property(lambda _child: True))
        append(run, saved(20))
        qtbot.waitUntil(lambda: live._newest_checkpoint is page.session.data.checkpoints.get("last"))
    assert len(requests) == 1
    problem = "The live prediction ended early: exit code 1"
    getattr(live.child, signal).emit(problem if signal == "failed" else (Problem("checkpoint", problem),))
    assert [request.checkpoint for request in requests] == ["best", "last"]
    assert not live.failure.text()
    getattr(live.child, signal).emit(problem if signal == "failed" else (Problem("checkpoint", problem),))
    assert len(requests) == 2
    assert problem in live.failure.text()
    live.stop.click()


def test_prediction_for_replaced_image_is_discarded(
    page: RunPage, requests: list[PredictRequest], picture: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    run = supervise_here(a_run(8, None))
    page.session.open(run)
    qtbot.waitUntil(lambda: not page.session.loading and page.charts is not None)
    drop_files(page, picture)
    live = page.live_prediction
    answer(live.child, requests[0], "Coat 61%", tmp_path)
    drop_files(page, picture)
    answer(live.child, requests[1], "Shirt 72%", tmp_path)
    qtbot.waitUntil(lambda: live.history.count() > 0)
    qtbot.waitUntil(lambda: not live.findChildren(Background))
    assert [live.history.item(row).text() for row in range(live.history.count())] == ["Step 8: Shirt 72%"]
    live.stop.click()


def test_image_dropped_on_ended_run_is_listed(show: Open, picture: Path) -> None:
    page = show(a_run(8))
    drop_files(page, picture)
    assert page.header.tabs.currentIndex() == PREDICT
    assert page.views.currentWidget().predict_form.paths() == [str(picture)]


def test_remote_bar_ignores_the_error_of_a_run_shown_before(page: RunPage) -> None:
    bar = page.header.remote
    before, now = a_run(8), a_run(8)
    bar.show_run(now)
    shown = bar.label.text()
    bar._show_error(before, QueryFailed("The machine is off."))
    assert bar.label.text() == shown
    bar._show_error(now, QueryFailed("The machine is off."))
    assert bar.label.text() == "The machine is off."
