"""How busy a GPU's multiprocessors and tensor cores are, through GPM: Hopper and later, Linux only.

Source: section "NVML GPM" of nvml.h. Metrics are shares of the time between two samples, which are to be at least
100 ms apart.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from engine.gpus.nvml.calls import Ask, percent

SM_UTIL = 2
ANY_TENSOR_UTIL = 5
REFRESH_S = 0.12
"""A little more than nvml.h asks for, since what is refused once is not asked for again."""


class Shares(NamedTuple):
    """In percent; None where they are not known."""

    sm: float | None = None
    tensor: float | None = None


class Activity:
    """The activity of the GPU that `ask` asks or, with `gpu_instance`, of that MIG instance of it."""

    def __init__(self, ask: Ask, gpu_instance: int | None = None) -> None:
        self._ask = ask
        self._gpu_instance = gpu_instance
        self._supported: bool | None = None
        self._samples: list[Any] = []
        self._sampled_at: float | None = None
        self._told = Shares()

    def read(self) -> Shares:
        """The shares since the previous reading; not known at the first one. Raises `GpuLost`."""
        now = time.monotonic()
        if not self._is_supported() or (self._sampled_at is not None and now - self._sampled_at < REFRESH_S):
            return self._told
        if not self._samples:
            self._samples = self._ask("samples", lambda: [self._ask.nvml.nvmlGpmSampleAlloc() for _ in range(2)]) or []
        if not self._samples:
            return self._told
        earlier, later = reversed(self._samples)
        self._samples = [earlier, later]
        if self._ask(("activity", self._gpu_instance), lambda: self._sample(later)) is None:
            self.forget()
            return self._told
        begun, self._sampled_at = self._sampled_at, now
        if begun is not None:
            self._told = self._ask(("shares", self._gpu_instance), lambda: self._between(earlier, later)) or Shares()
        return self._told

    def forget(self) -> None:
        """Begins anew, after a time in which nobody asked."""
        self._sampled_at = None
        self._told = Shares()

    def _is_supported(self) -> bool:
        if self._supported is None:
            support = self._ask.tell("nvmlGpmQueryDeviceSupport")
            self._supported = support is not None and bool(support.isSupportedDevice)
        return self._supported

    def _sample(self, into: Any) -> Any:
        nvml, handle = self._ask.nvml, self._ask.handle
        if self._gpu_instance is None:
            return nvml.nvmlGpmSampleGet(handle, into)
        return nvml.nvmlGpmMigSampleGet(handle, self._gpu_instance, into)

    def _between(self, earlier: Any, later: Any) -> Shares:
        nvml = self._ask.nvml
        get = nvml.c_nvmlGpmMetricsGet_t()
        get.version = nvml.NVML_GPM_METRICS_GET_VERSION
        get.sample1, get.sample2 = earlier, later
        get.numMetrics = 2
        get.metrics[0].metricId, get.metrics[1].metricId = SM_UTIL, ANY_TENSOR_UTIL
        nvml.nvmlGpmMetricsGet(get)
        sm, tensor = (
            percent(metric.value) if metric.nvmlReturn == nvml.NVML_SUCCESS else None for metric in get.metrics[:2]
        )
        return Shares(sm, tensor)
