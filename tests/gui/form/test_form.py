"""Job form: conversion between inputs and a job, and problems."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QComboBox, QProgressBar, QSpinBox, QStyleOptionComboBox
from pytestqt.qtbot import QtBot

from engine.checks.disk import model_file_sha256
from engine.contract.catalogue import timm_weights
from engine.contract.dataset import DatasetReport, Example, SplitReport, UnreadableImage
from engine.contract.devices import gpu_title
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Choice, Problem
from engine.contract.weights import cached_path
from engine.runs.consent import has_consent
from engine.runs.estimates import Estimate
from gui.form.fields import STACKED_FIELDS
from gui.form.form import JobForm
from gui.form.readiness import format_estimate
from gui.form.submit_bar import StepList
from gui.format import size
from tests.gui.sources.devices.snapshots import gpu, snapshot
from tests.support.widgets import find_button, join_visible_texts

REPORT = DatasetReport(
    folder="",
    format="imagefolder",
    classes=("ants", "bees"),
    splits=(SplitReport("train", {"ants": 12, "bees": 14}), SplitReport("val", {"ants": 3, "bees": 4}, is_drawn=True)),
    unreadable=(UnreadableImage("ants/broken.jpg", "it is truncated"),),
    unreadable_count=1,
)


def fill_in(form: JobForm, folder: Path, qtbot: QtBot) -> None:
    """Fill in a valid job with the dataset `folder`, and pass the form `REPORT` as the result of its inspection."""
    form.set_job(Job.from_fields(dataset=str(folder), model="mnist_cnn", image_size=28))
    qtbot.waitSignal(form.folder_chosen).wait()
    form.set_report(REPORT)


def problem_at(form: JobForm, name: str) -> str:
    label = form.rows[name].problem_label
    return label.text() if label.isVisibleTo(form) else ""


def test_valid_job_can_be_trained(filled: JobForm, images: Path, qtbot: QtBot) -> None:
    assert filled.train.isEnabled()
    with qtbot.waitSignal(filled.train_requested) as blocker:
        qtbot.mouseClick(filled.train, Qt.MouseButton.LeftButton)
    assert blocker.args == [Job.from_fields(dataset=str(images), model="mnist_cnn", image_size=28)]
    with qtbot.assertNotEmitted(filled.train_requested):
        filled.validate()


def test_empty_form_asks_for_a_folder_without_an_error(form: JobForm, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: bool(form.steps.lines["Data"].text()))
    form.validate()
    assert not form.train.isEnabled()
    assert problem_at(form, "dataset") == form.reason.text() == ""
    assert form.steps.states["Data"] == "to do"
    assert "folder" in form.train.accessibleDescription() + form.train.toolTip()
    form.set_field("learning_rate", "fast")
    qtbot.waitUntil(lambda: "Learning rate" in form.train.toolTip())
    form.set_field("dataset", "/no/such/folder")
    qtbot.waitUntil(lambda: problem_at(form, "dataset") != "")


def test_problems_are_marked_at_their_fields(form: JobForm, qtbot: QtBot) -> None:
    form.set_job(Job.from_fields(dataset="/no/such/folder", model="resnet81", strategy="dp"))
    form.rows["learning_rate"].editor.line.setText("fast")
    qtbot.waitUntil(lambda: problem_at(form, "learning_rate") != "" != problem_at(form, "dataset"))
    assert "resnet18" in problem_at(form, "model")  # a suggestion
    assert not form.train.isEnabled()
    for name in ("dataset", "model", "strategy", "learning_rate"):
        assert FIELDS[name].label in form.train.toolTip()
        control = form.rows[name].editor.control
        assert control.property("severity") == "error"
        problems = problem_at(form, name).splitlines()
        assert problems
        assert all(problem in control.accessibleDescription() for problem in problems)
        assert not any(problem in form.reason.text() for problem in problems)
    form.set_start_problems([Problem("run", "a", "", "error"), *[Problem("model", text, "", "error") for text in "bc"]])
    assert form.train.toolTip().count(FIELDS["model"].label) == 1
    assert "the run" in form.train.toolTip()


def test_form_names_gpus_as_their_cards_do(form: JobForm, qtbot: QtBot) -> None:
    form.set_devices((gpu(0).uuid,))
    for known in (gpu(0, cuda_index=None), gpu(0)):
        form.set_machine(snapshot(known))
        qtbot.waitUntil(lambda known=known: form.body.devices.text() == gpu_title(known))


def test_focus_returns_to_train(filled: JobForm, qtbot: QtBot) -> None:
    filled.show()
    filled.train.setFocus()
    qtbot.waitUntil(filled.train.hasFocus)
    filled.set_starting(True)
    assert (filled.train.hasFocus(), filled.train.toolTip()) == (False, "Starting the run.")
    filled.set_starting(False)
    assert filled.train.hasFocus()


def test_warning_does_not_disable_train(filled: JobForm, qtbot: QtBot) -> None:
    filled.set_field("freeze_epochs", 2)
    qtbot.waitUntil(lambda: ("freeze_epochs", "warning") in [(each.field, each.severity) for each in filled.problems])
    assert filled.train.isEnabled()
    assert filled.rows["freeze_epochs"].editor.control.property("severity") == "warning"
    filled.set_warnings([Problem("run", "The last run was slow.")])
    assert {(each.field, each.severity) for each in filled.problems} >= {
        ("freeze_epochs", "warning"),
        ("run", "warning"),
    }
    assert filled.train.isEnabled()
    filled.set_field("epochs", 4)
    qtbot.waitUntil(lambda: "run" not in [each.field for each in filled.problems])


def test_train_pressed_during_inspection_starts_later(filled: JobForm, images: Path, qtbot: QtBot) -> None:
    filled.set_field("dataset", str(images.parent))
    qtbot.waitUntil(lambda: filled.is_inspecting and not filled.train.isEnabled())
    with qtbot.assertNotEmitted(filled.train_requested):
        filled.start()
    with qtbot.waitSignal(filled.train_requested):
        filled.set_report(REPORT)
    with qtbot.waitSignal(filled.folder_chosen), qtbot.assertNotEmitted(filled.train_requested):
        filled.set_field("dataset", str(images))
        filled.start()
        filled.set_field("epochs", 7)  # takes the request back
    with qtbot.assertNotEmitted(filled.train_requested):
        filled.set_report(REPORT)
    assert filled.train.isEnabled()


def test_learning_rate_accepts_common_notations(filled: JobForm, german: None, qtbot: QtBot) -> None:
    for typed, number in (("1e-3", 0.001), ("0.5", 0.5), (" 2E-4 ", 0.0002), ("0,25", 0.25)):
        filled.rows["learning_rate"].editor.line.setText(typed)
        qtbot.waitUntil(lambda number=number: filled.job is not None and filled.job.optimizer.learning_rate == number)
    filled.set_field("learning_rate", 0.125)
    assert filled.rows["learning_rate"].editor.line.text() == "0,125"


def test_section_shows_and_resets_changes(form: JobForm, qtbot: QtBot) -> None:
    training = next(section for section in form.sections if section.title == "Training")
    assert training.mark.text() == ""
    form.set_field("label_smoothing", 0.2)
    form.set_field("seed", 7)
    assert training.mark.text() == "● 2 changed"
    form.rows["seed"].reset.click()
    assert (training.mark.text(), training.reset.isHidden()) == ("● 1 changed", False)
    form.set_field("seed", 7)
    form.rows["seed"].lock("Fixed.")
    training.reset.click()
    assert (form.field_value("label_smoothing"), form.field_value("seed")) == (0, 7)
    assert training.reset.isHidden()


def test_locked_row_has_a_reason_and_no_reset_button(form: JobForm, qtbot: QtBot) -> None:
    row = form.rows["batch_size"]
    form.set_field("batch_size", 7)
    for reason in ("Fixed by the search.", ""):
        with qtbot.waitSignal(row.edited):
            row.lock(reason)
        assert (row.editor.isEnabled(), row.reset.isHidden()) == (not reason, bool(reason))
        for text in (row.label.toolTip(), row.editor.control.accessibleDescription()):
            assert text.endswith(reason or row.field.help)


def test_section_with_a_problem_expands(form: JobForm, qtbot: QtBot) -> None:
    optimizer = next(section for section in form.sections if section.title == "Optimizer")
    form.set_field("weight_decay", "much")
    qtbot.waitUntil(lambda: optimizer.body.isVisibleTo(form))
    assert problem_at(form, "weight_decay")
    optimizer.set_open(False)
    form.validate()
    assert not optimizer.is_open  # it has been shown
    form.set_field("weight_decay", 0.1)
    qtbot.waitUntil(lambda: not form.rows["weight_decay"].problems)
    assert not form.rows["weight_decay"].editor.control.property("severity")
    form.set_field("weight_decay", "much")
    qtbot.waitUntil(lambda: optimizer.is_open)


def test_model_is_found_by_part_of_its_name(form: JobForm, qtbot: QtBot) -> None:
    picker = form.rows["model"].editor
    picker.control.setFocus()
    picker.control.clear()
    qtbot.keyClicks(picker.control, "NIST cnn")
    completer = picker.control.completer()
    assert completer.completionCount() == 1
    qtbot.keyClick(completer.popup(), Qt.Key.Key_Down)
    qtbot.keyClick(completer.popup(), Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: picker.value() == "mnist_cnn")
    for typed in ("resnet18", "ResNet-18", " RESNET-18 "):
        picker.control.setText(typed)
        assert picker.value() == "resnet18"


def test_model_file_needs_consent(filled: JobForm, model_file: Path, qtbot: QtBot) -> None:
    filled.set_field("model", str(model_file))
    filled.set_field("image_size", None)
    qtbot.waitUntil(lambda: filled.consent.isVisibleTo(filled))
    assert not filled.train.isEnabled()
    filled.consent._show.click()
    qtbot.waitUntil(lambda: "def build_model" in filled.consent._text.toPlainText())
    filled.consent._allow.click()
    qtbot.waitUntil(filled.train.isEnabled)
    assert filled.consent.isHidden()
    assert filled.job.model.model_file_sha256 == model_file_sha256(str(model_file))


def test_changed_model_file_needs_new_consent(filled: JobForm, model_file: Path, qtbot: QtBot) -> None:
    filled.set_field("model", str(model_file))
    qtbot.waitUntil(lambda: filled.consent.isVisibleTo(filled))
    filled.consent._allow.click()
    qtbot.waitUntil(filled.train.isEnabled)
    model_file.write_text("import os\n")
    with qtbot.assertNotEmitted(filled.train_requested):
        filled.start()
    assert filled.consent.isVisibleTo(filled)
    assert "has changed since" in problem_at(filled, "model")


def test_loaded_job_brings_no_consent(form: JobForm, images: Path, model_file: Path, qtbot: QtBot) -> None:
    sha256 = model_file_sha256(str(model_file)) or ""
    form.set_job(Job.from_fields(dataset=str(images), model=str(model_file), model_file_sha256=sha256))
    assert form.values()["model_file_sha256"] == sha256
    fill_in(form, images, qtbot)
    form.set_field("model", str(model_file))
    qtbot.waitUntil(lambda: form.consent.isVisibleTo(form))
    assert not form.train.isEnabled()
    assert "not allowed to run yet" in problem_at(form, "model")
    form.consent._allow.click()
    qtbot.waitUntil(form.train.isEnabled)
    assert has_consent(str(model_file), sha256)


def test_impossible_strategies_state_the_reason(form: JobForm, qtbot: QtBot) -> None:
    box = form.rows["strategy"].editor.control
    qtbot.waitUntil(lambda: "CUDA GPUs only" in box.itemText(box.findData("dp")))
    assert not box.model().flags(box.model().index(box.findData("dp"), 0)) & Qt.ItemFlag.ItemIsEnabled
    form.set_devices(("GPU-1", "GPU-2"))
    qtbot.waitUntil(lambda: box.itemText(box.findData("dp")) == "DataParallel")
    assert isinstance(box, QComboBox)
    assert box.itemData(0) == "auto"
    marked = {box.itemData(index): box.itemText(index).partition(" – ")[2] for index in range(box.count())}
    assert (marked["single"], marked["hsdp"], marked["ddp"]) == ("one device only", "needs 4 devices", "")
    form.set_devices(("GPU-1", "GPU-2", "GPU-3"))
    form.validate()
    assert box.itemText(box.findData("hsdp")).endswith("needs 4 devices")
    form.set_devices(tuple(f"GPU-{number}" for number in range(4)))
    qtbot.waitUntil(lambda: " – " not in box.itemText(box.findData("hsdp")))
    form.set_devices(("GPU-1",))
    qtbot.waitUntil(lambda: box.itemText(box.findData("single")) == "Single device")
    form.set_devices(("ws1:GPU-1", "ws2:GPU-1"))
    qtbot.waitUntil(lambda: box.itemText(box.findData("dp")) == "DataParallel – one machine only")
    form.set_devices(("GPU-1", "GPU-2"))
    qtbot.waitUntil(lambda: box.itemText(box.findData("dp")) == "DataParallel")
    assert box.model().flags(box.model().index(box.findData("dp"), 0)) & Qt.ItemFlag.ItemIsEnabled
    form.set_devices(("GPU-1", "cpu"))
    qtbot.waitUntil(lambda: "CUDA GPUs only" in box.itemText(box.findData("dp")))


def test_dataset_card_summarizes_the_report(filled: JobForm, images: Path, qtbot: QtBot) -> None:
    card, summary = filled.card, filled.card.text()
    assert "train 26, val 7 (drawn from train)" in summary.partition("2 classes, 33 images")[2]
    assert card.accessibleDescription() == summary
    assert "ants/broken.jpg" in summary
    card._more.click()
    assert "ants: train 12, val 3" in card.bars.accessibleDescription()
    assert card.bars.isVisibleTo(filled)
    assert card._listing.toPlainText() == "ants/broken.jpg: it is truncated"
    assert card.isAncestorOf(card._listing)
    examples = tuple(Example(name, "train", b"") for name in ("ants", "bees"))
    card.show_report(msgspec.structs.replace(REPORT, unreadable=(), unreadable_count=0, examples=examples))
    assert (card._listing.toPlainText(), card.bars.isVisibleTo(filled)) == ("", False)
    card._more.click()
    assert (card._listing.isVisibleTo(filled), card.bars.isVisibleTo(filled)) == (False, True)
    requested: list[int] = []
    card.gallery_requested.connect(requested.append)
    card.open.click()
    card.strip.setCurrentRow(1)
    card.open.click()
    assert requested == [0, 1]
    bar = card.findChild(QProgressBar)
    for done in (0, 3):
        card.show_progress(done, 10)
        assert (bar.value(), bar.maximum(), bar.isVisibleTo(filled)) == (done, 10, True)
        assert card.text() == f"Inspecting the folder… {done} of 10 files"
        assert f"{done} of 10 files" in join_visible_texts(card)
    card.show_progress(0, 0)
    assert card.text() == "Inspecting the folder… listing files"
    assert [widget.isVisibleTo(filled) for widget in (card.strip, card.open, card._more)] == [False] * 3
    card.show_report(msgspec.structs.replace(REPORT, classes=()))
    assert not bar.isVisibleTo(filled)
    card.show_report(DatasetReport(folder="", format=""))
    assert (card.text(), card.open.isVisibleTo(filled)) == ("No dataset recognized in this folder.", False)
    card.show_report(msgspec.structs.replace(REPORT, classes=()))
    assert [widget.isVisibleTo(filled) for widget in (card.strip, card.open, card._more)] == [False, True, True]


def test_dataset_card_of_saved_job_announces_the_inspection(form: JobForm, images: Path, qtbot: QtBot) -> None:
    form.set_job(Job.from_fields(dataset=str(images)))
    assert form.card.text().startswith("Inspecting the folder…")
    with qtbot.waitSignal(form.folder_chosen) as chosen:
        find_button(form.card, "Cancel the inspection").click()
    assert chosen.args == [None]
    assert form.card.text().startswith("Not inspected.")
    with qtbot.assertNotEmitted(form.folder_chosen, wait=400):
        form.validate()


def test_job_is_copied_as_command(form: JobForm, images: Path, qtbot: QtBot) -> None:
    folder = images / "my flowers"
    folder.mkdir()
    fill_in(form, folder, qtbot)
    form.set_field("strategy", "ddp")
    form.set_field("pretrained", True)
    form.set_devices(("cpu", "cpu"))
    qtbot.waitUntil(lambda: form.job is not None and form.job.parallel.devices == ("cpu", "cpu"))
    form.copy.click()
    arguments = shlex.split(QGuiApplication.clipboard().text())
    assert arguments[:3] == ["footplate", "train", str(folder)]
    assert arguments[arguments.index("--devices") + 1] == "cpu,cpu"
    assert arguments[arguments.index("--model") + 1] == "mnist_cnn"
    assert "--pretrained" in arguments


CPUS = ("cpu", "cpu")
JOBS = {
    "training": {
        "model": "resnet18", "strategy": "pipeline", "epochs": 17, "batch_size": 48, "optimizer": "adamw", "learning_rate": 3e-4,
        "weight_decay": 0.05, "schedule": "onecycle", "seed": 11, "best_by": "loss", "image_size": 96, "augmentation": "light",
        "loader_workers": 0, "val_fraction": 0.25, "precision": "bf16", "pretrained": True, "freeze_epochs": 2, "microbatches": 8,
        "pipeline_schedule": "1f1b", "name": "evening run", "devices": CPUS,
    },
    "pipeline": {
        "strategy": "pipeline", "devices": CPUS, "accumulation": 2, "clip_norm": 1.5, "ema_decay": 0.9999,
        "resume_from": "/runs/a/last.pt", "activation_checkpointing": True, "pipeline_schedule": "interleaved_1f1b",
        "stages_per_device": 3, "microbatches": 4, "split_points": ("layer1", "layer2", "layer3", "layer4", "avgpool"),
    },
    "ddp": {
        "strategy": "ddp", "devices": CPUS, "balance": "speed", "bucket_mib": 12.5, "gradient_compression": "bf16",
        "static_graph": True, "sync_batchnorm": True,
    },
    "queued": {"devices": ("GPU-a",), "wait_for_others": True, "restarts": 0, "on_not_finite": "skip"},
    "at once": {"start": "at_once", "restarts": 7, "on_not_finite": "roll_back"},
}  # fmt: skip


@pytest.mark.parametrize("fields", JOBS.values(), ids=JOBS)
def test_form_round_trips_every_job(form: JobForm, images: Path, fields: dict[str, Any]) -> None:
    job = Job.from_fields(dataset=str(images), **fields)
    form.set_job(job)
    form.set_devices(job.parallel.devices)
    form.validate()
    assert form.job == job


def test_weights_show_source_and_problems(form: JobForm, images: Path, qtbot: QtBot) -> None:
    row, note = form.rows["pretrained"], form.rows["pretrained"].note
    form.set_job(Job.from_fields(dataset=str(images), model="timm:starnet_s1"))
    qtbot.waitUntil(lambda: "timm/starnet_s1.in1k, Apache-2.0, about 10.9 MiB" in note.text())
    assert problem_at(form, "pretrained") == ""
    assert not note.isHidden()
    row.set_value(True)
    qtbot.waitUntil(lambda: "model.safetensors" in row.problem_label.text())
    weights = timm_weights("starnet_s1", form.catalogue)
    assert weights is not None
    cached_path(weights).parent.mkdir(parents=True)
    cached_path(weights).write_bytes(bytes(1 << 20))
    form.validate(forget_disk=True)
    qtbot.waitUntil(lambda: "Apache-2.0, 1.0 MiB" in note.text())
    assert row.problem_label.text() == ""
    form.set_field("model", "mnist_cnn")
    qtbot.waitUntil(lambda: "pretrained" in [each.field for each in form.problems])


def test_long_choice_is_elided(form: JobForm) -> None:
    box = form.rows["strategy"].editor.control
    assert isinstance(box, QComboBox)
    form.set_field("strategy", "ddp")
    form.validate()
    for width, ending in ((400, "DistributedDataParallel"), (120, "…")):
        box.resize(width, box.height())
        option = QStyleOptionComboBox()
        box.initStyleOption(option)
        assert option.currentText.endswith(ending)


def test_steps_show_data_recipe_and_devices(form: JobForm, images: Path, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: form.steps.states.get("Data") == "to do")
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
    assert form.steps.lines["Recipe"].text() == "Recipe: None · ResNet-18"
    for step, name in (("Data", "dataset"), ("Recipe", "recipe"), ("Devices", "strategy")):
        form.steps.lines[step].click()
        assert form.window().focusWidget() is form.rows[name].editor.control
    form.set_devices(())
    qtbot.waitUntil(lambda: form.steps.states["Devices"] == "attention")
    description = form.steps.lines["Devices"].accessibleDescription()
    assert description == f"needs attention: {form.problems[0].message}"
    form.steps.resize(200, form.steps.height())
    assert form.steps.lines["Devices"].text().endswith("…")
    form.set_field("epochs", 3)
    form.set_field("learning_rate", "fast")
    qtbot.waitUntil(lambda: form.steps.states["Recipe"] == "attention")
    form.steps.lines["Recipe"].click()
    assert form.window().focusWidget() is form.rows["learning_rate"].editor.control


def test_step_shows_its_worst_problem_once_it_has_started(styled: QApplication, qtbot: QtBot) -> None:
    steps, done = StepList(), dict.fromkeys(("Data", "Recipe", "Devices"), "fine")
    qtbot.addWidget(steps)
    icons: set[int] = set()
    problems = [
        Problem(field, message, "", severity)
        for field, message, severity in (
            ("epochs", "a", "warning"), ("model", "b", "error"), ("strategy", "c", "error"), ("dataset", "d", "error"),
        )
    ]  # fmt: skip
    for working, to_do, state in (
        ({}, {}, "attention"),
        ({"Data": "x"}, {}, "working"),
        ({"Data": "x"}, {"Data": "y"}, "to do"),
    ):
        steps.show_steps(problems, done, working, to_do)
        assert steps.states == {"Data": state, "Recipe": "attention", "Devices": "attention"}
        icons.add(steps.lines["Data"].icon().cacheKey())
    assert len(icons) == 3
    assert [steps.lines[step].text() for step in done] == ["Data: y", "Recipe: b", "Devices: c"]
    assert [steps.lines[step].toolTip().split("\n") for step in ("Recipe", "Devices")] == [["b", "a"], ["c"]]
    steps.show_steps([], done, {}, {})
    assert set(steps.states.values()) == {"done"}
    assert {line.toolTip() for line in steps.lines.values()} == {"fine"}
    assert steps.lines["Recipe"].accessibleDescription().endswith(": fine")


def test_focused_field_is_visible_in_a_folded_section(filled: JobForm, qtbot: QtBot) -> None:
    control = filled.rows["seed"].editor.control
    assert not control.isVisible()
    filled.body.filter.box.setText("warm-up")
    filled.focus_field("seed")
    assert filled.body.filter.box.text() == ""
    assert isinstance(control, QSpinBox)
    assert control.lineEdit().selectedText() == "0"
    assert filled.window().focusWidget() is control
    qtbot.waitUntil(lambda: not control.visibleRegion().isEmpty())


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [("batch_size", "99999999", 1_000_000), ("batch_size", "0", 1), ("image_size", "7", 8)],
)
def test_impossible_number_is_replaced_with_a_note(
    form: JobForm, field: str, typed: str, value: int, qtbot: QtBot
) -> None:
    row = form.rows[field]
    spin = row.editor.control
    assert isinstance(spin, QSpinBox)
    spin.setFocus()
    spin.selectAll()
    qtbot.keyClicks(spin, typed)
    qtbot.keyClick(spin, Qt.Key.Key_Return)
    assert row.value() == value
    assert typed in row.note.text()
    assert ("largest" in row.note.text()) is (value == 1_000_000)
    row.set_value(32)
    assert row.note.isHidden()


def test_choice_focuses_its_first_field_with_an_effect(filled: JobForm) -> None:
    filled.apply(Choice("Use these", {"beta2": 0.9, "momentum": 0.5}))
    assert (filled.field_value("momentum"), filled.rows["beta2"].has_effect) == (0.5, False)
    assert filled.window().focusWidget() is filled.rows["momentum"].editor.control


def test_estimate_is_for_the_jobs_images_size_and_devices(filled: JobForm, qtbot: QtBot) -> None:
    filled.set_machine(snapshot())
    filled.set_field("image_size", 32)
    filled.set_devices(("cpu", "cpu"))
    qtbot.waitUntil(lambda: filled.estimator.request is not None)
    request = filled.estimator.request
    assert (request.image_size, request.device_kinds, request.images) == (32, ("AMD EPYC", "AMD EPYC"), (26, 7))
    text = filled.submit_bar.estimate.text()
    assert text in filled.submit_bar.estimate.toolTip().splitlines()
    filled.set_field("learning_rate", "fast")
    qtbot.waitUntil(lambda: filled.submit_bar.estimate.text() != text)
    assert filled.submit_bar.estimate.isHidden()
    filled.readiness.show_estimate(request, Estimate(seconds=720.0, memory_bytes=9 << 30, run_id="a", is_scaled=True))
    total = size(snapshot().cpu.memory_total_bytes)
    assert filled.submit_bar.estimate.text() == f"Estimate: about 12 min on the CPU, 9.0 of {total} each"
    assert format_estimate(Estimate(seconds=None, memory_bytes=9 << 30), ("cpu",), 16 << 30).startswith(
        "Estimate: 9.0 of 16.0 GiB, "
    )
    assert filled.submit_bar.estimate.toolTip().splitlines()[1:] == [
        "Time and memory from run a",
        "Scaled to the number of devices and the image size",
    ]
    large, small = gpu(0), gpu(1, memory_total_bytes=24 << 30)
    filled.set_machine(snapshot(large, small))
    request = replace(request, job=request.job.with_fields(devices=(large.uuid, small.uuid)))
    filled.readiness.show_estimate(request, Estimate(seconds=720.0, memory_bytes=9 << 30))
    assert filled.submit_bar.estimate.text() == "Estimate: about 12 min on 2 GPUs, 9.0 of 24.0 GiB each"


def test_note_does_not_move_adjacent_editors(filled: JobForm, qtbot: QtBot) -> None:
    spins = [filled.rows[name].editor.control for name in STACKED_FIELDS]
    height = filled.rows["epochs"].height()
    filled.rows["batch_size"].set_note("99999999 isn't possible; this is the largest value.")
    qtbot.waitUntil(lambda: filled.rows["epochs"].height() > height)
    assert len({spin.mapTo(filled, QPoint()).y() for spin in spins}) == 1
    labels = [filled.rows[name].label.geometry() for name in ("epochs", "dataset")]
    editors = [filled.rows[name].editor.geometry() for name in ("epochs", "dataset")]
    assert labels[0].bottom() < editors[0].top()
    assert labels[1].right() < editors[1].left()
