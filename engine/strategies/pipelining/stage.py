"""Pipeline stages for torch.distributed.pipelining. Importing this module is slow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn
from torch.distributed.pipelining import PipelineStage

from engine.strategies.pipelining.timeline import ScheduleProfiler
from engine.strategies.recompute import with_recomputation
from engine.torch_compat import skip_messages_within_rank, skip_missing_gradients


class StageModule(nn.Module):
    """Module that computes a stage with the job's precision, and passes contiguous gradients back.

    With `recompute`, it stores only its input, and recomputes activations in the backward pass. With
    `divided_backward`, its output requires a gradient even if all its parameters are frozen, because torch's divided
    backward pass otherwise loses the gradients of weights in earlier stages.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        autocast: Callable[[], AbstractContextManager[None]],
        *,
        recompute: bool = False,
        divided_backward: bool = False,
    ) -> None:
        super().__init__()
        self.graph = graph
        self._autocast = autocast
        self._divided = divided_backward  # True if gradients of inputs and of weights are computed in separate passes
        self._compute: Callable[[Tensor], Tensor] = (
            with_recomputation(graph.forward, graph) if recompute else graph.forward
        )

    def forward(self, received: Tensor) -> Tensor:
        """Compute the stage, and make the gradient of its input contiguous in the backward pass."""
        if received.requires_grad:
            # NCCL has transferred wrong values between tensors with different strides (pytorch#62283).
            received.register_hook(Tensor.contiguous)
        with self._autocast():
            output = self._compute(received)
        if self._divided and torch.is_grad_enabled() and not output.requires_grad:
            output.requires_grad_()
        return output


class RecordedStage(PipelineStage):
    """Pipeline stage that reports its passes to `profiler`.

    `received` and `output` are the input and the output for one microbatch, on the meta device. Without them, torch
    would infer the shapes by running a pass, which changed BatchNorm's statistics before torch 2.14.
    """

    def __init__(
        self,
        module: nn.Module,
        number: int,
        stages: int,
        *,
        received: Tensor,
        output: Tensor,
        device: torch.device,
        group: dist.ProcessGroup | None,
        profiler: ScheduleProfiler,
    ) -> None:
        super().__init__(module, number, stages, device, received, output, group=group)
        skip_messages_within_rank(self)
        skip_missing_gradients(self)
        self._profiler = profiler

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        with self._profiler.time_pass("F", self.stage_index, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **options)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: Any = False
    ) -> None:
        with self._profiler.time_pass("B" if full_backward else "I", self.stage_index, bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **options: Any) -> None:
        with self._profiler.time_pass("W", self.stage_index, bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, *args, **options)
