"""Pipelines with every schedule, compared with a single device that processes their microbatches in turn."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine.contract.events import Failed, Planned, ScheduleTraced
from engine.contract.job import Job
from tests.engine.strategies.comparison import assert_same_training
from tests.support.cases import mark_long_cases

Make = Callable[..., Job]
Start = Callable[..., Any]
ModelFile = Callable[[str], dict[str, str]]

SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "zb1p", "zbv")
EVERYDAY = mark_long_cases(SCHEDULES, everyday=("zbv",))
"""Schedules that the daily suite tests. ZBV has two stages per rank and covers most of the code."""

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
    """Compare a model of each family bit by bit, except ConvNeXt.

    ConvNeXt rounds differently, because its channels-last activations become contiguous between stages.
    """
    fields = {**model_file(FAMILIES[family]), "image_size": 32, "batch_size": 24, "learning_rate": 0.002}
    single = start(job(accumulation=4, **fields), every_step=True).completed()
    piped = start(
        job(cpus=2, strategy="pipeline", pipeline_schedule=schedule, microbatches=4, **fields), every_step=True
    ).completed()
    assert_same_training(piped, single, rtol=1e-4 if family == "convnext" else 0.0)


@pytest.mark.parametrize("schedule", mark_long_cases(("1f1b", "zb1p"), everyday=("zb1p",)))
def test_pipeline_dropout_follows_microbatches(job: Make, start: Start, model_file: ModelFile, schedule: str) -> None:
    fields = {**model_file(DROPS), "cpus": 2, "strategy": "pipeline", "microbatches": 4, "split_points": ("_2",)}
    group = start(job(pipeline_schedule=schedule, **fields), every_step=True)
    assert_same_training(group.completed(), start(job(**fields), every_step=True).completed())


@pytest.mark.long
def test_pipeline_recomputes_exactly(job: Make, start: Start, model_file: ModelFile) -> None:
    fields = {**model_file(NORMS), "cpus": 2, "strategy": "pipeline", "microbatches": 4}
    for schedule in ("1f1b", "interleaved_1f1b"):
        stored = start(job(pipeline_schedule=schedule, **fields), every_step=True).completed()
        recomputed = start(
            job(pipeline_schedule=schedule, activation_checkpointing=True, **fields), every_step=True
        ).completed()
        assert_same_training(recomputed, stored)


FROZEN = NORMS.replace("return nn.Sequential(\n        block(3, 8)", "model = nn.Sequential(\n        block(3, 8)")
FROZEN += "    model[:4].requires_grad_(False)\n    return model\n"


@pytest.mark.parametrize(
    ("model", "rounds", "fields"),
    [(NORMS, 2, {"batch_size": 24}), (NORMS, 1, {"precision": "fp16"}), (FROZEN, 1, {})],
    ids=["accumulation", "loss scale", "frozen stage"],
)
@pytest.mark.parametrize("schedule", EVERYDAY)
def test_pipeline_trains_like_its_microbatches(
    job: Make, start: Start, model_file: ModelFile, *, schedule: str, model: str, rounds: int, fields: dict[str, Any]
) -> None:
    fields = fields | model_file(model)
    single = start(job(accumulation=4 * rounds, **fields), every_step=True).completed()
    settings = {"strategy": "pipeline", "pipeline_schedule": schedule, "microbatches": 4, "accumulation": rounds}
    piped = start(job(cpus=2, **settings, **fields), every_step=True).completed()
    assert_same_training(piped, single)
    optimizers = [group.checkpoint()["optimizer"] for group in (piped, single)]
    assert optimizers[0]["scaler"] == optimizers[1]["scaler"]
    assert optimizers[0]["scaler"].get("scale", 0) > 1 or "precision" not in fields
    assert ("0.0.weight" in optimizers[0]["state"]) == (model == NORMS)


@pytest.mark.parametrize("schedule", EVERYDAY)
def test_pipeline_traces_every_action(job: Make, start: Start, model_file: ModelFile, schedule: str) -> None:
    group = start(
        job(
            cpus=2, strategy="pipeline", pipeline_schedule=schedule, microbatches=4, accumulation=2, batch_size=24,
            epochs=4, **model_file(NORMS),
        )
    ).completed()  # fmt: skip
    event, *_ = group.of(ScheduleTraced, 0)
    (planned,) = group.of(Planned)
    places = planned.model_split.stage_ranks
    assert event.schedule == schedule
    assert 0 < event.theory < event.bubble < 1
    spans: dict[tuple[str, int, int], tuple[float, float]] = {}
    for place, actions in enumerate(event.ranks):
        assert all(places[action.stage] == place for action in actions)
        assert all(one.end_s <= another.begin_s for one, another in itertools.pairwise(actions))
        spans |= {(each.kind, each.stage, each.microbatch): (each.begin_s, each.end_s) for each in actions}
    count = len(places) * 4
    assert sum(map(len, event.ranks)) == len(spans), "only the last round is traced"
    divided = schedule in ("zb1p", "zbv")
    assert Counter(kind for kind, _, _ in spans) == (
        {"F": count, "I": count, "W": count} if divided else {"F": count, "B": count}
    )
    for (kind, stage, number), (start_s, _) in spans.items():
        if kind == "F" and stage:
            assert spans["F", stage - 1, number][1] <= start_s
    assert max(end for _, end in spans.values()) == pytest.approx(event.span_s)


def test_pipeline_refuses_unknown_split_point(job: Make, start: Start, model_file: ModelFile) -> None:
    group = start(job(cpus=2, strategy="pipeline", split_points=("nowhere",), **model_file(NORMS)))
    assert group.finish() == [1, 1]
    causes = {failed.cause for failed in group.of(Failed)}
    assert len(causes) == 1
    assert "nowhere" in causes.pop()


def test_pipeline_uses_given_split_points(job: Make, start: Start, model_file: ModelFile) -> None:
    group = start(job(cpus=2, strategy="pipeline", split_points=("_1_2",), **model_file(NORMS))).completed()
    (planned,) = group.of(Planned)
    assert planned.model_split.split_points == ("_1_2",)
    assert not planned.model_split.chosen
