"""Early stopping: the end of a run that no longer improves."""

from __future__ import annotations

from typing import Any

from engine.contract.catalogue import Measure
from engine.metrics.base import Metric
from engine.training.callbacks.callback import Callback


class EarlyStopping(Callback):
    """Counter of validations since the best one by the metric `criterion` (Prechelt 1998, Early stopping - but when?).

    The run ends after `patience` of them. With None, validations are only counted, for a run that may resume with
    patience. All ranks get the same count, since metrics are the same on all of them.
    """

    def __init__(self, patience: int | None, criterion: Measure) -> None:
        self._patience = patience
        self._criterion = criterion
        self._best: float | None = None
        self._best_epoch = 0
        self.waited = 0

    @property
    def is_over(self) -> bool:
        """Return True if the patience is exhausted."""
        return self._patience is not None and self.waited >= self._patience

    @property
    def explanation(self) -> str:
        """Reason for the end of the run, for the log."""
        assert self._best is not None
        best = f"{100 * self._best:.1f} %" if self._criterion.percent else f"{self._best:.4g}"
        epochs = "1 epoch" if self.waited == 1 else f"{self.waited} epochs"
        return (
            f"Early stopping: {self._criterion.title} has not improved for {epochs}. The best was {best} after "
            f"epoch {self._best_epoch}"
        )

    def on_validation_end(self, epoch: int, step: int, metric: Metric, values: dict[str, float]) -> None:
        self.add(epoch, values)

    def add(self, epoch: int, values: dict[str, float]) -> None:
        """Count a validation; one without the metric is not an improvement."""
        value = values.get(self._criterion.id)
        better = value is not None and (
            self._best is None or (value > self._best if self._criterion.higher_is_better else value < self._best)
        )
        if better:
            self._best, self._best_epoch, self.waited = value, epoch, 0
        else:
            self.waited += 1

    def state_dict(self) -> dict[str, Any]:
        return {
            "measure": self._criterion.id,
            "best": self._best,
            "best_epoch": self._best_epoch,
            "waited": self.waited,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the `state` returned by `state_dict`, or start over if it belongs to another metric."""
        if state.get("measure") == self._criterion.id:
            self._best, self._best_epoch, self.waited = state["best"], state["best_epoch"], state["waited"]
