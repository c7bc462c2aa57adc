"""Strategy with sharded replicas of the model (HSDP): FSDP within a replica, DDP between replicas."""

from __future__ import annotations

from typing import ClassVar

from engine.contract.catalogue import StrategyEntry
from engine.strategies.fsdp import FullySharded


class HybridSharded(FullySharded):
    """Strategy that shards parameters over the ranks of each replica.

    The ranks of a replica gather a block's parameters from each other and sum its gradients, so that each rank gets its
    shard. The shards are then summed over the replicas (Zhao et al. 2023, PyTorch FSDP). Every rank processes a
    different part of a batch.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="hsdp",
        title="Hybrid: FSDP × DDP",
        summary="Several replicas of the model, each fully sharded over its own devices.",
        mesh=("replicate", "shard"),
        is_recommended=True,
        fields=("replicas", *FullySharded.entry.fields),
    )
