"""Strategy with parallel pipelines, each for a part of every batch, whose gradients are reduced at every step."""

from __future__ import annotations

from typing import ClassVar

from engine.contract.catalogue import StrategyEntry
from engine.strategies.pipeline import Pipeline


class PipelineReplicas(Pipeline):
    """Pipeline on a mesh with replicas; ranks with the same number in their replica hold the same stages."""

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="ddp_pipeline",
        title="Hybrid: DDP x pipeline",
        summary="Several parallel pipelines, each with its share of every batch; gradients are averaged at every step.",
        mesh=("replicate", "pipeline"),
        is_recommended=True,
        fields=("replicas", "pipeline_schedule", "microbatches", "stages_per_device", "cuts"),
    )
