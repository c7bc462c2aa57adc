"""Quantities and errors of a GPU, as used in graphs, tables, exports and alerts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter

from engine.contract.devices import CPU, Gpu, Snapshot
from engine.system.format import with_unit

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True)
class Quantity:
    """Measurable quantity of a GPU.

    Values are in a basic unit (bytes, watts, …).

    Attributes:
        unit: Unit in which values are displayed.
        meaning: Explanation for users.
        source: Attribute of `Gpu` with the value, as a dotted path, or "" if its name is `id`.
        limit: Maximum of the range, or the name of the attribute of `Gpu` that contains it.
        scale: Factor that converts values to `unit`.
        digits: Number of displayed decimals.
    """

    id: str
    title: str
    unit: str
    meaning: str
    source: str = ""
    limit: str | float = math.inf
    scale: float = 1.0
    digits: int = 0

    def read(self, gpu: Gpu) -> float | None:
        """Return the value for a GPU, or None if the GPU doesn't report it."""
        member, _, name = self.source.partition(".")
        if member == "nvlinks":  # a tuple, whose rates are added up
            rates = [getattr(link, name) for link in gpu.nvlinks]
            known_rates = [rate for rate in rates if rate is not None]
            return sum(known_rates) if known_rates else None
        value: float | None = attrgetter(self.source or self.id)(gpu)
        return value

    def highest(self, gpu: Gpu) -> float | None:
        """Return the maximum of the range for a GPU, or None if it is unknown."""
        limit: float | None = getattr(gpu, self.limit) if isinstance(self.limit, str) else self.limit
        return None if limit == math.inf else limit

    def write(self, value: float | None) -> str:
        """Format `value`, which is in the basic unit, e.g. as "41.2 GiB". Returns a dash if it is unknown."""
        if value is None or math.isnan(value):
            return "–"
        return with_unit(f"{value * self.scale:,.{self.digits}f}", self.unit)


QUANTITIES: tuple[Quantity, ...] = (
    Quantity(
        "utilization_percent", "Utilization", "%",
        "The fraction of time in which any kernel ran, however small: 100% does not mean that the GPU has no room left.",
        limit=100,
    ),
    Quantity(
        "memory_used_bytes", "Memory in use", "GiB", "Memory allocated by programs, excluding the driver's.",
        limit="memory_total_bytes", scale=1 / GIB, digits=1,
    ),
    Quantity("power_w", "Power", "W", "The GPU's power draw, averaged over about a second.", limit="power_limit_w"),
    Quantity("temperature_c", "Temperature", "°C", "The temperature of the chip.", limit="shutdown_c"),
    Quantity(
        "memory_temperature_c", "Memory temperature", "°C",
        "The temperature of the memory; only chips with HBM and some others report it.", limit="memory_max_c",
    ),
    Quantity(
        "sm_active_percent", "SM activity", "%",
        "The fraction of time in which the multiprocessors had at least one warp resident (GPM).", limit=100,
    ),
    Quantity(
        "tensor_active_percent", "Tensor activity", "%",
        "The fraction of time in which the tensor cores' pipes were active (GPM).", limit=100,
    ),
    Quantity(
        "memory_busy_percent", "Memory bandwidth", "%",
        "The fraction of time in which the GPU's memory was being read or written.", limit=100,
    ),
    Quantity("sm_clock_mhz", "SM clock", "MHz", "The clock of the multiprocessors.", limit="sm_clock_max_mhz"),
    Quantity("memory_clock_mhz", "Memory clock", "MHz", "The clock of the memory.", limit="memory_clock_max_mhz"),
    Quantity("fan_percent", "Fan", "%", "The speed that the fan is set to, even if it is blocked.", limit=100),
    Quantity(
        "pcie_received_bytes_per_s", "PCIe in", "GB/s",
        "Data received over PCIe from the host and other devices; most chips sample 20 ms per reading.",
        "pcie.received_bytes_per_s", scale=1e-9, digits=2,
    ),
    Quantity(
        "pcie_sent_bytes_per_s", "PCIe out", "GB/s",
        "Data sent over PCIe to the host and other devices; most chips sample 20 ms per reading.",
        "pcie.sent_bytes_per_s", scale=1e-9, digits=2,
    ),
    Quantity(
        "nvlink_received_bytes_per_s", "NVLink in", "GB/s", "Data received over all NVLinks.",
        "nvlinks.received_bytes_per_s", scale=1e-9, digits=1,
    ),
    Quantity(
        "nvlink_sent_bytes_per_s", "NVLink out", "GB/s", "Data sent over all NVLinks.",
        "nvlinks.sent_bytes_per_s", scale=1e-9, digits=1,
    ),
    Quantity(
        "encoder_percent", "Video encoder", "%", "The fraction of time in which the video encoder was active.", limit=100
    ),
    Quantity(
        "decoder_percent", "Video decoder", "%", "The fraction of time in which the video decoder was active.", limit=100
    ),
)  # fmt: skip
BY_ID = {quantity.id: quantity for quantity in QUANTITIES}


def read_values(snapshot: Snapshot) -> dict[str, dict[str, float | None]]:
    """Return the values of all devices in a snapshot, keyed by UUID (or "cpu") and by id of the quantity.

    Lost GPUs are left out. The utilization of the processor is its load.
    """
    cpu = snapshot.cpu
    of_cpu = {
        "utilization_percent": cpu.load_percent,
        "memory_used_bytes": cpu.memory_used_bytes,
        "temperature_c": cpu.temperature_c,
    }
    of_gpus = {
        gpu.uuid: {quantity.id: quantity.read(gpu) for quantity in QUANTITIES} for gpu in snapshot.gpus if not gpu.lost
    }
    return {**of_gpus, CPU: of_cpu}


THROTTLE_TEXTS = {
    "idle": "idle: nothing to do",
    "clocks_setting": "limited by a clock setting",
    "power_cap": "limited by the power limit",
    "hardware_slowdown": "throttling: heat or power",
    "sync_boost": "limited by sync boost with another GPU",
    "thermal": "throttling: hot",
    "hardware_thermal": "throttling: too hot",
    "power_brake": "throttling: power supply",
    "display_setting": "limited by a display's clock setting",
}
"""Explanations of the reasons for throttling in `Gpu.throttled`."""
ALARMING = ("hardware_slowdown", "thermal", "hardware_thermal", "power_brake")
"""Reasons for throttling that indicate a defect rather than normal operation."""


XID_WORDS = {
    13: "the graphics engine raised an exception, usually caused by the program",
    31: "a program accessed invalid memory (page fault)",
    38: "the driver's firmware failed",
    43: "a program's work was stopped on the GPU",
    45: "a program's work was removed after an earlier error",
    48: "uncorrectable memory error (double bit)",
    61: "the GPU's microcontroller stopped at a warning",
    62: "the GPU's microcontroller halted",
    63: "a faulty memory row was recorded for remapping",
    64: "a faulty memory row could not be recorded for remapping",
    68: "the video decoder failed",
    69: "the graphics engine received an unknown command",
    74: "an NVLink failed",
    79: "the GPU has fallen off the bus",
    92: "many memory errors were corrected in a short time",
    94: "uncorrectable memory error, contained to one program",
    95: "uncorrectable memory error that was not contained",
    109: "the GPU did not switch to another program in time",
    119: "the GPU's system processor did not answer the driver in time",
    120: "the GPU's system processor failed",
    140: "unrecovered memory error",
    143: "the GPU could not be initialized",
    154: "the driver says that the GPU must be reset or the machine restarted",
}
"""Explanations of common Xids (errors that NVIDIA's driver reports for a GPU), by number.

Source: NVIDIA's catalog, docs.nvidia.com/deploy/xid-errors.
"""

PROGRAM_XIDS = (13, 31, 43, 45)
"""Xids that are usually caused by bugs in programs. All others are caused by hardware, driver or cooling."""


def describe_xid(number: int) -> str:
    """Explain an Xid, e.g. "Xid 79: the GPU has fallen off the bus". For a rare one, return only its number."""
    words = XID_WORDS.get(number)
    return f"Xid {number}: {words}" if words else f"Xid {number}"
