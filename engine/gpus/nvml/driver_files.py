"""Files of the driver about the installation, and about GPUs that must not or can't be queried.

Linux suspends GPUs of laptops: any query wakes them, and frequent queries keep them awake. Lost GPUs don't respond at
all.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from engine.contract.devices import Gpu
from engine.gpus.host import foreign_pids

SYSFS_PCI = Path("/sys/bus/pci/devices")
DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
"""Folder with one folder per GPU, named by PCI bus id; reading their files doesn't wake the GPU."""
UNKNOWN_UUID = "GPU-lost-"
"""Prefix of the substitute id of a lost GPU whose UUID is unknown, followed by its NVML index."""
IDLE_PAUSE_S = 10.0
"""Seconds without queries for an idle GPU that may fall asleep, which takes a few seconds."""


def asleep(pci_bus_id: str | None) -> bool:
    """Return True if Linux has suspended the GPU, so that a query would wake it."""
    if pci_bus_id is None or os.name == "nt":
        return False
    try:
        status = (SYSFS_PCI / _linux_name(pci_bus_id) / "power" / "runtime_status").read_text()
    except OSError:
        return False
    return status.strip() == "suspended"


def may_sleep(pci_bus_id: str | None) -> bool:
    """Return True if the driver suspends this GPU when idle: "Runtime D3" in the driver's README, laptops only."""
    if pci_bus_id is None or os.name == "nt":
        return False
    try:
        values = (DRIVER_GPUS / _linux_name(pci_bus_id) / "power").read_text(errors="replace")
    except OSError:
        return False
    return any(
        key.strip() == "Runtime D3 status" and value.strip().startswith("Enabled")
        for key, _, value in (line.partition(":") for line in values.splitlines())
    )


def sleeping_gpus(count: int) -> dict[int, Gpu]:
    """Return the sleeping GPUs by NVML index, from the driver's files.

    NVML lists GPUs in the order of their bus ids. A GPU that has been asleep since the driver was loaded has no UUID: "". The
    result is empty if the driver doesn't list exactly `count` GPUs.
    """
    folders = _folders(count)
    return {index: _known(index, folder, asleep=True) for index, folder in enumerate(folders) if asleep(folder.name)}


def lost(index: int, count: int) -> Gpu:
    """Return the row of an unreachable GPU with the facts in the driver's files; `count` is NVML's number of GPUs."""
    folders = _folders(count)
    known = _known(index, folders[index], lost=True) if folders else None
    if known is not None and known.uuid:
        return known
    name = known.name if known is not None else "NVIDIA GPU"
    return Gpu(uuid=f"{UNKNOWN_UUID}{index}", name=name, nvml_index=index, lost=True)


def _folders(count: int) -> list[Path]:
    """Return the driver's folders in NVML's order, or [] if it doesn't list exactly `count` GPUs."""
    try:
        folders = sorted(DRIVER_GPUS.iterdir())
    except OSError:
        return []
    return folders if len(folders) == count else []


def _linux_name(pci_bus_id: str) -> str:
    """Convert NVML's PCI domain of eight digits to Linux' four."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _known(index: int, folder: Path, *, asleep: bool = False, lost: bool = False) -> Gpu:
    try:
        lines = (folder / "information").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    uuid = values.get("GPU UUID", "")
    return Gpu(
        uuid="" if "?" in uuid else uuid,
        name=values.get("Model", "NVIDIA GPU"),
        nvml_index=index,
        pci_bus_id=folder.name,
        asleep=asleep,
        lost=lost,
    )


KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
"""File written by the driver's kernel module, which is therefore visible in containers, too."""
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman create in containers."""
DEVICES = Path("/dev")
_DEVICE_FILE = re.compile(r"nvidia(\d+|ctl|-uvm)")
"""Pattern for device files of GPUs, of the driver's control, and of unified memory, which only CUDA needs."""


def driver_loaded() -> bool:
    """Return True if the kernel has loaded NVIDIA's driver; always False on Windows."""
    return KERNEL_DRIVER.exists() or any(DEVICES.glob("nvidia[0-9]*"))


def in_container() -> bool:
    """Return True if this process runs in a container."""
    return foreign_pids() or any(file.exists() for file in CONTAINER_FILES)


def denied_files() -> tuple[str, ...]:
    """Return the driver's device files that this user can't read and write, as CUDA requires."""
    files = sorted(file for file in DEVICES.glob("nvidia*") if _DEVICE_FILE.fullmatch(file.name))
    return tuple(str(file) for file in files if not os.access(file, os.R_OK | os.W_OK))
