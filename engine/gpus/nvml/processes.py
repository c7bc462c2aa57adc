"""Read the processes that use a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from engine.contract.devices import GpuProcess, ProcessKind
from engine.gpus.host import HostProcess, HostProcesses
from engine.gpus.nvml.calls import DeviceCalls

LISTS: tuple[tuple[str, ProcessKind], ...] = (
    ("nvmlDeviceGetComputeRunningProcesses", "compute"),
    ("nvmlDeviceGetMPSComputeRunningProcesses", "compute"),
    ("nvmlDeviceGetGraphicsRunningProcesses", "graphics"),
)
VERSIONS = ("_v3", "_v2")
"""Suffixes of the NVML functions that list processes, newest first. Drivers before R510 have only the second one."""
NO_PIDS = (0, 0xFFFFFFFF)
NO_INSTANCE = 0xFFFFFFFF
MAX_INSTANCES = 64
"""Maximum plausible number of MIG instances on a GPU."""
STALE_S = 5.0
"""Age in seconds above which samples of a process's SM utilization are ignored in the first reading.

For that reading, the driver returns its entire buffer.
"""


class ProcessTable:
    """Processes on a GPU or MIG instance.

    Processes in a MIG instance are not listed for the entire GPU.
    """

    def __init__(self, calls: DeviceCalls, host: HostProcesses | None, *, mig: bool = False) -> None:
        """Create the table of a GPU, or of a MIG instance if `mig` is True.

        `host` looks up facts about a process by its id. If it is None, only process ids, kinds and GPU memory are
        reported, without the SM utilization. In a MIG instance, that is unknown.
        """
        self._calls = calls
        self._host = host
        self._mig = mig
        self._sm_utilization = SmUtilization(calls.nvml, calls.handle) if host is not None and not mig else None

    def read(self, memory_total_bytes: int | None) -> tuple[GpuProcess, ...] | None:
        """Return the processes in ascending order of ids, or None if NVML does not list processes.

        The memory of a process is None if the driver does not report it (Windows' WDDM), or reports more than the
        `memory_total_bytes` of the GPU.
        """
        lists = [(kind, infos) for name, kind in LISTS if (infos := self._list_processes(name)) is not None]
        if not lists:
            return None
        memory: dict[int, int | None] = {}
        kinds: dict[int, ProcessKind] = {}
        for kind, infos in lists:
            for info in infos:
                is_in_instance = info.gpuInstanceId != NO_INSTANCE
                if info.pid in NO_PIDS or (is_in_instance and not self._mig):
                    continue
                # A process that computes and draws is in several lists, each with all of its memory.
                kinds[info.pid] = kind if kinds.get(info.pid, kind) == kind else "both"
                used = _drop_implausible_memory(info.usedGpuMemory, memory_total_bytes)
                known_values = [value for value in (memory.get(info.pid), used) if value is not None]
                memory[info.pid] = max(known_values, default=None)
        sm_percent_by_pid = (
            self._calls.attempt("process utilization", self._sm_utilization.read)
            if self._sm_utilization is not None and memory
            else None
        )
        return tuple(self._create_process(pid, memory[pid], kinds[pid], sm_percent_by_pid) for pid in sorted(memory))

    def _create_process(
        self,
        pid: int,
        memory_used_bytes: int | None,
        kind: ProcessKind,
        sm_percent_by_pid: dict[int, float | None] | None,
    ) -> GpuProcess:
        """Create the entry of a process from NVML's facts about it and those of the operating system."""
        host = self._host.read(pid) if self._host is not None else HostProcess()
        return GpuProcess(
            pid,
            memory_used_bytes=memory_used_bytes,
            user=host.user,
            name=host.name,
            kind=kind,
            command=host.command,
            sm_percent=None if sm_percent_by_pid is None else sm_percent_by_pid.get(pid, 0.0),  # idle ones are left out
            cpu_percent=host.cpu_percent,
            host_memory_bytes=host.memory_bytes,
            started=host.started,
            ancestors=host.ancestors,
        )

    def _list_processes(self, name: str) -> Sequence[Any] | None:
        """Return the processes that the NVML function `name` lists.

        The versions of the function are called from the newest to the oldest, until one gives a plausible answer. If
        none does, the first answer is returned, or None if there is no answer. Drivers 535.43 to 535.86 fill longer
        structs than version 3 specifies (gpustat#161). Version 2 has never changed.
        """
        newest_answer = None
        for version in VERSIONS:
            infos = self._calls.call(name + version)
            if infos is not None and are_plausible(infos):
                return infos
            if newest_answer is None:
                newest_answer = infos
        return newest_answer


class SmUtilization:
    """Reader of the SM utilization of each process since the previous reading."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._newest_us = 0

    def read(self) -> dict[int, float | None]:
        """Return the SM utilization of each process in percent, keyed by process id.

        Implausible values (nvtop#110: 37,100%) are None. Idle processes are left out.
        """
        samples = sorted(self._read_samples(), key=lambda sample: sample.timeStamp)
        newest_us = samples[-1].timeStamp if samples else self._newest_us
        if self._newest_us == 0:  # the first reading
            oldest_us = (time.time() - STALE_S) * 1e6
            samples = [sample for sample in samples if sample.timeStamp >= oldest_us]
        self._newest_us = newest_us
        return {sample.pid: float(sample.smUtil) if sample.smUtil <= 100 else None for sample in samples}

    def _read_samples(self) -> list[Any]:
        """Return NVML's samples since the last reading. Raises NVMLError."""
        nvml = self._nvml
        try:
            return list(nvml.nvmlDeviceGetProcessUtilization(self._handle, self._newest_us))
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_SUCCESS):  # pynvml raises the latter, too
                return []
            raise


def are_plausible(infos: Iterable[Any]) -> bool:
    """Return True if all process ids and MIG instances in NVML's structs `infos` are plausible.

    If the driver uses another version of the struct, they are not plausible.
    """
    return all(
        info.pid not in NO_PIDS and (info.gpuInstanceId == NO_INSTANCE or info.gpuInstanceId < MAX_INSTANCES)
        for info in infos
    )


def _drop_implausible_memory(used: int | None, memory_total_bytes: int | None) -> int | None:
    """Return the memory of a process in bytes, or None if it exceeds that of the GPU."""
    if used is None or (memory_total_bytes is not None and used > memory_total_bytes):
        return None
    return int(used)
