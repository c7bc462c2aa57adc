"""Choices in the form that depend on the task."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QComboBox, QSpinBox
from pytestqt.qtbot import QtBot

import resources
from engine.checks.disk import model_file_sha256
from engine.contract.catalogue import DROPOUT_FIELDS
from engine.contract.dataset import DatasetReport, SplitReport
from engine.contract.job import Job
from gui.form.editors import ModelPicker
from gui.form.form import JobForm
from tests.gui.form.test_form import problem_at


def list_offered(form: JobForm) -> list[str]:
    box = form.rows["best_by"].editor.control
    return [box.itemText(place) for place in range(box.count())]


def test_best_checkpoint_uses_the_tasks_metrics(form: JobForm) -> None:
    form.set_field("task", "segmentation")
    form.set_field("best_by", "miou")
    assert list_offered(form)[:2] == ["Task default (Mean IoU)", "Mean IoU"]
    form.set_field("task", "classification")
    assert form.field_value("best_by") == ""
    assert list_offered(form)[:2] == ["Task default (Top-1 accuracy)", "Top-1 accuracy"]


def test_fields_depend_on_the_task(form: JobForm) -> None:
    tasks = {task.id: set(task.fields) for task in form.catalogue.tasks}
    task_fields = set().union(*tasks.values())
    assert {"mixup", "ignore_value", "points"} <= task_fields
    losses = {task.id: task.losses for task in form.catalogue.tasks if task.losses}
    assert len(set(losses.values())) > 1
    box = form.rows["loss"].editor.control
    assert isinstance(box, QComboBox)
    for task, fields in tasks.items():
        form.set_field("task", task)
        if task in losses:
            assert tuple(box.itemData(place) for place in range(box.count())) == losses[task]
            assert form.field_value("loss") in losses[task]
            form.set_field("loss", losses[task][-1])
        visible = {name for name in task_fields if form.rows[name].has_effect}
        assert visible <= fields
        assert fields - visible <= {"encoder", *DROPOUT_FIELDS}  # these also depend on the model


def test_dropout_depends_on_the_model(form: JobForm) -> None:
    for model, drops in (("efficientnet_b0", set(DROPOUT_FIELDS)), ("vgg11", {"dropout"}), ("resnet18", set())):
        form.set_field("model", model)
        assert {name for name in DROPOUT_FIELDS if form.rows[name].has_effect} == drops


def test_inspection_repeats_when_its_inputs_change(form: JobForm, images: Path, qtbot: QtBot) -> None:
    for name, value in (("dataset", str(images)), ("task", "road_extraction"), ("ignore_value", 7), ("seed", 3)):
        with qtbot.waitSignal(form.folder_chosen) as blocker:
            form.rows[name].set_value(value)
        assert blocker.args[0].value(name) == value
    assert blocker.args == [Job.from_fields(dataset=str(images), task="road_extraction", ignore_value=7, seed=3)]
    form.set_report(DatasetReport(folder="", format="masks", classes=("a", "b")))
    text = form.card.text()
    with qtbot.waitSignal(form.folder_chosen) as blocker:
        form.set_field("dataset", str(images / "nowhere"))
    assert blocker.args == [None]
    assert form.card.text() not in ("", text)
    assert form.report is None


def test_roads_reject_masks_of_many_classes(form: JobForm, images: Path, qtbot: QtBot) -> None:
    form.set_field("task", "road_extraction")
    form.set_field("dataset", str(images))
    qtbot.waitSignal(form.folder_chosen).wait()
    form.set_report(DatasetReport(folder="", format="masks", classes=("a", "b", "c")))
    assert "The masks have 3 classes" in problem_at(form, "dataset")
    assert not form.train.isEnabled()


def test_too_small_image_size_is_reset(form: JobForm) -> None:
    form.set_field("image_size", 28)
    form.set_field("task", "segmentation")
    assert form.field_value("image_size") is None
    form.set_field("task", "classification")
    form.set_field("image_size", 64)
    form.set_field("task", "segmentation")
    assert form.field_value("image_size") == 64


def test_empty_image_size_shows_the_default_of_the_model(form: JobForm) -> None:
    spin = form.rows["image_size"].editor.control
    assert isinstance(spin, QSpinBox)
    texts = []
    for model in ("resnet18", "inception_v3", "mine.py"):
        form.set_field("model", model)
        texts.append(spin.specialValueText())
    assert texts == ["auto (224)", "auto (299)", "auto"]


def test_irrelevant_fields_are_hidden(form: JobForm) -> None:
    of_images = ("image_size", "picture_cache", "memory_format")
    assert all(form.rows[name].has_effect for name in of_images)
    form.set_field("task", "point_segmentation")
    assert not any(form.rows[name].has_effect for name in of_images)
    form.set_field("task", "segmentation")
    assert all(form.rows[name].has_effect for name in of_images)


def test_custom_task_asks_for_its_file(form: JobForm) -> None:
    picker = form.rows["model"].editor
    assert isinstance(picker, ModelPicker)
    form.set_field("task", "custom")
    assert picker.value() == ""
    assert picker.line.placeholderText() == "A Python file"
    assert picker.file_button.toolTip() == "Choose your task's Python file"
    assert picker.list_button.isHidden()
    form.set_field("best_by", "mean_error")
    form.set_field("task", "custom")
    assert form.field_value("best_by") == "mean_error"
    form.set_field("task", "classification")
    assert "timm:NAME" in picker.line.placeholderText()
    for text, name in (("ResNet-34", "resnet34"), (" RESNET-18 ", "resnet18"), ("Mine.py", "Mine.py")):
        picker.line.setText(text)
        assert picker.value() == name
    assert not picker.list_button.isHidden()


def test_transforms_are_visible_for_custom_augmentation(form: JobForm) -> None:
    def visible(augmentation: str) -> list[bool]:
        form.set_field("augmentation", augmentation)
        return [form.rows[name].isVisibleTo(form.rows[name].parentWidget()) for name in ("transforms", "mirror")]

    assert visible("none") == [False, False]
    assert visible("medium") == [False, True]
    assert visible("own") == [True, True]
    form.set_field("transforms", ("rotat:10",))
    form.validate()
    assert "Did you mean “rotate”?" in problem_at(form, "transforms")


EXAMPLE = Path(resources.__path__[0]) / "examples/counting.py"


def test_custom_task_needs_consent(form: JobForm, images: Path, qtbot: QtBot) -> None:
    form.set_job(Job.from_fields(dataset=str(images), task="custom", model=""))
    qtbot.waitSignal(form.folder_chosen).wait()
    form.set_report(
        DatasetReport(folder="", format="files", kind="files", splits=(SplitReport("files", {}, total=33),))
    )
    qtbot.waitUntil(lambda: "Choose that file as the model" in problem_at(form, "model"))
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
    assert list_offered(form) == ["Task default", "Validation loss"]
    form.set_field("model", str(EXAMPLE))
    metrics = ["Task default (Mean error)", "Mean error", "Counted exactly", "Validation loss"]
    qtbot.waitUntil(lambda: list_offered(form) == metrics)
    form.set_field("best_by", "exact")
    form.set_field("model", str(tmp_path / "none.py"))
    qtbot.waitUntil(lambda: list_offered(form)[0] == "Task default")
    assert form.field_value("best_by") == "exact"


def test_changed_file_updates_its_metrics(form: JobForm, tmp_path: Path, qtbot: QtBot) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine(CustomTask):\n    pass")
    form.set_field("task", "custom")
    form.set_field("model", str(file))
    qtbot.waitUntil(lambda: form.consent.isVisibleTo(form))
    assert list_offered(form) == ["Task default", "Validation loss"]
    file.write_text("class Mine(CustomTask):\n    metrics = (Measure('error', 'Error', higher_is_better=False),)")
    form.validate()  # as every change in the form does
    qtbot.waitUntil(lambda: "has just changed" in form.consent._question.text())
    form.consent._allow.click()
    qtbot.waitUntil(lambda: list_offered(form) == ["Task default (Error)", "Error", "Validation loss"])
