"""Whose processes hold a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from engine.contract.devices import GpuProcess, ProcessKind
from engine.gpus.host import HostProcess, HostProcesses
from engine.gpus.nvml.calls import Ask

LISTS: tuple[tuple[str, ProcessKind], ...] = (
    ("nvmlDeviceGetComputeRunningProcesses", "compute"),
    ("nvmlDeviceGetMPSComputeRunningProcesses", "compute"),
    ("nvmlDeviceGetGraphicsRunningProcesses", "graphics"),
)
VERSIONS = ("_v3", "_v2")
"""Of those functions, the newest first: drivers before R510 have the second only."""
NO_PIDS = (0, 0xFFFFFFFF)
NO_INSTANCE = 0xFFFFFFFF
MOST_INSTANCES = 64
"""More than any GPU can be cut into by MIG."""
STALE_S = 5.0
"""Shares older than this tell nothing of now: at first the driver hands out all that it has buffered."""


class ProcessTable:
    """The processes of the GPU, or of the MIG instance, that `ask` asks, by their pids.

    `host` tells what is behind the pids; without it no more than pids, kinds and GPU memory are told. Shares of the
    SMs are not known on MIG, neither of the GPU nor of its instances; who is in an instance is told of that alone.
    """

    def __init__(self, ask: Ask, host: HostProcesses | None, *, mig: bool = False) -> None:
        self._ask = ask
        self._host = host
        self._mig = mig
        self._shares = SmShares(ask.nvml, ask.handle) if host is not None and not mig else None

    def table(self, memory_total_bytes: int | None) -> tuple[GpuProcess, ...] | None:
        """One row per pid, the lowest first; None where NVML does not tell who is there.

        Memory is None where the driver does not tell (Windows' WDDM), or tells more than the GPU has.
        """
        lists = [(kind, infos) for name, kind in LISTS if (infos := self._list(name)) is not None]
        if not lists:
            return None
        memory: dict[int, int | None] = {}
        kinds: dict[int, ProcessKind] = {}
        for kind, infos in lists:
            for info in infos:
                if info.pid not in NO_PIDS and (self._mig or info.gpuInstanceId == NO_INSTANCE):
                    kinds[info.pid] = kind if kinds.get(info.pid, kind) == kind else "both"
                    used = _believable(info.usedGpuMemory, memory_total_bytes)
                    memory[info.pid] = max((m for m in (memory.get(info.pid), used) if m is not None), default=None)
        shares = self._ask("process utilization", self._shares.read) if self._shares is not None and memory else None
        return tuple(self._row(pid, memory[pid], kinds[pid], shares) for pid in sorted(memory))

    def _row(
        self, pid: int, memory_used_bytes: int | None, kind: ProcessKind, shares: dict[int, float | None] | None
    ) -> GpuProcess:
        host = self._host.look(pid) if self._host is not None else HostProcess()
        return GpuProcess(
            pid,
            memory_used_bytes=memory_used_bytes,
            user=host.user,
            name=host.name,
            kind=kind,
            command=host.command,
            sm_percent=None if shares is None else shares.get(pid, 0.0),
            cpu_percent=host.cpu_percent,
            host_memory_bytes=host.memory_bytes,
            started=host.started,
            ancestors=host.ancestors,
        )

    def _list(self, name: str) -> Sequence[Any] | None:
        """One of NVML's lists, from the newest version of its function whose answer makes sense.

        Drivers 535.43 to 535.86 fill longer structs than version 3 says (gpustat#161); version 2 has never changed.
        """
        told = None
        for function in (name + version for version in VERSIONS):
            infos = self._ask.tell(function)
            if infos is not None and makes_sense(infos):
                return infos
            told = infos if told is None else told
        return told


class SmShares:
    """Each process's share of a GPU's multiprocessors since the previous reading."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._seen_us = 0

    def read(self) -> dict[int, float | None]:
        """Percent by pid, None where the driver tells nonsense (nvtop#110: 37,100 %); a process that is not named
        rests.
        """
        samples = sorted(self._samples(), key=lambda sample: sample.timeStamp)
        newest_us = samples[-1].timeStamp if samples else self._seen_us
        if self._seen_us == 0:
            oldest_us = (time.time() - STALE_S) * 1e6
            samples = [sample for sample in samples if sample.timeStamp >= oldest_us]
        self._seen_us = newest_us
        return {sample.pid: float(sample.smUtil) if sample.smUtil <= 100 else None for sample in samples}

    def _samples(self) -> list[Any]:
        nvml = self._nvml
        try:
            return list(nvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen_us))
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_SUCCESS):  # pynvml raises the latter, too
                return []
            raise


def makes_sense(infos: Iterable[Any]) -> bool:
    """Whether a list's pids and MIG instances are possible ones, which they are not where structs do not match."""
    return all(
        info.pid not in NO_PIDS and (info.gpuInstanceId == NO_INSTANCE or info.gpuInstanceId < MOST_INSTANCES)
        for info in infos
    )


def _believable(used: int | None, memory_total_bytes: int | None) -> int | None:
    if used is None or (memory_total_bytes is not None and used > memory_total_bytes):
        return None
    return int(used)
