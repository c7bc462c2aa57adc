"""Strategy with one process for several GPUs, which share each batch (torch.nn.DataParallel)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from engine.contract.catalogue import StrategyEntry
from engine.contract.devices import is_gpu
from engine.strategies.base import ResolvedJob, StrategyError
from engine.strategies.single import SingleDevice

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch
    from engine.tasks.base import Objective


class DataParallel(SingleDevice):
    """Strategy that copies the model to every GPU at each step, and gathers the outputs on the first GPU.

    BatchNorm updates its running statistics with the first GPU's part of each batch.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="dp",
        title="DataParallel",
        summary="One process splits each batch among several GPUs.",
        mesh=("replicate",),
        device_kinds=("cuda",),
        process_per_device=False,
    )

    def setup(self) -> None:
        """Prepare the GPUs. Raises StrategyError unless all devices of the job are GPUs, and there are at least two.

        Without this check, torch.nn.DataParallel would silently run on the CPU.
        """
        if not all(map(is_gpu, self.spec.devices)):
            raise StrategyError("DataParallel runs on CUDA GPUs only. Choose DistributedDataParallel for CPU workers.")
        if len(self.spec.devices) < 2:
            raise StrategyError("DataParallel needs at least two GPUs. Choose Single device for one.")
        super().setup()

    def wrap(self, model: nn.Module, objective: Objective, shape: tuple[int, ...], resolved: ResolvedJob) -> None:
        """Move the model to the first GPU. For training and evaluation, torch copies it to all GPUs at each pass."""
        super().wrap(model, objective, shape, resolved)
        replicated = _AutocastModule(self.model, self.autocast)
        self.forward = nn.DataParallel(replicated, device_ids=list(range(len(self.spec.local_devices))))

    def evaluation_forward(self, batch: Batch) -> torch.Tensor:
        outputs: torch.Tensor = self.forward(batch.inputs)
        return outputs


class _AutocastModule(nn.Module):
    """Module that enters autocast with the job's precision in every thread.

    The threads of DataParallel enter autocast without a dtype (torch/nn/parallel/parallel_apply.py). Without this
    module, they would compute in fp16, without loss scaling, even if the job requests bf16.
    """

    def __init__(self, model: nn.Module, autocast: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self.model = model
        self._autocast = autocast

    def forward(self, *inputs: Any) -> Any:
        with self._autocast():
            return self.model(*inputs)
