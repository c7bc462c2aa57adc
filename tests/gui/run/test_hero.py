"""Top row of the page of a run, curve options and live prediction."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QColor, QDesktopServices, QImage
from PySide6.QtWidgets import QApplication, QMenu, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.events import CheckpointSaved, Failed, RunFinished, Validation, Warned
from engine.contract.inference.prediction import Predicted, PredictedRow, PredictRequest
from engine.contract.messages import Progress
from engine.contract.nodes import FetchProgress, RunFile
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.runs.index import mirrors_folder
from gui.actions import Actions
from gui.run.cards import AdviceView, NextSteps, describe_result, describe_worst_class
from gui.run.curves.charts import RunCharts
from gui.run.curves.plot_rows import PlotList
from gui.run.header import CURVES, EVALUATE, PREDICT, RemoteBar, RunHeader
from gui.run.hero import RunHero, find_best_metric
from gui.run.page import RunPage
from gui.run.request_pages import InferenceChild
from gui.sources.background import Background
from gui.sources.remote_runs import QueryFailed
from gui.sources.run_data import RunData
from gui.sources.run_series import ClassMetrics
from gui.sources.run_status import RunStatus, StatusLabel
from gui.style import theme
from gui.widgets.labels import WrappingLabel
from tests.gui.run.curves.test_time_spent import data as data_of_times
from tests.gui.run.curves.test_time_spent import spent
from tests.gui.run.evaluated_run import make_predicted_run
from tests.gui.sources.written_runs import append_events, job, list_run_events, make_plan, supervise_here, write_run
from tests.support.drops import drop_files
from tests.support.run_data import make_run_data
from tests.support.widgets import ShowWidget, join_visible_texts

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
    run = write_run(80)
    full.apply_all(list(run.events()))
    heights = set()
    for data in (empty, full):
        for label, fraction in STATES:
            for action in (actions.pause, actions.stop):
                action.set_disabled_reason("" if label == "Running" else "It has ended")
            hero.show_run(run, job(), data, RunStatus(label=label, text=label, fraction=fraction, seconds_left=90.0))
            heights.add(hero.sizeHint().height())
    assert len(heights) == 1


def test_hero_shows_best_metric_state_and_time_left(show: Open, qtbot: QtBot) -> None:
    page = show(supervise_here(write_run(80, None)))
    hero = page.header.hero
    qtbot.waitUntil(lambda: "Running" in hero.state.text())
    assert (hero.best.text(), hero.best_note.text()) == ("80.0%", "top-1, epoch 1")
    assert hero.state.text().startswith("▶ Running · epoch")
    assert hero.time.text().endswith("left")
    assert "images/s" in hero.time_note.text()
    assert hero.progress.isVisible()


@pytest.mark.parametrize(
    ("status", "progress", "time_texts"),
    [
        (RunStatus("Starting", "Starting"), (True, 0), ("", "")),
        (RunStatus("Running", "Running", fraction=0.5, seconds_left=90.0, images_per_second=800.0), (True, 1000), ("1:30 min left", "50% · 800 images/s")),
        (RunStatus("Waiting", "Waiting", seconds_left=90.0), (False, 1000), ("", "")),
        (RunStatus("Paused", "Paused", fraction=0.5), (False, 1000), ("9 s", "training time")),
    ],
)  # fmt: skip
def test_hero_shows_progress_and_time(
    show_widget: ShowWidget, status: RunStatus, progress: tuple[bool, int], time_texts: tuple[str, str]
) -> None:
    hero = show_widget(RunHero(Actions(show_widget(QWidget(), 900, 200))), 900, 60)
    run = write_run(80, "paused", strategy="auto")
    events = [event for event in run.events() if not (status.active and isinstance(event, RunFinished))]
    hero.show_run(run, job(name="ants"), make_run_data(events), status)
    assert (hero.progress.isVisible(), hero.progress.maximum()) == progress
    assert hero.progress.value() == 1000 * (status.fraction or 0)
    assert hero.state.objectName() == ("muted" if status.label == "Paused" else "")
    assert (hero.time.text(), hero.time_note.text()) == time_texts
    assert hero.facts.isVisible() is hero.next_steps.isVisible() is (status.label == "Paused")
    assert hero.title.text() == "ants · ResNet-18 · flowers · Single device on CPU"
    assert hero.state.text().endswith(status.text)
    hero.show_run(run, None, RunData(), status, is_loading=True)
    assert (hero.title.text(), hero.facts.isVisible()) == (run.run_id, False)
    assert (hero.best.text(), hero.best_note.text()) == ("–", "no validation yet" if status.active else "no validation")
    assert status.text not in hero.state.text()  # the log is being read


@pytest.mark.parametrize(
    ("best_by", "finished", "metric"),
    [
        ("", None, ("60.0%", "top-1", 2)),
        ("loss", None, ("0.3000", "validation loss", 3)),
        ("loss", RunFinished(outcome="completed", best={"top1": 0.5}, best_epoch=1), ("0.3000", "validation loss", 3)),
        ("", RunFinished(outcome="completed", best={"top1": 0.5}, best_epoch=1), ("50.0%", "top-1", 1)),
    ],
)
def test_best_metric_follows_direction_job_and_end(
    best_by: str, finished: RunFinished | None, metric: tuple[str, str, int]
) -> None:
    started = next(list_run_events(job(best_by=best_by), 8, None))
    measures = [
        {"mean": math.nan, "loss": loss, "top1": top1} for loss, top1 in ((0.9, 0.5), (0.4, 0.6), (0.3, math.nan))
    ]
    validations = [
        Validation(epoch=epoch, step=epoch, measures=values, images=20, seconds=1)
        for epoch, values in enumerate(measures, 1)
    ]
    found = find_best_metric(make_run_data([started, *validations, *([finished] if finished else [])]))
    assert (found.value, found.title.lower(), found.epoch) == metric
    assert find_best_metric(RunData()).epoch is None


def test_next_steps_of_ended_run_need_a_checkpoint(show_widget: ShowWidget, monkeypatch: pytest.MonkeyPatch) -> None:
    run, steps = write_run(8, "failed"), show_widget(NextSteps(), 400, 80)
    for kinds, code in (((), ""), (("last",), ".load('last')"), (("last", "best"), ".load('best')")):
        data = RunData()
        data.checkpoints |= {kind: saved(8, kind) for kind in kinds}
        data.failure = Failed(cause="a fault", traceback_file="fault.txt")
        steps.show_run(run, data)
        buttons = (steps.trial, steps.mistakes, steps.conversion, steps.copy)
        assert [each.isVisible() for each in buttons] == [bool(kinds)] * 4
        assert code in steps.code
        facts = describe_result(run, data)
        assert [f"{kind}.pt (1 B)" in facts for kind in ("last", "best")] == [
            kind in kinds for kind in ("last", "best")
        ]
        assert facts.count(str(run.path)) == 1 + bool(kinds)  # the traceback, and the checkpoints
    urls: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", urls.append)
    for opened_run in (run, write_run(8)):
        steps.show_run(opened_run, data)
        steps.open.click()
        assert urls[-1].toLocalFile() == str(opened_run.path)


def test_advice_folds_step_times_below_a_finding(show_widget: ShowWidget, monkeypatch: pytest.MonkeyPatch) -> None:
    view, data = show_widget(AdviceView(), 600, 300), data_of_times(spent())
    failed = RunStatus("Failed", "Failed: a fault")
    for status, is_folded in ((RunStatus("Completed", "Completed"), False), (failed, True)):
        view.show_data(data, status)
        assert (view.time.isVisible(), view.more.isVisible()) == (not is_folded, is_folded)
    view.more.click()
    assert view.time.isVisible()
    view.reset()
    view.show_data(data, failed)
    assert not view.time.isVisible()
    view.show_data(data, RunStatus("Running", "Running"))
    height = view.minimumHeight()
    monkeypatch.setattr(theme, "scale_pixels", lambda pixels: 3 * pixels)
    theme.notifier.changed.emit()
    assert 0 < height < view.minimumHeight()


def test_hero_of_completed_run_names_the_worst_class(show: Open) -> None:
    page = show(make_predicted_run())
    assert page.next_steps.isVisible()
    assert "worst class: ash (F1 " in page.header.hero.state.text()
    data = RunData(plan=make_plan(classes=("ash", "birch", "oak")))
    assert describe_worst_class(data) == ""
    for number, values in (
        (1, [0.5, 0.5, math.nan]),
        (2, [0.9, 0.3, 0.8]),
        (3, [0.9, 0.8, 0.1]),
        (3, [0.2, 0.4, math.nan]),
    ):  # the run has resumed before epoch 3
        data.validation_details.classes.append(ClassMetrics(number, number, {"F1": np.array(values)}, None))
        data.finished = RunFinished(outcome="completed", best_epoch=number)
    expected = {1: "", 2: "worst class: birch (F1 30.0%)", 3: "worst class: ash (F1 20.0%)"}
    for number, description in expected.items():
        data.finished.best_epoch = number
        assert describe_worst_class(data) == description
    data.finished = None
    assert describe_worst_class(data) == expected[3]
    data.validation_details.classes[-1].measures["Recall"] = np.array([0.9, 0.1, 0.5])
    data.validation_details.classes[-1].measures["F1"] = data.validation_details.classes[-1].measures.pop("F1")
    assert describe_worst_class(data) == expected[3]
    for plan in (make_plan(classes=("ash", "birch")), None):
        data.plan = plan
        assert describe_worst_class(data) == ""


def test_mistakes_without_an_evaluation_start_one(show: Open, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[object] = []
    monkeypatch.setattr(InferenceChild, "start", lambda _child, request: requests.append(request))
    page = show(write_run(80))
    page.next_steps.mistakes.click()
    qtbot.waitUntil(lambda: len(requests) == 1)


def test_page_of_failed_run_contains_the_cause_once(show: Open) -> None:
    page = show(write_run(12, "failed", cause="Out of memory on NVIDIA H200 at step 12"))
    assert page.header.hero.state.text() == "✖ Failed"
    assert page.advice.cause.text() == "Failed: Out of memory on NVIDIA H200 at step 12"


def test_curve_options_open_by_keyboard(show: Open, qtbot: QtBot) -> None:
    page = show(write_run(80))
    header = page.header
    assert not header.controls.isVisible()
    header.options.setFocus()
    qtbot.keyClick(header.options, Qt.Key.Key_Space)
    assert header.controls.isVisible()
    popup = header.controls.window()
    assert QApplication.activePopupWidget() is popup  # a click elsewhere closes it
    right = popup.mapToGlobal(popup.rect().topRight()).x()
    assert right == pytest.approx(header.options.mapToGlobal(header.options.rect().topRight()).x(), abs=2)
    popup.findChild(PlotList).item(0).setCheckState(Qt.CheckState.Unchecked)
    assert not page.charts.loss.isVisible()
    qtbot.keyClick(popup, Qt.Key.Key_Escape)
    assert not header.controls.isVisible()
    header.options.click()
    qtbot.waitUntil(lambda: len(popup.findChildren(PlotList)) == 1)
    assert popup.findChild(PlotList).item(0).checkState() == Qt.CheckState.Unchecked
    popup.close()
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


def emit_prediction(child: InferenceChild, request: PredictRequest, text: str, folder: Path) -> None:
    """Write a prediction with the label `text` to `folder`, and emit its path as the child's result for a request."""
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
    run = supervise_here(write_run(8, None))
    page.session.open(run)
    qtbot.waitUntil(lambda: not page.session.loading and page.charts is not None)
    page.header.tabs.setCurrentIndex(EVALUATE)
    drop_files(page, picture, picture.with_name("second.png"))
    live = page.live_prediction
    assert page.header.tabs.currentIndex() == CURVES
    assert live.isVisible()
    (request,) = requests
    assert (request.paths, request.devices) == ((str(picture),), ("cpu",))
    assert (request.at_once, request.checkpoint) == (True, "best")
    emit_prediction(live.child, request, "Coat 61%", tmp_path)
    qtbot.waitUntil(lambda: live.history.count() == 1)
    append_events(run, saved(20))
    qtbot.waitUntil(lambda: len(requests) == 2)
    assert requests[-1].checkpoint == "last"
    live.child.progress.emit(Progress(0.5, "Loading the model"))
    assert live.state.text() == "Loading the model…"
    emit_prediction(live.child, requests[-1], "Shirt 72%", tmp_path)
    qtbot.waitUntil(lambda: live.history.count() == 2)
    assert "Shirt 72%" in live.history.item(0).text()
    assert live.state.text() == "Predicted by the newest checkpoint"
    live.stop.click()
    assert not live.isVisible()


@pytest.mark.parametrize("signal", ["refused", "failed"])
def test_failed_prediction_continues_with_newer_checkpoint(
    page: RunPage, requests: list[PredictRequest], picture: Path, qtbot: QtBot, signal: str
) -> None:
    run = supervise_here(write_run(8, None))
    page.session.open(run)
    qtbot.waitUntil(lambda: not page.session.loading and page.charts is not None)
    drop_files(page, picture)
    live = page.live_prediction
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(live.child), "running", property(lambda _child: True))
        append_events(run, saved(20))
        qtbot.waitUntil(lambda: live._newest_checkpoint is page.session.data.checkpoints.get("last"))
    assert len(requests) == 1
    problem = "The live prediction ended early: exit code 1"
    getattr(live.child, signal).emit(problem if signal == "failed" else (Problem("checkpoint", problem),))
    assert [request.checkpoint for request in requests] == ["best", "last"]
    assert not live.failure.text()
    getattr(live.child, signal).emit(problem if signal == "failed" else (Problem("checkpoint", problem),))
    assert len(requests) == 2
    assert problem in live.failure.text()
    page.session.open(write_run(8))
    qtbot.waitUntil(live.isHidden)


def test_prediction_for_replaced_image_is_discarded(
    page: RunPage, requests: list[PredictRequest], picture: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    run = supervise_here(write_run(8, None))
    page.session.open(run)
    qtbot.waitUntil(lambda: not page.session.loading and page.charts is not None)
    drop_files(page, picture)
    live = page.live_prediction
    emit_prediction(live.child, requests[0], "Coat 61%", tmp_path)
    drop_files(page, picture)
    emit_prediction(live.child, requests[1], "Shirt 72%", tmp_path)
    qtbot.waitUntil(lambda: live.history.count() > 0)
    qtbot.waitUntil(lambda: not live.findChildren(Background))
    assert [live.history.item(row).text() for row in range(live.history.count())] == ["Step 8: Shirt 72%"]
    folder = Path(requests[-1].out).parent
    assert folder.exists()
    page.close_work()
    assert not folder.exists()


def test_image_dropped_on_ended_or_remote_run_is_listed(
    show: Open, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run, machine in ((write_run(8), ""), (supervise_here(write_run(8, None)), "tower")):
        monkeypatch.setattr("gui.run.page.machine_of", lambda _run, machine=machine: machine)
        page = show(run)
        drop_files(page, picture)
        assert page.header.tabs.currentIndex() == PREDICT
        assert page.views.currentWidget().predict_form.paths() == [str(picture)]


def test_header_shows_notes_and_buttons_that_apply(show_widget: ShowWidget) -> None:
    window = show_widget(QWidget(), 900, 300)
    header, charts, run = (
        show_widget(RunHeader(Actions(window)), 900, 200),
        show_widget(RunCharts(), 400, 300),
        write_run(8),
    )
    header.connect_charts(charts)
    assert not header.newest.isVisible()
    assert not header.notes.isVisible()
    assert header.isAncestorOf(header.save_elsewhere)
    for label, unsaved, is_offered in (("Running", True, True), ("Running", False, False), ("Unsaved", True, False)):
        header.show_run(run, None, RunData(unsaved=unsaved), RunStatus(label, label), is_loading=False)
        assert header.save_elsewhere.isVisible() is is_offered
    assert not header.remote.isVisible()
    remote = RunFolder(mirrors_folder("tower") / "a-run")
    header.show_run(remote, None, RunData(unsaved=True), RunStatus("Running", "Running"), is_loading=False)
    assert (header.save_elsewhere.isVisible(), header.remote.isVisible()) == (False, True)
    for is_following in (False, True):
        charts.group.following_changed.emit(is_following)
        assert header.newest.isVisible() is not is_following
    warnings = [Warned(code=code, message=code) for code in ("a", "b", "c", "d", "step_skipped", "e")]
    for events, lines in (
        (warnings, ["⚠ step_skipped", "⚠ e", "⚠ d"]),
        (warnings[:1], ["⚠ a"]),
        ([], []),
    ):
        header.notes.show_data(make_run_data(events))
        assert join_visible_texts(header.notes).splitlines() == lines
    resumed = list_run_events(job(), 8, None, execution=2)
    header.notes.show_data(make_run_data(list_run_events(job(), 8, None), resumed))
    kinds = [label.objectName() for label in header.notes.findChildren(WrappingLabel) if label.isVisible()]
    assert kinds == ["muted", "warning"]


def test_remote_bar_lists_and_fetches_files(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar, calls = show_widget(RemoteBar()), list[tuple[str, ...]]()
    files = [RunFile(path="checkpoints/a&b.pt", size_bytes=3 << 20), RunFile(path="worker-0.log", size_bytes=5)]
    answers: list[list[RunFile]] = [files, [], files]

    def list_files(machine: str, run_id: str) -> list[RunFile]:
        if not answers:
            raise QueryFailed(f"{machine} is off.")
        return answers.pop(0) if run_id == "a-run" else []

    monkeypatch.setattr("gui.run.header.list_remote_files", list_files)
    monkeypatch.setattr(bar.file_fetch, "start", lambda *file: calls.append(file))
    monkeypatch.setattr(bar.file_fetch, "cancel", lambda: calls.append(("cancelled",)))
    bar.show_run(write_run(8))
    assert not bar.isVisible()
    run, other = (RunFolder(mirrors_folder("tower") / name) for name in ("a-run", "another"))
    where = "This run is on tower. Closing the window doesn't affect it."
    bar.show_run(run)
    assert (bar.isVisible(), bar.label.text(), calls) == (True, where, [("cancelled",)] * 2)

    def open_menu() -> QMenu:
        bar.button.click()
        qtbot.waitUntil(lambda: bar.findChild(QMenu) is not None)
        return bar.findChild(QMenu)

    first, second = open_menu().actions()
    assert (first.text(), second.text()) == ("checkpoints/a&&b.pt · 3.0 MiB", "worker-0.log · 5 B")
    first.trigger()
    assert calls[2:] == [("tower", "a-run", "checkpoints/a&b.pt")]
    assert bar.label.text() == "Fetching checkpoints/a&b.pt…"
    assert (bar.cancel.isVisible(), bar.button.isVisible()) == (True, False)
    bar.file_fetch.progress.emit(FetchProgress(done_bytes=1 << 30, total_bytes=4 << 30))
    assert bar.label.text() == "Fetching checkpoints/a&b.pt: 1.0 of 4.0 GiB"
    with qtbot.waitSignal(bar.fetched):
        bar.file_fetch.done.emit("/runs/a-run/checkpoints/a&b.pt")
    for end, text in (
        (lambda: None, "checkpoints/a&b.pt is in /runs/a-run/checkpoints/a&b.pt."),
        (lambda: bar.file_fetch.refused.emit("It is gone."), "It is gone."),
        (lambda: bar.file_fetch.failed.emit("It ended."), "It ended."),
        (bar.cancel.click, where),
    ):
        end()
        assert (bar.label.text(), bar.cancel.isVisible(), bar.button.isVisible()) == (text, False, True)
        bar.fetch("worker-0.log")
    bar.show_run(run)
    assert bar.label.text() == "Fetching worker-0.log…"
    bar.show_run(other)
    assert (bar.label.text(), calls[-1]) == (where, ("cancelled",))
    bar.show_run(run)
    bar.findChild(QMenu).close()
    qtbot.waitUntil(lambda: bar.findChild(QMenu) is None)
    (nothing,) = open_menu().actions()
    assert (nothing.text(), nothing.isEnabled()) == ("No files to fetch", False)
    nothing.parent().close()
    qtbot.waitUntil(lambda: bar.findChild(QMenu) is None)
    for text in (where, where, "tower is off."):  # the first answers are for another run
        bar.button.click()
        if text == where:
            bar.show_run(other)
        qtbot.waitUntil(lambda: not bar.findChildren(Background))
        assert (bar.label.text(), bar.findChild(QMenu)) == (text, None)
        bar.show_run(run)
