"""Default model of a task, depending on the available weights."""

from __future__ import annotations

import pytest

from engine.checks.weights_checks import choose_model, find_included_alternative
from engine.contract.catalogue import DefaultModel, TaskEntry, load_catalogue
from engine.contract.job import Job
from engine.contract.weights import HUB
from tests.support.fixed_disk import FixedDisk

CATALOGUE = load_catalogue()
LITE = "timm:tf_efficientnet_lite0"
RESNET = "resnet50-11ad3fa6.pth from download.pytorch.org"


def task(name: str) -> TaskEntry:
    entry = CATALOGUE.task(name)
    assert entry is not None
    return entry


@pytest.mark.parametrize(
    ("disk", "uses_gpu", "model", "reason"),
    [
        (
            FixedDisk(reachable=True),
            False,
            LITE,
            "EfficientNet-Lite0 (included weights), because training runs on the CPU",
        ),
        (
            FixedDisk(reachable=False),
            True,
            LITE,
            "EfficientNet-Lite0 (included weights), because download.pytorch.org can't be reached",
        ),
        (
            FixedDisk(reachable=None),
            True,
            LITE,
            "EfficientNet-Lite0 (included weights), because download.pytorch.org hasn't answered yet",
        ),
        (
            FixedDisk(reachable=True),
            True,
            "resnet50",
            "ResNet-50, whose weights can be downloaded from download.pytorch.org",
        ),
        (FixedDisk(RESNET), True, "resnet50", "ResNet-50, whose weights are on this machine"),
    ],
)
def test_choose_model_takes_the_best_with_weights(disk: FixedDisk, uses_gpu: bool, model: str, reason: str) -> None:
    assert choose_model(task("classification"), CATALOGUE, disk, uses_gpu=uses_gpu) == (model, "", reason)


def test_choose_model_asks_no_server_unless_the_answer_matters() -> None:
    on_cpu, with_file = FixedDisk(reachable=True), FixedDisk(RESNET)
    choose_model(task("classification"), CATALOGUE, on_cpu, uses_gpu=False)
    choose_model(task("classification"), CATALOGUE, with_file, uses_gpu=True)
    assert on_cpu.requested_hosts == with_file.requested_hosts == []


def test_choose_model_honors_the_users_ban_on_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    disk = FixedDisk(reachable=True)
    choice = choose_model(task("segmentation"), CATALOGUE, disk, uses_gpu=True)
    assert (choice.model, choice.encoder) == ("unet", "tu-tf_efficientnet_lite0")
    assert choice.reason.endswith("because HF_HUB_OFFLINE forbids downloads")
    assert disk.requested_hosts == []


def test_choose_model_sets_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT")
    disk = FixedDisk(reachable=(HUB,))
    assert choose_model(task("segmentation"), CATALOGUE, disk, uses_gpu=True)[:2] == ("unet", "resnet50")
    light = choose_model(task("detection"), CATALOGUE, disk, uses_gpu=True)
    assert light.reason.endswith("because download.pytorch.org can't be reached")


def test_every_task_has_a_default_that_needs_no_gpu() -> None:
    for entry in CATALOGUE.tasks:
        models = {model.id for model in CATALOGUE.models_of(entry.id)}
        assert {default.model for default in entry.defaults} <= models
        assert entry.file or not entry.defaults[-1].gpu
        assert entry.model == (entry.defaults[-1].model if entry.defaults else "")
        choice = choose_model(entry, CATALOGUE, FixedDisk(), uses_gpu=False)
        assert choice.model == entry.model
        assert bool(choice.reason) == bool(choice.model)


def test_included_alternative_of_the_included_model_is_none() -> None:
    unet = DefaultModel("unet", "tu-tf_efficientnet_lite0")
    assert find_included_alternative(Job.from_fields(model="resnet18"), CATALOGUE) == DefaultModel(LITE)
    assert find_included_alternative(Job.from_fields(model=LITE), CATALOGUE) is None
    assert find_included_alternative(Job.from_fields(task="segmentation", model="unet"), CATALOGUE) == unet
    assert (
        find_included_alternative(
            Job.from_fields(task="segmentation", model="fcn_resnet50", encoder=unet.encoder), CATALOGUE
        )
        == unet
    )
    assert (
        find_included_alternative(Job.from_fields(task="segmentation", model="unet", encoder=unet.encoder), CATALOGUE)
        is None
    )
    assert find_included_alternative(Job.from_fields(task="point_segmentation", model="pointcnn"), CATALOGUE) is None
    assert find_included_alternative(Job.from_fields(task="no_such_task"), CATALOGUE) is None
