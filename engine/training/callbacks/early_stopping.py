"""Early stopping of runs that no longer improve."""

from __future__ import annotations

from typing import Any

from engine.contract.catalogue import Measure
from engine.metrics.base import Metric
from engine.system.format import counted, metric_value
from engine.training.callbacks.callback import Callback


class EarlyStopping(Callback):
    """Callback that stops the run after `patience` validations in a row without improvement of the metric `criterion`.

    Without patience, it only counts such validations, since the job may be resumed with a patience. Metrics are equal
    on all ranks, and so are the counts (Prechelt 1998, Early stopping - but when?).
    """

    def __init__(self, patience: int | None, criterion: Measure) -> None:
        self._patience = patience
        self._criterion = criterion
        self._best: float | None = None  # best value of the metric
        self.waited = 0  # number of validations in a row without improvement

    @property
    def is_over(self) -> bool:
        """True if the patience is exhausted."""
        return self._patience is not None and self.waited >= self._patience

    @property
    def explanation(self) -> str:
        """Message for the log that explains why the run ends."""
        assert self._best is not None
        best = metric_value(self._best, percent=self._criterion.percent)
        epochs = counted(self.waited, "epoch")
        return f"Early stopping: {self._criterion.title} has not improved on {best} for {epochs}"

    def on_validation_end(self, epoch: int, step: int, metric: Metric, values: dict[str, float]) -> None:
        self.add(values)

    def add(self, values: dict[str, float]) -> None:
        """Count a validation with the metrics `values`. It counts as no improvement if `values` lacks the metric."""
        value = values.get(self._criterion.id)
        sign = 1 if self._criterion.higher_is_better else -1
        if value is not None and (self._best is None or sign * value > sign * self._best):
            self._best, self.waited = value, 0
        else:
            self.waited += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and the count for a checkpoint, with the id of the metric."""
        return {"measure": self._criterion.id, "best": self._best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state` that `state_dict` returned. Start counting from 0 if the state is about another metric."""
        if state.get("measure") == self._criterion.id:
            self._best, self.waited = state["best"], state["waited"]
