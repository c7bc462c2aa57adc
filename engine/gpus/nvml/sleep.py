"""GPUs that Linux suspends, as laptops do: asking one anything wakes it, and asking one often keeps it awake."""

from __future__ import annotations

import os
from pathlib import Path

from engine.contract.devices import Gpu

SYSFS_PCI = Path("/sys/bus/pci/devices")
DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
"""A folder per GPU, by PCI bus id, whose files the driver writes from what it already knows."""
REST_S = 10.0
"""How long an idle GPU that may fall asleep is left alone, which takes it a few seconds."""


def asleep(pci_bus_id: str | None) -> bool:
    """Whether Linux has suspended the GPU, so that asking it anything would wake it."""
    if pci_bus_id is None or os.name == "nt":
        return False
    try:
        status = (SYSFS_PCI / _linux_name(pci_bus_id) / "power" / "runtime_status").read_text()
    except OSError:
        return False
    return status.strip() == "suspended"


def may_sleep(pci_bus_id: str | None) -> bool:
    """Whether the driver suspends this GPU while it is idle: "Runtime D3" in the driver's README, for laptops only."""
    if pci_bus_id is None or os.name == "nt":
        return False
    try:
        told = (DRIVER_GPUS / _linux_name(pci_bus_id) / "power").read_text(errors="replace")
    except OSError:
        return False
    return any(
        key.strip() == "Runtime D3 status" and value.strip().startswith("Enabled")
        for key, _, value in (line.partition(":") for line in told.splitlines())
    )


def sleepers(count: int) -> dict[int, Gpu]:
    """Those of NVML's `count` GPUs that are asleep, by its index, told by the driver without waking them.

    NVML counts GPUs in the order of their bus ids. A GPU that was asleep ever since the driver was loaded has no UUID
    yet: "". Empty where the driver does not list exactly `count` GPUs.
    """
    try:
        folders = sorted(DRIVER_GPUS.iterdir())
    except OSError:
        return {}
    if len(folders) != count:
        return {}
    return {index: _known(index, folder) for index, folder in enumerate(folders) if asleep(folder.name)}


def _linux_name(pci_bus_id: str) -> str:
    """NVML writes a domain with eight digits, Linux with four."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _known(index: int, folder: Path) -> Gpu:
    try:
        lines = (folder / "information").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    uuid = told.get("GPU UUID", "")
    return Gpu(
        uuid="" if "?" in uuid else uuid,
        name=told.get("Model", "NVIDIA GPU"),
        nvml_index=index,
        pci_bus_id=folder.name,
        asleep=True,
    )
