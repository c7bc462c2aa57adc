"""Read all quantities of an awake GPU, in groups by how often they are read.

Utilization, memory, power, temperature and throttling are in each reading. Limits, compute mode and error counters are
read every few seconds, active NVLinks once a minute, and names, thresholds and maxima only once. If the details of the
GPU are visible, each reading also has clocks, energy, memory temperature and traffic, and the fan, the video engines
and the PCIe link are also read every few seconds.

Numbers of enumerations are from nvml.h.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from engine.contract.devices import Ecc, Gpu, Pcie, RetiredMemory, Throttle
from engine.gpus.nvml.activity import ActivityReader
from engine.gpus.nvml.calls import DeviceCalls, GpuLost, Stopwatch, decode_text, drop_implausible, percent
from engine.gpus.nvml.fields import Field, Fields
from engine.gpus.nvml.processes import ProcessTable
from engine.gpus.nvml.topology import read_nvlinks
from engine.gpus.nvml.traffic import NvLinks, PcieTraffic

Values = dict[str, Any]
"""Readings of a GPU, keyed by the names of the fields of `Gpu`."""

TEMPERATURE_GPU = 0
SHUTDOWN, SLOWDOWN, MEMORY_MAX = range(3)
CLOCK_SM, CLOCK_MEMORY = 1, 2
THROTTLES: tuple[Throttle, ...] = (
    "idle", "clocks_setting", "power_cap", "hardware_slowdown", "sync_boost", "thermal", "hardware_thermal",
    "power_brake", "display_setting",
)  # fmt: skip
"""Reasons for throttling, in the order of the bits in `NVML_CLOCKS_EVENT_REASON_*`."""
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
MAX_STATE = 15

ENERGY_MJ: Field = (83, 0)
MEMORY_TEMPERATURE: Field = (82, 0)
SHUTDOWN_TLIMIT: Field = (193, 0)
SLOWDOWN_TLIMIT: Field = (194, 0)
ECC: dict[str, Field] = {
    "corrected": (3, 0), "uncorrected": (4, 0), "total_corrected": (5, 0), "total_uncorrected": (6, 0),
}  # fmt: skip
RETIRED: dict[str, Field] = {
    "pages_single_bit": (29, 0), "pages_double_bit": (30, 0), "pages_pending": (31, 0), "rows_corrected": (142, 0),
    "rows_uncorrected": (143, 0), "rows_pending": (144, 0), "rows_failed": (145, 0),
}  # fmt: skip
RETIRED_FLAGS = ("pages_pending", "rows_pending", "rows_failed")
REPLAYS: Field = (94, 0)

MAX_C = 150.0
MAX_W = 5000.0
MAX_MHZ = 50_000.0
MAX_FAN_PERCENT = 200.0
"""Maximum plausible fan speed in percent. According to nvml.h, speeds may exceed 100%."""
MAX_GENERATION, MAX_LANES = 9, 32


class ReadRequest(NamedTuple):
    """Quantities to read now.

    `processes`, `activity` and `details` are True if this group of quantities is visible to the user. `processes_due`,
    `slow_due` and `links_due` are True if the group's interval has passed (see `nvml_reader.READ_INTERVALS_S`).
    """

    processes: bool = True
    activity: bool = True
    details: bool = True
    basics: bool = False
    """True to read only utilization, memory, power, temperature and, if requested, processes."""
    processes_due: bool = True
    slow_due: bool = True
    links_due: bool = True

    @property
    def visible(self) -> tuple[bool, bool, bool]:
        """Flags of the groups that are visible to the user: `processes`, `activity` and `details`."""
        return (self.processes, self.activity, self.details)


class QuantityReader:
    """Reader of the quantities of one GPU. Its `traffic` is measured by the caller, for all GPUs at the same time."""

    def __init__(self, calls: DeviceCalls, stopwatch: Stopwatch, processes: ProcessTable, identity: Values) -> None:
        """Prepare the queries for one GPU. `identity` holds its values that never change."""
        self._calls = calls
        self._stopwatch = stopwatch
        self._processes = processes
        self._activity = ActivityReader(calls)
        self.traffic = PcieTraffic(calls)
        self._links = NvLinks()
        self._detail_fields = Fields(calls, [ENERGY_MJ, MEMORY_TEMPERATURE])
        self._memory_temperature = Fields(calls, [MEMORY_TEMPERATURE])  # for slow queries without details
        self._errors = Fields(calls, [*ECC.values(), *RETIRED.values()])
        self._replays = Fields(calls, [REPLAYS])
        self._identity = identity
        self._constants: Values | None = None
        self._slow: Values = {}  # results of the last slow queries
        self._pcie: Values = {}  # state of the PCIe link at its last readings
        self._last_processes: Any = None  # processes at their last reading

    def read(self, request: ReadRequest) -> Gpu:
        """Read the requested quantities of the GPU. Raises GpuLost if it does not respond."""
        self._calls.answers = self._calls.failures = 0
        if self._constants is None and not request.basics:
            self._constants = self._read_constants()
        values = self._identity | (self._constants or {}) | self._read_fast(request)
        if request.slow_due:
            self._slow = self._read_slow(request)
        values |= self._slow
        if request.details:
            values |= self._read_details(request)
        else:
            self._reset_details()
        if request.activity:
            activity = self._activity.read()
            values |= {"sm_active_percent": activity.sm, "tensor_active_percent": activity.tensor}
        else:
            self._activity.reset()
        if not request.processes:
            self._last_processes = None
        elif request.processes_due:
            self._last_processes = self._processes.read(values["memory_total_bytes"])
        if self._calls.failures and not self._calls.answers:
            raise GpuLost  # some drivers report a lost GPU as "unknown error", for each call
        return Gpu(**values, processes=self._last_processes)

    def _read_fast(self, request: ReadRequest) -> Values:
        """Read the values that change quickly: utilization, memory, temperature, power and throttling."""
        rates = self._calls.call("nvmlDeviceGetUtilizationRates")
        return read_memory(self._calls) | {
            "utilization_percent": None if rates is None else percent(rates.gpu),
            "memory_busy_percent": None if rates is None or request.basics else percent(rates.memory),
            "temperature_c": self._read_temperature_c(),
            "power_w": self._read_watts("nvmlDeviceGetPowerUsage"),
            "throttled": None if request.basics else self._read_throttle_reasons(),
        }

    def _read_details(self, request: ReadRequest) -> Values:
        """Read links, clocks, energy and other values that only the details of a GPU show.

        If `request.links_due` is True, first list the links again, since links may become active.
        """
        calls = self._calls
        if request.links_due:
            fields = self._links.set_links(self._stopwatch.time(lambda: read_nvlinks(calls.nvml, calls.handle)))
            self._detail_fields = Fields(calls, [ENERGY_MJ, MEMORY_TEMPERATURE, *fields])
        at = time.monotonic()
        values = self._detail_fields.read()
        energy_mj = values.get(ENERGY_MJ)
        state = calls.call("nvmlDeviceGetPerformanceState")
        return {
            "memory_temperature_c": drop_implausible(values.get(MEMORY_TEMPERATURE), 1, MAX_C),
            "energy_j": None if energy_mj is None else energy_mj / 1000,
            "nvlinks": self._links.with_rates(values, at),
            "sm_clock_mhz": drop_implausible(calls.call("nvmlDeviceGetClockInfo", CLOCK_SM), 0, MAX_MHZ),
            "memory_clock_mhz": drop_implausible(calls.call("nvmlDeviceGetClockInfo", CLOCK_MEMORY), 0, MAX_MHZ),
            "performance_state": state if state is not None and 0 <= state <= MAX_STATE else None,
            "pcie": Pcie(
                **self._pcie,
                received_bytes_per_s=self.traffic.received_bytes_per_s,
                sent_bytes_per_s=self.traffic.sent_bytes_per_s,
            ),
        }

    def _reset_details(self) -> None:
        """Discard the previous readings of counters, so that no rate includes a time without readings."""
        self.traffic.reset()
        self._links.reset()

    def _read_slow(self, request: ReadRequest) -> Values:
        """Read values that rarely change, and the memory temperature.

        These are the power limit, the compute mode, error counts and, with details, modes and the PCIe link. If only
        the basics are requested, only the power limit and the compute mode are read.
        """
        limit_w = self._read_watts("nvmlDeviceGetEnforcedPowerLimit", lowest=1)
        if limit_w is None:
            limit_w = self._read_watts("nvmlDeviceGetPowerManagementLimit", lowest=1)
        mode = self._calls.call("nvmlDeviceGetComputeMode")
        values: Values = {
            "power_limit_w": limit_w,
            "compute_mode": COMPUTE_MODES[mode] if mode in range(len(COMPUTE_MODES)) else "",
        }
        if request.basics:
            return values
        values |= self._read_error_counts()
        if request.details:
            values |= self._read_modes()
        else:  # with details, `_read_details` reads the memory temperature
            celsius = self._memory_temperature.read().get(MEMORY_TEMPERATURE)
            values["memory_temperature_c"] = drop_implausible(celsius, 1, MAX_C)
        return values

    def _read_error_counts(self) -> Values:
        """Read the numbers of memory errors (ECC), and of memory pages and rows that are no longer used."""
        values = self._errors.read()
        mode = self._calls.call("nvmlDeviceGetEccMode")
        counts = {name: int(values[field]) for name, field in ECC.items() if field in values}
        retired: Values = {name: int(values[field]) for name, field in RETIRED.items() if field in values}
        retired |= {name: bool(retired[name]) for name in RETIRED_FLAGS if name in retired}
        return {
            "ecc": Ecc(enabled=None if mode is None else bool(mode[0]), **counts),  # mode[1] applies after a reset
            "retired": RetiredMemory(**retired),
        }

    def _read_modes(self) -> Values:
        """Read modes, fan and video engines, and update the cached state and throughput of the PCIe link."""
        calls = self._calls
        self.traffic.measure_by_driver()
        # Pairs of the utilization in percent and the sampling period.
        encoder = calls.call("nvmlDeviceGetEncoderUtilization")
        decoder = calls.call("nvmlDeviceGetDecoderUtilization")
        persistence = calls.call("nvmlDeviceGetPersistenceMode")
        replays = self._replays.read().get(REPLAYS)
        self._pcie |= {
            "generation": self._read_count("nvmlDeviceGetCurrPcieLinkGeneration", MAX_GENERATION),
            "width": self._read_count("nvmlDeviceGetCurrPcieLinkWidth", MAX_LANES),
            "replays": None if replays is None else int(replays),
        }
        return {
            "fan_percent": drop_implausible(calls.call("nvmlDeviceGetFanSpeed"), 0, MAX_FAN_PERCENT),
            "encoder_percent": percent(encoder[0]) if encoder is not None else None,
            "decoder_percent": percent(decoder[0]) if decoder is not None else None,
            "persistence": None if persistence is None else bool(persistence),
        }

    def _read_constants(self) -> Values:
        """Read thresholds and maximum clocks, and store the maxima of the PCIe link in `_pcie`."""
        calls = self._calls
        self._pcie = {
            "max_generation": self._read_count("nvmlDeviceGetMaxPcieLinkGeneration", MAX_GENERATION),
            "max_width": self._read_count("nvmlDeviceGetMaxPcieLinkWidth", MAX_LANES),
        }
        return self._read_thresholds() | {
            "sm_clock_max_mhz": drop_implausible(calls.call("nvmlDeviceGetMaxClockInfo", CLOCK_SM), 1, MAX_MHZ),
            "memory_clock_max_mhz": drop_implausible(calls.call("nvmlDeviceGetMaxClockInfo", CLOCK_MEMORY), 1, MAX_MHZ),
        }

    def _read_thresholds(self) -> Values:
        """Read the temperature thresholds, and return them in degrees Celsius.

        Since Ada, NVML instead reports by how many degrees the current temperature, and each threshold, is below the
        temperature at which clocks are lowered.
        """
        calls = self._calls
        shutdown, slowdown, memory_max = (
            drop_implausible(calls.call("nvmlDeviceGetTemperatureThreshold", kind), 1, MAX_C)
            for kind in (SHUTDOWN, SLOWDOWN, MEMORY_MAX)
        )
        if slowdown is None:
            now, margin = self._read_temperature_c(), calls.call("nvmlDeviceGetMarginTemperature")
            if now is not None and margin is not None:
                limits = Fields(calls, [SHUTDOWN_TLIMIT, SLOWDOWN_TLIMIT]).read()
                slowdown = _subtract(now + margin, limits.get(SLOWDOWN_TLIMIT))
                shutdown = shutdown if shutdown is not None else _subtract(now + margin, limits.get(SHUTDOWN_TLIMIT))
        return {"shutdown_c": shutdown, "slowdown_c": slowdown, "memory_max_c": memory_max}

    def _read_temperature_c(self) -> float | None:
        """Return the temperature of the GPU in degrees Celsius, or None if it is unknown."""
        celsius = self._calls.call("nvmlDeviceGetTemperature", TEMPERATURE_GPU)
        if celsius is None and self._calls.lacks(("nvmlDeviceGetTemperature", TEMPERATURE_GPU)):
            celsius = self._calls.call("nvmlDeviceGetTemperatureV", TEMPERATURE_GPU)  # the first function is deprecated
        return drop_implausible(celsius, -50, MAX_C)

    def _read_throttle_reasons(self) -> tuple[Throttle, ...] | None:
        """Return the reasons for throttling, or None if they are unknown.

        Drivers before R535 have the NVML function only under its older name.
        """
        bits = self._calls.call("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._calls.call("nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else tuple(name for index, name in enumerate(THROTTLES) if bits >> index & 1)

    def _read_watts(self, function: str, lowest: float = 0) -> float | None:
        """Call an NVML function that returns milliwatts, and return its result in watts, or None if it is implausible.

        `lowest` is the lowest plausible result.
        """
        milliwatts = self._calls.call(function)
        return None if milliwatts is None else drop_implausible(milliwatts / 1000, lowest, MAX_W)

    def _read_count(self, function: str, highest: int) -> int | None:
        """Call an NVML function, and return its result, or None if it is not between 1 and `highest`."""
        value = self._calls.call(function)
        return value if value is not None and 1 <= value <= highest else None


def read_memory(calls: DeviceCalls) -> Values:
    """Return the total, used and free memory of a GPU or MIG instance, by field of `Gpu`.

    Version 2 of the NVML call is used, since version 1 counts reserved memory as used. Some chips have no dedicated
    memory and report nothing or zero.
    """
    nvml, handle = calls.nvml, calls.handle
    info = calls.attempt("memory v2", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    reserved = None if info is None else info.reserved
    if info is None and calls.lacks("memory v2"):
        info = calls.attempt("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    if info is None or not info.total:
        return {"memory_total_bytes": None}
    is_plausible = info.used <= info.total
    return {
        "memory_total_bytes": int(info.total),
        "memory_used_bytes": int(info.used) if is_plausible else None,
        "memory_free_bytes": int(info.free) if info.free <= info.total else None,
        "memory_reserved_bytes": int(reserved) if reserved is not None and reserved <= info.total else None,
    }


def read_identity(calls: DeviceCalls, uuid: str, nvml_index: int, pci_bus_id: str | None) -> Values:
    """Return the values of a GPU or MIG instance that never change, such as UUID and name, by field of `Gpu`."""
    name = calls.call("nvmlDeviceGetName")
    capability = calls.call("nvmlDeviceGetCudaComputeCapability")
    return {
        "uuid": uuid,
        "name": decode_text(name) if name else "NVIDIA GPU",
        "nvml_index": nvml_index,
        "pci_bus_id": pci_bus_id,
        "compute_capability": None if capability is None else tuple(capability),
    }


def _subtract(limit: float, distance: float | None) -> float | None:
    """Return the temperature `limit` - `distance`, or None if `distance` is unknown."""
    return None if distance is None else drop_implausible(limit - distance, 1, MAX_C)
