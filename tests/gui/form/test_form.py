"""Job form: conversion of inputs, and problems."""

from __future__ import annotations

import shlex
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QComboBox, QLabel, QStyleOptionComboBox, QWidget
from pytestqt.qtbot import QtBot

from engine.checks.disk import model_file_sha256
from engine.contract.catalogue import timm_weights
from engine.contract.dataset import DatasetReport, SplitReport, Unreadable
from engine.contract.devices import gpu_title
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem
from engine.contract.weights import cached_path
from engine.runs.consent import is_agreed
from gui.form.form import JobForm
from tests.gui.sources.devices.snapshots import gpu, snapshot

REPORT = DatasetReport(
    folder="",
    format="imagefolder",
    classes=("ants", "bees"),
    splits=(SplitReport("train", {"ants": 12, "bees": 14}), SplitReport("val", {"ants": 3, "bees": 4}, is_drawn=True)),
    unreadable=(Unreadable("ants/broken.jpg", "it is truncated"),),
    unreadable_count=1,
)


def fill(form: JobForm, folder: Path, qtbot: QtBot, report: DatasetReport = REPORT) -> None:
    """Fill in a valid job with an inspected folder."""
    form.set_job(Job.from_fields(dataset=str(folder), model="mnist_cnn", image_size=28))
    qtbot.waitSignal(form.folder_chosen).wait()
    form.set_report(report)


def shown_at(form: JobForm, name: str) -> str:
    label = form.rows[name].problem_label
    return label.text() if label.isVisibleTo(form) else ""


def test_valid_job_can_be_trained(form: JobForm, images: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    assert form.train.isEnabled()
    with qtbot.waitSignal(form.train_requested) as asked:
        qtbot.mouseClick(form.train, Qt.MouseButton.LeftButton)
    assert asked.args == [Job.from_fields(dataset=str(images), model="mnist_cnn", image_size=28)]


def test_problems_are_marked_at_their_fields(form: JobForm, qtbot: QtBot) -> None:
    form.set_job(Job.from_fields(dataset="/no/such/folder", model="resnet81", strategy="dp"))
    form.rows["learning_rate"].editor.line.setText("fast")
    qtbot.waitUntil(lambda: shown_at(form, "learning_rate") != "" != shown_at(form, "dataset"))
    assert "There is no folder /no/such/folder." in shown_at(form, "dataset")
    assert "Did you mean “resnet18”?" in shown_at(form, "model")
    assert "DataParallel" in shown_at(form, "strategy")
    assert "Learning rate" in shown_at(form, "learning_rate")
    assert not form.train.isEnabled()
    for label in ("Dataset folder", "Model", "Strategy", "Learning rate"):
        assert label in form.train.toolTip()


def test_form_and_card_name_gpus_alike(form: JobForm, qtbot: QtBot) -> None:
    seen = gpu(0)  # NVML's first, CUDA's second
    form.set_devices((seen.uuid,))
    form.set_machine(snapshot(gpu(0, cuda_index=None)))
    qtbot.waitUntil(lambda: form.devices_label.text() == gpu_title(gpu(0, cuda_index=None)))
    form.set_machine(snapshot(seen))
    qtbot.waitUntil(lambda: form.devices_label.text() == gpu_title(seen))
    assert form.devices_label.text() == "GPU 1"


def test_focus_returns_to_train(form: JobForm, images: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    form.show()
    form.train.setFocus()
    qtbot.waitUntil(form.train.hasFocus)
    form.set_starting(True)
    assert not form.train.hasFocus()
    form.set_starting(False)
    assert form.train.hasFocus()


def test_problem_is_the_accessible_description(form: JobForm, qtbot: QtBot) -> None:
    form.set_field("dataset", "/no/such/folder")
    control = form.rows["dataset"].editor.control
    qtbot.waitUntil(lambda: "no folder" in control.accessibleDescription())
    assert control.property("severity") == "error"


def test_dataset_problems_are_marked_at_the_folder(form: JobForm, images: Path, qtbot: QtBot) -> None:
    wrong = DatasetReport(folder=str(images), format="", problems=(Problem("dataset", "There is one class only."),))
    fill(form, images, qtbot, wrong)
    assert "There is one class only." in shown_at(form, "dataset")
    assert not form.train.isEnabled()


def test_warning_does_not_disable_train(form: JobForm, images: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    form.set_field("freeze_epochs", 2)
    qtbot.waitUntil(lambda: "random weights" in form.rows["freeze_epochs"].problem_label.text())
    assert form.train.isEnabled()


def test_train_waits_for_the_inspection(form: JobForm, images: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    form.set_field("dataset", str(images.parent))
    qtbot.waitUntil(lambda: "still being inspected" in form.train.toolTip())
    assert not form.train.isEnabled()


def test_train_pressed_during_inspection_starts_later(form: JobForm, images: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    form.inspection.checking = True  # as the disk says once it is asked that the folder is another
    with qtbot.assertNotEmitted(form.train_requested):
        form.start()
    with qtbot.waitSignal(form.train_requested):
        form.set_report(REPORT)


def test_cancelled_inspection_allows_training(form: JobForm, images: Path, qtbot: QtBot) -> None:
    form.set_job(Job.from_fields(dataset=str(images), model="mnist_cnn"))
    qtbot.waitSignal(form.folder_chosen).wait()
    form.card.show_progress(1, 10)
    form.card._cancel.click()
    assert form.train.isEnabled()


def test_learning_rate_accepts_common_notations(form: JobForm, images: Path, german: None, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    for typed, number in (("1e-3", 0.001), ("0.5", 0.5), (" 2E-4 ", 0.0002), ("0,25", 0.25)):
        form.rows["learning_rate"].editor.line.setText(typed)
        qtbot.waitUntil(lambda number=number: form.job is not None and form.job.optimizer.learning_rate == number)
    form.set_field("learning_rate", 0.125)
    assert form.rows["learning_rate"].editor.line.text() == "0,125"


def test_section_shows_and_resets_changes(form: JobForm, qtbot: QtBot) -> None:
    training = next(section for section in form.sections if section.title == "Training")
    assert training.mark.text() == ""
    form.set_field("label_smoothing", 0.2)
    form.set_field("seed", 7)
    assert training.mark.text() == "● 2 changed"
    form.rows["seed"].reset.click()
    assert training.mark.text() == "● 1 changed"
    training.reset.click()
    assert form.field_value("label_smoothing") == 0
    assert training.reset.isHidden()


def test_section_with_a_problem_expands(form: JobForm, qtbot: QtBot) -> None:
    data = next(section for section in form.sections if section.title == "Data")
    form.set_field("model", "inception_v3")
    form.set_field("image_size", 28)
    qtbot.waitUntil(lambda: data.body.isVisibleTo(form))
    assert "at least" in shown_at(form, "image_size")


def test_model_is_found_by_part_of_its_name(form: JobForm, qtbot: QtBot) -> None:
    picker = form.rows["model"].editor
    picker.control.setFocus()
    picker.control.clear()
    qtbot.keyClicks(picker.control, "mnist")
    completer = picker.control.completer()
    assert completer.completionCount() == 1
    qtbot.keyClick(completer.popup(), Qt.Key.Key_Down)
    qtbot.keyClick(completer.popup(), Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: picker.value() == "mnist_cnn")


def test_model_accepts_id_or_title(form: JobForm) -> None:
    picker = form.rows["model"].editor
    for typed in ("resnet18", "ResNet-18", " RESNET-18 "):
        picker.control.setText(typed)
        assert picker.value() == "resnet18"


def test_model_file_needs_consent(form: JobForm, images: Path, tmp_path: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    program = tmp_path / "net.py"
    program.write_text("def build_model(num_classes): ...\n")
    form.set_field("model", str(program))
    form.set_field("image_size", None)
    qtbot.waitUntil(lambda: form.consent.isVisibleTo(form))
    assert not form.train.isEnabled()
    form.consent._show.click()
    qtbot.waitUntil(lambda: "def build_model" in form.consent._text.toPlainText())
    form.consent._allow.click()
    qtbot.waitUntil(form.train.isEnabled)
    assert form.consent.isHidden()
    assert form.job.model.model_file_sha256 == model_file_sha256(str(program))


def test_changed_model_file_needs_new_consent(form: JobForm, images: Path, tmp_path: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    program = tmp_path / "net.py"
    program.write_text("def build_model(num_classes): ...\n")
    form.set_field("model", str(program))
    qtbot.waitUntil(lambda: form.consent.isVisibleTo(form))
    form.consent._allow.click()
    qtbot.waitUntil(form.train.isEnabled)
    program.write_text("import os\n")
    with qtbot.assertNotEmitted(form.train_requested):
        form.start()
    assert form.consent.isVisibleTo(form)
    assert "has changed since" in shown_at(form, "model")


def test_loaded_job_brings_no_consent(form: JobForm, images: Path, tmp_path: Path, qtbot: QtBot) -> None:
    program = tmp_path / "net.py"
    program.write_text("def build_model(num_classes): ...\n")
    brought = Job.from_fields(
        dataset=str(images), model=str(program), model_file_sha256=model_file_sha256(str(program)) or ""
    )
    form.set_job(brought)
    fill(form, images, qtbot)
    form.set_field("model", str(program))
    qtbot.waitUntil(lambda: form.consent.isVisibleTo(form))
    assert not form.train.isEnabled()
    assert "not allowed to run yet" in shown_at(form, "model")
    form.consent._allow.click()
    qtbot.waitUntil(form.train.isEnabled)
    assert is_agreed(str(program), brought.model.model_file_sha256)


def test_impossible_strategies_state_the_reason(form: JobForm, qtbot: QtBot) -> None:
    box = form.rows["strategy"].editor.control
    qtbot.waitUntil(lambda: "CUDA GPUs only" in box.itemText(box.findData("dp")))
    assert not box.model().flags(box.model().index(box.findData("dp"), 0)) & Qt.ItemFlag.ItemIsEnabled
    form.set_devices(("GPU-1", "GPU-2"))
    qtbot.waitUntil(lambda: box.itemText(box.findData("dp")) == "DataParallel")
    assert box.model().flags(box.model().index(box.findData("dp"), 0)) & Qt.ItemFlag.ItemIsEnabled


def test_device_problems_are_shown(form: JobForm, qtbot: QtBot) -> None:
    form.set_devices(())
    qtbot.waitUntil(lambda: "No device is chosen." in form.devices_problems.text())


def test_dataset_card_summarizes_the_report(form: JobForm, images: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    said = form.card.text()
    assert "2 classes, 33 images" in said
    assert "train 26, val 7 (drawn from train)" in said
    assert "ants/broken.jpg" in said
    form.card._more.click()
    assert "ants: train 12, val 3" in form.card.bars.accessibleDescription()
    assert form.card.bars.isVisibleTo(form)
    assert form.card._listing.toPlainText() == "ants/broken.jpg: it is truncated"


def test_job_is_copied_as_command(form: JobForm, images: Path, qtbot: QtBot) -> None:
    folder = images / "my flowers"
    folder.mkdir()
    fill(form, folder, qtbot)
    form.set_field("strategy", "ddp")
    form.set_field("pretrained", True)
    form.set_devices(("cpu", "cpu"))
    qtbot.waitUntil(lambda: form.job is not None and form.job.parallel.devices == ("cpu", "cpu"))
    form.copy.click()
    words = shlex.split(QGuiApplication.clipboard().text())
    assert words[:3] == ["footplate", "train", str(folder)]
    assert words[words.index("--devices") + 1] == "cpu,cpu"
    assert words[words.index("--model") + 1] == "mnist_cnn"
    assert "--pretrained" in words


def test_fields_are_named_by_their_labels(form: JobForm) -> None:
    buddies = {label.buddy(): label.text() for label in form.findChildren(QLabel) if label.buddy() is not None}
    for name, row in form.rows.items():
        control: QWidget = row.editor.control
        assert control.accessibleName() == FIELDS[name].label
        assert buddies[control] == FIELDS[name].label


def test_form_round_trips_every_job(form: JobForm, images: Path) -> None:
    job = Job.from_fields(
        dataset=str(images),
        model="resnet18",
        strategy="pipeline",
        epochs=17,
        batch_size=48,
        optimizer="adamw",
        learning_rate=3e-4,
        weight_decay=0.05,
        schedule="onecycle",
        seed=11,
        best_by="loss",
        image_size=96,
        augmentation="light",
        loader_workers=0,
        val_fraction=0.25,
        precision="bf16",
        pretrained=True,
        freeze_epochs=2,
        microbatches=8,
        pipeline_schedule="1f1b",
        name="evening run",
        devices=("cpu", "cpu"),
    )
    form.set_job(job)
    form.set_devices(job.parallel.devices)
    form.validate()
    assert form.job == job


def test_weights_show_source_and_problems(form: JobForm, images: Path, qtbot: QtBot) -> None:
    row, note = form.rows["pretrained"], form.rows["pretrained"].note
    form.set_job(Job.from_fields(dataset=str(images), model="timm:starnet_s1"))
    line = "Weights: timm/starnet_s1.in1k, Apache-2.0, about 10.9 MiB, not on this machine"
    qtbot.waitUntil(lambda: note.text() == line)
    assert shown_at(form, "pretrained") == ""
    assert note.isVisibleTo(form)
    row.set_value(True)
    qtbot.waitUntil(lambda: "can't be reached" in row.problem_label.text())
    assert note.text().endswith(", unreachable")
    assert "or put model.safetensors of" in row.problem_label.text()
    weights = timm_weights("starnet_s1", form.catalogue)
    assert weights is not None
    cached_path(weights).parent.mkdir(parents=True)
    cached_path(weights).write_bytes(bytes(1 << 20))
    form.validate(forget_disk=True)
    qtbot.waitUntil(lambda: note.text().endswith("Apache-2.0, 1.0 MiB, on this machine"))
    assert row.problem_label.text() == ""
    form.set_field("model", "mnist_cnn")
    qtbot.waitUntil(lambda: note.text() == "Weights: none are known for this model")
    assert "no known pretrained weights" in row.problem_label.text()


def test_long_choice_is_elided(form: JobForm) -> None:
    box = form.rows["strategy"].editor.control
    assert isinstance(box, QComboBox)
    form.set_field("strategy", "ddp")
    form.validate()
    for width, shown in ((400, "DistributedDataParallel"), (120, "…")):
        box.resize(width, box.height())
        option = QStyleOptionComboBox()
        box.initStyleOption(option)
        assert option.currentText.endswith(shown)


def test_steps_show_data_recipe_and_devices(form: JobForm, images: Path, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: form.steps.states.get("Data") == "attention")
    chosen: list[Job | None] = []
    form.folder_chosen.connect(chosen.append)
    form.set_field("dataset", str(images))
    qtbot.waitUntil(lambda: form.steps.states["Data"] == "working")
    form.set_field("model", "resnet18")
    qtbot.waitUntil(lambda: chosen != [] and chosen[-1] is not None)
    form.set_report(REPORT)
    qtbot.waitUntil(lambda: form.steps.states == {"Data": "done", "Recipe": "done", "Devices": "done"})
    assert form.steps.lines["Data"].text() == "Data: 2 classes, 33 images"
    assert "CPU · Single device" in form.steps.lines["Devices"].text()
    form.set_devices(())
    qtbot.waitUntil(lambda: form.steps.states["Devices"] == "attention")
    assert form.steps.lines["Devices"].accessibleDescription().startswith("needs attention: ")
    form.set_field("epochs", 3)
    form.set_field("learning_rate", "fast")
    qtbot.waitUntil(lambda: form.steps.states["Recipe"] == "attention")
    form.steps.lines["Recipe"].click()
    assert form.window().focusWidget() is form.rows["learning_rate"].editor.control
