"""What shows of NVIDIA's driver without NVML: the kernel's part of it, its device files, and whether this is a
container.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from engine.gpus.host import foreign_pids

KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
"""Written by the driver's kernel module, so that a container sees it, too, where the host has it loaded."""
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files of Docker's and of Podman's containers."""
DEVICES = Path("/dev")
_DEVICE_FILE = re.compile(r"nvidia(\d+|ctl|-uvm)")
"""A GPU, the driver's control, and unified memory, without which CUDA does not start while NVML does."""


def driver_loaded() -> bool:
    """Whether the kernel has NVIDIA's driver; never known on Windows."""
    return KERNEL_DRIVER.exists() or any(DEVICES.glob("nvidia[0-9]*"))


def in_container() -> bool:
    """Whether this process runs in a container."""
    return foreign_pids() or any(mark.exists() for mark in CONTAINER_MARKS)


def denied_files() -> tuple[str, ...]:
    """The driver's device files that this user may not read and write, as CUDA must."""
    files = sorted(file for file in DEVICES.glob("nvidia*") if _DEVICE_FILE.fullmatch(file.name))
    return tuple(str(file) for file in files if not os.access(file, os.R_OK | os.W_OK))
