"""Monitor that reads a GPU's utilization and memory from NVML while other code runs."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

PERIOD_S = 0.1


def gpu_name(index: int = 0) -> str:
    """Return the name of GPU `index` (in NVML's order) and its driver version."""
    import pynvml

    pynvml.nvmlInit()
    try:
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))
        return f"{name}, driver {pynvml.nvmlSystemGetDriverVersion()}"
    finally:
        pynvml.nvmlShutdown()


class GpuWatch:
    """Context manager that samples GPU `index` (in NVML's order) from a separate thread."""

    def __init__(self, index: int = 0) -> None:
        self._index = index
        self._samples: list[tuple[float, int, int]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu-watch")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def during(self, window: tuple[float, float]) -> tuple[float, int]:
        """Return the mean utilization and the peak memory in bytes within `window` (times from `time.monotonic`)."""
        inside = [(busy, used) for at, busy, used in self._samples if window[0] <= at <= window[1]]
        return sum(busy for busy, _ in inside) / len(inside) / 100, max(used for _, used in inside)

    def _watch(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        handle: Any = pynvml.nvmlDeviceGetHandleByIndex(self._index)
        while not self._ending.wait(PERIOD_S):
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
            self._samples.append((time.monotonic(), busy, memory.used))
        pynvml.nvmlShutdown()
