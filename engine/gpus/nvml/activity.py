"""Measure the activity of multiprocessors and tensor cores with GPM (Hopper and later, Linux only).

Source: section "NVML GPM" of nvml.h. Metrics are averages between two samples, at least 100 ms apart.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from engine.gpus.nvml.calls import DeviceCalls, percent

SM_UTIL = 2
ANY_TENSOR_UTIL = 5
REFRESH_S = 0.12
"""Minimum time in seconds between samples. It is slightly above the limit in nvml.h, below which calls are rejected."""


class SmActivity(NamedTuple):
    """Activity of multiprocessors and tensor cores in percent. Unknown values are None."""

    sm: float | None = None
    tensor: float | None = None


class ActivityReader:
    """Reader of the activity of a GPU, or of one of its MIG instances if `gpu_instance` is given."""

    def __init__(self, calls: DeviceCalls, gpu_instance: int | None = None) -> None:
        self._calls = calls
        self._gpu_instance = gpu_instance
        self._supported: bool | None = None  # True if NVML measures it, or None before the first reading
        self._samples: list[Any] = []  # NVML's objects for two samples, the newest one last
        self._sampled_at: float | None = None  # time of the last sample
        self._latest = SmActivity()

    def read(self) -> SmActivity:
        """Return the activity since the previous reading. The first reading returns unknown values.

        Raises GpuLost if the GPU does not respond.
        """
        now = time.monotonic()
        is_too_early = self._sampled_at is not None and now - self._sampled_at < REFRESH_S
        if is_too_early or not self._is_supported():
            return self._latest
        if not self._samples:
            self._samples = self._calls.attempt("samples", self._allocate_samples) or []
        if not self._samples:
            return self._latest
        later, earlier = self._samples  # the object of the oldest sample is used for the new one
        self._samples = [earlier, later]
        if self._calls.attempt(("activity", self._gpu_instance), lambda: self._take_sample(later)) is None:
            self.reset()
            return self._latest
        previous_at, self._sampled_at = self._sampled_at, now
        if previous_at is not None:
            self._latest = (
                self._calls.attempt(
                    ("activity metrics", self._gpu_instance), lambda: self._compute_activity(earlier, later)
                )
                or SmActivity()
            )
        return self._latest

    def reset(self) -> None:
        """Discard the previous sample, after a time without readings."""
        self._sampled_at = None
        self._latest = SmActivity()

    def _is_supported(self) -> bool:
        """Return True if NVML can measure the activity of this GPU. NVML is asked only once."""
        if self._supported is None:
            support = self._calls.call("nvmlGpmQueryDeviceSupport")
            self._supported = support is not None and bool(support.isSupportedDevice)
        return self._supported

    def _allocate_samples(self) -> list[Any]:
        """Let NVML create the objects for two samples, whose difference is the activity."""
        return [self._calls.nvml.nvmlGpmSampleAlloc() for _ in range(2)]

    def _take_sample(self, into: Any) -> Any:
        """Let NVML write the current state of its counters into the sample `into`, and return it."""
        nvml, handle = self._calls.nvml, self._calls.handle
        if self._gpu_instance is None:
            return nvml.nvmlGpmSampleGet(handle, into)
        return nvml.nvmlGpmMigSampleGet(handle, self._gpu_instance, into)

    def _compute_activity(self, earlier: Any, later: Any) -> SmActivity:
        """Let NVML compute the activity between two samples."""
        nvml = self._calls.nvml
        query = nvml.c_nvmlGpmMetricsGet_t()
        query.version = nvml.NVML_GPM_METRICS_GET_VERSION
        query.sample1, query.sample2 = earlier, later
        query.numMetrics = 2
        query.metrics[0].metricId, query.metrics[1].metricId = SM_UTIL, ANY_TENSOR_UTIL
        nvml.nvmlGpmMetricsGet(query)
        sm, tensor = (
            percent(metric.value) if metric.nvmlReturn == nvml.NVML_SUCCESS else None for metric in query.metrics[:2]
        )
        return SmActivity(sm, tensor)
