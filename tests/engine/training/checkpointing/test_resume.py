"""Runs that resume from last.pt under any strategy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.contract.events import EpochStarted, Failed, Planned, StepMetrics, Validation, Warned
from engine.contract.job import Job
from engine.contract.protocol import Stop
from engine.training.checkpointing.checkpoint_files import read_checkpoint, write_checkpoint
from tests.support.cases import mark_long_cases
from tests.support.gates import ON_COMMAND
from tests.support.plain_training import evaluate_plainly
from tests.support.worker_group import Forker, WorkerGroup

Make = Callable[..., Job]
Start = Callable[..., Any]
Write = Callable[[str], dict[str, str]]

WAITING = """
import os
import time
from torch import nn

class Waiting(nn.Module):
    '''Waits in its seventh forward pass until a file is there.'''
    def __init__(self, num_classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(64, num_classes))
        self.steps = 0

    def forward(self, x):
        if self.training:
            self.steps += 1
            while self.steps == 7 and not os.path.exists({gate!r}):
                time.sleep(0.01)
        return self.layers(x)

def build_model(num_classes):
    return Waiting(num_classes)
"""

DEEP = """
from torch import nn

def build_model(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 16, 3), nn.Tanh(), nn.Conv2d(16, 16, 3), nn.Tanh(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, num_classes))
"""

SINGLE: dict[str, Any] = {"strategy": "single", "cpus": 1, "accumulation": 2}
DDP: dict[str, Any] = {"strategy": "ddp", "cpus": 2}


def _path(group: Any) -> str:
    return str(group.folder / "checkpoints/last.pt")


def _interrupt(group: Any, after: int) -> Any:
    """Stop a run after step `after`, while its model waits in the next step. Return the finished worker group."""
    group.read_steps(after)
    group.send(Stop(), 0)
    return group.completed()


def test_resume_in_mid_epoch_with_other_strategies(job: Make, start: Start, model_file: Write, tmp_path: Path) -> None:
    """Resume on two devices in the middle of the first epoch, and on one device in the middle of the next."""
    gate = tmp_path / "gate"
    gate.touch()
    fields = {"schedule": "onecycle", "optimizer": "adamw", "learning_rate": 0.005, "ema_decay": 0.8, "clip_norm": 0.5}
    fields |= {"epochs": 3} | model_file(WAITING.format(gate=str(gate)))
    uninterrupted = start(job(**SINGLE, **fields), every_step=True).completed()
    assert len(uninterrupted.losses) == 18
    gate.unlink()
    first = _interrupt(start(job(**SINGLE, **fields), every_step=True, prepare=ON_COMMAND), after=3)
    assert (first.checkpoint()["epoch"], first.checkpoint()["done"]) == (1, len(first.losses))
    gate.unlink()
    resumed_job = job(**DDP, **fields, resume_from=_path(first))
    second = _interrupt(start(resumed_job, every_step=True, prepare=ON_COMMAND), after=9)
    assert [group.of(Planned)[0].from_step for group in (first, second)] == [0, len(first.losses)]
    assert second.checkpoint()["epoch"] == 2
    assert 0 < second.checkpoint()["done"] < 6
    third = start(job(**SINGLE, **fields, resume_from=_path(second)), every_step=True).completed()
    losses = first.losses + second.losses + third.losses
    assert [metrics.step for group in (first, second, third) for metrics in group.of(StepMetrics)] == list(range(1, 19))
    assert losses == pytest.approx(uninterrupted.losses, rel=1e-6, abs=1e-7)
    rates = [metrics.learning_rate for group in (first, second, third) for metrics in group.of(StepMetrics)]
    assert rates == [metrics.learning_rate for metrics in uninterrupted.of(StepMetrics)]
    measured = [event.measures for group in (first, second, third) for event in group.of(Validation)]
    assert measured == [pytest.approx(event.measures) for event in uninterrupted.of(Validation)]
    assert third.done.best == pytest.approx(uninterrupted.done.best)
    assert third.done.best_epoch == uninterrupted.done.best_epoch
    actual, reference = third.checkpoint(), uninterrupted.checkpoint()
    for name, tensor in reference["model"].items():
        assert torch.equal(actual["model"][name], tensor), name
    for name, state in reference["optimizer"]["state"].items():
        for key, value in state.items():
            assert torch.equal(actual["optimizer"]["state"][name][key], value), (name, key)


CHAIN: tuple[dict[str, Any], ...] = (
    {"cpus": 2, "strategy": "fsdp"},
    {"cpus": 2, "strategy": "pipeline", "pipeline_schedule": "1f1b", "microbatches": 4},
    {"cpus": 2, "strategy": "ddp"},
    {"cpus": 2, "strategy": "zero1"},
    {"cpus": 2, "strategy": "tp"},
    {"cpus": 2, "strategy": "model_parallel"},
    {"cpus": 1, "strategy": "single"},
)
ON_FOUR: tuple[dict[str, Any], ...] = (
    {"cpus": 4, "strategy": "hsdp"},
    {"cpus": 4, "strategy": "ddp_pipeline", "pipeline_schedule": "zbv", "microbatches": 3},
)


@pytest.mark.parametrize(
    ("optimizer", "chain"),
    [
        pytest.param("adamw", CHAIN, id="adamw"),
        pytest.param("adamw", ON_FOUR + CHAIN[-1:], id="adamw-four", marks=pytest.mark.long),
        pytest.param("sgd", ON_FOUR + CHAIN, id="sgd", marks=pytest.mark.long),
    ],
)
def test_resume_from_any_strategy(
    job: Make, start: Start, model_file: Write, optimizer: str, chain: tuple[dict[str, Any], ...]
) -> None:
    """Train an epoch with each strategy. The checkpoints contain optimizer state and averages."""
    fields: dict[str, Any] = {"optimizer": optimizer, "schedule": "none", "ema_decay": 0.9, "clip_norm": 0.5}
    fields |= {"learning_rate": 0.005} | model_file(DEEP)
    expected = start(job(epochs=len(chain), **fields), every_step=True).completed()
    losses: list[float] = []
    measured: list[Any] = []
    before = ""
    for epoch, setting in enumerate(chain, 1):
        group = start(job(epochs=epoch, resume_from=before, **fields, **setting), every_step=True).completed()
        losses += group.losses
        measured += [event.measures for event in group.of(Validation)]
        before = _path(group)
    np.testing.assert_allclose(losses, expected.losses, rtol=1e-5, atol=1e-6)
    assert measured == [pytest.approx(event.measures, rel=1e-4) for event in expected.of(Validation)]
    actual, reference = torch.load(before, weights_only=True), expected.checkpoint()
    assert list(actual["model"]) == list(reference["model"])
    averages = actual["optimizer"]["ema"], reference["optimizer"]["ema"]
    for pair in (averages, (actual["model"], reference["model"])):
        for name, tensor in pair[1].items():
            torch.testing.assert_close(pair[0][name], tensor, rtol=1e-4, atol=1e-5)


def test_resume_adds_epochs(job: Make, start: Start) -> None:
    fields: dict[str, Any] = {"schedule": "none"}
    uninterrupted = start(job(epochs=3, **fields), every_step=True).completed()
    first = start(job(epochs=1, **fields), every_step=True).completed()
    rest = start(job(epochs=3, resume_from=_path(first), **fields), every_step=True).completed()
    assert [event.epoch for event in rest.of(EpochStarted)] == [2, 3]
    assert first.losses + rest.losses == uninterrupted.losses
    again = start(job(epochs=3, resume_from=_path(rest), **fields), every_step=True).completed()
    assert again.losses == []
    (warned,) = again.of(Warned)
    assert warned.code == "nothing_left"
    assert warned.message.endswith(
        "has been trained for 3 epochs, and the job asks for 3: there is nothing left to train. Set more epochs to continue."
    )
    assert again.done.best == uninterrupted.done.best
    assert (again.folder / "checkpoints/best.pt").exists()


def test_resume_uses_the_new_schedule(job: Make, start: Start) -> None:
    first = start(job(epochs=2)).completed()
    rest = start(job(epochs=4, resume_from=_path(first)), every_step=True).completed()
    uninterrupted = start(job(epochs=4), every_step=True).completed()
    rates = [metrics.learning_rate for metrics in uninterrupted.of(StepMetrics)]
    assert [metrics.learning_rate for metrics in rest.of(StepMetrics)] == rates[12:]


def test_best_checkpoint_has_validated_averages(job: Make, start: Start) -> None:
    run_job = job(ema_decay=0.9, ema_ramp=0, epochs=2, best_by="loss")
    group = start(run_job, every_step=True).completed()
    last = group.checkpoint()
    best = group.checkpoint("best.pt")
    assert list(best) == list(last["model"])
    averages = last["model"] | last["optimizer"]["ema"]
    measured = [(event.measures["loss"], event.measures["top1"]) for event in group.of(Validation)]
    assert evaluate_plainly(run_job, averages) == pytest.approx(measured[-1], rel=1e-4)
    assert evaluate_plainly(run_job, last["model"]) != pytest.approx(measured[-1], rel=1e-4)
    assert evaluate_plainly(run_job, best) == pytest.approx(min(measured), rel=1e-4)
    assert last["best_epoch"] == 1 + measured.index(min(measured))


def test_resume_refuses_unsuitable_files(job: Make, start: Start, tmp_path: Path, model_file: Write) -> None:
    first = start(job()).completed()
    last, best = _path(first), str(first.folder / "checkpoints/best.pt")
    rubbish = tmp_path / "rubbish.pt"
    rubbish.write_bytes(b"PK not a zip")
    renamed = tmp_path / "renamed.pt"
    write_checkpoint(first.checkpoint() | {"classes": ("cat", "dog", "owl")}, renamed)
    other = tmp_path / "other.pt"
    write_checkpoint({"epoch": 3, "weights": torch.ones(3)}, other)
    reasons = {
        str(tmp_path / "missing.pt"): "There is no file",
        str(
            rubbish
        ): "is not a checkpoint, or is damaged: its checksum is missing or does not match. Choose a run's last.pt.",
        str(other): "is not a Footplate checkpoint. Choose a run's last.pt.",
        best: "contains only weights, without the state of a training. Choose a run's last.pt, or use this file as the weights",
        str(renamed): "was trained on 3 classes (cat, dog, owl); the dataset has 3 classes (blue, green, red).",
    }
    jobs = [(job(resume_from=path), message) for path, message in reasons.items()]
    jobs.append(
        (
            job(resume_from=last, **model_file(WAITING.format(gate=""))),
            "comes from a run of mnist_cnn, whose weights don't fit",
        )
    )
    jobs.append((job(resume_from=last, optimizer="adam"), "contains the state of another optimizer, sgd"))
    for failing, message in jobs:
        group = start(failing)
        assert group.finish() == [1]
        (failed,) = group.of(Failed)
        assert message in failed.cause


def test_resume_keeps_split_points(job: Make, start: Start) -> None:
    fields: dict[str, Any] = {"cpus": 2, "strategy": "pipeline", "microbatches": 2}
    first = start(job(**fields)).completed()
    (planned,) = first.of(Planned)
    assert first.checkpoint()["job"]["split_points"] == planned.model_split.split_points
    others = [
        segment.split_point
        for segment in planned.model_split.segments
        if segment.split_point and segment.split_point not in planned.model_split.split_points
    ]
    moved = first.checkpoint()
    moved["job"]["split_points"] = tuple(others[:1])
    write_checkpoint(moved, Path(_path(first)))
    rest = start(job(**fields, epochs=2, resume_from=_path(first))).completed()
    assert rest.of(Planned)[0].model_split.split_points == tuple(others[:1])
    assert rest.of(Planned)[0].model_split.segments != planned.model_split.segments


@pytest.mark.long
def test_resume_skips_pipeline_measurement(job: Make, start: Start) -> None:
    fields: dict[str, Any] = {"cpus": 2, "strategy": "pipeline", "microbatches": 2}
    first = start(job(**fields)).completed()
    (planned,) = first.of(Planned)
    rest = start(job(**fields, epochs=2, resume_from=_path(first))).completed()
    assert rest.of(Planned)[0].model_split == planned.model_split


@pytest.mark.parametrize("strategy", mark_long_cases(["ddp", "fsdp"], everyday=["fsdp"]))
@pytest.mark.parametrize("shares", [(0.75, 0.25), pytest.param((), marks=pytest.mark.long)])
def test_resume_keeps_shares_by_speed(job: Make, start: Start, strategy: str, shares: tuple[float, ...]) -> None:
    fields: dict[str, Any] = {"cpus": 2, "strategy": strategy, "balance": "speed"}
    first = start(job(**fields)).completed()
    assert first.checkpoint()["shares"] == first.of(Planned)[0].shares
    write_checkpoint(first.checkpoint() | {"shares": shares}, Path(_path(first)))
    rest = start(job(**fields, epochs=2, resume_from=_path(first))).completed()
    assert rest.of(Planned)[0].shares == rest.checkpoint()["shares"] == shares


def test_resume_in_place_keeps_its_origin(job: Make, start: Start, forker: Forker) -> None:
    uninterrupted = start(job(epochs=2, schedule="none"), every_step=True).completed()
    first = start(job(epochs=1, schedule="none")).completed()
    resumed_job = job(epochs=2, schedule="none", resume_from=_path(first))
    rest = WorkerGroup(forker, resumed_job, first.folder, every_step=True).completed()
    assert rest.losses == uninterrupted.losses[6:]
    assert {path.name for path in (first.folder / "checkpoints").iterdir()} == {
        "last.pt",
        "best.pt",
        "epoch-1-step-6.pt",
    }
    older, _ = read_checkpoint(first.folder / "checkpoints/epoch-1-step-6.pt")
    assert (older["epoch"], older["step"], older["validated"]) == (1, 6, True)
