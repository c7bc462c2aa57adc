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
def inspected(form: JobForm, images: Path, qtbot: QtBot) -> JobForm:
    """Return the form with a folder that has been chosen but not inspected."""
    with qtbot.waitSignal(form.folder_chosen):
        form.set_field("dataset", str(images))
    return form


def list_offered(form: JobForm) -> dict[str, str]:
    editor = form.rows["format"].editor
    assert isinstance(editor, ChoiceEditor)
    return {editor.box.itemData(n): editor.box.itemText(n) for n in range(editor.box.count())}


def test_format_offers_the_readings(inspected: JobForm) -> None:
    assert list_offered(inspected) == {"": "Recognize"}
    inspected.set_report(UNCLEAR)
    assert list_offered(inspected) == {"": "Recognize", "coco": "COCO JSON", "imagefolder": "Class folders"}
    assert inspected.field_value("format") == ""


def test_format_shows_what_was_recognized(inspected: JobForm) -> None:
    other = Problem("dataset", "It also holds class folders.", severity="warning", choices=(CLASSES,))
    inspected.set_report(msgspec.structs.replace(UNCERTAIN, problems=(other,)))
    assert list_offered(inspected) == {"": "Recognize", "coco": "COCO JSON", "imagefolder": "Class folders"}
    assert "COCO JSON" in inspected.rows["format"].note.text()
    inspected.set_field("format", "coco")
    assert inspected.rows["format"].note.text() == ""


def test_format_keeps_other_readings_after_a_choice(inspected: JobForm) -> None:
    inspected.set_report(UNCLEAR)
    inspected.set_field("format", "coco")
    inspected.set_report(UNCERTAIN)
    assert list(list_offered(inspected)) == ["", "coco", "imagefolder"]
    assert inspected.field_value("format") == "coco"


def test_format_is_reset_with_another_folder(inspected: JobForm, tmp_path: Path) -> None:
    inspected.set_report(UNCLEAR)
    inspected.set_field("format", "coco")
    inspected.set_field("dataset", str(tmp_path / "other"))
    assert inspected.field_value("format") == ""
    assert list_offered(inspected) == {"": "Recognize"}


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


def test_format_comes_with_a_prefill_and_goes_with_it(job_panel: JobPanel, inspected: JobForm, images: Path) -> None:
    inspected.set_field("format", "imagefolder")
    forked = Job.from_fields(dataset=str(images.parent), format="coco", task="detection")
    job_panel.begin_prefill(Prefill(text="Like that run", job=forked))
    assert job_panel.form.field_value("format") == "coco"
    job_panel.form.set_field("dataset", str(images))
    assert job_panel.form.field_value("format") == ""
    job_panel.end_prefill()
    assert inspected.field_value("format") == "imagefolder"


@pytest.mark.parametrize(("number", "task"), [(0, "detection"), (1, "classification")])
def test_reading_sets_format_and_task_and_inspects(inspected: JobForm, number: int, task: str, qtbot: QtBot) -> None:
    inspected.set_report(UNCLEAR)
    with qtbot.waitSignal(inspected.folder_chosen) as blocker:
        qtbot.keyClick(inspected.card.readings.buttons[number], Qt.Key.Key_Space)
    job: Job = blocker.args[0]
    assert (job.data.format, job.task) == (UNCLEAR.readings[number].format, task)
    assert inspected.is_inspecting


def test_reading_leaves_the_keyboard_in_the_form(inspected: JobForm, qtbot: QtBot) -> None:
    inspected.activateWindow()
    inspected.set_report(UNCLEAR)
    button = inspected.card.readings.buttons[0]
    button.setFocus()
    qtbot.keyClick(button, Qt.Key.Key_Space)
    qtbot.waitUntil(inspected.rows["task"].editor.control.hasFocus)


def test_problem_leaves_its_buttons_to_the_readings(inspected: JobForm) -> None:
    inspected.set_report(UNCLEAR)
    label = inspected.rows["dataset"].problem_label
    assert UNCLEAR.problems[0].message in label.text()
    assert label.findChildren(QPushButton) == []
    titles = [button.text() for button in inspected.card.readings.buttons]
    assert titles == [BOXES.title, CLASSES.title]
