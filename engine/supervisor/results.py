"""What a run has to show at the end of an execution, however that ends."""

from __future__ import annotations

from engine.contract.events import AnyEvent, CheckpointSaved, RunFinished, Validation
from engine.contract.worker import WorkerDone
from engine.runs.folder import RunFolder

_KEPT = ("checkpoints/best.pt", "checkpoints/last.pt")


class Results:
    """The checkpoints of `run` and the measures of its best epoch: those of executions before, and what is told in
    this.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._checkpoints = dict.fromkeys(path for path in _KEPT if (run.path / path).exists())
        before = run.last_event()
        self.best, self.best_epoch = (before.best, before.best_epoch) if isinstance(before, RunFinished) else ({}, None)
        self._measures: dict[int, dict[str, float]] = {}

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Their paths in the run's folder, as far as they are still there."""
        return tuple(path for path in self._checkpoints if (self._run.path / path).exists())

    def take(self, event: AnyEvent) -> None:
        """Notes what the workers tell."""
        if isinstance(event, Validation):
            self._measures[event.epoch] = event.measures
        elif isinstance(event, CheckpointSaved):
            self._checkpoints[event.path] = None
            if event.kind == "best" and event.epoch in self._measures:
                self.best, self.best_epoch = self._measures[event.epoch], event.epoch

    def take_last_word(self, done: WorkerDone | None) -> None:
        """Notes what the worker says that knows the best measures."""
        if done is not None:
            self.best, self.best_epoch = done.best, done.best_epoch
