"""State of the host's processor and memory, read with psutil."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import psutil

from engine.contract.devices import Cpu

TEMPERATURE_INTERVAL_S = 5.0
"""Seconds between readings of the processor's temperature.

A reading opens dozens of files on large machines, and temperatures change slowly.
"""

MIN_LOAD_INTERVAL_S = 0.1
"""Minimum time in seconds over which load is measured, since the kernel counts processor time in ticks of 10 ms."""

SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal")
"""Linux drivers for processor temperature sensors, most common first."""


class CpuReader:
    """Reader of the state of the processor and the memory. The load is measured since the previous reading."""

    def __init__(self) -> None:
        self._name = cpu_name()
        self._temperature_c: float | None = None
        self._temperature_due = 0.0
        self._loads = tuple(psutil.cpu_percent(percpu=True))
        self._loads_read_at = time.monotonic()

    def read(self) -> Cpu:
        """Return the current state of the processor and the memory."""
        now = time.monotonic()
        if now - self._loads_read_at >= MIN_LOAD_INTERVAL_S:
            self._loads = tuple(psutil.cpu_percent(percpu=True))
            self._loads_read_at = now
        memory = psutil.virtual_memory()
        if now >= self._temperature_due:
            self._temperature_due = now + TEMPERATURE_INTERVAL_S
            self._temperature_c = _read_temperature_c()
        return Cpu(
            name=self._name,
            core_load_percent=self._loads,
            load_percent=sum(self._loads) / len(self._loads) if self._loads else 0.0,
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            temperature_c=self._temperature_c,
        )


def cpu_name() -> str:
    """Return the vendor's name of the processor, or its architecture if the name is unknown."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in {"model name", "Model"} and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"


def _read_temperature_c() -> float | None:
    """Return the highest temperature of the processor in degrees Celsius, or None if there are no sensors."""
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
