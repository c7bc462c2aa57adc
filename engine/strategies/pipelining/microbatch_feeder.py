"""Input of a pipeline. Images go to the first stage and targets to the last stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch

PADDING = -1
"""Target of padding images, which the loss and metrics ignore."""


class RankInput(NamedTuple):
    """Input of one rank of a pipeline for one batch.

    `inputs` is set on the rank of the first stage, and `targets` on the rank of the last stage. `pending_sends` has the
    pending messages to the last stage, each with its tensor, which must exist until it is sent.
    """

    inputs: Tensor | None = None
    targets: Tensor | None = None
    images: int = 0
    """Number of images in the batch before padding. Set on the ranks of the first and the last stage."""
    global_size: int = 0
    """Number of images in the global batch, over all pipelines. Set on the ranks of the first and the last stage."""
    pending_sends: tuple[tuple[Any, Tensor], ...] = ()

    def wait_until_sent(self) -> None:
        """Wait until the rank of the last stage has received the messages that this rank sends for this batch."""
        for work, _ in self.pending_sends:
            work.wait()


class MicrobatchFeeder:
    """Feeder that passes batches from the rank of the first stage to the rank of the last stage.

    `first` and `last` are these ranks. Every batch is padded to `size` images. Targets are sent over the process group
    `group`, as activations are. The numbers of images are sent over the CPU group `control`, so that the host can read
    them without waiting for its device.
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
        self._group = group  # carries targets between devices
        self._control = control  # carries numbers of images between CPUs
        self._target_shape, self._target_type = tuple(blank_target.shape), blank_target.dtype
        self._rank = dist.get_rank()

    def feed(self, batch: Batch | None) -> RankInput:
        """Send a batch to the ranks that need it, and return this rank's input.

        Only the rank of the first stage passes a `batch`. All ranks call it together.
        """
        if batch is not None:
            return self._pad_and_send(batch)
        return self._receive() if self._rank == self._last else RankInput()

    def _pad_and_send(self, batch: Batch) -> RankInput:
        """Pad `batch`, start to send its data to the rank of the last stage, and return this rank's input.

        The data are the targets, the number of images and the size of the global batch.
        """
        count = len(batch.targets)
        targets = batch.targets
        if count < self._size:
            targets = torch.cat((targets, targets.new_full((self._size - count, *self._target_shape), PADDING)))
        inputs = _pad(batch.inputs, self._size)
        if self._last == self._rank:
            return RankInput(inputs, targets, count, batch.global_size)
        counts = torch.tensor((count, batch.global_size))
        sending = (
            (dist.isend(counts, self._last, group=self._control), counts),
            (dist.isend(targets, self._last, group=self._group), targets),
        )
        return RankInput(inputs=inputs, images=count, global_size=batch.global_size, pending_sends=sending)

    def _receive(self) -> RankInput:
        """Receive the targets and numbers of images from the rank of the first stage, and return them as input."""
        counts = torch.empty(2, dtype=torch.int64)
        dist.recv(counts, self._first, group=self._control)
        targets = torch.empty((self._size, *self._target_shape), dtype=self._target_type, device=self._device)
        dist.recv(targets, self._first, group=self._group)
        count, global_size = counts.tolist()
        return RankInput(targets=targets, images=count, global_size=global_size)


def _pad(inputs: Tensor, size: int) -> Tensor:
    """Return `inputs` padded to `size` images by repeating its images, or by blank images if it is empty."""
    count = len(inputs)
    if count == size:
        return inputs
    if count == 0:
        return inputs.new_zeros(size, *inputs.shape[1:])
    return inputs[torch.arange(size, device=inputs.device) % count]
