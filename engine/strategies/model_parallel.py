"""Strategy that splits the model over several devices, which compute one after another."""

from __future__ import annotations

from typing import ClassVar

from engine.contract.catalogue import StrategyEntry
from engine.strategies.pipeline import Pipeline


class ModelParallel(Pipeline):
    """Strategy that runs a pipeline with a single microbatch, so that one device computes at a time.

    It trains models that are too large for one device. Except for dropout, which has a random stream per rank, the
    results equal those of a single device, including BatchNorm.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="model_parallel",
        title="Model parallel",
        summary="The model is split into parts, one per device, and each batch passes through them as a whole.",
        mesh=("pipeline",),
        fields=("split_points",),
    )
