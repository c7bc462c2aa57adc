"""Reusable buffers that transfer batches to the device and are not overwritten while the device reads them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.data.decoding.idx import Bytes
from engine.data.splits import Labels

SAMPLE, CROP = 0, slice(1, 4)
"""Columns of `Slot.numbers`: the index of the sample in the split, and the crop (top, left, and 1 if mirrored)."""
_COLUMNS = 4


class Slot:
    """Buffer for one batch in main memory, for training on the CPU.

    `pixels` is uint8 [capacity, C, H, W], `numbers` int64 [capacity, 4] (see `SAMPLE` and `CROP`), and `random` float32
    [capacity, columns] with the random numbers for augmentation. One thread calls `wait_until_reusable`, fills the
    first rows of these arrays and calls `send`. Another thread then calls `receive`, launches the kernels that read the
    batch, and calls `record_consumed`. The targets [n, ...] are sent with the batch and belong to the receiver
    afterwards.
    """

    pixels: Bytes
    numbers: Labels
    random: npt.NDArray[np.float32]

    def __init__(self, capacity: int, shape: tuple[int, int, int], columns: int = 0, *, pinned: bool = False) -> None:
        self._host_pixels = torch.empty((capacity, *shape), dtype=torch.uint8, pin_memory=pinned)
        self._host_numbers = torch.empty((capacity, _COLUMNS), dtype=torch.int64, pin_memory=pinned)
        self._host_random = torch.empty((capacity, columns), dtype=torch.float32, pin_memory=pinned)
        self.pixels, self.numbers = self._host_pixels.numpy(), self._host_numbers.numpy()
        self.random = self._host_random.numpy()

    def wait_until_reusable(self) -> None:
        """Wait until the buffer may be overwritten because the previous batch has been copied out of it."""

    def send(self, targets: Tensor, *, pixel_rows: int, number_rows: int) -> None:
        """Send the targets and the first rows of the buffer to the device.

        `pixel_rows` is the number of rows to send from the array `pixels`, and `number_rows` the number of rows to send
        from the arrays `numbers` and `random`.
        """
        self._targets = targets

    def receive(self, *, pixel_rows: int, number_rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the first rows of the arrays `pixels`, `numbers` and `random` on the device, and the targets.

        The arguments are the numbers of rows, as for `send`. Only kernels that are launched before `record_consumed`
        may read the rows.
        """
        numbers, random = self._host_numbers[:number_rows], self._host_random[:number_rows]
        return self._host_pixels[:pixel_rows], numbers, random, self._targets

    def record_consumed(self) -> None:
        """Allow the buffer to be overwritten, after the kernels that read the received batch have been launched."""


class DeviceSlot(Slot):
    """Buffer in pinned memory and a copy of it on a GPU. `stream` copies batches in parallel with the computation.

    The host waits for the previous copy before it fills the buffer. The copy waits for the kernels that read the
    previous batch. The kernels that read a batch wait for the copy.
    """

    def __init__(self, capacity: int, shape: tuple[int, int, int], stream: torch.cuda.Stream, columns: int = 0) -> None:
        with torch.cuda.device(stream.device):  # otherwise pinning creates a context on the first GPU
            super().__init__(capacity, shape, columns, pinned=True)
        self._stream = stream
        self._pixels = torch.empty_like(self._host_pixels, device=stream.device, pin_memory=False)
        self._numbers = torch.empty_like(self._host_numbers, device=stream.device, pin_memory=False)
        self._random = torch.empty_like(self._host_random, device=stream.device, pin_memory=False)
        self._copied_event = torch.cuda.Event(blocking=True)  # a blocking wait occupies no core
        self._consumed_event = torch.cuda.Event()
        # The buffers come from the current stream's pool, whose earlier kernels may still use that memory.
        stream.wait_stream(torch.cuda.current_stream(stream.device))

    def wait_until_reusable(self) -> None:
        with torch.cuda.device(self._stream.device):
            self._copied_event.synchronize()

    def send(self, targets: Tensor, *, pixel_rows: int, number_rows: int) -> None:
        """Queue copies of the first rows and the targets to the GPU.

        They start once the previous batch has been consumed.
        """
        # Set the device, too: leaving the stream would otherwise create a context on the first GPU.
        with torch.cuda.device(self._stream.device), torch.cuda.stream(self._stream):
            self._stream.wait_event(self._consumed_event)
            self._pixels[:pixel_rows].copy_(self._host_pixels[:pixel_rows], non_blocking=True)
            self._numbers[:number_rows].copy_(self._host_numbers[:number_rows], non_blocking=True)
            self._random[:number_rows].copy_(self._host_random[:number_rows], non_blocking=True)
            # Torch reuses the pinned memory only after the copy has finished.
            self._targets = targets.pin_memory().to(self._stream.device, non_blocking=True)
            self._copied_event.record(self._stream)

    def receive(self, *, pixel_rows: int, number_rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the current batch on the GPU: pixels, numbers, random values and targets.

        Of the pixels, the first `pixel_rows` rows are returned, of the numbers and random values the first
        `number_rows`. Kernels launched later on the current stream wait for the copies.
        """
        current = torch.cuda.current_stream(self._stream.device)
        current.wait_event(self._copied_event)
        self._targets.record_stream(current)  # unlike the other tensors, it is not reused for the next batch
        return self._pixels[:pixel_rows], self._numbers[:number_rows], self._random[:number_rows], self._targets

    def record_consumed(self) -> None:
        self._consumed_event.record(torch.cuda.current_stream(self._stream.device))
