"""Job panel: the form for new jobs, and prefilled forms that resume or fork a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLineEdit, QMessageBox, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.contract.problems import Choice, Problem
from engine.runs.folder import RunFolder
from engine.runs.resume import CHANGEABLE
from gui.form.panel import JobPanel
from gui.sources.active_runs import QueuedRun
from gui.sources.resume_fork import Prefill
from gui.widgets.layouts import hbox
from tests.gui.form.test_form import REPORT, problem_at
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import ShowWidget


@pytest.fixture
def run(images: Path) -> RunFolder:
    """Return a paused run on two CPU workers. Its seed differs from the seed in the form."""
    return write_run(
        8, "paused", dataset=str(images), model="mnist_cnn", image_size=28, strategy="ddp", devices=("cpu", "cpu"),
        seed=7, learning_rate=0.0123456789012, bucket_mib=8.0,
    )  # fmt: skip


@pytest.fixture
def panel(job_panel: JobPanel, images: Path, qtbot: QtBot) -> JobPanel:
    """Return a panel with a valid job, whose requests are fulfilled immediately, as otherwise by the window.

    Requested devices become selected, and each chosen folder gets the report `REPORT`.
    """
    job_panel.devices_requested.connect(job_panel.set_devices)
    job_panel.folder_chosen.connect(lambda job: job_panel.set_report(REPORT if job is not None else None))
    job_panel.set_job(Job.from_fields(dataset=str(images), model="mnist_cnn", image_size=28, epochs=3))
    qtbot.waitUntil(job_panel.submit_bar.train.isEnabled)
    return job_panel


def make_prefill(run: RunFolder, **changes: Any) -> Prefill:
    job = run.job()
    assert job is not None
    return Prefill(**({"text": "Resumes", "job": job, "run": run, "action": "Resume"} | changes))


def editor_values(panel: JobPanel) -> dict[str, Any]:
    return {name: row.editor.value() for name, row in panel.form.rows.items()}


def test_conflicting_strategy_is_repaired_by_its_button(panel: JobPanel, qtbot: QtBot) -> None:
    panel.set_devices(("cpu", "cpu"))
    panel.form.set_field("strategy", "single")
    row, train = panel.form.rows["strategy"], panel.submit_bar.train
    qtbot.waitUntil(lambda: row.problem_label.findChildren(QPushButton) != [])
    assert not train.isEnabled()
    (button,) = row.problem_label.findChildren(QPushButton)
    button.click()
    qtbot.waitUntil(train.isEnabled)
    assert panel.form.field_value("strategy") == "auto"
    with qtbot.waitSignal(panel.train_requested) as requested:
        panel.start()
    assert requested.args[0].resolved_strategy == "ddp"


def test_resume_locks_fields_that_cannot_change(panel: JobPanel, run: RunFolder) -> None:
    panel.begin_prefill(make_prefill(run))
    assert panel.banner.isVisible()
    assert panel.submit_bar.train.text() == "Resume"
    for name, row in panel.form.rows.items():
        assert row.editor.isEnabled() == (name in CHANGEABLE - {"name"}), name
        if row.locked:
            assert row.locked in row.editor.control.toolTip()
            assert row.locked in row.editor.control.accessibleDescription()
    assert len({panel.form.rows[name].locked for name in ("seed", "resume_from", "name")}) == 3
    assert not panel.form.options.isEnabled()
    assert panel.form.devices == ("cpu", "cpu")
    panel.form.set_queued_runs({"cpu": (QueuedRun("night shift"),)})
    assert panel.submit_bar.queue.isVisible()
    assert panel.submit_bar.train.text() == "Resume"
    panel.apply(Choice("Use another seed", {"seed": 7}))  # a locked field is set in the user's form
    assert not panel.banner.isVisible()
    assert panel.form.field_value("seed") == 7


def test_resume_requests_only_changes(panel: JobPanel, run: RunFolder, qtbot: QtBot) -> None:
    panel.begin_prefill(make_prefill(run))
    train = panel.submit_bar.train
    qtbot.waitUntil(train.isEnabled)
    with qtbot.waitSignal(panel.resume_requested) as requested:
        qtbot.mouseClick(train, Qt.MouseButton.LeftButton)
    assert requested.args == [run, {}]
    with qtbot.waitSignal(panel.resume_requested) as requested:
        panel.start(start="at_once")
    assert requested.args == [run, {"start": "at_once"}]
    panel.form.set_field("strategy", "single")
    panel.set_devices(("cpu",))
    panel.form.set_field("checkpoint_minutes", 1)
    with qtbot.waitSignal(panel.resume_requested) as requested, qtbot.assertNotEmitted(panel.train_requested):
        panel.start()
    expected = {"strategy": "single", "devices": ["cpu"], "checkpoint_minutes": 1.0, "bucket_mib": 25.0}
    assert requested.args == [run, expected]
    panel.submit_bar.copy.click()
    command = (
        f"footplate resume {run.run_id} --strategy single --devices cpu --checkpoint-minutes 1.0 --bucket-mib 25.0"
    )
    assert set(QGuiApplication.clipboard().text().split()) == set(command.split())


def test_own_form_returns_unchanged(panel: JobPanel, run: RunFolder, qtbot: QtBot) -> None:
    form_before = panel.form
    form_before.rows["learning_rate"].editor.line.setText("fast")  # type: ignore[attr-defined]
    form_before.set_field("strategy", "pipeline")
    form_before.set_field("microbatches", 4)
    form_before.set_field("strategy", "single")
    form_before.validate()
    values = editor_values(panel)
    assert form_before.job is None
    panel.begin_prefill(make_prefill(run))
    assert panel.form.field_value("learning_rate") == pytest.approx(0.0123456789)
    panel.begin_prefill(make_prefill(run, text="Again"))
    qtbot.waitUntil(panel.isActiveWindow)
    search = panel.form.body.filter.box
    search.setText("warm-up")
    search.setFocus()
    qtbot.keyClick(search, Qt.Key.Key_Escape)
    assert (search.text(), panel.banner_text.text()) == ("", "Again")
    panel.form.focus_field("epochs")
    with qtbot.waitSignal(panel.devices_requested) as requested:
        qtbot.keyClick(panel.form.rows["epochs"].editor.control, Qt.Key.Key_Escape)
    assert requested.args == [("cpu",)]
    assert panel.form is form_before
    assert editor_values(panel) == values
    assert form_before.devices == ("cpu",)
    assert panel.banner.isHidden()
    assert panel.submit_bar.train.text() == "Train"
    assert all(row.editor.isEnabled() for row in form_before.rows.values())
    assert "Learning rate" in problem_at(form_before, "learning_rate")


def test_escape_in_the_panel_asks_before_it_discards_edits(
    panel: JobPanel, run: RunFolder, show_widget: ShowWidget, qtbot: QtBot
) -> None:
    outside = QLineEdit()
    window = show_widget(QWidget())
    window.setLayout(hbox(panel, outside))
    panel.show()  # its new parent has hidden it
    panel.begin_prefill(make_prefill(run))
    panel.form.set_field("epochs", 9)
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    outside.setFocus()
    qtbot.keyClick(outside, Qt.Key.Key_Escape)
    assert not panel.findChildren(QMessageBox)
    panel.form.focus_field("epochs")
    qtbot.keyClick(panel.form.rows["epochs"].editor.control, Qt.Key.Key_Escape)
    assert panel.form.prefill is not None
    (box,) = panel.findChildren(QMessageBox)
    next(button for button in box.buttons() if button.text() == "Discard").click()
    assert panel.form.prefill is None
    panel.setParent(None)  # the window would delete it before its fixture ends its work


def test_reset_returns_to_the_runs_value(panel: JobPanel, run: RunFolder) -> None:
    panel.begin_prefill(make_prefill(run))
    form = panel.form
    section = next(section for section in form.sections if section.title == "Strategy")
    assert section.mark.text() == ""  # although the run's buckets are not the default
    form.set_field("bucket_mib", 16)
    assert section.mark.text() == "● 1 changed"
    assert form.rows["bucket_mib"].reset.toolTip() == "Reset to the run's value"
    form.rows["bucket_mib"].reset.click()
    assert form.field_value("bucket_mib") == 8.0
    panel.end_prefill()
    assert panel.form.rows["bucket_mib"].standard == 25.0


def test_resume_problems_are_at_their_fields(panel: JobPanel, images: Path, qtbot: QtBot) -> None:
    completed = write_run(8, dataset=str(images), model="mnist_cnn", image_size=28)
    panel.begin_prefill(
        make_prefill(completed, action="Train further", preset={"epochs": 9, "weight_decay": 0.25}, focus="epochs")
    )
    form, train = panel.form, panel.submit_bar.train
    qtbot.waitUntil(train.isEnabled)
    assert panel.window().focusWidget() is form.rows["epochs"].editor.control
    assert next(section for section in form.sections if section.title == "Optimizer").is_open
    assert form.field_value("weight_decay") == 0.25
    form.rows["weight_decay"].reset.click()
    assert form.field_value("weight_decay") == completed.job().optimizer.weight_decay
    form.set_field("epochs", 4)
    qtbot.waitUntil(lambda: any(problem.field == "epochs" and problem.severity == "error" for problem in form.problems))
    assert not train.isEnabled()
    assert "Train further" in train.toolTip()
    form.set_field("checkpoint_minutes", "often")
    form.validate()
    assert [problem.field for problem in form.problems].count("checkpoint_minutes") == 1


def test_resume_is_validated_with_the_runs_checkpoint(panel: JobPanel, run: RunFolder, qtbot: QtBot) -> None:
    parents = make_prefill(run).job.with_fields(resume_from="/gone/last.pt")
    panel.begin_prefill(make_prefill(run, job=parents, checkpoint=str(run.job_file)))
    assert problem_at(panel.form, "resume_from") == ""
    panel.begin_prefill(make_prefill(run, checkpoint="/gone/last.pt"))
    qtbot.waitUntil(lambda: "/gone/last.pt" in problem_at(panel.form, "resume_from"))


def test_prefill_requests_its_preset_devices(panel: JobPanel, run: RunFolder, qtbot: QtBot) -> None:
    for preset, devices in (({"devices": "GPU-a,GPU-b"}, ("GPU-a", "GPU-b")), ({}, ("cpu", "cpu"))):
        with qtbot.waitSignal(panel.devices_requested) as requested:
            panel.begin_prefill(make_prefill(run, preset=preset))
        assert requested.args == [devices]


def test_fork_is_a_new_run_without_locks(panel: JobPanel, run: RunFolder, qtbot: QtBot) -> None:
    job = make_prefill(run).job.with_fields(resume_from=str(run.job_file))
    panel.begin_prefill(Prefill(text="A new run", job=job))
    assert all(row.editor.isEnabled() for row in panel.form.rows.values())
    assert panel.form.options.isEnabled()
    panel.form.set_field("seed", 8)
    qtbot.waitUntil(panel.submit_bar.train.isEnabled)
    with qtbot.waitSignal(panel.train_requested) as requested:
        panel.start()
    (new,) = requested.args
    assert new == job.with_fields(seed=8, learning_rate=new.optimizer.learning_rate)


def test_prefill_ends_only_when_its_run_starts(panel: JobPanel, run: RunFolder, qtbot: QtBot) -> None:
    panel.begin_prefill(make_prefill(run))
    train = panel.submit_bar.train
    qtbot.waitUntil(train.isEnabled)
    job_before = panel.job_form.job
    assert job_before.training.epochs == 3
    panel.on_started()  # another run, requested elsewhere
    panel.form.set_starting(True)
    assert not panel.on_start_failed([Problem("run", "It was refused.")])
    assert train.isEnabled()
    assert "It was refused." not in panel.submit_bar.reason.text()
    assert panel.form.prefill is not None
    with qtbot.waitSignal(panel.resume_requested):
        panel.start()
    panel.form.set_starting(True)
    assert panel.on_start_failed([Problem("run", "The disk is full.")])
    assert panel.form.prefill is not None
    assert "The disk is full." in panel.submit_bar.reason.text()
    panel.form.set_field("epochs", 8)
    qtbot.waitUntil(train.isEnabled)
    with qtbot.waitSignal(panel.resume_requested):
        panel.start()
    panel.on_started()
    assert panel.form.prefill is None
    assert panel.job_form.job == job_before


def test_setting_a_locked_field_returns_to_the_form_of_the_new_job(
    panel: JobPanel, run: RunFolder, tmp_path: Path, qtbot: QtBot
) -> None:
    panel.begin_prefill(make_prefill(run))
    with qtbot.waitSignal(panel.devices_requested) as requested:
        panel.set_dataset(str(tmp_path))
    assert requested.args == [("cpu",)]
    assert panel.form is panel.job_form
    assert panel.form.field_value("dataset") == str(tmp_path)
    assert panel.form.field_value("epochs") == 3


def test_report_is_shared_by_forms_with_the_same_folder(job_panel: JobPanel, images: Path, qtbot: QtBot) -> None:
    with qtbot.waitSignal(job_panel.folder_chosen):
        job_panel.set_job(Job.from_fields(dataset=str(images)))
    job_panel.set_report(REPORT)
    for job, report in (
        (Job.from_fields(dataset=str(images.parent)), None),
        (Job.from_fields(dataset=str(images), seed=3), None),
        (Job.from_fields(dataset=str(images), epochs=9), REPORT),
    ):
        with qtbot.waitSignal(job_panel.folder_chosen) as chosen:
            job_panel.begin_prefill(Prefill(text="A fork", job=job))
        assert chosen.args == [None]  # cancels the inspection for the other form
        assert job_panel.form.report is report
        job_panel.end_prefill()
        assert job_panel.form.report is REPORT


def test_inspection_of_hidden_form_is_repeated_when_it_returns(
    job_panel: JobPanel, images: Path, run: RunFolder, qtbot: QtBot
) -> None:
    with qtbot.waitSignal(job_panel.folder_chosen):
        job_panel.set_job(Job.from_fields(dataset=str(images)))
    job_panel.begin_prefill(make_prefill(run))
    with qtbot.assertNotEmitted(job_panel.folder_chosen):
        job_panel.job_form.inspection.requested.emit(Job.from_fields(dataset=str(images)))
    with qtbot.waitSignal(job_panel.folder_chosen, check_params_cb=lambda job: job is not None):
        job_panel.end_prefill()


def test_banner_is_reached_by_tab_and_cancels_by_space(panel: JobPanel, run: RunFolder, qtbot: QtBot) -> None:
    panel.begin_prefill(make_prefill(run))
    qtbot.waitUntil(panel.isActiveWindow)
    reached: set[QWidget | None] = set()
    for _press in range(120):
        panel.focusNextChild()
        reached.add(panel.window().focusWidget())
    assert panel.cancel in reached
    assert panel.form.rows["seed"].editor.control not in reached
    panel.cancel.setFocus()
    qtbot.keyClick(panel.cancel, Qt.Key.Key_Space)
    assert panel.form.prefill is None
    qtbot.waitUntil(panel.submit_bar.train.hasFocus)
