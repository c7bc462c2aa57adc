"""What an awake GPU tells, in lanes by how often it is worth asking.

Always: use, memory, power, temperature, throttling. With details at each reading: clocks, energy, temperature of the
memory, traffic. Every few seconds: limits, compute mode and counters of errors and, with details, fan, video engines
and the link to the host. Once a minute: which NVLinks are active. Once: names, thresholds, maxima.

Numbers of enumerations are those of nvml.h.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from engine.contract.devices import Ecc, Gpu, Pcie, Retired, Throttle
from engine.gpus.nvml.activity import Activity
from engine.gpus.nvml.calls import Ask, GpuLost, Stopwatch, percent, text, within
from engine.gpus.nvml.fields import Field, Fields
from engine.gpus.nvml.processes import ProcessTable
from engine.gpus.nvml.topology import read_nvlinks
from engine.gpus.nvml.traffic import NvLinks, PcieTraffic

Values = dict[str, Any]
"""Values of fields of `Gpu`."""

TEMPERATURE_GPU = 0
SHUTDOWN, SLOWDOWN, MEMORY_MAX = range(3)
CLOCK_SM, CLOCK_MEMORY = 1, 2
THROTTLES: tuple[Throttle, ...] = (
    "idle", "clocks_setting", "power_cap", "hardware_slowdown", "sync_boost", "thermal", "hardware_thermal",
    "power_brake", "display_setting",
)  # fmt: skip
"""By the bits of `NVML_CLOCKS_EVENT_REASON_*`, the lowest first."""
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
LAST_STATE = 15

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

MOST_C = 150.0
MOST_W = 5000.0
MOST_MHZ = 50_000.0
MOST_FAN_PERCENT = 200.0
"""Fans may be set to more than 100 %, says nvml.h; anything beyond these is nonsense."""
LAST_GENERATION, MOST_LANES = 9, 32


class Wanted(NamedTuple):
    """What one reading asks for: what is on screen, and the lanes that are due."""

    processes: bool = True
    activity: bool = True
    details: bool = True
    basics: bool = False
    """Nothing but use, memory, power, temperature and, if wanted, the processes."""
    processes_due: bool = True
    slow_due: bool = True
    links_due: bool = True

    @property
    def shown(self) -> tuple[bool, bool, bool]:
        """What is on screen."""
        return (self.processes, self.activity, self.details)


class Quantities:
    """Asks the GPU that `ask` asks. `identity` are the values that never change; `traffic` is measured from outside."""

    def __init__(self, ask: Ask, stopwatch: Stopwatch, processes: ProcessTable, identity: Values) -> None:
        self._ask = ask
        self._stopwatch = stopwatch
        self._processes = processes
        self._activity = Activity(ask)
        self.traffic = PcieTraffic(ask)
        self._links = NvLinks()
        self._current = Fields(ask, [ENERGY_MJ, MEMORY_TEMPERATURE])
        self._memory_temperature = Fields(ask, [MEMORY_TEMPERATURE])
        self._errors = Fields(ask, [*ECC.values(), *RETIRED.values()])
        self._replays = Fields(ask, [REPLAYS])
        self._link_fields = Fields(ask, [])
        self._identity = identity
        self._once: Values | None = None
        self._slow: Values = {}
        self._pcie: Values = {}
        self._held_processes: Any = None

    def read(self, wanted: Wanted) -> Gpu:
        """The GPU now. Raises `GpuLost`."""
        self._ask.answers = self._ask.failures = 0
        if self._once is None and not wanted.basics:
            self._once = self._ask_once()
        values = self._identity | (self._once or {}) | self._at_each_reading(wanted)
        if wanted.slow_due:
            self._slow = self._every_few_seconds(wanted)
        values |= self._slow
        if wanted.details:
            values |= self._in_detail(wanted)
        else:
            self._forget_details()
        if wanted.activity:
            shares = self._activity.read()
            values |= {"sm_active_percent": shares.sm, "tensor_active_percent": shares.tensor}
        else:
            self._activity.forget()
        if not wanted.processes:
            self._held_processes = None
        elif wanted.processes_due:
            self._held_processes = self._processes.table(values["memory_total_bytes"])
        if self._ask.failures and not self._ask.answers:
            raise GpuLost  # some drivers report a lost GPU as "unknown error", for each call
        return Gpu(**values, processes=self._held_processes)

    def _at_each_reading(self, wanted: Wanted) -> Values:
        ask = self._ask
        use = ask.tell("nvmlDeviceGetUtilizationRates")
        return memory(ask) | {
            "utilization_percent": None if use is None else percent(use.gpu),
            "memory_busy_percent": None if use is None or wanted.basics else percent(use.memory),
            "temperature_c": self._temperature_c(),
            "power_w": self._in_thousandths("nvmlDeviceGetPowerUsage", MOST_W),
            "throttled": None if wanted.basics else self._throttled(),
        }

    def _in_detail(self, wanted: Wanted) -> Values:
        ask = self._ask
        if wanted.links_due:
            fields = self._links.replace(self._stopwatch.time(lambda: read_nvlinks(ask.nvml, ask.handle)))
            self._current = Fields(ask, [ENERGY_MJ, MEMORY_TEMPERATURE, *fields])
        at = time.monotonic()
        told = self._current.read()
        energy_mj = told.get(ENERGY_MJ)
        state = ask.tell("nvmlDeviceGetPerformanceState")
        return {
            "memory_temperature_c": within(told.get(MEMORY_TEMPERATURE), 1, MOST_C),
            "energy_j": None if energy_mj is None else energy_mj / 1000,
            "nvlinks": self._links.told(told, at),
            "sm_clock_mhz": within(ask.tell("nvmlDeviceGetClockInfo", CLOCK_SM), 0, MOST_MHZ),
            "memory_clock_mhz": within(ask.tell("nvmlDeviceGetClockInfo", CLOCK_MEMORY), 0, MOST_MHZ),
            "performance_state": state if state is not None and 0 <= state <= LAST_STATE else None,
            "pcie": Pcie(
                **self._pcie,
                received_bytes_per_s=self.traffic.received_bytes_per_s,
                sent_bytes_per_s=self.traffic.sent_bytes_per_s,
            ),
        }

    def _forget_details(self) -> None:
        self.traffic.forget()
        self._links.forget()

    def _every_few_seconds(self, wanted: Wanted) -> Values:
        limit_w = self._in_thousandths("nvmlDeviceGetEnforcedPowerLimit", MOST_W, lowest=1)
        if limit_w is None:
            limit_w = self._in_thousandths("nvmlDeviceGetPowerManagementLimit", MOST_W, lowest=1)
        mode = self._ask.tell("nvmlDeviceGetComputeMode")
        values: Values = {
            "power_limit_w": limit_w,
            "compute_mode": COMPUTE_MODES[mode] if mode in range(len(COMPUTE_MODES)) else "",
        }
        if wanted.basics:
            return values
        values |= self._errors_so_far()
        if wanted.details:
            values |= self._modes()
        else:
            told = self._memory_temperature.read()
            values["memory_temperature_c"] = within(told.get(MEMORY_TEMPERATURE), 1, MOST_C)
        return values

    def _errors_so_far(self) -> Values:
        told = self._errors.read()
        mode = self._ask.tell("nvmlDeviceGetEccMode")
        counts = {name: int(told[field]) for name, field in ECC.items() if field in told}
        retired: Values = {name: int(told[field]) for name, field in RETIRED.items() if field in told}
        retired |= {name: bool(retired[name]) for name in RETIRED_FLAGS if name in retired}
        return {
            "ecc": Ecc(enabled=None if mode is None else bool(mode[0]), **counts),
            "retired": Retired(**retired),
        }

    def _modes(self) -> Values:
        ask = self._ask
        self.traffic.ask_driver()
        encoder = ask.tell("nvmlDeviceGetEncoderUtilization")
        decoder = ask.tell("nvmlDeviceGetDecoderUtilization")
        persistence = ask.tell("nvmlDeviceGetPersistenceMode")
        replays = self._replays.read().get(REPLAYS)
        self._pcie |= {
            "generation": self._count("nvmlDeviceGetCurrPcieLinkGeneration", LAST_GENERATION),
            "width": self._count("nvmlDeviceGetCurrPcieLinkWidth", MOST_LANES),
            "replays": None if replays is None else int(replays),
        }
        return {
            "fan_percent": within(ask.tell("nvmlDeviceGetFanSpeed"), 0, MOST_FAN_PERCENT),
            "encoder_percent": percent(encoder[0]) if encoder is not None else None,
            "decoder_percent": percent(decoder[0]) if decoder is not None else None,
            "persistence": None if persistence is None else bool(persistence),
        }

    def _ask_once(self) -> Values:
        ask = self._ask
        self._pcie = {
            "max_generation": self._count("nvmlDeviceGetMaxPcieLinkGeneration", LAST_GENERATION),
            "max_width": self._count("nvmlDeviceGetMaxPcieLinkWidth", MOST_LANES),
        }
        return self._thresholds() | {
            "sm_clock_max_mhz": within(ask.tell("nvmlDeviceGetMaxClockInfo", CLOCK_SM), 1, MOST_MHZ),
            "memory_clock_max_mhz": within(ask.tell("nvmlDeviceGetMaxClockInfo", CLOCK_MEMORY), 1, MOST_MHZ),
        }

    def _thresholds(self) -> Values:
        """In degrees. From Ada on NVIDIA means to tell them as distances only: of the chip now, and of each threshold,
        to the temperature at which clocks begin to be lowered.
        """
        ask = self._ask
        shutdown, slowdown, memory_max = (
            within(ask.tell("nvmlDeviceGetTemperatureThreshold", kind), 1, MOST_C)
            for kind in (SHUTDOWN, SLOWDOWN, MEMORY_MAX)
        )
        if slowdown is None:
            now, margin = self._temperature_c(), ask.tell("nvmlDeviceGetMarginTemperature")
            if now is not None and margin is not None:
                limits = Fields(ask, [SHUTDOWN_TLIMIT, SLOWDOWN_TLIMIT]).read()
                slowdown = _below(now + margin, limits.get(SLOWDOWN_TLIMIT))
                shutdown = shutdown if shutdown is not None else _below(now + margin, limits.get(SHUTDOWN_TLIMIT))
        return {"shutdown_c": shutdown, "slowdown_c": slowdown, "memory_max_c": memory_max}

    def _temperature_c(self) -> float | None:
        celsius = self._ask.tell("nvmlDeviceGetTemperature", TEMPERATURE_GPU)
        if celsius is None and self._ask.lacks(("nvmlDeviceGetTemperature", TEMPERATURE_GPU)):
            celsius = self._ask.tell(
                "nvmlDeviceGetTemperatureV", TEMPERATURE_GPU
            )  # NVIDIA announced the first one's end
        return within(celsius, -50, MOST_C)

    def _throttled(self) -> tuple[Throttle, ...] | None:
        """By the function's newer name; drivers before R535 have the older only."""
        bits = self._ask.tell("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask.tell("nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else tuple(name for index, name in enumerate(THROTTLES) if bits >> index & 1)

    def _in_thousandths(self, function: str, highest: float, lowest: float = 0) -> float | None:
        told = self._ask.tell(function)
        return None if told is None else within(told / 1000, lowest, highest)

    def _count(self, function: str, highest: int) -> int | None:
        told = self._ask.tell(function)
        return told if told is not None and 1 <= told <= highest else None


def memory(ask: Ask) -> Values:
    """A device's memory by version 2 where the driver has it, since version 1 counts reserved memory as used.

    Some chips have none of their own: they tell nothing, or zero.
    """
    nvml, handle = ask.nvml, ask.handle
    told = ask("memory v2", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    reserved = None if told is None else told.reserved
    if told is None and ask.lacks("memory v2"):
        told = ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    if told is None or not told.total:
        return {"memory_total_bytes": None}
    sound = told.used <= told.total
    return {
        "memory_total_bytes": int(told.total),
        "memory_used_bytes": int(told.used) if sound else None,
        "memory_free_bytes": int(told.free) if told.free <= told.total else None,
        "memory_reserved_bytes": int(reserved) if reserved is not None and reserved <= told.total else None,
    }


def identity(ask: Ask, uuid: str, nvml_index: int, pci_bus_id: str | None) -> Values:
    """What never changes of a device."""
    name = ask.tell("nvmlDeviceGetName")
    capability = ask.tell("nvmlDeviceGetCudaComputeCapability")
    return {
        "uuid": uuid,
        "name": text(name) if name else "NVIDIA GPU",
        "nvml_index": nvml_index,
        "pci_bus_id": pci_bus_id,
        "compute_capability": None if capability is None else tuple(capability),
    }


def _below(limit: float, distance: float | None) -> float | None:
    """The temperature at which `distance` is left to `limit`."""
    return None if distance is None else within(limit - distance, 1, MOST_C)
