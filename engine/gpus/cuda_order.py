"""In which order CUDA counts the GPUs: `python -m engine.gpus.cuda_order` prints their UUIDs as a JSON list.

CUDA's default order is "fastest first", which NVML cannot tell, so libcuda itself is asked, in a process of its
own that makes no context and ends at once. It prints null where libcuda is missing or fails.
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
"""Waking eight GPUs without persistence mode takes some ten seconds."""

FILTERS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""Variables that would hide or reorder devices."""


class CudaOrder:
    """CUDA's index of each GPU by UUID, asked once for every set of GPUs, without waiting."""

    def __init__(self, news: threading.Event, deadline_s: float = DEADLINE_S) -> None:
        self._news = news
        self._deadline_s = deadline_s
        self._child: LineChild | None = None
        self._started = 0.0
        self._asked_for: frozenset[str] = frozenset()
        self._index: dict[str, int] = {}

    @property
    def pending(self) -> bool:
        """Whether CUDA has been asked and may still answer."""
        return self._child is not None

    def poll(self, gpus: Iterable[Gpu]) -> None:
        """Takes the answer if it is there; asks if `gpus` has a UUID that CUDA was not yet asked about."""
        uuids = frozenset(gpu.uuid for gpu in gpus if not gpu.lost)
        if self._child is not None:
            self._take(self._child)
        elif not uuids <= self._asked_for:
            self._asked_for |= uuids
            self._started = time.monotonic()
            self._child = LineChild("engine.gpus.cuda_order", news=self._news)

    def numbered(self, gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
        """`gpus` with their CUDA index, None for those that CUDA did not list."""
        return tuple(msgspec.structs.replace(gpu, cuda_index=self._index.get(gpu.uuid)) for gpu in gpus)

    def close(self) -> None:
        """Gives up on an answer that is not there yet."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _take(self, child: LineChild) -> None:
        over = child.ended()
        for line in child.lines():
            order = _parsed(line)
            self._index = {uuid_: index for index, uuid_ in enumerate(order)}
        if over:
            self._child = None
        elif time.monotonic() - self._started > self._deadline_s:
            self.close()


def ask_cuda() -> list[str] | None:
    """UUIDs ("GPU-…") of the devices that CUDA sees, in its order; None where CUDA does not work.

    Source: CUDA driver API, cuInit, cuDeviceGetCount, cuDeviceGet, cuDeviceGetUuid_v2. With MIG the last one
    tells a slice's UUID, which then is not the UUID of any whole GPU.
    """
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        get_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
        count = ctypes.c_int()
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return None
        return [_uuid(cuda, get_uuid, ordinal) for ordinal in range(count.value)]
    except (OSError, AttributeError):
        return None


def _uuid(cuda: ctypes.CDLL, get_uuid: Callable[..., int], ordinal: int) -> str:
    """The UUID of one device; "" where CUDA fails for it, so that the others keep their places."""
    device = ctypes.c_int()
    raw = (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or get_uuid(ctypes.byref(raw), device):
        return ""
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def _parsed(line: bytes) -> list[str]:
    try:
        return msgspec.json.decode(line, type=list[str] | None) or []
    except msgspec.DecodeError:
        return []


def main() -> int:
    """Prints the order as one line."""
    from engine.gpus.lifeline import end_with_parent

    end_with_parent()
    for name in FILTERS:
        os.environ.pop(name, None)
    print(json.dumps(ask_cuda()), flush=True)
    # libcuda's own tidying at exit can hang after a fault of the driver.
    os._exit(0)


if __name__ == "__main__":
    main()
