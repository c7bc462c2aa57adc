"""Recipes in the form: fields that follow the recipe, overridden fields, and custom recipes."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialogButtonBox, QMessageBox
from pytestqt.qtbot import QtBot

from engine.checks.disk import RealDisk
from engine.contract.dataset import DatasetReport, SplitReport
from engine.contract.job import FIELDS, Job
from engine.contract.recipes import load_recipes
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.form.recipe_dialog import RecipeDialog
from gui.form.recipes import RecipeEditor
from gui.sources.resume_fork import Prefill
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import find_button, join_visible_texts

LITE = "timm:tf_efficientnet_lite0"


def report(images: int = 1000, classes: int = 10) -> DatasetReport:
    names = tuple(f"class {number}" for number in range(classes))
    train = SplitReport("train", dict.fromkeys(names, images // classes))
    return DatasetReport(folder="", format="imagefolder", classes=names, splits=(train,))


@pytest.fixture(autouse=True)
def reachable_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all servers for pretrained weights reachable."""
    monkeypatch.setattr(RealDisk, "can_reach", lambda _disk, _host: True)


@pytest.fixture
def inspected(form: JobForm, images: Path, qtbot: QtBot) -> JobForm:
    """Return the form after it has inspected a folder and selected the recipe that matches it."""
    form.set_job(Job.from_fields(dataset=str(images)))
    form.recipes.reset()
    qtbot.waitSignal(form.folder_chosen).wait()
    form.set_report(report())
    return form


def values(form: JobForm, *names: str) -> tuple[object, ...]:
    return tuple(form.rows[name].value() for name in names)


def mark(form: JobForm, title: str) -> str:
    return next(section for section in form.sections if section.title == title).mark.text()


def find_recipe(form: JobForm, recipe: str) -> int:
    """Return the index of a recipe in the list of recipes, or -1 if it isn't offered."""
    editor = form.rows["recipe"].editor
    assert isinstance(editor, RecipeEditor)
    return editor.box.findData(recipe)


def find_question(form: JobForm) -> QMessageBox:
    """Return the visible message box of a form."""
    return next(box for box in form.findChildren(QMessageBox) if box.isVisible())


def choose(form: JobForm, recipe: str) -> None:
    form.set_field("recipe", recipe)
    form.validate()


def change(form: JobForm, **changes: object) -> None:
    for name, value in changes.items():
        form.rows[name].set_value(value)
    form.validate()


def test_recipe_fields_follow_the_inspection(inspected: JobForm) -> None:
    assert values(inspected, "recipe", "pretrained", "optimizer") == ("fine-tune", True, "adamw")
    assert values(inspected, "label_smoothing", "epochs", "ema_decay") == (
        0.1,
        30,
        0.98,
    )  # 32 steps in each of 30 epochs
    inspected.set_report(report(20_000, 4))
    assert values(inspected, "label_smoothing", "epochs", "ema_decay") == (0.0, 10, 0.998)
    change(inspected, batch_size=4)
    assert values(inspected, "ema_decay", "ema_ramp") == (0.9998, 2000)
    change(inspected, model="vit_b_16")
    assert values(inspected, "layer_decay", "learning_rate") == (0.75, 1e-4)
    change(inspected, model="mnist_cnn")
    assert values(inspected, "recipe", "pretrained", "learning_rate", "batch_size") == (
        "from-scratch",
        False,
        0.001563,
        4,
    )
    assert inspected.job.recipe == "from-scratch"


def test_pretrained_checkbox_switches_the_recipe(inspected: JobForm) -> None:
    assert find_recipe(inspected, "") < 0, "the job has a recipe"
    change(inspected, pretrained=False)
    assert values(inspected, "recipe", "optimizer") == ("from-scratch", "sgd")
    change(inspected, pretrained=True)
    assert values(inspected, "recipe", "optimizer") == ("fine-tune", "adamw")


def test_overridden_fields_stay_and_are_marked(inspected: JobForm) -> None:
    change(inspected, learning_rate=0.3, mixup=0.2)
    assert mark(inspected, "Augmentation") == "● 1 changed"
    assert not inspected.rows["learning_rate"].reset.isHidden()
    assert inspected.rows["learning_rate"].reset.toolTip() == "Reset to the recipe"
    change(inspected, model="mnist_cnn")
    assert values(inspected, "recipe", "learning_rate", "mixup", "optimizer") == ("from-scratch", 0.3, 0.2, "sgd")
    inspected.rows["learning_rate"].reset.click()
    inspected.validate()
    assert values(inspected, "learning_rate") == (0.0125,)
    change(inspected, batch_size=64)  # the field follows the recipe again
    assert values(inspected, "learning_rate") == (0.025,)
    next(section for section in inspected.sections if section.title == "Augmentation").reset.click()
    assert values(inspected, "mixup") == (0.0,)


def test_override_stays_if_the_recipe_agrees(inspected: JobForm) -> None:
    change(inspected, model="mnist_cnn", learning_rate=0.025)
    change(inspected, batch_size=64)
    assert not inspected.rows["learning_rate"].is_changed
    change(inspected, batch_size=128)
    assert values(inspected, "learning_rate") == (0.025,)


def test_switching_recipes_restores_overrides(inspected: JobForm) -> None:
    change(inspected, epochs=7, weight_decay=0.5)
    choose(inspected, "torchvision-classification")
    assert values(inspected, "epochs", "weight_decay", "milestones", "pretrained") == (90, 1e-4, (30, 60), False)
    change(inspected, mixup=0.4)
    choose(inspected, "fine-tune")
    assert values(inspected, "epochs", "weight_decay", "milestones", "mixup") == (7, 0.5, (), 0.0)
    choose(inspected, "torchvision-classification")
    assert values(inspected, "epochs", "mixup") == (90, 0.4)
    change(inspected, model="mnist_cnn")
    assert values(inspected, "recipe") == ("torchvision-classification",)  # the user has selected it
    inspected.rows["recipe"].reset.click()
    inspected.validate()
    assert values(inspected, "recipe") == ("from-scratch",)
    change(inspected, model="resnet18")
    assert values(inspected, "recipe") == ("fine-tune",)  # the matching recipe again


def test_recipe_of_another_task_is_replaced(inspected: JobForm) -> None:
    inspected.environment.default_recipe = "timm-a1"
    inspected.validate()
    assert values(inspected, "recipe") == ("timm-a1",)
    choose(inspected, "timm-a1")
    assert values(inspected, "loss", "optimizer") == ("bce", "lamb")
    change(inspected, task="detection")
    assert values(inspected, "recipe", "optimizer", "clip_norm") == ("fine-tune", "adamw", 5.0)
    editor = inspected.rows["recipe"].editor
    assert isinstance(editor, RecipeEditor)
    offered = {editor.box.itemData(index): editor.box.itemText(index) for index in range(editor.box.count())}
    assert offered["torchvision-detection"] == "torchvision detection"
    assert "timm-a1" not in offered


def test_job_without_recipe_is_unchanged(form: JobForm, images: Path, qtbot: QtBot) -> None:
    job = Job.from_fields(dataset=str(images), epochs=9, mixup=0.2, pretrained=True)
    form.set_job(job)
    qtbot.waitSignal(form.folder_chosen).wait()
    form.set_report(report())
    assert form.job == job
    assert find_recipe(form, "") >= 0
    assert form.fields.format_value("recipe") == "None"
    assert mark(form, "Augmentation") == "● 1 changed"
    assert form.rows["mixup"].reset.toolTip() == "Reset to the default"
    assert "No recipe" in form.rows["recipe"].note.text()
    choose(form, "fine-tune")
    assert values(form, "epochs", "mixup") == (30, 0.0)
    choose(form, "")
    assert form.job == job


def test_loaded_job_keeps_overrides_after_inspection(
    inspected: JobForm, form: JobForm, images: Path, qtbot: QtBot
) -> None:
    choose(inspected, "torchvision-classification")
    change(inspected, mixup=0.4)
    choose(inspected, "fine-tune")
    change(inspected, mixup=0.2, label_smoothing=0.0)  # the default, which differs from the recipe
    job = inspected.job
    assert job is not None
    form.set_job(Job())
    form.validate()
    form.set_job(job)
    form.validate()
    assert form.job == job
    assert mark(form, "Augmentation") == ""  # until the value of the recipe is known
    assert form.rows["recipe"].editor.control.currentText() == "Fine-tune"
    assert form.rows["recipe"].note.text().startswith("Starts from pretrained")
    qtbot.waitSignal(form.folder_chosen).wait()
    form.set_report(report())
    assert form.job == job
    assert mark(form, "Augmentation") == "● 1 changed"
    assert mark(form, "Optimizer") == ""
    form.set_report(report(20_000))
    assert values(form, "epochs", "mixup") == (10, 0.2)
    choose(form, "torchvision-classification")
    assert values(form, "mixup") == (0.0,)  # changes from before the job was loaded are forgotten


def test_form_is_validated_after_an_error_while_a_job_is_loaded(
    inspected: JobForm, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(inspected.fields, "set_job", _raise)
        with pytest.raises(RuntimeError):
            inspected.set_job(Job.from_fields(epochs=9))
    with monkeypatch.context() as patch:
        patch.setattr("gui.form.recipes.initial_recipe", _raise)
        with pytest.raises(RuntimeError):
            inspected.validate()
    inspected.set_field("epochs", 7)
    qtbot.waitUntil(lambda: inspected.job is not None and inspected.job.training.epochs == 7)
    assert "epochs" in (inspected.recipes.user_edited or ())


def _raise(*_arguments: object) -> None:
    raise RuntimeError


def test_repeated_inspection_keeps_fields_until_done(inspected: JobForm, qtbot: QtBot) -> None:
    inspected.set_field("seed", 3)
    inspected.validate()
    assert inspected.is_inspecting
    assert values(inspected, "epochs", "ema_decay") == (30, 0.98)


def test_prefill_keeps_the_runs_values_and_fork_applies_a_recipe_once(
    job_panel: JobPanel, inspected: JobForm, images: Path
) -> None:
    change(inspected, mixup=0.2)
    values_before = inspected.values()
    run = write_run(8, "paused", dataset=str(images), model="mnist_cnn", epochs=4, recipe="fine-tune", mixup=0.7)
    job = run.job()
    job_panel.begin_prefill(Prefill(text="Resume", job=job, run=run, action="Resume"))
    resumed = job_panel.form
    resumed.set_report(report(50))
    assert (resumed.job.recipe, resumed.job.augmentation.mixup, resumed.job.optimizer.name) == ("fine-tune", 0.7, "sgd")
    assert resumed.rows["recipe"].locked != ""
    resumed.recipes.save("Theirs", "")
    job_panel.begin_prefill(Prefill(text="A fork", job=job.with_fields(recipe="theirs")))
    job_panel.form.validate()
    assert job_panel.form.rows["recipe"].editor.control.currentText() == "Theirs"
    job_panel.begin_prefill(Prefill(text="A fork", job=job))
    fork = job_panel.form
    fork.validate()
    assert (fork.job.recipe, fork.job.augmentation.mixup, fork.job.training.epochs) == ("fine-tune", 0.7, 4)
    choose(fork, "pytorch-ddp-tutorial")
    assert (fork.job.optimizer.momentum, fork.job.training.epochs, fork.job.augmentation.mixup) == (0.0, 10, 0.0)
    change(fork, batch_size=64)
    assert fork.job.optimizer.learning_rate == 0.001
    job_panel.end_prefill()
    inspected.set_report(report())
    assert inspected.values() == values_before
    assert mark(inspected, "Augmentation") == "● 1 changed"
    assert inspected.rows["optimizer"].standard == "adamw"


def test_recipe_update_keeps_a_pending_train(inspected: JobForm, qtbot: QtBot) -> None:
    inspected.set_field("model", "mnist_cnn")
    with qtbot.waitSignal(inspected.train_requested) as blocker:
        inspected.start()
    assert blocker.args[0].recipe == "from-scratch"
    assert blocker.args[0].optimizer.learning_rate == 0.0125


def dialog(form: JobForm) -> RecipeDialog:
    return next(one for one in form.findChildren(RecipeDialog) if one.isVisible())


def test_recipe_is_saved_by_keyboard(inspected: JobForm, qtbot: QtBot) -> None:
    change(inspected, mixup=0.2, epochs=9)
    editor = inspected.rows["recipe"].editor
    assert isinstance(editor, RecipeEditor)
    editor.save.trigger()
    recipe_dialog = dialog(inspected)
    qtbot.waitUntil(recipe_dialog.isActiveWindow)
    qtbot.keyClicks(recipe_dialog.name, "Fine-tune")
    qtbot.keyClick(recipe_dialog.name, Qt.Key.Key_Return)
    assert "built-in recipe" in recipe_dialog.problem.text()
    recipe_dialog.name.clear()
    assert not recipe_dialog.problem.isVisible()
    qtbot.keyClicks(recipe_dialog.name, "Flowers")
    qtbot.keyClicks(recipe_dialog.about, "For the greenhouse.")
    qtbot.keyClick(recipe_dialog.about, Qt.Key.Key_Return)
    inspected.validate()
    assert values(inspected, "recipe", "mixup", "epochs", "pretrained") == ("flowers", 0.2, 9, True)
    assert inspected.rows["recipe"].note.text() == "For the greenhouse."
    assert inspected.recipes.user_edited == {"recipe"}
    assert mark(inspected, "Augmentation") == ""
    saved = load_recipes().get("flowers")
    assert saved.tasks == ("classification",)
    assert (saved.set["mixup"], saved.set["epochs"]) == (0.2, 9)
    choose(inspected, "fine-tune")
    assert values(inspected, "mixup", "epochs") == (0.2, 9)  # earlier changes
    choose(inspected, "flowers")
    assert values(inspected, "mixup", "epochs") == (0.2, 9)


def test_recipe_needs_a_free_name_and_valid_fields(inspected: JobForm, qtbot: QtBot) -> None:
    editor = inspected.rows["recipe"].editor
    assert isinstance(editor, RecipeEditor)
    for epochs in (8, 9):
        change(inspected, epochs=epochs)
        editor.save.trigger()
        recipe_dialog = dialog(inspected)
        recipe_dialog.name.setText("Mine")
        save = recipe_dialog.buttons.button(QDialogButtonBox.StandardButton.Save)
        save.click()
        if epochs == 9:
            assert "already" in recipe_dialog.problem.text()
            assert save.text() == "Replace"
            known = load_recipes().get("mine")
            assert known.set["epochs"] == 8
            recipe_dialog.name.setText("Mine too")
            assert save.text() == "Save"
            recipe_dialog.name.setText("Mine")
            save.click()
            save.click()
        qtbot.waitUntil(lambda: not any(one.isVisible() for one in inspected.findChildren(RecipeDialog)))
    replaced = load_recipes().get("mine")
    assert replaced.set["epochs"] == 9
    inspected.rows["learning_rate"].editor.line.setText("fast")  # type: ignore[attr-defined]
    editor.save.trigger()
    recipe_dialog = dialog(inspected)
    recipe_dialog.name.setText("Other")
    recipe_dialog.buttons.button(QDialogButtonBox.StandardButton.Save).click()
    assert "Learning rate" in recipe_dialog.problem.text()
    assert load_recipes().get("other") is None
    recipe_dialog.buttons.button(QDialogButtonBox.StandardButton.Cancel).click()
    assert not recipe_dialog.isVisible()


def test_only_custom_recipes_are_renamed_and_deleted(inspected: JobForm, separate_home: Path, qtbot: QtBot) -> None:
    editor = inspected.rows["recipe"].editor
    assert isinstance(editor, RecipeEditor)
    assert editor.more.menu().actions() == [editor.save, editor.rename, editor.delete]
    assert not editor.rename.isEnabled()
    assert not editor.delete.isEnabled()
    change(inspected, epochs=9)
    editor.save.trigger()
    dialog(inspected).name.setText("First")
    dialog(inspected).buttons.button(QDialogButtonBox.StandardButton.Save).click()
    inspected.validate()
    for before, after in (("First", "FIRST"), ("FIRST", "Second")):
        editor.rename.trigger()
        recipe_dialog = dialog(inspected)
        assert recipe_dialog.name.text() == before
        assert not recipe_dialog.about.isVisible()
        recipe_dialog.name.setText(after)
        recipe_dialog.buttons.button(QDialogButtonBox.StandardButton.Save).click()
        inspected.validate()
    assert values(inspected, "recipe", "epochs") == ("second", 9)
    assert [path.name for path in (separate_home / "recipes").iterdir()] == ["second.toml"]
    editor.delete.trigger()
    question = find_question(inspected)
    assert "“Second”" in question.text()
    question.button(QMessageBox.StandardButton.Cancel).click()
    assert [path.name for path in (separate_home / "recipes").iterdir()] == ["second.toml"]
    editor.delete.trigger()
    question = find_question(inspected)
    find_button(question, "Delete").click()
    qtbot.waitUntil(lambda: values(inspected, "recipe", "epochs") == ("fine-tune", 30))
    assert list((separate_home / "recipes").iterdir()) == []


def test_recipe_that_cannot_be_deleted_stays(inspected: JobForm, monkeypatch: pytest.MonkeyPatch) -> None:
    inspected.recipes.save("Mine", "")
    inspected.validate()

    def fail(_path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gui.form.recipes.delete_recipe", fail)
    editor = inspected.rows["recipe"].editor
    assert isinstance(editor, RecipeEditor)
    editor.delete.trigger()
    question = find_question(inspected)
    find_button(question, "Delete").click()
    assert "Couldn't delete the recipe" in inspected.rows["recipe"].note.text()
    assert values(inspected, "recipe") == ("mine",)


def test_recipe_that_is_chosen_while_another_is_deleted_or_renamed_stays(inspected: JobForm) -> None:
    editor = inspected.rows["recipe"].editor
    assert isinstance(editor, RecipeEditor)
    for name in ("First", "Second"):
        inspected.recipes.save(name, "")
        inspected.validate()
    editor.rename.trigger()
    recipe_dialog = next(one for one in inspected.findChildren(RecipeDialog) if one.isVisible())
    change(inspected, recipe="first")
    recipe_dialog.name.setText("Third")
    recipe_dialog.buttons.button(QDialogButtonBox.StandardButton.Save).click()
    inspected.validate()
    assert values(inspected, "recipe") == ("first",)
    change(inspected, recipe="third")
    editor.delete.trigger()
    question = find_question(inspected)
    change(inspected, recipe="first")
    find_button(question, "Delete").click()
    inspected.validate()
    assert values(inspected, "recipe") == ("first",)
    assert "third" not in editor.titles


def test_broken_recipe_is_listed_but_disabled(form: JobForm, separate_home: Path) -> None:
    folder = separate_home / "recipes"
    folder.mkdir(parents=True)
    (folder / "torn.toml").write_text('title = "Torn"\nabout = "No."\nepoch = 3\n')
    form.recipes.reload()
    form.validate()
    box = form.rows["recipe"].editor.control
    index = box.findData("torn")
    assert box.itemText(index) == "torn – can't be used"
    assert "“epoch” is not known" in box.itemData(index, Qt.ItemDataRole.ToolTipRole)
    assert not box.model().flags(box.model().index(index, 0)) & Qt.ItemFlag.ItemIsEnabled
    form.set_job(Job.from_fields(recipe="torn"))
    form.validate()
    assert "“epoch” is not known" in form.rows["recipe"].note.text()
    form.set_job(Job().with_fields(recipe="gone"))
    form.validate()
    assert "There is no recipe “gone” here." in form.rows["recipe"].note.text()
    assert form.rows["epochs"].standard == FIELDS["epochs"].default


def test_scaled_learning_rate_is_announced_and_undone(inspected: JobForm, qtbot: QtBot) -> None:
    choose(inspected, "torchvision-classification")
    rate, batch = values(inspected, "learning_rate", "batch_size")
    assert not inspected.scaled_rate.isVisible()
    change(inspected, batch_size=2 * batch)
    assert values(inspected, "learning_rate") == (2 * rate,)
    assert f"Learning rate {2 * rate:g}: scaled with the batch size ({rate:g} at {batch})." in join_visible_texts(
        inspected.scaled_rate
    )
    assert inspected.scaled_rate.undo.text() == f"Use {rate:g}"
    qtbot.mouseClick(inspected.scaled_rate.undo, Qt.MouseButton.LeftButton)
    assert values(inspected, "learning_rate") == (rate,)
    inspected.validate()
    assert not inspected.scaled_rate.isVisible()


def test_batch_larger_than_the_training_split_is_a_warning(inspected: JobForm) -> None:
    for size, severities in ((1000, []), (1001, ["warning"])):
        change(inspected, batch_size=size)
        assert [each.severity for each in inspected.problems if each.field == "batch_size"] == severities
