"""Find other users' processes on a run's GPUs, based on a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import psutil

from engine.contract.devices import Gpu, GpuProcess, Snapshot, is_gpu

_GIB = 1 << 30


@dataclass(frozen=True)
class OtherUsers:
    """Processes of other users on the GPUs of a run.

    Attributes:
        users: Description of each process and its memory.
        pids: Process ids.
        unknown: Sentences about facts that can't be determined.
    """

    users: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()


def find_other_users(devices: Iterable[str], snapshot: Snapshot | None) -> OtherUsers:
    """Find other users' processes that compute on `devices`. `snapshot` is None if the GPUs' state is unknown.

    Processes that only draw are ignored, since desktops never exit. In a container, all processes count, because NVML
    reports processes of the host whose users are unknown.
    """
    users: list[str] = []
    pids: list[int] = []
    unknown: list[str] = []
    gpus = snapshot.gpus if snapshot is not None and snapshot.nvml.status == "ok" else ()
    by_uuid = {gpu.uuid: gpu for gpu in gpus if not gpu.lost}
    for device in filter(is_gpu, devices):
        gpu = by_uuid.get(device)
        # A suspended GPU, whose processes aren't read, has no users.
        if gpu is None or (gpu.processes is None and not gpu.asleep):
            unknown.append(f"Who uses {device if gpu is None else _format_gpu_name(gpu)} can't be determined.")
            continue
        for process in gpu.processes or ():
            user = _describe_user(process, is_foreign=snapshot is not None and snapshot.foreign_pids)
            if user is None:
                continue
            if process.memory_used_bytes is None:
                unknown.append(f"How much of {_format_gpu_name(gpu)} {user} uses can't be determined.")
                continue
            users.append(f"{user} uses {process.memory_used_bytes / _GIB:.1f} GiB of {_format_gpu_name(gpu)}")
            pids.append(process.pid)
    return OtherUsers(tuple(users), tuple(pids), tuple(unknown))


def _describe_user(process: GpuProcess, *, is_foreign: bool) -> str | None:
    """Describe a process of another user, e.g. "root: python (pid 123)".

    Returns None if the process belongs to this user, only draws, or has exited. `is_foreign` is True if process ids
    belong to the host of this container.
    """
    if process.kind == "graphics":
        return None
    if is_foreign:
        return f"a process outside this container (pid {process.pid} there)"
    user, name = process.user, process.name
    if user is None:  # the supervisor's sampler reads only process ids
        try:
            running = psutil.Process(process.pid)
            user, name = running.username(), running.name()
        except psutil.Error:
            if not psutil.pid_exists(process.pid):
                return None
    if user == _get_current_user():
        return None
    return f"{user or 'somebody'}: {name or 'a process'} (pid {process.pid})"


@cache
def _get_current_user() -> str:
    return psutil.Process().username()


def _format_gpu_name(gpu: Gpu) -> str:
    """Return a GPU's name for the user: "GPU 3" with the index of CUDA or else of NVML, or the UUID of a MIG slice."""
    if gpu.mig is not None:
        return gpu.uuid
    return f"GPU {gpu.nvml_index if gpu.cuda_index is None else gpu.cuda_index}"
