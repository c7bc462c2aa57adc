"""Strategy that cuts the model into parts, one per device, which compute one after another."""

from __future__ import annotations

from typing import ClassVar

from engine.contract.catalogue import StrategyEntry
from engine.strategies.pipeline import Pipeline


class ModelParallel(Pipeline):
    """Pipeline with one microbatch per batch, so that one device computes at a time.

    It trains models that no device can hold, and equals a single device in everything, BatchNorm included, except that
    dropout draws from one stream per rank.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="model_parallel",
        title="Model parallel",
        summary="The model is split into parts, one per device, and each batch passes through them as a whole.",
        mesh=("pipeline",),
        fields=("cuts",),
    )
