"""Forward passes through the stages of a pipeline, for evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Relay:
    """Runner of forward passes without gradients through the stages of a pipeline.

    `stages` has this rank's stages by number. `ranks` has the rank of every stage, in any order. Activations are sent
    over the process group `group`. Their shapes, which are sent only once, go over the CPU group `control`.
    """

    def __init__(
        self,
        stages: Mapping[int, nn.Module],
        ranks: Sequence[int],
        device: torch.device,
        group: dist.ProcessGroup | None,
        control: dist.ProcessGroup,
    ) -> None:
        self._stages = dict(stages)
        self._ranks = ranks
        self._device = device
        self._group = group  # carries activations between devices
        self._control = control  # carries their shapes between CPUs
        self._shapes: dict[int, tuple[torch.Size, torch.dtype]] = {}  # of the input of each stage

    @torch.no_grad()
    def run(self, count: int, inputs: Sequence[Tensor] | None) -> list[Tensor]:
        """Run the forward pass of `count` microbatches.

        Returns the model's outputs on the rank of the last stage, and [] on other ranks. All ranks call it together.
        The rank of the first stage passes `inputs`, which must have the same shape in every call.
        """
        # All ranks follow the same list, so that any two ranks send and receive in the same order, as NCCL requires. In
        # this list, the input of a stage is always computed before it is needed.
        steps = sorted((stage + number, stage, number) for stage in range(len(self._ranks)) for number in range(count))
        # Inputs that wait for their stage, by stage and microbatch, each with the transfer that fills it, or None.
        waiting: dict[tuple[int, int], tuple[Tensor, Any]] = {
            (0, number): (tensor, None) for number, tensor in enumerate(inputs or ())
        }
        sent: list[tuple[Any, Tensor]] = []  # transfers, and their tensors, which must exist until the end
        outputs: list[Tensor] = []
        for _, stage, number in steps:
            following = stage + 1
            if stage in self._stages:
                stage_input, transfer = waiting.pop((stage, number))
                if transfer is not None:
                    transfer.wait()
                output: Tensor = self._stages[stage](stage_input)
                if following == len(self._ranks):
                    outputs.append(output)
                elif following in self._stages:
                    waiting[following, number] = output, None
                else:
                    self._send_shape(following, output)
                    sent.append((dist.isend(output, self._ranks[following], group=self._group), output))
            elif following in self._stages:
                buffer = self._receive_buffer(following)
                waiting[following, number] = buffer, dist.irecv(buffer, self._ranks[stage], group=self._group)
        for transfer, _ in sent:
            transfer.wait()
        return outputs

    def _send_shape(self, stage: int, output: Tensor) -> None:
        """Send the shape and type of `output` to the rank of `stage`, unless they have been sent before."""
        if stage not in self._shapes:
            self._shapes[stage] = output.shape, output.dtype
            dist.send_object_list([self._shapes[stage]], self._ranks[stage], group=self._control)

    def _receive_buffer(self, stage: int) -> Tensor:
        """Create an empty tensor for the input of `stage`. Its shape is received once from the previous stage."""
        if stage not in self._shapes:
            received: list[Any] = [None]
            dist.recv_object_list(received, self._ranks[stage - 1], group=self._control)
            self._shapes[stage] = received[0]
        shape, dtype = self._shapes[stage]
        return torch.empty(shape, dtype=dtype, device=self._device)
