"""Page of the advisor."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.advice import Advice, AdviceProgress, Candidate, JobTime, MachinesPrediction, SkippedCandidates
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.system import paths
from gui.advice.advice_format import describe_left_out, describe_measurement
from gui.advice.answer_view import NO_PREDICTION
from gui.advice.page import AdvicePage
from gui.advice.table import COLUMNS, ENERGY, NAME, SPEED, AdviceModel
from gui.style import theme
from gui.widgets.column_model import BAR, INTERVAL, select_row
from gui.widgets.trial_page import EMPTY, FAILURE, RESULT
from tests.support.widgets import OpenWindow, ShowWidget, join_visible_texts

TWO = ("cpu", "cpu")
JOB = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, devices=TWO)
TIME = JobTime(
    total_s=100.0,
    start_s=20.0,
    epochs=5,
    steps=10,
    step_s=1.5,
    validation_s=1.0,
    measured=("step",),
    estimated=("start",),
)


def a_candidate(strategy: str, speed: float | None, **fields: object) -> Candidate:
    defaults = {
        "name": strategy.upper(),
        "strategy": strategy,
        "devices": TWO,
        "changes": {"strategy": strategy},
        "state": "measured" if speed else "too_large",
        "images_per_second": speed,
        "low": speed and speed - 10,
        "high": speed and speed + 20,
        "estimated_bytes": 3 << 30,
        "limit_bytes": 4 << 30,
        "time": TIME if speed else None,
    }
    return Candidate(**(defaults | fields))  # type: ignore[arg-type]


TABLE = (
    a_candidate("ddp", 800.0, changes={"strategy": "ddp", "bucket_mib": 5.0}, memory_bytes=2 << 30),
    a_candidate("single", 500.0, changes={"devices": ("cpu",)}, is_requested=True, joules_per_thousand_images=640.0),
    a_candidate("fsdp", None, why="It ran out of memory."),
)


@pytest.mark.parametrize(("high", "equal"), [(789.0, 1), (790.0, 2)])
def test_overlapping_intervals_are_equally_fast(high: float, equal: int) -> None:
    other = a_candidate("single", 500.0, high=high)
    answer = an_answer(table=(TABLE[0], other, TABLE[2]))
    assert len(answer.equally_fast) == equal
    assert ("equally fast" in " ".join(describe_measurement(answer))) == (equal > 1)
    too_large = an_answer(table=(TABLE[2], TABLE[2]), fits=False)
    assert too_large.equally_fast == (TABLE[2],)


@pytest.mark.parametrize(("count", "end"), [(8, "g; h"), (9, "h; and 1 more")])
def test_candidates_that_were_not_tried_are_named_up_to_a_limit(count: int, end: str) -> None:
    text = describe_left_out(SkippedCandidates("memory", tuple("abcdefghi"[:count]), "They are too large."))
    assert text.startswith(f"{count} ways: They are too large.\na; b; ")
    assert text.endswith(end)


def an_answer(**fields: object) -> Advice:
    defaults = {
        "table": TABLE,
        "fits": True,
        "sentence": "DDP is fastest: 800 images/s, 1.60x one device. 2 of your 4 GPUs are enough.",
        "what_would_change": ("Below a batch of 8 one device is as fast.",),
        "considered": 9,
        "left_out": (SkippedCandidates("memory", ("TP", "DP"), "They need more memory than a device has."),),
        "ended_by": "settled",
        "confidence": 0.95,
        "took_s": 40.0,
        "measured_at": 1.8e9,
        "hardware": ("2 × NVIDIA H200",),
        "versions": {"torch": "2.9"},
    }
    return Advice(**(defaults | fields))  # type: ignore[arg-type]


@pytest.fixture
def page(show_widget: ShowWidget) -> AdvicePage:
    """Return a page whose advisor process has been canceled. Tests emit the messages of the process instead."""
    page = show_widget(AdvicePage(), 800, 900, close=lambda widget: widget.child.close())
    page.show_job(JOB, [Problem("strategy", "Single device takes one device.")])  # the advisor ignores it
    assert page.child.running
    page.child.cancel()
    return page


def cells(page: AdvicePage, column: int) -> list[str]:
    return [page.view.table.rows.index(row, column).data() for row in range(page.view.table.rows.rowCount())]


def choose(page: AdvicePage, row: int) -> None:
    select_row(page.view.table, row)


def test_advice_page_shows_progress(page: AdvicePage) -> None:
    trying = a_candidate("fsdp", None, state="trying")
    page.child.progress.emit(
        AdviceProgress(
            fraction=0.4, what="Trying FSDP", seconds_left=36.0, considered=9, left=3, table=(TABLE[0], trying)
        )
    )
    assert (page.activity.text(), page.progress.value()) == ("Trying FSDP…", 40)
    assert page.remaining.text().startswith("36 s left")
    assert page.tried_so_far.isVisible()
    assert not page.options.ask.isVisible()
    assert page.subtitle.text() == f"MNIST CNN, batch size {JOB.training.batch_size}, 2 CPU workers"
    page.child.cancel()
    page.show_job(JOB, [])
    assert (page.remaining.text(), page.tried_so_far.isVisible(), page.cancel.isEnabled()) == ("", False, True)
    page.child.cancel()


def test_advice_page_shows_answer_and_uses_its_first_row(page: AdvicePage, qtbot: QtBot) -> None:
    page.child.done.emit(an_answer())
    assert f"{page.view.sentence.text()} {page.view.more.text()}" == an_answer().sentence
    assert cells(page, SPEED) == ["800 ± 15", "500 ± 15", "–"]
    assert cells(page, 2) == ["2.0 of 4.0", "≈ 3.0 of 4.0", "≈ 3.0 of 4.0"]
    assert cells(page, len(COLUMNS) - 1)[2] == "It ran out of memory."
    assert "1,500.0 ms" in join_visible_texts(page.view)
    assert "They need more memory" in page.view.left_out.text()
    assert not page.view.left_out.isVisible()
    assert "2 × NVIDIA H200" in page.view.how.body.text()
    assert not page.view.saved.isVisible()
    for key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
        with qtbot.waitSignal(page.closed), qtbot.waitSignal(page.used) as used:
            page.view.table.setFocus()
            qtbot.keyClick(page.view.table, key)
        assert used.args == [{"strategy": "ddp", "devices": TWO, "bucket_mib": 5.0}]


def test_advice_page_uses_other_row_that_fits(page: AdvicePage, qtbot: QtBot) -> None:
    page.child.done.emit(an_answer())
    tips = {page.use.toolTip()}
    choose(page, 1)
    tips.add(page.use.toolTip())
    assert page.values() == {"strategy": "auto", "devices": ("cpu",), "bucket_mib": JOB.parallel.bucket_mib}
    with qtbot.waitSignal(page.used, timeout=1000):
        page.view.table.doubleClicked.emit(page.view.table.rows.index(1, NAME))
    choose(page, 2)
    assert not page.use.isEnabled()
    page.child.done.emit(an_answer(table=(a_candidate("single", 500.0, changes={}), TABLE[2])))
    assert page.view.table.chosen() is TABLE[2]
    choose(page, 0)
    assert len(tips | {page.use.toolTip()}) == 3


def test_advice_table_is_as_high_as_its_rows_up_to_a_limit(page: AdvicePage) -> None:
    def height(count: int) -> int:
        page.view.table.show_candidates([a_candidate(f"s{number}", 500.0) for number in range(count)])
        return page.view.table.height()

    row = page.view.table.verticalHeader().defaultSectionSize()
    assert [height(count) - height(1) for count in (0, 1, 2, 14, 20)] == [0, 0, row, 13 * row, 13 * row]


def test_advice_table_sorts_unknown_values_last(page: AdvicePage) -> None:
    page.child.done.emit(an_answer())
    page.view.table.sortByColumn(SPEED, Qt.SortOrder.AscendingOrder)
    assert cells(page, SPEED) == ["500 ± 15", "800 ± 15", "–"]
    chosen = page.chosen()
    assert chosen.strategy == "ddp"
    assert cells(page, ENERGY) == ["640 J", "–", "–"]


def test_advice_page_shows_remedies_if_nothing_fits(page: AdvicePage) -> None:
    page.child.done.emit(
        an_answer(
            table=TABLE[2:], fits=False, sentence="Nothing fits.", remedies=("Use a batch of 8.",), ended_by="time"
        )
    )
    assert page.view.sentence.text() == "Nothing fits."
    assert page.view.remarks.text() == "Use a batch of 8."
    assert not page.use.isEnabled()
    assert page.view.table.isColumnHidden(ENERGY)


def test_advice_page_replaces_an_answer(page: AdvicePage) -> None:
    page.child.done.emit(an_answer(remedies=("Use a batch of 8.",)))
    view = page.view
    assert view.fitting.body.text() == "Use a batch of 8."
    assert view.count.text() == "3 of 9 candidates were tried; fastest first"
    view.fold.click()
    assert view.left_out.isVisible()
    view.show_answer(an_answer(table=(), fits=False, sentence="Nothing fits.", is_cached=True), 2)
    assert view.count.text() == "0 of 9 candidates were tried"
    shown = (view.more, view.table, view.fitting, view.fold, view.left_out)
    assert [widget.isVisible() for widget in shown] == [False, False, False, True, False]
    assert view.machines.body.text() == NO_PREDICTION
    view.show_answer(an_answer(left_out=(), is_cached=True), 1)
    assert not view.machines.isVisible()
    assert not view.fold.isVisible()


def test_advice_page_measures_saved_answer_again(page: AdvicePage) -> None:
    page.child.done.emit(an_answer(is_cached=True))
    assert page.view.saved.text()
    page.job_requested.connect(lambda: page.show_job(JOB, []))
    page.repeat.click()
    assert page.child.running
    assert page._request.remeasure
    page.child.cancel()
    page.show_job(JOB.with_fields(batch_size=8), [])
    assert not page._request.remeasure
    page.child.cancel()


def test_advice_page_requests_machines_and_time(page: AdvicePage) -> None:
    page.job_requested.connect(lambda: page.show_job(JOB, []))
    page.child.done.emit(an_answer())
    assert (page.options.build_request(JOB).network, page.options.network.isVisible()) == (None, False)
    page.options.machines.setValue(4)
    assert (page.options.network.isVisible(), page.options.ask.isVisible()) == (True, True)
    page.options.ask.click()
    request = page._request
    assert (request.machines, request.network.bits_per_second, request.remeasure) == (4, 10e9, False)
    assert not page.options.ask.isVisible()
    prediction = MachinesPrediction(
        machines=4,
        images_per_second=2e3,
        efficiency=0.6,
        total_s=40,
        sent_bytes=9,
        sending_s=1,
        sentence="4 are faster.",
    )
    page.child.cancel()
    page.child.done.emit(an_answer(machines=(prediction,)))
    assert page.view.machines.body.text() == "4 are faster."
    for speed, differs in ((20.0, True), (10.0, False)):
        page.options.network.setValue(speed)
        assert page.options.ask.isVisible() is differs
    page.options.time.setCurrentIndex(page.options.time.findData(300))
    page.options.ask.click()
    assert (page._request.seconds, page._request.remeasure) == (300.0, True)


def test_advice_page_marks_outdated_answer(page: AdvicePage) -> None:
    page.child.done.emit(an_answer())
    page.set_job(JOB.with_fields(strategy="ddp", bucket_mib=5.0))  # as advised
    assert page.notice.text() == ""
    for change in ({"batch_size": 64}, {"epochs": 9}):
        page.set_job(JOB)
        page.set_job(JOB.with_fields(**change))
        assert page.notice.text()


def test_advice_page_copies_answer(page: AdvicePage) -> None:
    page.child.done.emit(an_answer())
    page.view.copy.click()
    text = QGuiApplication.clipboard().text()
    assert text.startswith("DDP is fastest")
    assert "DDP\t800 ± 15\t2.0 of 4.0\t1:40 min" in text
    assert "TP; DP" in text
    assert "Efficiency\tEnergy\tNote\n" in text


def test_advice_page_stopped_early_is_empty(page: AdvicePage, qtbot: QtBot) -> None:
    page.show_job(JOB.with_fields(batch_size=8), [])
    page.cancel.click()
    assert page.cancel.text() == "Stopping…"
    qtbot.waitUntil(lambda: not page.child.running)
    assert page._stack.currentIndex() in (EMPTY, RESULT)  # depending on whether the advisor had started
    assert page.chosen() is None
    page.show_job(JOB, [])
    assert (page.cancel.text(), page.cancel.isEnabled()) == ("Stop", True)
    page.child.cancel()
    page.child.failed.emit("It broke.")
    assert page._stack.currentIndex() == FAILURE


def test_advice_page_fills_form_and_marks_problems(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    window.form.set_job(JOB)
    window.workspace.devices.set_selection(TWO)
    qtbot.waitUntil(lambda: window.form.job is not None and not window.form.disk.unanswered)
    button = window.form.find_buttons["strategy"]
    window.form.focus_field("strategy")
    button.click()
    page = window.workspace.get_page("strategy")
    assert window.pages.currentWidget() is page
    page.child.cancel()
    page.child.refused.emit((Problem("image_size", "Too small.", "Enlarge it."),))
    assert page._stack.currentIndex() == FAILURE
    assert window.form.rows["image_size"].problem_label.text() == "Too small. Enlarge it."
    page.child.done.emit(an_answer())
    page.use.click()
    assert window.form.field_value("strategy") == "ddp"
    assert window.form.rows["bucket_mib"].is_changed
    choose(page, 1)  # type: ignore[arg-type]
    page.use.click()
    assert (window.form.field_value("strategy"), window.form.devices) == ("auto", ("cpu",))
    assert not window.form.rows["bucket_mib"].is_changed
    assert button.hasFocus()


@pytest.mark.long
def test_advisor_advises_on_job_of_form(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    window.form.set_job(JOB)
    window.workspace.devices.set_selection(TWO)
    qtbot.waitUntil(lambda: window.form.job is not None and not window.form.disk.unanswered)
    page = window.workspace.get_page("strategy")
    assert isinstance(page, AdvicePage)
    page.options.time.addItem("20 seconds", 20)
    page.options.time.setCurrentIndex(page.options.time.findData(20))
    window.form.find_buttons["strategy"].click()
    qtbot.waitUntil(lambda: not page.child.running or bool(page.tried_so_far.model_.candidates))
    qtbot.waitUntil(lambda: not page.child.running)
    assert page.failure.text() == ""
    assert page.found is not None
    first = page.chosen()
    assert first.images_per_second is not None
    assert page.notice.text() == ""
    page.use.click()
    qtbot.waitUntil(lambda: window.form.job is not None and window.form.job.resolved_strategy == first.strategy)
    assert window.form.devices == first.devices
    window.form.find_buttons["strategy"].click()
    assert not page.child.running  # the job is as advised
    assert page.notice.text() == ""


def test_accessible_name_of_candidate_without_note(styled: QApplication) -> None:
    model = AdviceModel()
    candidates = [a_candidate("ddp", 800.0), a_candidate("tp", 410.0, low=None, high=None), TABLE[2]]
    model.show_candidates(candidates, has_advice=True)
    names = [model.index(row, NAME).data(Qt.ItemDataRole.AccessibleTextRole) for row in range(3)]
    assert names == ["Advised: DDP", "TP", "FSDP, It ran out of memory."]
    bars = [(model.index(row, SPEED).data(BAR), model.index(row, SPEED).data(INTERVAL)) for row in range(3)]
    assert bars == [(800 / 820, (790 / 820, 1)), (0.5, None), (None, None)]
    is_bold = [model.index(0, NAME).data(Qt.ItemDataRole.FontRole) is not None]
    model.show_candidates(candidates, has_advice=False)
    is_bold.append(model.index(0, NAME).data(Qt.ItemDataRole.FontRole) is not None)
    assert is_bold == [True, False]


@pytest.mark.usefixtures("normal_text")
def test_advice_name_column_follows_text_size(page: AdvicePage) -> None:
    table = page.view.table
    table.show_candidates([a_candidate("ddp", 800.0)])
    table.resize(300, table.height())
    width = table.columnWidth(NAME)
    theme.choose("system", 200)
    assert table.columnWidth(NAME) == 2 * width
