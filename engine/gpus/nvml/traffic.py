"""What goes over a GPU's links: PCIe and NVLink.

`nvmlDeviceGetPcieThroughput` measures for 20 ms while its caller waits, for each way and GPU. The counters of bytes
that newer drivers have are read in a fraction of a millisecond, but those seen had 32 bits, which a link of 64 GB/s
runs through in 67 ms. So all GPUs' counters are read twice, 20 ms apart; where a counter shows that it has more bits,
the whole time between two readings is measured instead. Source of fields, units and "can be wrapped": nvml.h.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.contract.devices import NvLink
from engine.gpus.nvml.calls import Ask, GpuLost
from engine.gpus.nvml.fields import Field, Fields, Rates

PCIE_SENT: Field = (197, 0)
PCIE_RECEIVED: Field = (198, 0)
WINDOW_S = 0.02
LONGEST_WINDOW_S = 0.06
"""A busy machine can make a window longer: beyond this, nobody knows how often 32 bits have run over."""
BITS_32 = 1 << 32
THROUGHPUT_SENT, THROUGHPUT_RECEIVED = 0, 1
"""`nvmlPcieUtilCounter_t`."""
KIB = 1024

NVLINK_5 = 5
KIB_FIELDS = (138, 139)
BYTE_FIELDS = (202, 204)
"""Of what an NVLink has sent and received: up to NVLink 4 in KiB, since NVLink 5 in bytes."""


class PcieTraffic:
    """What a GPU sends and receives through PCIe, in bytes per second, headers included; None where it is not known."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._counters = Fields(ask, [PCIE_SENT, PCIE_RECEIVED])
        self._before: dict[Field, float] = {}
        self._before_at = 0.0
        self.sent_bytes_per_s: float | None = None
        self.received_bytes_per_s: float | None = None

    def open(self) -> bool:
        """Reads the counters; true where they are to be read again after `WINDOW_S`."""
        before, before_at = self._before, self._before_at
        self._before_at = time.monotonic()
        self._before = self._read()
        if before and max(self._before.values(), default=0) >= BITS_32:
            self._tell(before, self._before, self._before_at - before_at)
            return False
        return bool(self._before)

    def close(self) -> None:
        """Reads the counters again."""
        at = time.monotonic()
        self._tell(self._before, self._read(), at - self._before_at)

    def forget(self) -> None:
        """Begins anew, after a time in which nobody asked."""
        self._before = {}
        self.sent_bytes_per_s = self.received_bytes_per_s = None

    def ask_driver(self) -> None:
        """Lets the driver measure, which takes 40 ms, where there are no counters."""
        if self._counters:
            return
        sent = self._ask.tell("nvmlDeviceGetPcieThroughput", THROUGHPUT_SENT)
        received = self._ask.tell("nvmlDeviceGetPcieThroughput", THROUGHPUT_RECEIVED)
        self.sent_bytes_per_s = None if sent is None else float(sent * KIB)
        self.received_bytes_per_s = None if received is None else float(received * KIB)

    def _read(self) -> dict[Field, float]:
        """Nothing of a GPU that is lost, which is noticed when its other quantities are asked for."""
        try:
            return self._counters.read()
        except GpuLost:
            return {}

    def _tell(self, before: dict[Field, float], after: dict[Field, float], seconds: float) -> None:
        runs_over = max(after.values(), default=0) < BITS_32
        self.sent_bytes_per_s = _rate(before.get(PCIE_SENT), after.get(PCIE_SENT), seconds, runs_over)
        self.received_bytes_per_s = _rate(before.get(PCIE_RECEIVED), after.get(PCIE_RECEIVED), seconds, runs_over)


def measure(links: Sequence[PcieTraffic]) -> None:
    """Measures PCIe of several GPUs at the same time."""
    waiting = [link for link in links if link.open()]
    if waiting:
        time.sleep(WINDOW_S)
    for link in waiting:
        link.close()


def _rate(before: float | None, after: float | None, seconds: float, runs_over: bool) -> float | None:
    if before is None or after is None or seconds <= 0 or (runs_over and seconds > LONGEST_WINDOW_S):
        return None
    grown = (after - before) % BITS_32 if runs_over else after - before
    return grown / seconds if grown >= 0 else None


class NvLinks:
    """A GPU's NVLinks, and what goes over each of them."""

    def __init__(self) -> None:
        self._links: tuple[NvLink, ...] = ()
        self._rates = Rates()

    def replace(self, links: tuple[NvLink, ...]) -> list[Field]:
        """Takes what is known of the links; returns the fields that tell their traffic."""
        self._links = links
        return [(number, link.link) for link in links if link.active for number in _fields(link)]

    def forget(self) -> None:
        """Begins anew, after a time in which nobody asked."""
        self._rates.forget()

    def told(self, values: dict[Field, float], at: float) -> tuple[NvLink, ...]:
        """The links with their traffic up to `at` (monotonic), from the values of their fields."""
        return tuple(self._told(link, values, at) for link in self._links)

    def _told(self, link: NvLink, values: dict[Field, float], at: float) -> NvLink:
        sent, received = (self._rate((number, link.link), values, at) for number in _fields(link))
        return NvLink(
            link=link.link,
            active=link.active,
            version=link.version,
            received_bytes_per_s=received,
            sent_bytes_per_s=sent,
            peer=link.peer,
        )

    def _rate(self, field: Field, values: dict[Field, float], at: float) -> float | None:
        counted = values.get(field)
        if counted is not None and field[0] in KIB_FIELDS:
            counted *= KIB
        return self._rates.of(field, counted, at)


def _fields(link: NvLink) -> tuple[int, int]:
    return BYTE_FIELDS if (link.version or 0) >= NVLINK_5 else KIB_FIELDS
