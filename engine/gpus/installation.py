"""Traces of NVIDIA's driver without NVML: kernel module, device files, container."""

from __future__ import annotations

import os
import re
from pathlib import Path

from engine.gpus.host import foreign_pids

KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
"""Written by the driver's kernel module, so it's visible in containers, too."""
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman create in containers."""
DEVICES = Path("/dev")
_DEVICE_FILE = re.compile(r"nvidia(\d+|ctl|-uvm)")
"""Device files of GPUs, of the driver's control and of unified memory, which CUDA needs and NVML doesn't."""


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
