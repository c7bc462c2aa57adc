"""Pipelines under every schedule against a single device that gets their microbatches in sequence."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.contract.events import Failed, Planned, ScheduleTraced, Validation
from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.strategies import STRATEGIES, StrategyError
from tests.support.cases import some

Make = Callable[..., Job]
Start = Callable[..., Any]
ModelFile = Callable[[str], dict[str, str]]

SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "zb1p", "zbv")
EVERYDAY = some(SCHEDULES, everyday=("zbv",))
"""Schedule of the everyday suite, with two stages per rank, which covers most code."""
ONE_STAGE_EACH = ("gpipe", "1f1b", "zb1p")

NORMS = """
from torch import nn

def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

def build_model(num_classes):
    return nn.Sequential(
        block(3, 8), block(8, 8), nn.AvgPool2d(2), block(8, 16), block(16, 16), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, num_classes))
"""
DROPS = """
from torch import nn

def build_model(num_classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(768, 32), nn.Tanh(), nn.Dropout(0.3), nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.3),
        nn.Linear(32, num_classes))
"""
TORCHVISION = """
from functools import partial
from torchvision import models

def build_model(num_classes):
    return models.{}(num_classes=num_classes)
"""
FAMILIES = {
    "resnet": TORCHVISION.format("resnet18"),
    "squeezenet": TORCHVISION.replace("(num_classes=", "(dropout=0.0, num_classes=").format("squeezenet1_1"),
    "efficientnet": TORCHVISION.replace(
        "(num_classes=", "(dropout=0.0, stochastic_depth_prob=0.0, num_classes="
    ).format("efficientnet_b0"),
    "convnext": TORCHVISION.replace("(num_classes=", "(stochastic_depth_prob=0.0, num_classes=").format(
        "convnext_tiny"
    ),
    "vit": TORCHVISION.replace("(num_classes=", "(32, 8, 6, 2, 32, 64, num_classes=").format("VisionTransformer"),
}


def state_of(group: Any, kind: str = "last") -> dict[str, Any]:
    content: dict[str, Any] = torch.load(group.folder / f"checkpoints/{kind}.pt", weights_only=True)
    return content


def assert_same_training(group: Any, other: Any, *, weights_rtol: float = 0.0) -> None:
    """Compare bit by bit, except for losses, whose parts are summed in another order."""
    np.testing.assert_allclose(group.losses, other.losses, rtol=1e-6)
    actual, expected = state_of(group), state_of(other)
    assert list(actual["model"]) == list(expected["model"])
    assert set(actual["optimizer"]["state"]) == set(expected["optimizer"]["state"])
    close = {"rtol": weights_rtol, "atol": weights_rtol / 100}
    torch.testing.assert_close(actual["model"], expected["model"], **close)
    torch.testing.assert_close(actual["optimizer"]["state"], expected["optimizer"]["state"], **close)
    for one, another in zip(group.of(Validation), other.of(Validation), strict=True):
        assert one.measures == pytest.approx(another.measures, rel=1e-6 + weights_rtol)


@pytest.mark.parametrize("schedule", EVERYDAY)
def test_pipeline_schedules_train_equally(job: Make, start: Start, model_file: ModelFile, schedule: str) -> None:
    fields = {**model_file(NORMS), "epochs": 2, "clip_norm": 0.5, "ema_decay": 0.9}
    single = start(job(accumulation=4, **fields), every_step=True).completed()
    piped = start(
        job(cpus=2, strategy="pipeline", pipeline_schedule=schedule, microbatches=4, **fields), every_step=True
    ).completed()
    # The norm of all gradients is added up by stages, which rounds otherwise.
    np.testing.assert_allclose(piped.losses, single.losses, rtol=1e-5)
    actual, expected = state_of(piped), state_of(single)
    for mine, its in ((actual["model"], expected["model"]), (actual["optimizer"]["ema"], expected["optimizer"]["ema"])):
        assert set(mine) == set(its)
        assert mine
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor, its[name], rtol=1e-4, atol=1e-6)
    for one, another in zip(piped.of(Validation), single.of(Validation), strict=True):
        assert one.images == another.images == 21
        assert one.measures == pytest.approx(another.measures, rel=1e-4)


@pytest.mark.parametrize(
    ("family", "schedule"),
    [
        pytest.param(
            family, schedule, marks=[] if (family, schedule) == ("vit", "interleaved_1f1b") else pytest.mark.long
        )
        for family in FAMILIES
        for schedule in SCHEDULES
    ],
)
def test_pipeline_trains_model_families_exactly(
    job: Make, start: Start, model_file: ModelFile, family: str, schedule: str
) -> None:
    """Train families of models exactly, and ConvNeXt within rounding.

    Its channels-last activations become contiguous between stages.
    """
    fields = {**model_file(FAMILIES[family]), "image_size": 32, "batch_size": 24, "learning_rate": 0.002}
    single = start(job(accumulation=4, **fields), every_step=True).completed()
    piped = start(
        job(cpus=2, strategy="pipeline", pipeline_schedule=schedule, microbatches=4, **fields), every_step=True
    ).completed()
    assert_same_training(piped, single, weights_rtol=1e-4 if family == "convnext" else 0.0)


@pytest.mark.parametrize("schedule", EVERYDAY)
def test_pipeline_accumulates_in_rounds(job: Make, start: Start, model_file: ModelFile, schedule: str) -> None:
    fields = {**model_file(NORMS), "batch_size": 24}
    single = start(job(accumulation=8, **fields), every_step=True).completed()
    piped = start(
        job(cpus=2, strategy="pipeline", pipeline_schedule=schedule, microbatches=4, accumulation=2, **fields),
        every_step=True,
    ).completed()
    assert_same_training(piped, single)


@pytest.mark.parametrize("schedule", some(("1f1b", "zb1p"), everyday=("zb1p",)))
def test_pipeline_dropout_follows_microbatches(job: Make, start: Start, model_file: ModelFile, schedule: str) -> None:
    fields = {**model_file(DROPS), "cpus": 2, "strategy": "pipeline", "microbatches": 4, "cuts": ("_2",)}
    group = start(job(pipeline_schedule=schedule, **fields), every_step=True)
    assert_same_training(group.completed(), start(job(**fields), every_step=True).completed())


@pytest.mark.parametrize("schedule", EVERYDAY)
def test_pipeline_shares_loss_scale(job: Make, start: Start, model_file: ModelFile, schedule: str) -> None:
    fields = {**model_file(NORMS), "precision": "fp16"}
    single = start(job(accumulation=4, **fields), every_step=True).completed()
    piped = start(
        job(cpus=2, strategy="pipeline", pipeline_schedule=schedule, microbatches=4, **fields), every_step=True
    ).completed()
    assert_same_training(piped, single)
    assert state_of(piped)["optimizer"]["scaler"] == state_of(single)["optimizer"]["scaler"]
    assert state_of(piped)["optimizer"]["scaler"]["scale"] > 1


@pytest.mark.long
def test_pipeline_recomputes_exactly(job: Make, start: Start, model_file: ModelFile) -> None:
    fields = {**model_file(NORMS), "cpus": 2, "strategy": "pipeline", "microbatches": 4}
    for schedule in ("1f1b", "interleaved_1f1b"):
        stored = start(job(pipeline_schedule=schedule, **fields), every_step=True).completed()
        recomputed = start(
            job(pipeline_schedule=schedule, activation_checkpointing=True, **fields), every_step=True
        ).completed()
        assert_same_training(recomputed, stored)


@pytest.mark.parametrize("schedule", EVERYDAY)
def test_pipeline_leaves_frozen_stage(job: Make, start: Start, model_file: ModelFile, schedule: str) -> None:
    frozen = NORMS.replace(
        "    return nn.Sequential(\n        block(3, 8)", "    model = nn.Sequential(\n        block(3, 8)"
    )
    frozen += "    model[:4].requires_grad_(False)\n    return model\n"
    fields = model_file(frozen)
    single = start(job(accumulation=4, **fields), every_step=True).completed()
    piped = start(
        job(cpus=2, strategy="pipeline", pipeline_schedule=schedule, microbatches=4, **fields), every_step=True
    ).completed()
    assert_same_training(piped, single)
    assert "0.0.weight" not in state_of(piped)["optimizer"]["state"]


@pytest.mark.long
def test_pipeline_resumes_under_other_schedules(job: Make, start: Start, model_file: ModelFile) -> None:
    fields = {**model_file(NORMS), "ema_decay": 0.9, "schedule": "none"}
    uninterrupted = start(job(accumulation=4, epochs=4, **fields)).completed()
    settings: list[dict[str, Any]] = [
        {"cpus": 2, "strategy": "pipeline", "pipeline_schedule": "zbv", "microbatches": 4},
        {"accumulation": 4},
        {"cpus": 2, "strategy": "pipeline", "pipeline_schedule": "interleaved_1f1b", "microbatches": 4},
        {"cpus": 2, "strategy": "pipeline", "pipeline_schedule": "1f1b", "microbatches": 4},
    ]
    last = ""
    for epochs, setting in enumerate(settings, start=1):
        group = start(job(epochs=epochs, resume_from=last, **fields, **setting)).completed()
        last = str(group.folder / "checkpoints/last.pt")
    actual, expected = state_of(group), state_of(uninterrupted)
    for mine, its in ((actual["model"], expected["model"]), (actual["optimizer"]["ema"], expected["optimizer"]["ema"])):
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor, its[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("schedule", EVERYDAY)
def test_pipeline_traces_every_action(job: Make, start: Start, model_file: ModelFile, schedule: str) -> None:
    group = start(
        job(cpus=2, strategy="pipeline", pipeline_schedule=schedule, microbatches=4, epochs=4, **model_file(NORMS))
    ).completed()
    event, *_ = group.of(ScheduleTraced, 0)
    (planned,) = group.of(Planned)
    places = planned.cut.stage_ranks
    assert event.schedule == schedule
    assert 0 < event.theory < event.bubble < 1
    spans: dict[tuple[str, int, int], tuple[float, float]] = {}
    for place, actions in enumerate(event.ranks):
        assert all(places[action.stage] == place for action in actions)
        assert all(one.end_s <= another.begin_s for one, another in itertools.pairwise(actions))
        spans |= {(each.kind, each.stage, each.microbatch): (each.begin_s, each.end_s) for each in actions}
    count = len(places) * 4
    divided = schedule in ("zb1p", "zbv")
    assert Counter(kind for kind, _, _ in spans) == (
        {"F": count, "I": count, "W": count} if divided else {"F": count, "B": count}
    )
    for (kind, stage, number), (start_s, _) in spans.items():
        if kind == "F" and stage:
            assert spans["F", stage - 1, number][1] <= start_s
    assert max(end for _, end in spans.values()) == pytest.approx(event.span_s)


def test_pipeline_refuses_unknown_cut(job: Make, start: Start, model_file: ModelFile) -> None:
    group = start(job(cpus=2, strategy="pipeline", cuts=("nowhere",), **model_file(NORMS)))
    assert group.finish() == [1, 1]
    causes = {failed.cause for failed in group.of(Failed)}
    assert len(causes) == 1
    assert "nowhere" in causes.pop()


def test_pipeline_uses_given_cuts(job: Make, start: Start, model_file: ModelFile) -> None:
    group = start(job(cpus=2, strategy="pipeline", cuts=("_1_2",), **model_file(NORMS))).completed()
    (planned,) = group.of(Planned)
    assert planned.cut.cuts == ("_1_2",)
    assert not planned.cut.chosen


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"microbatches": 5}, "equal microbatches"),
        ({"accumulation": 5}, "equal microbatches"),
        ({"pipeline_schedule": "1f1b", "microbatches": 1}, "can't run with 1 microbatches"),
        ({"pipeline_schedule": "zb1p", "activation_checkpointing": True}, "Choose 1F1B"),
    ],
)
def test_pipeline_refuses_unsupported_jobs(job: Make, fields: dict[str, Any], text: str) -> None:
    requested = job(cpus=2, strategy="pipeline", **fields)
    spec = WorkerSpec(
        run_folder="", job=requested, rank=0, world_size=2, devices=requested.parallel.devices, rendezvous="", threads=1
    )
    with pytest.raises(StrategyError, match=text):
        STRATEGIES["pipeline"](spec).setup()
