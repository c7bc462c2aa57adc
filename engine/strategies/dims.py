"""In how many ways the ranks of a run divide its work: the dimensions of their mesh, of which hybrids have two."""

from __future__ import annotations

from typing import NamedTuple

from engine.contract.catalogue import StrategyEntry
from engine.parallel.layout import Layout


class ParallelDims(NamedTuple):
    """How many ranks each dimension has, or, of one rank, where it is along each of them.

    Along `replicate` are copies of the model, along `shard` are parts of each parameter, along `pipeline` are stages,
    and along `tensor` parts of each layer. Ranks along the first two take shares of every batch; those along the
    others work on the same share.
    """

    replicate: int
    shard: int
    pipeline: int
    tensor: int

    @classmethod
    def of(cls, strategy: StrategyEntry, layout: Layout) -> ParallelDims:
        """Those of a job of that `layout`."""
        replicas, group = layout.replicas, layout.group
        if not strategy.process_per_device:
            return cls(1, 1, 1, 1)
        if strategy.cuts_model:
            return cls(replicas, 1, group, 1)
        if strategy.splits_layers:
            return cls(1, replicas, 1, group) if strategy.shards else cls(replicas, 1, 1, group)
        return cls(replicas, group, 1, 1) if strategy.shards else cls(group, 1, 1, 1)

    def coordinate(self, rank: int) -> ParallelDims:
        """Where `rank` is along each."""
        rank, tensor = divmod(rank, self.tensor)
        data, pipeline = divmod(rank, self.pipeline)
        return ParallelDims(*divmod(data, self.shard), pipeline, tensor)
