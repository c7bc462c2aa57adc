"""Read files of the driver with facts about the installation, and about GPUs that are asleep or lost.

Linux suspends the GPUs of laptops. A query would wake such a GPU, and frequent queries keep it awake. Lost GPUs don't
respond at all.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from engine.contract.devices import Gpu
from engine.gpus.host import has_foreign_pids

SYSFS_PCI = Path("/sys/bus/pci/devices")
DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
"""Folder that contains a folder for each GPU, named by PCI bus id. Reading the files there doesn't wake a GPU."""
UNKNOWN_UUID = "GPU-lost-"
"""Prefix of the placeholder for the unknown UUID of a lost GPU. The NVML index of the GPU follows."""
IDLE_PAUSE_S = 10.0
"""Seconds for which an idle GPU is not queried, so that it may fall asleep. That takes a few seconds."""


def is_asleep(pci_bus_id: str | None) -> bool:
    """Return True if Linux has suspended the GPU with this PCI bus id, so that a query would wake it."""
    if pci_bus_id is None or os.name == "nt":
        return False
    try:
        status = (SYSFS_PCI / _convert_bus_id(pci_bus_id) / "power" / "runtime_status").read_text()
    except OSError:
        return False
    return status.strip() == "suspended"


def may_sleep(pci_bus_id: str | None) -> bool:
    """Return True if the driver suspends this GPU while it is idle, as in laptops.

    Source: "Runtime D3" in the driver's README.
    """
    if pci_bus_id is None or os.name == "nt":
        return False
    try:
        values = (DRIVER_GPUS / _convert_bus_id(pci_bus_id) / "power").read_text(errors="replace")
    except OSError:
        return False
    return any(
        key.strip() == "Runtime D3 status" and value.strip().startswith("Enabled")
        for key, _, value in (line.partition(":") for line in values.splitlines())
    )


def read_sleeping_gpus(count: int) -> dict[int, Gpu]:
    """Return the sleeping GPUs by NVML index, with the few facts that are in the driver's files.

    NVML orders GPUs by bus id. The UUID of a GPU that has been asleep since the driver was loaded is "". The result is
    empty if the driver does not list exactly `count` GPUs, which is the number that NVML reports.
    """
    folders = _list_gpu_folders(count)
    return {
        index: _read_gpu(index, folder, asleep=True) for index, folder in enumerate(folders) if is_asleep(folder.name)
    }


def create_lost_gpu(index: int, count: int) -> Gpu:
    """Create the entry of the lost GPU with the NVML index `index` from the driver's files.

    `count` is the number of GPUs that NVML reports.
    """
    folders = _list_gpu_folders(count)
    known = _read_gpu(index, folders[index], lost=True) if folders else None
    if known is not None and known.uuid:
        return known
    name = known.name if known is not None else "NVIDIA GPU"
    return Gpu(uuid=f"{UNKNOWN_UUID}{index}", name=name, nvml_index=index, lost=True)


def _list_gpu_folders(count: int) -> list[Path]:
    """Return the folder of each GPU in the driver's part of /proc, in NVML's order, or [] if there aren't `count` of them."""
    try:
        folders = sorted(DRIVER_GPUS.iterdir())
    except OSError:
        return []
    return folders if len(folders) == count else []


def _convert_bus_id(pci_bus_id: str) -> str:
    """Convert NVML's form of a PCI bus id, whose domain has eight digits, to the form of Linux with four digits."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _read_gpu(index: int, folder: Path, *, asleep: bool = False, lost: bool = False) -> Gpu:
    """Create the entry of a GPU from the driver's files in `folder`. An unknown UUID is ""."""
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
"""File of the driver's kernel module. It is also visible in containers."""
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman create in containers."""
DEVICES = Path("/dev")
_DEVICE_FILE = re.compile(r"nvidia(\d+|ctl|-uvm)")
"""Pattern for the names of device files that CUDA needs: those of GPUs, driver control, and unified memory."""


def is_driver_loaded() -> bool:
    """Return True if the kernel has loaded NVIDIA's driver. Always False on Windows."""
    return KERNEL_DRIVER.exists() or any(DEVICES.glob("nvidia[0-9]*"))


def is_in_container() -> bool:
    """Return True if this process runs in a container."""
    return has_foreign_pids() or any(file.exists() for file in CONTAINER_FILES)


def denied_files() -> tuple[str, ...]:
    """Return the paths of the driver's device files that the user can't open for reading and writing, as CUDA must."""
    files = sorted(file for file in DEVICES.glob("nvidia*") if _DEVICE_FILE.fullmatch(file.name))
    return tuple(str(file) for file in files if not os.access(file, os.R_OK | os.W_OK))
