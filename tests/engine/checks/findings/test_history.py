"""Best metrics and checkpoints of a run with several executions."""

from __future__ import annotations

from typing import Literal

import pytest

from engine.checks.findings.history import History
from engine.contract.events import CheckpointSaved, ClassMeasures, RunFinished, StepMetrics, Validation
from engine.contract.job import Job
from engine.runs.folder import create_run
from tests.gui.sources.written_runs import make_plan


def test_history_keeps_the_best_epoch_and_existing_checkpoints() -> None:
    run = create_run(Job())

    def saved(kind: Literal["last", "best"], epoch: int) -> CheckpointSaved:
        path = f"checkpoints/{kind}.pt"
        (run.path / path).touch()
        return CheckpointSaved(kind=kind, path=path, epoch=epoch, step=epoch, bytes=1, seconds=0.0)

    def validated(epoch: int) -> Validation:
        return Validation(epoch=epoch, step=epoch, measures={"top1": epoch / 10}, images=1, seconds=0.0)

    history = History()
    assert (history.best, history.best_epoch, history.checkpoints(run.path)) == ({}, None, ())
    (run.path / "checkpoints/last.pt").touch()
    assert history.checkpoints(run.path) == ("checkpoints/last.pt",), "also without its event"
    for event in (validated(1), validated(2), saved("best", 1), saved("last", 2)):
        history.add(event)
    assert (history.best, history.best_epoch) == ({"top1": 0.1}, 1), "the metrics of best.pt"
    assert history.checkpoints(run.path) == ("checkpoints/best.pt", "checkpoints/last.pt")
    history.add(RunFinished(outcome="paused", best={"top1": 0.2}, best_epoch=2))
    (run.path / "checkpoints/best.pt").unlink()
    assert (history.best, history.best_epoch) == ({"top1": 0.2}, 2)
    assert history.checkpoints(run.path) == ("checkpoints/last.pt",)


def test_resumed_history_discards_later_results() -> None:
    def train(number: int, step: int, loss: float) -> StepMetrics:
        return StepMetrics(
            epoch=number, step=step, loss=loss, learning_rate=0.1, images_per_second=1.0, data_wait_s=0.0, compute_s=0.0
        )

    history = History()
    measures = [ClassMeasures(epoch=number, step=10 * number, measures={}) for number in (1, 2)]
    for event in (make_plan(), train(1, 10, 1.0), measures[0], train(2, 20, 2.0), measures[1]):
        history.add(event)
    history.add(make_plan(from_step=20))
    assert (list(history.epochs), history.class_measures) == ([1, 2], measures[1])
    history.add(make_plan(from_step=10))
    assert (list(history.epochs), history.class_measures) == ([1], None)
    for event in (train(2, 11, 3.0), train(2, 20, 1.0)):  # the means of one step and of nine
        history.add(event)
    assert history.epochs[2].loss == pytest.approx((3.0 + 9 * 1.0) / 10)
