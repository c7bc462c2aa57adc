"""Errors of NCCL and of machines with several GPUs, with their meanings.

The meanings say whether a restart can help. Their sources are the texts of NCCL's warnings, which torch adds after
"Last error:", and NVIDIA's documentation of NCCL and the fabric manager (Troubleshooting).
"""

from __future__ import annotations

import re
from typing import NamedTuple


class NcclError(NamedTuple):
    """Known error of NCCL or of a machine with several GPUs, with its meaning for users.

    Attributes:
        pattern: Regular expression that matches a part of the error's text, regardless of case.
        meaning: Cause and remedy, in full sentences.
        is_transient: True if a restart may help.
        only_nccl: True if the pattern applies only to errors of NCCL.
    """

    pattern: str
    meaning: str
    is_transient: bool = False
    only_nccl: bool = True


ERRORS = (
    NcclError(
        r"shared memory segment|/dev/shm|posix_fallocate",
        "The shared memory /dev/shm is full or can't be used. Start the container with --shm-size=8g or --ipc=host, or "
        "set NCCL_SHM_DISABLE=1.",
    ),
    NcclError(
        r"peer access is not supported|peer mapping resources|cuda failure 217|cudaIpcOpenMemHandle|p2p.*failed",
        "Two of the GPUs can't access each other's memory. Set NCCL_P2P_DISABLE=1 in the environment of Footplate, or turn "
        "the IOMMU or PCIe's ACS off in the BIOS.",
    ),
    NcclError(
        r"duplicate GPU detected",
        "Two ranks use the same GPU. Choose each GPU once, and no two MIG instances of one GPU.",
    ),
    NcclError(
        r"no socket interface found|no interface found|no usable.*interface",
        "The network interface for NCCL does not exist. Set NCCL_SOCKET_IFNAME to the one that connects the machines, or "
        "remove the variable.",
    ),
    NcclError(
        r"error 802|system not yet initialized|fabric ?manager|nvswitch|nvls.*fail|multicast.*fail",
        "The GPUs are connected by NVSwitch, and its fabric manager does not run, or is of another version than the "
        "driver. Run `sudo systemctl start nvidia-fabricmanager`, then train again.",
        only_nccl=False,
    ),
    NcclError(
        r"ibv_\w+|NET/IB|/dev/infiniband|GID index",
        "InfiniBand or RoCE does not work here. Check `ibstat` and the limit of locked memory (`ulimit -l`), or set "
        "NCCL_IB_DISABLE=1 on all machines.",
    ),
    NcclError(
        r"too many open files",
        "A process may not open enough files. Raise the limit with `ulimit -n 65536` before you start Footplate.",
    ),
    NcclError(
        r"driver version is insufficient|error 803|unsupported display driver",
        "The GPU driver is too old, or was updated without a restart of the machine. Restart it, or install a newer driver.",
        only_nccl=False,
    ),
    NcclError(
        r"mismatched.*version|version mismatch|NCCL version .* does not match",
        "The machines have different versions of NCCL. Install the same version of torch on all of them.",
    ),
    NcclError(
        r"invalid device ordinal",
        "A GPU of the run is missing: it has failed or was removed. Check `nvidia-smi` and the system log for Xid "
        "messages, then restart the machine or choose other GPUs.",
        is_transient=True,  # before a restart, the supervisor checks which GPU is lost
        only_nccl=False,
    ),
    NcclError(r"invalid usage|ncclInvalidUsage|ncclInvalidArgument", "Footplate or the model has called NCCL wrongly."),
    NcclError(
        r"watchdog caught collective operation timeout|collective operation timeout",
        "The ranks have waited too long for each other, since one of them hangs.",
        is_transient=True,
    ),
    NcclError(
        r"ncclRemoteError|remote process exited|connection (closed|reset|refused)|connect to .* failed|broken pipe|"
        r"socketProgress|no route to host|timed out",
        "Lost the connection to another worker, which has ended, or the network is down.",
        is_transient=True,
    ),
)
"""Known errors of NCCL and of machines with several GPUs. The first one that matches counts."""

_LAST = re.compile(r"Last error:\s*(.+)", re.IGNORECASE | re.DOTALL)


def find_known_error(text: str) -> NcclError | None:
    """Return the known error whose pattern matches `text`, or None if there is none."""
    candidates = ERRORS if is_nccl_error(text) else [each for each in ERRORS if not each.only_nccl]
    return next((each for each in candidates if re.search(each.pattern, text, re.IGNORECASE)), None)


def is_nccl_error(text: str) -> bool:
    """Return True if NCCL, or torch's watchdog for NCCL, has raised the error with this text."""
    return "nccl" in text.lower()


def extract_description(text: str) -> str:
    """Return the first line of NCCL's description, which is at the end of an error's text.

    Without a description, return the first line of the text.
    """
    match = _LAST.search(text)
    description = match[1] if match is not None else ""
    lines = (description if description.strip() else text).strip().splitlines()
    return lines[0].strip() if lines else "no further details"
