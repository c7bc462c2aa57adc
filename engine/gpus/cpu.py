"""The host's processor and memory, through psutil."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import psutil

from engine.contract.devices import Cpu

TEMPERATURE_EVERY_S = 5.0
"""Temperatures are one file per sensor, dozens on a large machine, and change slowly."""

LOAD_OVER_S = 0.1
"""The shortest time to tell a load of: the kernel's clocks tick a hundred times a second."""

SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal")
"""Names of Linux drivers of temperatures within a processor, the likeliest first."""


class CpuReader:
    """Loads since the previous reading; the first one reaches back to when this was made."""

    def __init__(self) -> None:
        self._name = cpu_name()
        self._temperature_c: float | None = None
        self._temperature_due = 0.0
        self._loads = tuple(psutil.cpu_percent(percpu=True))
        self._looked = time.monotonic()

    def read(self) -> Cpu:
        """The processor now."""
        now = time.monotonic()
        if now - self._looked >= LOAD_OVER_S:
            self._loads = tuple(psutil.cpu_percent(percpu=True))
            self._looked = now
        memory = psutil.virtual_memory()
        if now >= self._temperature_due:
            self._temperature_due = now + TEMPERATURE_EVERY_S
            self._temperature_c = _temperature_c()
        return Cpu(
            name=self._name,
            core_load_percent=self._loads,
            load_percent=sum(self._loads) / len(self._loads) if self._loads else 0.0,
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            temperature_c=self._temperature_c,
        )


def cpu_name() -> str:
    """The processor as its maker calls it, else its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in {"model name", "Model"} and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"


def _temperature_c() -> float | None:
    """The hottest of the processor's own sensors, None where there is none to read."""
    read = getattr(psutil, "sensors_temperatures", None)  # Linux and FreeBSD only
    try:
        sensors = read() if read else {}
    except OSError:
        return None
    for name in SENSORS:
        values = [sensor.current for sensor in sensors.get(name, ()) if sensor.current and sensor.current > 0]
        if values:
            return float(max(values))
    return None
