"""Records this machine's GPUs as a profile for the stub: `python -m tests.support.record_nvml > NAME.profile`.

What a GPU does not tell is recorded with NVML's error code. Processes are left out, since they are someone's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

Values = dict[str, Any]


def main() -> None:
    """Prints the profile of every GPU that NVML lists."""
    pynvml.nvmlInit()
    print(f"driver_version={pynvml.nvmlSystemGetDriverVersion()}")
    for index in range(pynvml.nvmlDeviceGetCount()):
        print("gpu")
        for key, value in record(pynvml.nvmlDeviceGetHandleByIndex(index)).items():
            print(f"{key}={value}")


def record(gpu: Any) -> Values:
    """Keys of the profile of one GPU."""
    values: Values = {"uuid": pynvml.nvmlDeviceGetUUID(gpu), "bus_id": pynvml.nvmlDeviceGetPciInfo(gpu).busId}
    asked: dict[str, Callable[[], Values]] = {
        "name": lambda: {"name": pynvml.nvmlDeviceGetName(gpu)},
        "memory": lambda: _memory(pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)),
        "utilization": lambda: {"utilization": pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu},
        "temperature": lambda: {
            "temperature": pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
        },
        "power": lambda: {"power_mw": pynvml.nvmlDeviceGetPowerUsage(gpu)},
        "power_limit": lambda: {"power_limit_mw": pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu)},
        "processes": lambda: {"processes_error": 0 * len(pynvml.nvmlDeviceGetComputeRunningProcesses(gpu))},
    }
    for quantity, ask in asked.items():
        try:
            values |= ask()
        except pynvml.NVMLError as error:
            values[f"{quantity}_error"] = error.value
    return values


def _memory(info: Any) -> Values:
    return {"total": info.total, "used": info.used, "reserved": info.reserved}


if __name__ == "__main__":
    main()
