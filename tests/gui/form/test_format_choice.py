"""Dataset format field, and the choice between several readings of a folder."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.contract.problems import Problem
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.sources.resume_fork import Prefill
from gui.widgets.editors import ChoiceEditor
from tests.support.unclear_dataset import BOXES, CLASSES, UNCERTAIN, UNCLEAR


@pytest.fixture
def folder_form(form: JobForm, images: Path, qtbot: QtBot) -> JobForm:
    """Return the form with a folder that has been chosen but not inspected."""
    with qtbot.waitSignal(form.folder_chosen):
        form.set_field("dataset", str(images))
    return form


def list_offered(form: JobForm) -> dict[str, str]:
    editor = form.rows["format"].editor
    assert isinstance(editor, ChoiceEditor)
    return {editor.box.itemData(n): editor.box.itemText(n) for n in range(editor.box.count())}


def test_format_offers_the_readings(folder_form: JobForm) -> None:
    assert list_offered(folder_form) == {"": "Recognize"}
    folder_form.set_report(UNCLEAR)
    assert list_offered(folder_form) == {"": "Recognize", "coco": "COCO JSON", "imagefolder": "Class folders"}
    assert folder_form.field_value("format") == ""


def test_format_shows_what_was_recognized(folder_form: JobForm) -> None:
    other = Problem("dataset", "It also holds class folders.", severity="warning", choices=(CLASSES,))
    folder_form.set_report(msgspec.structs.replace(UNCERTAIN, problems=(other,)))
    assert list_offered(folder_form) == {"": "Recognize", "coco": "COCO JSON", "imagefolder": "Class folders"}
    assert "COCO JSON" in folder_form.rows["format"].note.text()
    folder_form.set_field("format", "coco")
    assert folder_form.rows["format"].note.text() == ""
    folder_form.set_field("format", "")
    folder_form.set_report(UNCERTAIN)
    folder_form.set_field("dataset", "/elsewhere")
    assert folder_form.rows["format"].note.text() == ""


def test_format_keeps_other_readings_after_a_choice(folder_form: JobForm) -> None:
    folder_form.set_report(UNCLEAR)
    assert folder_form.card.readings.isVisible()
    folder_form.set_field("format", "coco")
    folder_form.set_report(UNCERTAIN)
    assert not folder_form.card.readings.isVisible()
    assert list(list_offered(folder_form)) == ["", "coco", "imagefolder"]
    assert folder_form.field_value("format") == "coco"


def test_format_is_reset_with_another_folder(folder_form: JobForm, tmp_path: Path) -> None:
    folder_form.set_report(UNCLEAR)
    folder_form.set_field("format", "coco")
    folder_form.set_field("dataset", str(tmp_path / "other"))
    assert folder_form.field_value("format") == ""
    assert list_offered(folder_form) == {"": "Recognize"}


def test_format_comes_with_a_job(form: JobForm, images: Path) -> None:
    form.set_job(Job.from_fields(dataset=str(images), format="coco:train.json", task="detection"))
    assert form.values()["format"] == "coco:train.json"
    form.set_report(msgspec.structs.replace(UNCERTAIN, format="coco:train.json", title="COCO JSON (train.json)"))
    assert list_offered(form)["coco:train.json"] == "COCO JSON (train.json)"
    form.set_job(Job.from_fields(dataset=str(images)))
    assert form.values()["format"] == ""
    form.set_job(Job.from_fields(dataset=str(images), format="coco", task="detection"))
    form.set_report(msgspec.structs.replace(UNCERTAIN, format="coco:train.json"))
    assert list_offered(form)["coco"] == "COCO JSON"


def test_format_comes_with_a_prefill_and_goes_with_it(job_panel: JobPanel, folder_form: JobForm, images: Path) -> None:
    folder_form.set_field("format", "imagefolder")
    forked = Job.from_fields(dataset=str(images.parent), format="coco", task="detection")
    job_panel.begin_prefill(Prefill(text="Like that run", job=forked))
    assert job_panel.form.field_value("format") == "coco"
    job_panel.form.set_field("dataset", str(images))
    assert job_panel.form.field_value("format") == ""
    job_panel.end_prefill()
    assert folder_form.field_value("format") == "imagefolder"


@pytest.mark.parametrize(("number", "task"), [(0, "detection"), (1, "classification")])
def test_reading_sets_format_and_task_and_inspects(folder_form: JobForm, number: int, task: str, qtbot: QtBot) -> None:
    folder_form.set_report(UNCLEAR)
    with qtbot.waitSignal(folder_form.folder_chosen) as blocker:
        qtbot.keyClick(folder_form.card.readings.buttons[number], Qt.Key.Key_Space)
    job: Job = blocker.args[0]
    assert (job.data.format, job.task) == (UNCLEAR.readings[number].format, task)
    assert folder_form.is_inspecting


def test_reading_leaves_the_keyboard_in_the_form(folder_form: JobForm, qtbot: QtBot) -> None:
    folder_form.activateWindow()
    folder_form.set_report(UNCLEAR)
    button = folder_form.card.readings.buttons[0]
    button.setFocus()
    qtbot.keyClick(button, Qt.Key.Key_Space)
    qtbot.waitUntil(folder_form.rows["task"].editor.control.hasFocus)


def test_problem_leaves_its_buttons_to_the_readings(folder_form: JobForm) -> None:
    folder_form.set_report(UNCLEAR)
    label = folder_form.rows["dataset"].problem_label
    assert UNCLEAR.problems[0].message in label.text()
    assert label.findChildren(QPushButton) == []
    titles = [button.text() for button in folder_form.card.readings.buttons]
    assert titles == [BOXES.title, CLASSES.title]
