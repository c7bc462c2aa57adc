"""Other people's processes on a run's GPUs, as a snapshot tells of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import psutil

from engine.contract.devices import Gpu, GpuProcess, Snapshot, is_gpu

_GIB = 1 << 30


@dataclass(frozen=True)
class Others:
    """`words` has a sentence for each process that holds memory of one of the GPUs, `pids` tells which they are.
    `unseen` has one for each thing that cannot be known.
    """

    words: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    unseen: tuple[str, ...] = ()


def others_on(devices: Iterable[str], snapshot: Snapshot | None) -> Others:
    """Who else computes on `devices`. What a display takes is not counted, since a desktop never ends.

    In a container, where NVML names processes of the host's and nobody can tell whose they are, all of them count.
    """
    words: list[str] = []
    pids: list[int] = []
    unseen: list[str] = []
    gpus = snapshot.gpus if snapshot is not None and snapshot.nvml.status == "ok" else ()
    rows = {gpu.uuid: gpu for gpu in gpus if not gpu.lost}
    for device in filter(is_gpu, devices):
        gpu = rows.get(device)
        if gpu is None or (gpu.processes is None and not gpu.asleep):
            unseen.append(f"Who uses {device if gpu is None else _called(gpu)} can't be determined.")
            continue
        for process in gpu.processes or ():
            who = _who(process, foreign=snapshot is not None and snapshot.foreign_pids)
            if who is None:
                continue
            if process.memory_used_bytes is None:
                unseen.append(f"How much of {_called(gpu)} {who} uses can't be determined.")
                continue
            words.append(f"{who} uses {process.memory_used_bytes / _GIB:.1f} GiB of {_called(gpu)}")
            pids.append(process.pid)
    return Others(tuple(words), tuple(pids), tuple(unseen))


def _who(process: GpuProcess, *, foreign: bool) -> str | None:
    """ "root: python (pid 123)"; None where the process is the user's own, draws a display alone, or has ended."""
    if process.kind == "graphics":
        return None
    if foreign:
        return f"a process outside this container (pid {process.pid} there)"
    user, name = process.user, process.name
    if user is None:
        try:
            found = psutil.Process(process.pid)
            user, name = found.username(), found.name()
        except psutil.Error:
            if not psutil.pid_exists(process.pid):
                return None
    if user == _own_user():
        return None
    return f"{user or 'somebody'}: {name or 'a process'} (pid {process.pid})"


@lru_cache(maxsize=1)
def _own_user() -> str:
    return psutil.Process().username()


def _called(gpu: Gpu) -> str:
    if gpu.mig is not None:
        return gpu.uuid
    return f"GPU {gpu.nvml_index if gpu.cuda_index is None else gpu.cuda_index}"
