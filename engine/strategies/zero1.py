"""Strategy that shards only the optimizer's state over the ranks (ZeRO stage 1)."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch.distributed as dist
from torch import Tensor, nn

from engine.contract.catalogue import StrategyEntry
from engine.strategies.base import ResolvedJob, StepResult
from engine.strategies.ddp import DataParallelProcesses
from engine.strategies.gradients import broadcast
from engine.strategies.rank_times import HostTimer

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch
    from engine.optim.optimizer_step import OptimizerStep
    from engine.tasks.base import Objective


class ShardedOptimizer(DataParallelProcesses):
    """Strategy like DDP, except that a single rank updates each parameter and then broadcasts it.

    Only that rank stores the parameter's optimizer state and moving average, so that these need less memory than under
    DDP (Rajbhandari et al. 2020, ZeRO). Parameters are not divided. Optimizers that need complete parameters, such as
    LAMB, therefore work unchanged, but a rank needs memory for at least the largest parameter. Gradients are reduced as
    under DDP, and are complete on every rank.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="zero1",
        title="DDP, sharded optimizer (ZeRO-1)",
        summary="DistributedDataParallel in which each device keeps a share of the optimizer's state.",
        mesh=("replicate",),
        shards_optimizer=True,
        fields=DataParallelProcesses.entry.fields,
    )

    def wrap(self, model: nn.Module, objective: Objective, shape: tuple[int, ...], resolved: ResolvedJob) -> None:
        """Wrap the model as under DDP, and divide the updates of its parameters among the ranks."""
        super().wrap(model, objective, shape, resolved)
        trained = super().parameters()
        self._parameters_by_rank: list[list[tuple[str, nn.Parameter]]] = [[] for _ in range(self.spec.world_size)]
        """Parameters that each rank updates, by rank."""
        owners = assign_owners([parameter.numel() for _, parameter in trained], self.spec.world_size)
        for named, owner in zip(trained, owners, strict=True):
            self._parameters_by_rank[owner].append(named)

    def parameters(self) -> list[tuple[str, nn.Parameter]]:
        return self._parameters_by_rank[self.spec.rank]

    def buffers(self) -> list[tuple[str, Tensor]]:
        return super().buffers() if self.spec.rank == 0 else []

    @property
    def state_ranks(self) -> int:
        return self.spec.world_size

    def step(self, batch: Batch | None, optimizer_step: OptimizerStep) -> StepResult:
        self.model.zero_grad()  # also the gradients of parameters that other ranks update
        return super().step(batch, optimizer_step)

    def broadcast_updates(self) -> None:
        """Broadcast each parameter from the rank that has updated it. All ranks call it together."""
        self.profiler.mark("optimizer")
        for rank, named in enumerate(self._parameters_by_rank):
            started = time.perf_counter()
            broadcast([parameter for _, parameter in named], rank, dist.group.WORLD)
            if isinstance(self.profiler.timer, HostTimer):
                self.profiler.timer.add_blocked_since(started)
        self.profiler.mark("communication")

    def sum_over_shards(self, value: Tensor) -> Tensor:
        """Return the sum of `value` over all ranks. Each rank computes it from the parameters that it updates.

        All ranks call this together.
        """
        summed = value.to(self.device, copy=True)
        dist.all_reduce(summed)
        return summed.to(value.device)


def assign_owners(sizes: Sequence[int], ranks: int) -> list[int]:
    """Assign parameters with these `sizes` to ranks, and return the rank of each parameter.

    The largest parameters are assigned first, each to the rank with the smallest load.
    """
    loads = [(0, rank) for rank in range(ranks)]  # heap with the smallest load first
    owners = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda each: -sizes[each]):
        load, owners[index] = loads[0]
        heapq.heapreplace(loads, (load + sizes[index], owners[index]))
    return owners
