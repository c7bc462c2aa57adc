"""Record this machine's GPUs as a profile for the NVML stub.

    python -m tests.support.record_nvml > NAME.profile

A failed call is recorded with NVML's error code. Unsupported values are left out. Traffic and activity come from
Footplate's sampler, because they need two readings. Processes are private and therefore left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pynvml

from engine.contract.devices import Gpu, SnapshotRequest
from engine.gpus.nvml.nvml_reader import NvmlReader

Values = dict[str, Any]
Ask = Callable[[Any], tuple[Any, ...]]

NOT_SUPPORTED = 3
ALWAYS_THERE = ("processes", "process_utilization", "events", "fields")
"""Values that the stub reports unless the profile has an error for them."""
SM, MEMORY = 1, 2
BITS = {1: 32, 3: 64}
"""Number of bits in a counter, by `nvmlValueType_t`."""
PCIE_COUNTER = 197


def _compute_capability(gpu: Any) -> tuple[int]:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
    return (10 * major + minor,)


def _memory(gpu: Any) -> tuple[int, int, int]:
    info = pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)
    return info.total, info.used, info.reserved


def _utilization(gpu: Any) -> tuple[int, int]:
    rates = pynvml.nvmlDeviceGetUtilizationRates(gpu)
    return rates.gpu, rates.memory


CALLS: tuple[tuple[str, tuple[str, ...], Ask], ...] = (
    ("name", ("name",), lambda gpu: (pynvml.nvmlDeviceGetName(gpu),)),
    ("compute_capability", ("compute_capability",), _compute_capability),
    ("memory", ("total", "used", "reserved"), _memory),
    ("utilization", ("utilization", "memory_busy"), _utilization),
    ("encoder", ("encoder",), lambda gpu: (pynvml.nvmlDeviceGetEncoderUtilization(gpu)[0],)),
    ("decoder", ("decoder",), lambda gpu: (pynvml.nvmlDeviceGetDecoderUtilization(gpu)[0],)),
    ("temperature", ("temperature",), lambda gpu: (pynvml.nvmlDeviceGetTemperature(gpu, 0),)),
    ("thresholds", ("shutdown",), lambda gpu: (pynvml.nvmlDeviceGetTemperatureThreshold(gpu, 0),)),
    ("thresholds", ("slowdown",), lambda gpu: (pynvml.nvmlDeviceGetTemperatureThreshold(gpu, 1),)),
    ("thresholds", ("memory_max",), lambda gpu: (pynvml.nvmlDeviceGetTemperatureThreshold(gpu, 2),)),
    ("margin", ("margin",), lambda gpu: (pynvml.nvmlDeviceGetMarginTemperature(gpu),)),
    ("power", ("power_mw",), lambda gpu: (pynvml.nvmlDeviceGetPowerUsage(gpu),)),
    ("power_limit", ("power_limit_mw",), lambda gpu: (pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu),)),
    ("fan", ("fan",), lambda gpu: (pynvml.nvmlDeviceGetFanSpeed(gpu),)),
    ("clocks", ("sm_clock",), lambda gpu: (pynvml.nvmlDeviceGetClockInfo(gpu, SM),)),
    ("clocks", ("sm_clock_max",), lambda gpu: (pynvml.nvmlDeviceGetMaxClockInfo(gpu, SM),)),
    ("clocks", ("memory_clock",), lambda gpu: (pynvml.nvmlDeviceGetClockInfo(gpu, MEMORY),)),
    ("clocks", ("memory_clock_max",), lambda gpu: (pynvml.nvmlDeviceGetMaxClockInfo(gpu, MEMORY),)),
    ("throttle", ("throttle",), lambda gpu: (pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),)),
    ("pstate", ("pstate",), lambda gpu: (pynvml.nvmlDeviceGetPerformanceState(gpu),)),
    ("compute_mode", ("compute_mode",), lambda gpu: (pynvml.nvmlDeviceGetComputeMode(gpu),)),
    ("persistence", ("persistence",), lambda gpu: (pynvml.nvmlDeviceGetPersistenceMode(gpu),)),
    ("ecc_mode", ("ecc",), lambda gpu: (pynvml.nvmlDeviceGetEccMode(gpu)[0],)),
    ("pcie", ("pcie_generation",), lambda gpu: (pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),)),
    ("pcie", ("pcie_generation_max",), lambda gpu: (pynvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),)),
    ("pcie", ("pcie_width",), lambda gpu: (pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),)),
    ("pcie", ("pcie_width_max",), lambda gpu: (pynvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),)),
    ("mig", ("mig",), lambda gpu: (pynvml.nvmlDeviceGetMigMode(gpu)[0],)),
    ("nvlink_state", ("nvlink_version",), lambda gpu: (pynvml.nvmlDeviceGetNvLinkVersion(gpu, 0),)),
    ("processes", (), lambda gpu: pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)[:0]),
)
"""NVML calls to record: name in the stub, profile keys, and the function to call."""

FIELDS = {
    "ecc_corrected": 3, "ecc_uncorrected": 4, "ecc_total_corrected": 5, "ecc_total_uncorrected": 6,
    "retired_single": 29, "retired_double": 30, "retired_pending": 31, "memory_temperature": 82, "energy_mj": 83,
    "pcie_replays": 94, "rows_corrected": 142, "rows_uncorrected": 143, "rows_pending": 144, "rows_failed": 145,
    "shutdown_tlimit": 193, "slowdown_tlimit": 194,
}  # fmt: skip
MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def main() -> None:
    """Print the profile of every GPU that NVML lists."""
    reader = NvmlReader()
    reader.read(SnapshotRequest())
    time.sleep(0.5)
    sampled = {gpu.uuid: gpu for gpu in reader.read(SnapshotRequest())}
    print(f"driver_version={pynvml.nvmlSystemGetDriverVersion()}")
    print(f"cuda_version={pynvml.nvmlSystemGetCudaDriverVersion_v2()}")
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        print("gpu")
        for key, value in record(handle, sampled[pynvml.nvmlDeviceGetUUID(handle)]).items():
            print(f"{key}={value}")


def record(handle: Any, sampled: Gpu) -> Values:
    """Return the profile of one GPU. `sampled` are its values from Footplate's sampler."""
    values: Values = {"uuid": sampled.uuid, "bus_id": sampled.pci_bus_id}
    for quantity, keys, ask in CALLS:
        try:
            values |= dict(zip(keys, ask(handle), strict=True))
        except pynvml.NVMLError as error:
            if error.value != NOT_SUPPORTED or quantity in ALWAYS_THERE:
                values[f"{quantity}_error"] = error.value
    for key, field in zip(FIELDS, _fields(handle, FIELDS.values()), strict=True):
        if field.nvmlReturn == pynvml.NVML_SUCCESS:
            values[key] = getattr(field.value, MEMBERS[field.valueType])
    return values | _traffic(handle, sampled)


def _traffic(handle: Any, sampled: Gpu) -> Values:
    (counter,) = _fields(handle, [PCIE_COUNTER])
    values: Values = {
        "pcie_received_per_s": sampled.pcie.received_bytes_per_s,
        "pcie_sent_per_s": sampled.pcie.sent_bytes_per_s,
        "pcie_bits": BITS.get(counter.valueType) if counter.nvmlReturn == pynvml.NVML_SUCCESS else None,
        "sm_active": sampled.sm_active_percent,
        "tensor_active": sampled.tensor_active_percent,
    }
    if sampled.nvlinks:
        active = [link for link in sampled.nvlinks if link.active]
        values |= {
            "nvlinks": len(sampled.nvlinks),
            "nvlinks_active": len(active),
            "nvlink_received_per_s": next((link.received_bytes_per_s for link in active), None),
            "nvlink_sent_per_s": next((link.sent_bytes_per_s for link in active), None),
        }
    return {key: round(value) for key, value in values.items() if value is not None}


def _fields(handle: Any, numbers: Iterable[int]) -> Any:
    return pynvml.nvmlDeviceGetFieldValues(handle, list(numbers))


if __name__ == "__main__":
    main()
