"""Detection of other users' processes on a run's GPUs, based on a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import psutil

from engine.contract.devices import Gpu, GpuProcess, Snapshot, is_gpu

_GIB = 1 << 30


@dataclass(frozen=True)
class OtherUsers:
    """Processes of other users: descriptions in `users`, their pids, and a sentence for each `unknown` fact."""

    users: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()


def other_users(devices: Iterable[str], snapshot: Snapshot | None) -> OtherUsers:
    """Find other users' processes that compute on `devices`. Drawing does not count, since desktops never exit.

    In a container, all processes count, because NVML reports processes of the host with unknown users.
    """
    users: list[str] = []
    pids: list[int] = []
    unknown: list[str] = []
    gpus = snapshot.gpus if snapshot is not None and snapshot.nvml.status == "ok" else ()
    by_uuid = {gpu.uuid: gpu for gpu in gpus if not gpu.lost}
    for device in filter(is_gpu, devices):
        gpu = by_uuid.get(device)
        if gpu is None or (gpu.processes is None and not gpu.asleep):
            unknown.append(f"Who uses {device if gpu is None else _gpu_name(gpu)} can't be determined.")
            continue
        for process in gpu.processes or ():
            user = _user_of(process, is_foreign=snapshot is not None and snapshot.foreign_pids)
            if user is None:
                continue
            if process.memory_used_bytes is None:
                unknown.append(f"How much of {_gpu_name(gpu)} {user} uses can't be determined.")
                continue
            users.append(f"{user} uses {process.memory_used_bytes / _GIB:.1f} GiB of {_gpu_name(gpu)}")
            pids.append(process.pid)
    return OtherUsers(tuple(users), tuple(pids), tuple(unknown))


def _user_of(process: GpuProcess, *, is_foreign: bool) -> str | None:
    """Describe a process ("root: python (pid 123)"). Return None if it is this user's, only draws, or has exited."""
    if process.kind == "graphics":
        return None
    if is_foreign:
        return f"a process outside this container (pid {process.pid} there)"
    user, name = process.user, process.name
    if user is None:
        try:
            running = psutil.Process(process.pid)
            user, name = running.username(), running.name()
        except psutil.Error:
            if not psutil.pid_exists(process.pid):
                return None
    if user == _current_user():
        return None
    return f"{user or 'somebody'}: {name or 'a process'} (pid {process.pid})"


@cache
def _current_user() -> str:
    return psutil.Process().username()


def _gpu_name(gpu: Gpu) -> str:
    if gpu.mig is not None:
        return gpu.uuid
    return f"GPU {gpu.nvml_index if gpu.cuda_index is None else gpu.cuda_index}"
