"""Runs that resume from any checkpoint on the same devices. They must equal uninterrupted runs bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import EpochStarted, PhaseChanged, StepMetrics, Validation
from engine.contract.job import Job
from engine.contract.protocol import Stop
from tests.engine.conftest import make_images
from tests.support.cases import mark_long_cases
from tests.support.gates import ON_COMMAND
from tests.support.same_states import find_differences

Make = Callable[..., Job]
Start = Callable[..., Any]
Write = Callable[[str], dict[str, str]]

EVERYTHING: dict[str, Any] = {
    "model": "mobilenet_v3_small",  # the model has dropout and BatchNorm
    "image_size": 32,
    "batch_size": 24,
    "accumulation": 2,
    "epochs": 2,
    "optimizer": "adamw",
    "learning_rate": 0.002,
    "schedule": "onecycle",
    "clip_norm": 0.5,
    "ema_decay": 0.8,
    "augmentation": "strong",
    "progressive_from": 16,
    "val_crop": 0.8,
    "mixup": 0.3,
    "cutmix": 0.7,
    "label_smoothing": 0.1,
    "class_weights": "balanced",
    "oversample": True,
    "freeze_epochs": 1,
    "checkpoint_steps": 1,
    "keep_checkpoints": 100,
}
STRATEGIES: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {}),
    "ddp": (2, {"bucket_mib": 0.5}),
    "ddp of four": (4, {"strategy": "ddp", "bucket_mib": 0.5}),
    "zero1": (2, {"bucket_mib": 0.5}),
    "tp": (2, {}),
    "ddp_tp": (4, {}),
    "fsdp_tp": (4, {}),
    "pipeline": (2, {"pipeline_schedule": "1f1b", "microbatches": 2}),
    "fsdp": (2, {}),
    "fsdp of four": (4, {"strategy": "fsdp"}),
    "pipeline of four": (4, {"strategy": "pipeline", "microbatches": 2}),
    "ddp_pipeline": (4, {"microbatches": 2}),
    "hsdp": (4, {}),
    "model_parallel": (2, {}),
}
PATIENCE_S = 300.0
USUAL = {"single"}

DRAWS = """
import os
import random
import time
import numpy as np
import torch
from torch import nn

class Draws(nn.Module):
    '''Draws from every generator that there is, also in validations, where it waits until a file is there.'''
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(768, classes)
        self.trained = False

    def forward(self, x):
        noise = random.random() + np.random.rand() + torch.rand(1)
        self.trained |= self.training
        while self.trained and not self.training and not os.path.exists({gate!r}):
            time.sleep(0.01)
        return self.layer(x.flatten(1) * noise)

def build_model(num_classes):
    return Draws(num_classes)
"""


def _assert_same_end(rest: Any, uninterrupted: Any) -> None:
    actual, expected = rest.checkpoint(), uninterrupted.checkpoint()
    for content in (actual, expected):
        content["job"].pop("resume_from")
    assert not find_differences(actual, expected)
    assert not find_differences(rest.checkpoint("best.pt"), uninterrupted.checkpoint("best.pt"))


@pytest.mark.timeout(600)  # four runs of up to four ranks
@pytest.mark.parametrize("name", mark_long_cases(STRATEGIES, everyday=USUAL))
def test_resume_is_exact_from_any_step(job: Make, start: Start, name: str) -> None:
    cpus, options = STRATEGIES[name]
    fields = EVERYTHING | {"strategy": name, "cpus": cpus} | options
    uninterrupted = start(job(**fields), every_step=True).completed(PATIENCE_S)
    names = sorted(path.name for path in (uninterrupted.folder / "checkpoints").iterdir())
    assert names == ["best.pt", *(f"epoch-{1 + (step > 3)}-step-{step}.pt" for step in range(1, 6)), "last.pt"]
    measured = [event.measures for event in uninterrupted.of(Validation)]
    for epoch, step in ((1, 1), (1, 3), (2, 4)):
        before = uninterrupted.folder / "checkpoints" / f"epoch-{epoch}-step-{step}.pt"
        rest = start(job(**fields, resume_from=str(before)), every_step=True).completed(PATIENCE_S)
        assert [metrics.step for metrics in rest.of(StepMetrics)] == list(range(step + 1, 7))
        assert rest.losses == uninterrupted.losses[step:]
        assert [event.measures for event in rest.of(Validation)] == measured[-len(rest.of(Validation)) :]
        _assert_same_end(rest, uninterrupted)


@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), ("ddp", 2)])
def test_resume_repeats_interrupted_validation(
    job: Make, start: Start, model_file: Write, tmp_path: Path, *, strategy: str, cpus: int
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    fields = {"cpus": cpus, "strategy": strategy, "epochs": 2, "schedule": "step", "batch_size": 6}
    fields |= model_file(DRAWS.format(gate=str(gate)))
    uninterrupted = start(job(**fields), every_step=True).completed()
    gate.unlink()
    first = start(job(**fields), every_step=True, prepare=ON_COMMAND)
    first.read(lambda _, event: isinstance(event, PhaseChanged) and event.phase == "validating")
    first.send(Stop(), 0)
    first.completed()
    assert not first.of(Validation)
    rest = start(job(**fields, resume_from=str(first.folder / "checkpoints/last.pt")), every_step=True).completed()
    assert [event.epoch for event in rest.of(EpochStarted)] == [1, 2]
    assert first.losses + rest.losses == uninterrupted.losses
    assert [event.measures for event in rest.of(Validation)] == [
        event.measures for event in uninterrupted.of(Validation)
    ]
    _assert_same_end(rest, uninterrupted)


def test_evaluation_preserves_random_state(job: Make, start: Start, model_file: Write, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    fields = {"epochs": 2, **model_file(DRAWS.format(gate=str(gate)))}
    folders = [make_images(tmp_path / f"{count}", {"train": 8, "val": count}) for count in (3, 9)]
    few, many = (start(job(dataset=str(folder), **fields), every_step=True).completed() for folder in folders)
    assert [event.images for event in (*few.of(Validation), *many.of(Validation))] == [9, 9, 27, 27]
    assert few.losses == many.losses
