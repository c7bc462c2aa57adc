"""A batch on its way into a pipeline: the images to the first stage, their targets to the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch

PADDING = -1
"""The target of an image that only pads a microbatch and is ignored."""


class Microbatches(NamedTuple):
    """A batch as one rank has it. `inputs` are on the rank of the first stage, `targets` on that of the last."""

    inputs: Tensor | None = None
    targets: Tensor | None = None
    images: int = 0
    """The number of images that are not padding, which come first; known on both these ranks."""
    global_size: int = 0
    """The images of the batch over all pipelines; known on the same."""
    sending: tuple[tuple[Any, Tensor], ...] = ()

    def sent(self) -> None:
        """Waits until what this rank sends has arrived."""
        for work, _ in self.sending:
            work.wait()


class MicrobatchFeeder:
    """Brings batches to the pipeline whose ranks of the `first` and of the `last` stage are given.

    Every batch is filled up to `size` images. Targets go through `group`, as activations do; counts through
    `control`, so that the host knows them without waiting for its device.
    """

    def __init__(
        self,
        *,
        first: int,
        last: int,
        size: int,
        device: torch.device,
        group: dist.ProcessGroup | None,
        control: dist.ProcessGroup,
        blank_target: Tensor,
    ) -> None:
        self._first, self._last = first, last
        self._size = size
        self._device = device
        self._group = group
        self._control = control
        self._target_shape, self._target_type = tuple(blank_target.shape), blank_target.dtype
        self._rank = dist.get_rank()

    def feed(self, batch: Batch | None) -> Microbatches:
        """What this rank takes of a batch, which is given on the rank of the first stage. All ranks call it
        together.
        """
        if batch is not None:
            return self._begin(batch)
        return self._receive() if self._rank == self._last else Microbatches()

    def _begin(self, batch: Batch) -> Microbatches:
        count = len(batch.targets)
        targets = batch.targets
        if count < self._size:
            targets = torch.cat((targets, targets.new_full((self._size - count, *self._target_shape), PADDING)))
        inputs = _filled(batch.inputs, self._size)
        if self._last == self._rank:
            return Microbatches(inputs, targets, count, batch.global_size)
        counts = torch.tensor((count, batch.global_size))
        sending = (
            (dist.isend(counts, self._last, group=self._control), counts),
            (dist.isend(targets, self._last, group=self._group), targets),
        )
        return Microbatches(inputs, None, count, batch.global_size, sending)

    def _receive(self) -> Microbatches:
        counts = torch.empty(2, dtype=torch.int64)
        dist.recv(counts, self._first, group=self._control)
        targets = torch.empty((self._size, *self._target_shape), dtype=self._target_type, device=self._device)
        dist.recv(targets, self._first, group=self._group)
        count, global_size = counts.tolist()
        return Microbatches(None, targets, count, global_size)


def _filled(inputs: Tensor, size: int) -> Tensor:
    """`inputs` repeated from its beginning until there are `size` images; blank ones where there are none."""
    count = len(inputs)
    if count == size:
        return inputs
    if count == 0:
        return inputs.new_zeros(size, *inputs.shape[1:])
    return inputs[torch.arange(size, device=inputs.device) % count]
