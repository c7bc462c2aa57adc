"""Room for batches on their way to the device, used again and again, and guarded while anybody reads what is in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.data.decoding.idx import Bytes
from engine.data.splits import Labels

SAMPLE, CROP = 0, slice(1, 4)
"""The columns of a batch's numbers: each image's number in the split, and its crop (top, left, mirrored)."""
_COLUMNS = 4


class Slot:
    """Room for one batch in main memory, where a worker on the CPU computes, too.

    `pixels` is uint8 [capacity, C, H, W], `numbers` int64 [capacity, 4] and `drawn` float32 [capacity, columns], what
    an augmentation has drawn, of which there may be none. One thread calls `begin`, fills the first rows and calls
    `send`; another then gets them from `receive`, and calls `leave` when it has asked the device for all that reads
    them. A batch's targets [n, ...] go with them, and are whoever takes them's own.
    """

    pixels: Bytes
    numbers: Labels
    drawn: npt.NDArray[np.float32]

    def __init__(self, capacity: int, shape: tuple[int, int, int], columns: int = 0, *, pinned: bool = False) -> None:
        self._host_pixels = torch.empty((capacity, *shape), dtype=torch.uint8, pin_memory=pinned)
        self._host_numbers = torch.empty((capacity, _COLUMNS), dtype=torch.int64, pin_memory=pinned)
        self._host_drawn = torch.empty((capacity, columns), dtype=torch.float32, pin_memory=pinned)
        self.pixels, self.numbers = self._host_pixels.numpy(), self._host_numbers.numpy()
        self.drawn = self._host_drawn.numpy()

    def begin(self) -> None:
        """Waits until what was sent before is no longer read."""

    def send(self, pixels: int, numbers: int, targets: Tensor) -> None:
        """Sends the first so many rows of each, and the `targets`, to the device."""
        self._targets = targets

    def receive(self, pixels: int, numbers: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The first rows of each, as many of what is drawn as of numbers, for what the device is asked for from now
        on until `leave`; and the targets.
        """
        return self._host_pixels[:pixels], self._host_numbers[:numbers], self._host_drawn[:numbers], self._targets

    def leave(self) -> None:
        """Everything that reads the received batch has been launched."""


class DeviceSlot(Slot):
    """Pinned memory, and as much on a GPU, to which `stream` copies beside the computing.

    The host waits before it fills a slot for the copy out of it, and the copy waits for the computing that reads what
    the last one brought; the computing waits for its copy. Nobody waits for more than that.
    """

    def __init__(self, capacity: int, shape: tuple[int, int, int], stream: torch.cuda.Stream, columns: int = 0) -> None:
        with torch.cuda.device(stream.device):  # or pinning would wake the first GPU from a thread of its own
            super().__init__(capacity, shape, columns, pinned=True)
        self._stream = stream
        self._pixels = torch.empty_like(self._host_pixels, device=stream.device, pin_memory=False)
        self._numbers = torch.empty_like(self._host_numbers, device=stream.device, pin_memory=False)
        self._drawn = torch.empty_like(self._host_drawn, device=stream.device, pin_memory=False)
        self._copied = torch.cuda.Event(blocking=True)  # its waiting takes no core
        self._read = torch.cuda.Event()
        # Their memory comes from the stream that is current here: what was asked of it before may still use it.
        stream.wait_stream(torch.cuda.current_stream(stream.device))

    def begin(self) -> None:
        with torch.cuda.device(self._stream.device):
            self._copied.synchronize()

    def send(self, pixels: int, numbers: int, targets: Tensor) -> None:
        # The device, too, or leaving the stream would make this thread's own one current again, and so wake the first GPU.
        with torch.cuda.device(self._stream.device), torch.cuda.stream(self._stream):
            self._stream.wait_event(self._read)
            self._pixels[:pixels].copy_(self._host_pixels[:pixels], non_blocking=True)
            self._numbers[:numbers].copy_(self._host_numbers[:numbers], non_blocking=True)
            self._drawn[:numbers].copy_(self._host_drawn[:numbers], non_blocking=True)
            # Torch gives the pinned memory to nobody else before the copy out of it is done.
            self._targets = targets.pin_memory().to(self._stream.device, non_blocking=True)
            self._copied.record(self._stream)

    def receive(self, pixels: int, numbers: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        current = torch.cuda.current_stream(self._stream.device)
        current.wait_event(self._copied)
        self._targets.record_stream(current)
        return self._pixels[:pixels], self._numbers[:numbers], self._drawn[:numbers], self._targets

    def leave(self) -> None:
        self._read.record(torch.cuda.current_stream(self._stream.device))
