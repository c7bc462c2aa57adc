"""Checkpoints that are written during training.

A pipe in place of the checkpoint file blocks the writer for as long as a test needs. The write then fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.events import CheckpointSaved, Failed, PhaseChanged, StepMetrics, Validation, Warned
from engine.contract.job import Job
from engine.contract.protocol import Stop
from engine.contract.worker import Heartbeat
from tests.support.copied_states import read_copied_bytes
from tests.support.gates import FOR_READERS

Make = Callable[..., Job]
Start = Callable[..., Any]
Write = Callable[[str], dict[str, str]]

RAISES = """
from torch import nn

class Raises(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(768, classes)
        self.left = {steps}

    def forward(self, x):
        1 / (self.left + 1 - self.training)
        self.left -= self.training
        return self.layer(x.flatten(1))

def build_model(num_classes):
    return Raises(num_classes)
"""


@pytest.fixture
def start(start: Start) -> Start:
    """Return a function that starts workers whose checkpoint writer blocks at a pipe until the test reads it."""
    return partial(start, prepare=FOR_READERS)


@pytest.fixture
def block_writer(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that blocks the writer of best.pt or last.pt with a pipe.

    Reading the pipe lets the writer continue and fail.
    """

    def hold(kind: str) -> Path:
        pipe = tmp_path / f"run-0/checkpoints/.{kind}.pt.part"
        pipe.parent.mkdir(parents=True)
        os.mkfifo(pipe)
        return pipe

    return hold


def _saved(group: Any) -> list[int]:
    return [event.step for event in group.of(CheckpointSaved) if event.kind == "last"]


def _names(group: Any) -> set[str]:
    return {path.name for path in (group.folder / "checkpoints").iterdir()}


def _best_epoch(group: Any) -> int:
    """Return the first epoch with the lowest loss among those with the highest accuracy of a run's workers, `group`."""
    best = min(group.of(Validation), key=lambda event: (-event.measures["top1"], event.measures["loss"]))
    return int(best.epoch)


@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), ("ddp", 2)])
def test_checkpointer_writes_during_training(
    job: Make, start: Start, block_writer: Callable[[str], Path], strategy: str, cpus: int
) -> None:
    pipe = block_writer("best")
    group = start(job(epochs=3, cpus=cpus, strategy=strategy), every_step=True)
    group.read_steps(12)
    assert not group.of(CheckpointSaved)
    pipe.read_bytes()
    group.completed()
    event = [message for _, message in group.messages]
    (failed,) = group.of(Warned)
    assert failed.code == "checkpoint_failed"
    assert failed.message.startswith("best.pt could not be saved")
    before = event[: event.index(failed)]
    # The third epoch waits, because the first checkpoint determines whether the second is the best.
    assert max(message.step for message in before if isinstance(message, StepMetrics)) == 12
    assert group.of(CheckpointSaved)[0].step == 6
    assert group.done.best_epoch == _best_epoch(group), "what the disk did not take is kept for the next checkpoint"
    assert group.done.best == group.of(Validation)[group.done.best_epoch - 1].measures
    assert (group.checkpoint()["best"], group.checkpoint()["best_epoch"]) == (group.done.best, group.done.best_epoch)


def test_waiting_for_a_slow_disk_counts_as_saving(job: Make, start: Start, block_writer: Callable[[str], Path]) -> None:
    pipe = block_writer("best")
    group = start(job(epochs=2, ema_decay=0.5))
    # The previous checkpoint determines whether the averages are the best.
    group.read(lambda _, event: isinstance(event, Heartbeat) and event.step == 12 and event.activity == "save")
    assert group.of(PhaseChanged)[-1].phase == "validating"
    pipe.read_bytes()
    group.completed()
    assert group.done.best_epoch == _best_epoch(group)


def test_stop_waits_for_the_pending_write_and_saves(
    job: Make, start: Start, block_writer: Callable[[str], Path]
) -> None:
    pipe = block_writer("best")
    group = start(job(epochs=1000), every_step=True)
    group.read_steps(8)
    group.send(Stop(), rank=0)
    pipe.read_bytes()
    group.completed()
    assert group.done.stopped
    assert group.checkpoint()["step"] == group.of(StepMetrics)[-1].step > 6


def test_failed_run_completes_its_pending_checkpoint(
    job: Make, start: Start, block_writer: Callable[[str], Path], model_file: Write
) -> None:
    pipe = block_writer("best")
    fields = {"schedule": "none", **model_file(RAISES.format(steps=7))}
    group = start(job(epochs=2, **fields), every_step=True)
    group.read_steps(7)  # one step after the checkpoint, before anything is written
    pipe.read_bytes()
    assert group.finish() == [1]
    assert "ZeroDivisionError" in group.of(Failed)[0].cause
    shorter = start(job(epochs=1, **fields)).completed()
    assert group.checkpoint()["step"] == shorter.checkpoint()["step"] == 6
    weights, expected = group.checkpoint()["model"], shorter.checkpoint()["model"]
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_short_epochs_are_skipped_but_the_best_is_saved(
    job: Make, start: Start, block_writer: Callable[[str], Path]
) -> None:
    pipe = block_writer("last")
    group = start(job(epochs=6, best_by="loss"), every_step=True)
    group.read_steps(12)
    pipe.read_bytes()  # as long as an epoch, and a checkpoint may take a hundredth of that
    group.completed()
    saved = {
        kind: [event.step for event in group.of(CheckpointSaved) if event.kind == kind] for kind in ("last", "best")
    }
    losses = [validation.measures["loss"] for validation in group.of(Validation)]
    best = losses.index(min(losses)) + 1
    assert saved == {"last": [36], "best": [6, 6 * best]}
    assert best > 2
    assert group.done.best_epoch == group.checkpoint()["best_epoch"] == best


def test_failed_run_writes_the_unsaved_best_state(
    job: Make, start: Start, block_writer: Callable[[str], Path], model_file: Write
) -> None:
    pipe = block_writer("last")
    fields = {"schedule": "none", "best_by": "loss", **model_file(RAISES.format(steps=13))}
    group = start(job(epochs=3, **fields), every_step=True)
    group.read_steps(12)
    pipe.read_bytes()
    assert group.finish() == [1]
    assert [(event.kind, event.step) for event in group.of(CheckpointSaved)] == [("best", 6), ("best", 12)]
    best = group.checkpoint("best.pt")
    shorter = start(job(epochs=2, **fields)).completed()
    assert all(torch.equal(best[name], weight) for name, weight in shorter.checkpoint()["model"].items())


def test_killed_writer_keeps_the_previous_checkpoint(
    job: Make, start: Start, block_writer: Callable[[str], Path]
) -> None:
    pipe = block_writer("last")
    good = pipe.with_name("last.pt")
    good.write_bytes(b"the last good one")
    group = start(job(epochs=2))
    with pipe.open("rb") as half:
        assert len(half.read(1000)) == 1000
        for channel in group.sockets:
            channel.shutdown(2)
        assert group.wait_for_exit_codes() == [None]
    assert good.read_bytes() == b"the last good one"


def test_checkpoints_by_steps_and_number_of_older_ones(job: Make, start: Start) -> None:
    group = start(job(epochs=3, checkpoint_steps=4, keep_checkpoints=2)).completed()
    assert {4, 8, 12, 16, 18} <= set(_saved(group)) <= {4, 6, 8, 12, 16, 18}
    assert _names(group) == {"last.pt", "best.pt", "epoch-2-step-12.pt", "epoch-3-step-16.pt"}
    contents = {name: torch.load(group.folder / "checkpoints" / name, weights_only=True) for name in _names(group)}
    places = {
        name: (checkpoint["epoch"], checkpoint["done"], checkpoint["step"])
        for name, checkpoint in contents.items()
        if "epoch" in checkpoint
    }
    assert places["last.pt"] == (3, 6, 18)
    assert places["epoch-3-step-16.pt"] == (3, 4, 16)
    assert contents["last.pt"]["validated"]
    assert all(event.pause_s > 0 for event in group.of(CheckpointSaved) if event.kind == "last")
    alone = start(job(epochs=3, checkpoint_steps=4, keep_checkpoints=0)).completed()
    assert _names(alone) == {"last.pt", "best.pt"}


@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), ("ddp", 2)])
def test_checkpoints_by_minutes_do_not_wait_for_a_slow_disk(
    job: Make, start: Start, block_writer: Callable[[str], Path], strategy: str, cpus: int
) -> None:
    pipe = block_writer("last")
    fields = {"cpus": cpus, "strategy": strategy, "epochs": 1000, "checkpoint_minutes": 1e-9}
    group = start(job(**fields), every_step=True)
    group.read_steps(6)  # steps after which a checkpoint was due
    pipe.read_bytes()
    within = group.read(lambda _, event: isinstance(event, CheckpointSaved) and event.kind == "last" and event.step % 6)
    group.send(Stop(), rank=0)
    group.completed()
    assert within.epoch == 1 + within.step // 6
    assert [warning.code for warning in group.of(Warned)] == ["checkpoint_failed"]
    without = start(job(epochs=3, checkpoint_minutes=0)).completed()
    assert all(step % 6 == 0 for step in _saved(without))


@pytest.mark.parametrize("strategy", ["fsdp", pytest.param("zero1", marks=pytest.mark.long)])
def test_only_rank_0_copies_the_state(job: Callable[..., Job], start: Callable[..., Any], strategy: str) -> None:
    group = start(
        job(cpus=2, strategy=strategy, optimizer="adam"), prepare="tests.support.copied_states:record_copied_bytes"
    )
    group.completed()
    assert read_copied_bytes(group.folder, 0) > 0
    assert read_copied_bytes(group.folder, 1) == 0
