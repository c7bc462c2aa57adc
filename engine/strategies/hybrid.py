"""Strategy with several pipelines. Each pipeline processes a part of every batch."""

from __future__ import annotations

from typing import ClassVar

from engine.contract.catalogue import StrategyEntry
from engine.strategies.pipeline import Pipeline


class PipelineReplicas(Pipeline):
    """Strategy with replicas of a pipeline. The gradients of a stage are summed over the replicas at every step."""

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="ddp_pipeline",
        title="Hybrid: DDP × pipeline",
        summary="Several parallel pipelines, each with its share of every batch; gradients are averaged at every step.",
        mesh=("replicate", "pipeline"),
        is_recommended=True,
        fields=("replicas", "pipeline_schedule", "microbatches", "stages_per_device", "split_points"),
    )
