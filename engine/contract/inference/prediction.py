"""How a model is asked for predictions, and what is kept of them."""

from __future__ import annotations

from engine.contract.inference.messages import Order


class PredictOrder(Order, tag="predict", frozen=True, kw_only=True):
    """Predicts for the files and folders `paths`, and writes the results into the folder `out`."""

    paths: tuple[str, ...]
    out: str
