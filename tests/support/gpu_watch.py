"""Monitor that reads a GPU's utilization and memory from NVML while other code runs."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any, NamedTuple, Self

from engine.gpus.nvml.activity import ActivityReader
from engine.gpus.nvml.calls import DeviceCalls, Stopwatch

PERIOD_S = 0.15
"""Seconds between samples, longer than the shortest interval over which a GPU can measure multiprocessor activity."""


class Usage(NamedTuple):
    """Usage of a GPU over a period of time.

    Attributes:
        utilization: Fraction of the time during which a kernel ran.
        sm_active: Fraction of multiprocessors with work, or None if the GPU doesn't report it.
        memory_bytes: Largest amount of memory in use.
    """

    utilization: float
    sm_active: float | None
    memory_bytes: int

    def __str__(self) -> str:
        active = "" if self.sm_active is None else f", {self.sm_active:.0%} of its multiprocessors"
        return f"GPU {self.utilization:.0%} busy{active}, {self.memory_bytes / 2**30:.1f} GiB"


def describe_gpu() -> str:
    """Return the name of the first GPU (in NVML's order) and the driver version as one text."""
    import pynvml

    pynvml.nvmlInit()
    try:
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
        return f"{name}, driver {pynvml.nvmlSystemGetDriverVersion()}"
    finally:
        pynvml.nvmlShutdown()


class GpuWatch:
    """Context manager that samples load and memory of the first GPU (in NVML's order) from a separate thread.

    `measure` summarizes the samples of a period of time.
    """

    def __init__(self) -> None:
        self._samples: list[tuple[float, int, float | None, int]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu-watch")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def measure(self, window: tuple[float, float]) -> Usage:
        """Return the usage of the GPU within `window`, a pair of times from `time.monotonic`."""
        inside = [sample for sample in self._samples if window[0] <= sample[0] <= window[1]]
        active = [sm / 100 for _, _, sm, _ in inside if sm is not None]
        return Usage(
            statistics.fmean(busy / 100 for _, busy, _, _ in inside),
            statistics.fmean(active) if active else None,
            max(used for *_, used in inside),
        )

    def _watch(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        handle: Any = pynvml.nvmlDeviceGetHandleByIndex(0)
        activity = ActivityReader(DeviceCalls(pynvml, handle, Stopwatch()))
        while not self._ending.wait(PERIOD_S):
            used = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used
            busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
            self._samples.append((time.monotonic(), busy, activity.read().sm, used))
        pynvml.nvmlShutdown()
