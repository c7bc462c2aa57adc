"""One process per device; the gradients are averaged at every step (DistributedDataParallel)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from engine.contract.catalogue import StrategyEntry
from engine.strategies.base import StepResult
from engine.strategies.distributed import Distributed
from engine.strategies.single import SingleDevice

if TYPE_CHECKING:
    from engine.data.loader import Batch
    from engine.tasks.base import Measures, Task
    from engine.training.optimizers import Updater


class DataParallelProcesses(Distributed, SingleDevice):
    """Every rank holds the whole model and takes its share of every batch.

    Shares may differ in size: every rank divides its losses by the size of the global batch, and
    since DDP averages gradients over the ranks, the loss is scaled by their number. BatchNorm normalises
    by each rank's own share; its running statistics are rank 0's, which DDP gives to all ranks before every
    step, and which are given to all before an evaluation too.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="ddp",
        title="DistributedDataParallel",
        summary="One process per device, gradients averaged at every step.",
        device_kinds=("cuda", "cpu"),
        min_devices=2,
        max_devices=None,
        process_per_device=True,
        splits_batch=True,
        cuts_model=False,
        fields=("balance", "bucket_mib", "gradient_compression", "static_graph", "sync_batchnorm"),
    )

    @property
    def data_rank(self) -> int:
        return self.spec.rank

    @property
    def data_world(self) -> int:
        return self.spec.world_size

    def wrap(self, model: nn.Module, task: Task, example_shape: tuple[int, int, int]) -> None:
        super().wrap(model, task, example_shape)
        self.example_shape = example_shape
        self.gradient_scale = float(self.spec.world_size)
        devices = [self.device] if self.device.type == "cuda" else None
        self.forward = DistributedDataParallel(
            self.model,
            device_ids=devices,
            gradient_as_bucket_view=True,
            # A user's model may hold layers that it does not use; searching for them costs a little every step.
            find_unused_parameters=self.spec.job.model_is_file,
        )

    def step(self, batch: Batch | None, updater: Updater) -> StepResult:
        assert batch is not None
        if len(batch.targets):
            return super().step(batch, updater)
        return self._empty_step(updater)

    def _empty_step(self, updater: Updater) -> StepResult:
        """A step on no pictures, which adds nothing to the gradients that the ranks join."""
        updater.zero_grad()
        with self.autocast():
            # Two blank pictures, since BatchNorm refuses to take statistics of a single value.
            outputs = self.forward(torch.zeros(2, *self.example_shape, device=self.device))
        updater.backward(outputs.float().sum() * 0.0)
        updater.step()
        return StepResult(None, None, None)

    def evaluate(self, batches: Iterable[Batch | None], measures: Measures, stop: Callable[[], bool]) -> bool:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, 0)
        return super().evaluate(batches, measures, stop)

    def state_dict(self) -> dict[str, Tensor] | None:
        return super().state_dict() if self.spec.rank == 0 else None

    def optimizer_state(self, updater: Updater) -> dict[str, Any] | None:
        return super().optimizer_state(updater) if self.spec.rank == 0 else None
