"""Task that is detected when the user chooses a folder, and its default model."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.data.inspection.inspector import inspect
from gui.form.followers import create_sample_job
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.sources.resume_fork import Prefill
from tests.support.masks import make_masked


@pytest.fixture
def masks(tmp_path: Path) -> Path:
    return make_masked(tmp_path / "masks", {"train": 4, "val": 2})


def inspect_folder(form: JobForm, qtbot: QtBot) -> Job:
    """Wait until the form requests an inspection, inspect the folder, and pass the report to the form. Return the job.

    The job is the one for which the form requested the inspection.
    """
    with qtbot.waitSignal(form.folder_chosen) as blocker:
        pass
    job: Job = blocker.args[0]
    task = form.catalogue.task(job.task)
    report = inspect(
        job.data.dataset,
        val_fraction=job.data.val_fraction,
        seed=job.training.seed,
        progress=lambda _done, _total: None,
        kinds=task.annotations,
    )
    form.set_report(report)
    return job


def model_and_task(form: JobForm) -> tuple[str, str]:
    return form.field_value("model"), form.field_value("task")


def test_folder_sets_task_and_model(form: JobForm, masks: Path, qtbot: QtBot) -> None:
    form.set_job(create_sample_job())
    form.set_field("dataset", str(masks))
    assert inspect_folder(form, qtbot).task == "classification"
    assert form.is_inspecting
    assert (*model_and_task(form), form.field_value("encoder")) == ("unet", "segmentation", "tu-tf_efficientnet_lite0")
    assert form.rows["task"].note.text() == "Detected from the folder"
    assert inspect_folder(form, qtbot).task == "segmentation"
    assert form.inspection.report.kind == "masks"
    form.set_field("task", "classification")
    assert form.rows["task"].note.text() == ""


def test_chosen_task_stays(form: JobForm, masks: Path, qtbot: QtBot) -> None:
    form.set_field("dataset", str(masks))
    form.set_field("task", "detection")
    inspect_folder(form, qtbot)
    assert form.field_value("task") == "detection"
    assert form.inspection.report.other == "masks"


def test_loaded_task_stays(form: JobForm, masks: Path, qtbot: QtBot) -> None:
    form.set_job(create_sample_job())
    form.set_job(create_sample_job().with_fields(dataset=str(masks)))
    inspect_folder(form, qtbot)
    assert model_and_task(form) == (create_sample_job().model.name, "classification")


def test_chosen_model_stays(form: JobForm, tmp_path: Path) -> None:
    form.show_new(create_sample_job())
    form.set_field("model", "resnet50")
    form.set_field("dataset", str(tmp_path))
    assert form.field_value("model") == "resnet50"


def test_unrecognized_folder_keeps_the_task(form: JobForm, tmp_path: Path) -> None:
    form.set_field("dataset", str(tmp_path))
    form.set_report(DatasetReport(folder=str(tmp_path), format=""))
    assert form.field_value("task") == "classification"
    assert form.rows["task"].note.text() == ""


def test_prefill_keeps_its_task_with_another_folder(job_panel: JobPanel, masks: Path, qtbot: QtBot) -> None:
    job_panel.begin_prefill(Prefill(text="Like that run", job=create_sample_job()))
    form = job_panel.form
    form.set_field("dataset", str(masks))
    inspect_folder(form, qtbot)
    assert model_and_task(form) == (create_sample_job().model.name, "classification")
