"""Find out in which order CUDA numbers the GPUs.

`python -m engine.gpus.cuda_order` prints their UUIDs in this order as a JSON list. By default, CUDA orders GPUs by
speed, which NVML does not report. Therefore a separate process calls libcuda, without creating a context, and exits
directly afterwards. It prints null if libcuda is missing or fails.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable

import msgspec

from engine.contract.devices import Gpu
from engine.gpus.child import LineChild

DEADLINE_S = 20.0
"""Maximum time in seconds for an answer. Waking eight GPUs without persistence mode takes about ten."""

FILTERS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""Environment variables that are removed, since they would hide or reorder devices."""


class CudaOrder:
    """CUDA indices of the GPUs. A child process asks CUDA for them, and no call waits for it.

    Until the child process has answered, the indices are None.
    """

    def __init__(self, changed: threading.Event, deadline_s: float = DEADLINE_S) -> None:
        self._changed = changed
        self._deadline_s = deadline_s
        self._child: LineChild | None = None
        self._started = 0.0  # start of the child process
        self._requested: frozenset[str] = frozenset()  # UUIDs that CUDA has been asked for
        self._index_by_uuid: dict[str, int] = {}

    @property
    def pending(self) -> bool:
        """True while the child process has not answered."""
        return self._child is not None

    def poll(self, gpus: Iterable[Gpu]) -> None:
        """Read the answer if it has arrived. If `gpus` contains a new UUID, start a child that asks CUDA again."""
        uuids = frozenset(gpu.uuid for gpu in gpus if not gpu.lost)
        if self._child is not None:
            self._read_answer(self._child)
        elif not uuids <= self._requested:
            self._requested |= uuids
            self._started = time.monotonic()
            self._child = LineChild("engine.gpus.cuda_order", changed=self._changed)

    def with_cuda_index(self, gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
        """Return `gpus` with their CUDA indices. An index is None if CUDA has not listed the GPU."""
        return tuple(msgspec.structs.replace(gpu, cuda_index=self._index_by_uuid.get(gpu.uuid)) for gpu in gpus)

    def close(self) -> None:
        """Kill the child process if it has not answered."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _read_answer(self, child: LineChild) -> None:
        """Store the answer of the child process if it has arrived. Kill the child at the deadline."""
        has_ended = child.has_ended()  # before the lines are taken, so that none arrives later
        for line in child.take_lines():
            order = _parse_order(line)
            self._index_by_uuid = {gpu_uuid: index for index, gpu_uuid in enumerate(order)}
        if has_ended:
            self._child = None
        elif time.monotonic() - self._started > self._deadline_s:
            self.close()


def ask_cuda() -> list[str] | None:
    """Return the UUIDs ("GPU-…") of CUDA's devices in CUDA's order, or None if CUDA does not work.

    Source: CUDA driver API, cuInit, cuDeviceGetCount, cuDeviceGet, cuDeviceGetUuid_v2. For a GPU with MIG, the last
    function returns the UUID of an instance instead.
    """
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        get_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
        count = ctypes.c_int()
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return None
        return [_get_uuid(cuda, get_uuid, ordinal) for ordinal in range(count.value)]
    except (OSError, AttributeError):
        return None


def _get_uuid(cuda: ctypes.CDLL, get_uuid: Callable[..., int], ordinal: int) -> str:
    """Return the UUID of the device with the index `ordinal`, or "" if CUDA reports an error for it."""
    device = ctypes.c_int()
    raw = (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or get_uuid(ctypes.byref(raw), device):
        return ""
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def _parse_order(line: bytes) -> list[str]:
    """Decode the list of UUIDs that the child process has printed. Empty if it is null or invalid."""
    try:
        return msgspec.json.decode(line, type=list[str] | None) or []
    except msgspec.DecodeError:
        return []


def main() -> int:
    """Print CUDA's order as one line of JSON."""
    from engine.gpus.parent_process import end_with_parent

    end_with_parent()
    for name in FILTERS:
        os.environ.pop(name, None)
    print(json.dumps(ask_cuda()), flush=True)
    # libcuda's cleanup at exit can hang after a driver error.
    os._exit(0)


if __name__ == "__main__":
    main()
