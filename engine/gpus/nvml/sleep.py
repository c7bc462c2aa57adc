"""What the driver's files tell of GPUs without asking them: of those that Linux suspends, as laptops do, which asking
anything wakes and asking often keeps awake; and of lost ones, which answer nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.contract.devices import Gpu

SYSFS_PCI = Path("/sys/bus/pci/devices")
DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
"""A folder per GPU, by PCI bus id, whose files the driver writes from what it already knows."""
UNKNOWN_UUID = "GPU-lost-"
"""Beginning of what identifies a lost GPU whose UUID nobody knows, before NVML's index of it."""
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
    folders = _folders(count)
    return {index: _known(index, folder, asleep=True) for index, folder in enumerate(folders) if asleep(folder.name)}


def lost(index: int, count: int) -> Gpu:
    """Return the row of a GPU that NVML counts but can't reach, of NVML's `count`, with what the driver knows of it."""
    folders = _folders(count)
    known = _known(index, folders[index], lost=True) if folders else None
    if known is not None and known.uuid:
        return known
    name = known.name if known is not None else "NVIDIA GPU"
    return Gpu(uuid=f"{UNKNOWN_UUID}{index}", name=name, nvml_index=index, lost=True)


def _folders(count: int) -> list[Path]:
    """Return the driver's folders in NVML's order; none if it doesn't list exactly `count` GPUs."""
    try:
        folders = sorted(DRIVER_GPUS.iterdir())
    except OSError:
        return []
    return folders if len(folders) == count else []


def _linux_name(pci_bus_id: str) -> str:
    """NVML writes a domain with eight digits, Linux with four."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _known(index: int, folder: Path, *, asleep: bool = False, lost: bool = False) -> Gpu:
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
        asleep=asleep,
        lost=lost,
    )
