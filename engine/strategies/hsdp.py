"""Strategy with replicas of the model, each sharded over its own devices (HSDP: FSDP inside, DDP between replicas)."""

from __future__ import annotations

from typing import ClassVar

from engine.contract.catalogue import StrategyEntry
from engine.strategies.fsdp import FullySharded


class HybridSharded(FullySharded):
    """FullySharded on a mesh with replicas: parameters are sharded over the ranks of one replica.

    A block's parameters are fetched within the replica. Its gradients are summed within the replica, so that each rank
    gets its shard, and the shards are then summed over the replicas (Zhao et al. 2023, PyTorch FSDP). Every rank
    processes a different part of a batch.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="hsdp",
        title="Hybrid: FSDP x DDP",
        summary="Several replicas of the model, each fully sharded over its own devices.",
        mesh=("replicate", "shard"),
        is_recommended=True,
        fields=("replicas", *FullySharded.entry.fields),
    )
