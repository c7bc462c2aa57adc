"""How a model is evaluated, and what is kept of it."""

from __future__ import annotations

from typing import Literal

from engine.contract.inference.messages import Order

EvaluationSplit = Literal["val", "test", "train", "all"]


class EvaluateOrder(Order, tag="evaluate", frozen=True, kw_only=True):
    """Measures the model on a `split` of `dataset`, "" for the run's own."""

    dataset: str = ""
    split: EvaluationSplit = "val"
