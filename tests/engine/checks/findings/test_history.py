"""Best metrics and checkpoints of a run with several executions."""

from __future__ import annotations

from typing import Literal

from engine.checks.findings.history import History
from engine.contract.events import CheckpointSaved, RunFinished, Validation
from engine.contract.job import Job
from engine.runs.folder import create_run


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
    for event in (validated(1), validated(2), saved("best", 1), saved("last", 2)):
        history.add(event)
    assert (history.best, history.best_epoch) == ({"top1": 0.1}, 1), "the metrics of best.pt"
    assert history.checkpoints(run.path) == ("checkpoints/best.pt", "checkpoints/last.pt")
    history.add(RunFinished(outcome="paused", best={"top1": 0.2}, best_epoch=2))
    (run.path / "checkpoints/best.pt").unlink()
    assert (history.best, history.best_epoch) == ({"top1": 0.2}, 2)
    assert history.checkpoints(run.path) == ("checkpoints/last.pt",)
