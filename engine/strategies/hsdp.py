"""Replicas of the model, each fully sharded over its own devices (HSDP: FSDP within a replica, DDP between them)."""

from __future__ import annotations

from typing import ClassVar

from engine.contract.catalogue import StrategyEntry
from engine.strategies.fsdp import FullySharded


class HybridSharded(FullySharded):
    """FullySharded on a mesh with replicas: parameters are sharded over the ranks of one replica.

    A block's parameters are fetched within the replica; its gradients are summed within the replica, each rank getting
    its shard of them, and the shards then over the replicas (Zhao et al. 2023, PyTorch FSDP). Every rank takes a
    different part of a batch.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="hsdp",
        title="Hybrid: FSDP x DDP",
        summary="Several replicas of the model, each fully sharded over its own devices.",
        mesh=("replicate", "shard"),
        is_recommended=True,
        fields=("replicas", *FullySharded.entry.fields),
    )
