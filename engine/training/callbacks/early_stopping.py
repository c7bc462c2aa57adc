"""Early stopping: ends a run that no longer improves."""

from __future__ import annotations

from typing import Any

from engine.contract.catalogue import Measure
from engine.metrics.base import Metric
from engine.training.callbacks.callback import Callback


class EarlyStopping(Callback):
    """Counts the validations since the best one by `judge` (Prechelt 1998, Early stopping - but when?).

    `patience` is how many of them may be no better; None counts alone, so that a run which goes on with some knows what
    was. Every rank holds the same, from measures that are the same on all of them.
    """

    def __init__(self, patience: int | None, judge: Measure) -> None:
        self._patience = patience
        self._judge = judge
        self._best: float | None = None
        self._best_epoch = 0
        self.waited = 0

    @property
    def is_over(self) -> bool:
        """Whether the patience is exhausted."""
        return self._patience is not None and self.waited >= self._patience

    @property
    def explanation(self) -> str:
        """Why the run ends, for the log."""
        assert self._best is not None
        best = f"{100 * self._best:.1f} %" if self._judge.percent else f"{self._best:.4g}"
        epochs = "1 epoch" if self.waited == 1 else f"{self.waited} epochs"
        return (
            f"Early stopping: {self._judge.title} has not improved for {epochs}. The best was {best} after "
            f"epoch {self._best_epoch}"
        )

    def on_validation_end(self, epoch: int, step: int, metric: Metric, values: dict[str, float]) -> None:
        self.add(epoch, values)

    def add(self, epoch: int, values: dict[str, float]) -> None:
        """Takes in a validation's metrics; one without the judged metric counts as no better."""
        value = values.get(self._judge.id)
        better = value is not None and (
            self._best is None or (value > self._best if self._judge.higher_is_better else value < self._best)
        )
        if better:
            self._best, self._best_epoch, self.waited = value, epoch, 0
        else:
            self.waited += 1

    def state_dict(self) -> dict[str, Any]:
        return {"measure": self._judge.id, "best": self._best, "best_epoch": self._best_epoch, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state`, of `state_dict`; begins anew if that was judged by another metric."""
        if state.get("measure") == self._judge.id:
            self._best, self._best_epoch, self.waited = state["best"], state["best_epoch"], state["waited"]
