"""Measure the throughput of a GPU's PCIe and NVLink connections.

`nvmlDeviceGetPcieThroughput` blocks for 20 ms per direction and GPU. Newer drivers have byte counters that are read in
a fraction of a millisecond, but current ones have only 32 bits, which overflow within 67 ms on a link of 64 GB/s.
Therefore the counters of all GPUs are read twice, 20 ms apart. Once a counter exceeds 32 bits, the interval between two
readings is used instead. Source of fields, units and "can be wrapped": nvml.h.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import msgspec

from engine.contract.devices import NvLink
from engine.gpus.nvml.calls import DeviceCalls, GpuLost
from engine.gpus.nvml.fields import Field, Fields, Rates

PCIE_SENT: Field = (197, 0)
PCIE_RECEIVED: Field = (198, 0)
WINDOW_S = 0.02
MAX_WINDOW_S = 0.06
"""Maximum time in seconds between two readings of the counters for a valid result.

Longer times occur on busy machines. A 32-bit counter may then have overflowed twice.
"""
BITS_32 = 1 << 32
THROUGHPUT_SENT, THROUGHPUT_RECEIVED = 0, 1
"""Values of `nvmlPcieUtilCounter_t`."""
KIB = 1024

NVLINK_5 = 5
KIB_FIELDS = (138, 139)
BYTE_FIELDS = (202, 204)
"""Fields with the amounts of sent and received data, in KiB up to NVLink 4, and in bytes since NVLink 5."""


class PcieTraffic:
    """PCIe throughput of a GPU in bytes per second, including packet headers. It is None while it is unknown."""

    def __init__(self, calls: DeviceCalls) -> None:
        self._calls = calls
        self._counters = Fields(calls, [PCIE_SENT, PCIE_RECEIVED])
        self._before: dict[Field, float] = {}  # counters at the last reading
        self._before_at = 0.0  # time of the last reading
        self.sent_bytes_per_s: float | None = None
        self.received_bytes_per_s: float | None = None

    def start(self) -> bool:
        """Read the counters for the first time. Returns True if `finish` must be called after `WINDOW_S`.

        Counters with more than 32 bits don't overflow. Their throughput since the last measurement is computed at once.
        """
        before, before_at = self._before, self._before_at
        self._before_at = time.monotonic()
        self._before = self._read()
        if before and max(self._before.values(), default=0) >= BITS_32:
            self._set_rates(before, self._before, self._before_at - before_at)
            return False
        return bool(self._before)

    def finish(self) -> None:
        """Read the counters a second time, and compute the throughput."""
        at = time.monotonic()
        self._set_rates(self._before, self._read(), at - self._before_at)

    def reset(self) -> None:
        """Forget the previous reading, after a time without readings."""
        self._before = {}
        self.sent_bytes_per_s = self.received_bytes_per_s = None

    def measure_by_driver(self) -> None:
        """Store the throughput that the driver measures within 40 ms. Do nothing if the GPU has byte counters."""
        if self._counters:
            return
        sent = self._calls.call("nvmlDeviceGetPcieThroughput", THROUGHPUT_SENT)
        received = self._calls.call("nvmlDeviceGetPcieThroughput", THROUGHPUT_RECEIVED)
        self.sent_bytes_per_s = None if sent is None else float(sent * KIB)
        self.received_bytes_per_s = None if received is None else float(received * KIB)

    def _read(self) -> dict[Field, float]:
        """Read the counters. Returns no values for a lost GPU, which other readings detect."""
        try:
            return self._counters.read()
        except GpuLost:
            return {}

    def _set_rates(self, before: dict[Field, float], after: dict[Field, float], seconds: float) -> None:
        """Compute the throughput from two readings of the counters, `seconds` apart."""
        can_overflow = max(after.values(), default=0) < BITS_32
        self.sent_bytes_per_s, self.received_bytes_per_s = (
            _compute_rate(before.get(field), after.get(field), seconds, can_overflow=can_overflow)
            for field in (PCIE_SENT, PCIE_RECEIVED)
        )


def measure(links: Sequence[PcieTraffic]) -> None:
    """Measure the PCIe throughput of several GPUs at the same time. Each of `links` stores the result for its GPU."""
    started = [link for link in links if link.start()]
    if started:
        time.sleep(WINDOW_S)
    for link in started:
        link.finish()


def _compute_rate(before: float | None, after: float | None, seconds: float, *, can_overflow: bool) -> float | None:
    """Return the bytes per second from two readings of a counter, or None if they are unknown.

    If `can_overflow` is True, the counter has 32 bits.
    """
    max_s = MAX_WINDOW_S if can_overflow else math.inf
    if before is None or after is None or not 0 < seconds <= max_s:
        return None
    increase = (after - before) % BITS_32 if can_overflow else after - before
    return increase / seconds if increase >= 0 else None


class NvLinks:
    """NVLinks of a GPU, with their throughput."""

    def __init__(self) -> None:
        self._links: tuple[NvLink, ...] = ()
        self._rates = Rates()

    def set_links(self, links: tuple[NvLink, ...]) -> list[Field]:
        """Set the links, and return the counter fields that must be read for them."""
        self._links = links
        return [(number, link.link) for link in links if link.active for number in _counter_fields(link)]

    def reset(self) -> None:
        """Forget the previous readings, after a time without readings."""
        self._rates.reset()

    def with_rates(self, values: dict[Field, float], at: float) -> tuple[NvLink, ...]:
        """Return the links with their throughput since the previous call, given the values of their counters.

        `at` is the time of the reading in seconds, from `time.monotonic`.
        """
        return tuple(self._add_rates(link, values, at) for link in self._links)

    def _add_rates(self, link: NvLink, values: dict[Field, float], at: float) -> NvLink:
        """Return a link with its throughput. See `with_rates`."""
        sent, received = (self._update_rate((number, link.link), values, at) for number in _counter_fields(link))
        return msgspec.structs.replace(link, received_bytes_per_s=received, sent_bytes_per_s=sent)

    def _update_rate(self, field: Field, values: dict[Field, float], at: float) -> float | None:
        """Record the value of the counter `field`, and return the bytes per second since the previous value.

        Returns None if one of these values is missing or the counter has decreased.
        """
        number, _link = field
        counted = values.get(field)
        if counted is not None and number in KIB_FIELDS:
            counted *= KIB
        return self._rates.update(field, counted, at)


def _counter_fields(link: NvLink) -> tuple[int, int]:
    """Return the numbers of the fields that count the data that a link has sent and received."""
    return BYTE_FIELDS if (link.version or 0) >= NVLINK_5 else KIB_FIELDS
