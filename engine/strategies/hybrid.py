"""Pipelines side by side, each with its share of every batch, whose gradients are joined at every step."""

from __future__ import annotations

from typing import ClassVar

import torch.distributed as dist

from engine.contract.catalogue import StrategyEntry
from engine.strategies.gradients import add_up
from engine.strategies.pipeline import Pipeline


class PipelineReplicas(Pipeline):
    """Every replica is a pipeline over its own places, cut as the others are.

    The ranks at the same place hold the same stages. Each replica divides its losses by the size of the global
    batch; when its schedule is through, the gradients of every stage are added up over the replicas. That is right
    for every schedule, while stages wrapped in DistributedDataParallel get wrong gradients from those that divide
    the backward pass (pytorch#144530). BatchNorm's running statistics are the first replica's, which are given to
    all before an evaluation and are what is saved.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="ddp_pipeline",
        title="Hybrid: DDP x pipeline",
        summary="Several pipelines side by side, each with its share of every batch, gradients joined at every step.",
        device_kinds=("cuda", "cpu"),
        min_devices=4,
        max_devices=None,
        process_per_device=True,
        splits_batch=False,
        cuts_model=True,
        schedules=True,
        replicates=True,
        fields=("replicas", "pipeline_schedule", "microbatches", "stages_per_device", "cuts"),
    )

    peers: dist.ProcessGroup
    """The ranks that hold the same stages."""

    @property
    def data_rank(self) -> int:
        return self.replica

    @property
    def data_world(self) -> int:
        return self.layout.replicas

    def setup(self) -> None:
        super().setup()
        mesh = self.mesh()
        self.group = mesh.get_group("place")
        self.peers = mesh.get_group("replica")

    def _join_gradients(self) -> None:
        add_up([parameter.grad for _, parameter in self.parameters() if parameter.grad is not None], self.peers)

    def _share_statistics(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, self.place, group=self.peers)
