"""Custom task in the form: its file, and consent to run it."""

from __future__ import annotations

from pathlib import Path

from pytestqt.qtbot import QtBot

import resources
from engine.checks.disk import model_file_sha256
from engine.contract.dataset import DatasetReport, SplitReport
from engine.contract.job import Job
from gui.form.form import JobForm
from tests.gui.form.test_form import shown_at
from tests.gui.form.test_form_tasks import offered

EXAMPLE = Path(resources.__path__[0]) / "examples/counting.py"


def test_custom_task_needs_consent(form: JobForm, images: Path, qtbot: QtBot) -> None:
    form.set_job(Job.from_fields(dataset=str(images), task="custom", model=""))
    qtbot.waitSignal(form.folder_chosen).wait()
    form.set_report(
        DatasetReport(folder="", format="files", kind="files", splits=(SplitReport("files", {}, total=33),))
    )
    qtbot.waitUntil(lambda: "Choose that file as the model" in shown_at(form, "model"))
    assert not form.train.isEnabled()
    form.set_field("model", str(EXAMPLE))
    qtbot.waitUntil(lambda: form.consent.isVisibleTo(form))
    assert not form.train.isEnabled()
    form.consent._show.click()
    qtbot.waitUntil(lambda: "class Counting(CustomTask)" in form.consent._text.toPlainText())
    form.consent._allow.click()
    qtbot.waitUntil(form.train.isEnabled)
    assert (form.job.task, form.job.model.model_file_sha256) == ("custom", model_file_sha256(str(EXAMPLE)))
    assert "33 files" in form.card.text()


def test_best_checkpoint_uses_the_files_metrics(form: JobForm, tmp_path: Path, qtbot: QtBot) -> None:
    form.set_field("task", "custom")
    assert offered(form) == ["Task default", "Validation loss"]
    form.set_field("model", str(EXAMPLE))
    own = ["Task default (Mean error)", "Mean error", "Counted exactly", "Validation loss"]
    qtbot.waitUntil(lambda: offered(form) == own)
    form.set_field("best_by", "exact")
    form.set_field("model", str(tmp_path / "none.py"))
    qtbot.waitUntil(lambda: offered(form)[0] == "Task default")
    assert form.field_value("best_by") == "exact"


def test_changed_file_updates_its_metrics(form: JobForm, tmp_path: Path, qtbot: QtBot) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine(CustomTask):\n    pass")
    form.set_field("task", "custom")
    form.set_field("model", str(file))
    qtbot.waitUntil(lambda: form.consent.isVisibleTo(form))
    assert offered(form) == ["Task default", "Validation loss"]
    file.write_text("class Mine(CustomTask):\n    metrics = (Measure('error', 'Error', higher_is_better=False),)")
    form.validate()  # as whatever is done in the form has it do
    qtbot.waitUntil(lambda: "has just changed" in form.consent._question.text())
    form.consent._allow.click()
    qtbot.waitUntil(lambda: offered(form) == ["Task default (Error)", "Error", "Validation loss"])
