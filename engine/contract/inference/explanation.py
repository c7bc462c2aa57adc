"""How a model is asked what it looks at, and what is kept of the answer."""

from __future__ import annotations

from engine.contract.inference.messages import Order


class ExplainOrder(Order, tag="explain", frozen=True, kw_only=True):
    """Draws what in the images `paths` speaks for a class, into the folder `out`."""

    paths: tuple[str, ...]
    out: str
