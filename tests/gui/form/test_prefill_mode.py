"""Another run's job in the form, to go on with or forked, and the form's own, which comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.runs.resume import CHANGEABLE
from gui.form.form import JobForm
from gui.sources.prefill import Prefill
from tests.gui.form.test_form import REPORT, shown_at
from tests.gui.sources.written_runs import a_run


@pytest.fixture
def run(images: Path) -> RunFolder:
    """A paused run of two CPU workers, with another seed than the form's own job."""
    return a_run(
        8, "paused", dataset=str(images), model="mnist_cnn", image_size=28, strategy="ddp", devices=("cpu", "cpu"),
        seed=7, learning_rate=0.0123456789012, bucket_mib=8.0,
    )  # fmt: skip


@pytest.fixture
def ready(form: JobForm, images: Path, qtbot: QtBot) -> JobForm:
    """The form with a job of its own in order; devices follow as the panel does, and folders are looked through."""
    form.prefill_mode.devices_wanted.connect(form.set_devices)
    form.folder_chosen.connect(lambda folder, *_: form.set_report(REPORT if folder else None))
    form.set_job(Job(dataset=str(images), model="mnist_cnn", image_size=28, epochs=3))
    qtbot.waitUntil(form.train.isEnabled)
    return form


def going_on(run: RunFolder, **changes: Any) -> Prefill:
    job = run.job()
    assert job is not None
    return Prefill(**({"said": "Goes on", "job": job, "run": run, "action": "Resume"} | changes))


def test_that_what_may_not_change_is_off_and_says_why(ready: JobForm, run: RunFolder) -> None:
    ready.prefill_mode.begin(going_on(run))
    assert ready.prefill_mode.band.isVisible()
    assert ready.train.text() == "Resume"
    for name, row in ready.rows.items():
        assert row.editor.isEnabled() == (name in CHANGEABLE - {"name"}), name
    for name, why in (("seed", "when resuming"), ("resume_from", "last checkpoint"), ("name", "Rename the run")):
        control = ready.rows[name].editor.control
        assert why in control.toolTip()
        assert why in control.accessibleDescription()
    assert ready.devices == ("cpu", "cpu")


def test_that_resume_asks_for_what_was_changed_alone(ready: JobForm, run: RunFolder, qtbot: QtBot) -> None:
    ready.prefill_mode.begin(going_on(run))
    qtbot.waitUntil(ready.train.isEnabled)
    with qtbot.waitSignal(ready.resume_requested) as asked:
        qtbot.mouseClick(ready.train, Qt.MouseButton.LeftButton)
    assert asked.args == [run, {}]
    ready.rows["strategy"].set_value("single")
    ready.set_devices(("cpu",))
    ready.rows["checkpoint_minutes"].set_value(1)
    with qtbot.waitSignal(ready.resume_requested) as asked, qtbot.assertNotEmitted(ready.train_requested):
        ready.start()
    wanted = {"strategy": "single", "devices": ["cpu"], "checkpoint_minutes": 1.0, "bucket_mib": 25.0}
    assert asked.args == [run, wanted]
    ready.copy.click()
    command = (
        f"footplate resume {run.run_id} --strategy single --devices cpu --checkpoint-minutes 1.0 --bucket-mib 25.0"
    )
    assert set(QGuiApplication.clipboard().text().split()) == set(command.split())


def test_that_the_forms_own_job_comes_back_as_it_was(ready: JobForm, run: RunFolder, qtbot: QtBot) -> None:
    ready.rows["learning_rate"].editor.line.setText("fast")  # type: ignore[attr-defined]
    ready.rows["strategy"].set_value("pipeline")
    ready.rows["microbatches"].set_value(4)
    ready.rows["strategy"].set_value("single")
    ready.judge()
    own = {name: row.editor.value() for name, row in ready.rows.items()}
    assert ready.prefill_mode.own_job is None
    ready.prefill_mode.begin(going_on(run))
    assert ready.rows["learning_rate"].value() == pytest.approx(0.0123456789)
    ready.rows["epochs"].set_value(9)
    ready.prefill_mode.begin(going_on(run, said="Again"))
    qtbot.waitActive(ready)
    ready.rows["epochs"].editor.control.setFocus()
    qtbot.keyClick(ready.rows["epochs"].editor.control, Qt.Key.Key_Escape)
    assert {name: row.editor.value() for name, row in ready.rows.items()} == own
    assert ready.devices == ("cpu",)
    assert ready.prefill_mode.band.isHidden()
    assert ready.train.text() == "Train"
    assert all(row.editor.isEnabled() for row in ready.rows.values())
    assert "Learning rate" in shown_at(ready, "learning_rate")


def test_that_the_way_back_leads_to_what_the_run_had(ready: JobForm, run: RunFolder) -> None:
    ready.prefill_mode.begin(going_on(run))
    section = next(section for section in ready.sections if section.title == "Strategy")
    assert section.mark.text() == ""  # although the run's buckets are not the default
    ready.rows["bucket_mib"].set_value(16)
    assert section.mark.text() == "● 1 changed"
    ready.rows["bucket_mib"].reset.click()
    assert ready.rows["bucket_mib"].value() == 8.0
    ready.prefill_mode.end()
    assert ready.rows["bucket_mib"].standard == 25.0


def test_that_what_keeps_the_run_from_going_on_is_told_at_its_field(ready: JobForm, images: Path, qtbot: QtBot) -> None:
    completed = a_run(8, dataset=str(images), model="mnist_cnn", image_size=28)
    ready.prefill_mode.begin(going_on(completed, action="Train further", preset={"epochs": 9}, focus="epochs"))
    qtbot.waitUntil(ready.train.isEnabled)
    assert ready.window().focusWidget() is ready.rows["epochs"].editor.control
    ready.rows["epochs"].set_value(4)
    qtbot.waitUntil(lambda: "more than 4 epochs" in shown_at(ready, "epochs"))
    assert not ready.train.isEnabled()
    assert ready.train.toolTip().startswith("Correct these fields to enable Train further")


def test_that_the_job_is_checked_as_one_that_continues_from_the_runs_checkpoint(
    ready: JobForm, run: RunFolder, qtbot: QtBot
) -> None:
    parents = msgspec.structs.replace(going_on(run).job, resume_from="/gone/last.pt")
    ready.prefill_mode.begin(going_on(run, job=parents, checkpoint=str(run.job_file)))
    assert shown_at(ready, "resume_from") == ""
    ready.prefill_mode.begin(going_on(run, checkpoint="/gone/last.pt"))
    qtbot.waitUntil(lambda: "There is no file /gone/last.pt" in shown_at(ready, "resume_from"))


def test_that_a_fork_is_a_new_run_and_everything_in_it_may_change(ready: JobForm, run: RunFolder, qtbot: QtBot) -> None:
    job = msgspec.structs.replace(going_on(run).job, resume_from=str(run.job_file))
    ready.prefill_mode.begin(Prefill(said="A new run", job=job))
    assert all(row.editor.isEnabled() for row in ready.rows.values())
    ready.rows["seed"].set_value(8)
    qtbot.waitUntil(ready.train.isEnabled)
    with qtbot.waitSignal(ready.train_requested) as asked:
        ready.start()
    (wanted,) = asked.args
    assert wanted == msgspec.structs.replace(job, seed=8, learning_rate=wanted.learning_rate)


def test_that_the_own_job_comes_back_once_the_guest_has_been_started_and_stays_away_while_it_has_not(
    ready: JobForm, run: RunFolder, qtbot: QtBot
) -> None:
    ready.prefill_mode.begin(going_on(run))
    qtbot.waitUntil(ready.train.isEnabled)
    own = ready.prefill_mode.own_job
    assert own is not None
    assert own.epochs == 3
    ready.set_started()  # another run, asked for elsewhere
    assert ready.prefill_mode.prefill is not None
    with qtbot.waitSignal(ready.resume_requested):
        ready.start()
    ready.set_starting(True)
    ready.set_start_problems([Problem("run", "The disk is full.")])
    assert ready.prefill_mode.prefill is not None
    assert "The disk is full." in ready.reason.text()
    ready.rows["epochs"].set_value(8)
    qtbot.waitUntil(ready.train.isEnabled)
    with qtbot.waitSignal(ready.resume_requested):
        ready.start()
    ready.set_started()
    assert ready.prefill_mode.prefill is None
    assert ready.prefill_mode.own_job == own


def test_that_a_folder_for_a_new_run_sends_the_guest_away(ready: JobForm, run: RunFolder, tmp_path: Path) -> None:
    ready.prefill_mode.begin(going_on(run))
    ready.set_dataset(str(tmp_path))
    assert ready.prefill_mode.prefill is None
    assert ready.rows["dataset"].value() == str(tmp_path)
    assert ready.rows["epochs"].value() == 3


def test_that_the_band_and_its_button_are_reached_by_tab_and_have_names(
    ready: JobForm, run: RunFolder, qtbot: QtBot
) -> None:
    ready.prefill_mode.begin(going_on(run))
    qtbot.waitActive(ready)
    reached: set[QWidget | None] = set()
    for _press in range(120):
        ready.focusNextChild()
        reached.add(ready.focusWidget())
    assert ready.prefill_mode.band.cancel in reached
    assert ready.rows["seed"].editor.control not in reached
    ready.prefill_mode.band.cancel.setFocus()
    qtbot.keyClick(ready.prefill_mode.band.cancel, Qt.Key.Key_Space)
    assert ready.prefill_mode.prefill is None
    qtbot.waitUntil(ready.train.hasFocus)
