"""Descriptions of devices and GPU states, for the panel, the Monitor page and screen readers."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.contract.devices import Cpu, Gpu, GpuProcess
from engine.gpus.quantities import ALARMING, PROGRAM_XIDS, THROTTLE_TEXTS, describe_xid
from gui.format import celsius, clock, counted, percent, size, size_of, watts
from gui.translation import tr


def describe_gpu_numbers(gpu: Gpu) -> str:
    """Describe the number of a GPU in CUDA and in NVML, as in "CUDA calls it 1, NVML 0"."""
    if gpu.cuda_index is None:
        return tr("NVML calls it {nvml_index}; CUDA does not list it").format(nvml_index=gpu.nvml_index)
    if gpu.cuda_index == gpu.nvml_index:
        return tr("CUDA and NVML call it {cuda_index}").format(cuda_index=gpu.cuda_index)
    return tr("CUDA calls it {cuda_index}, NVML {nvml_index}").format(
        cuda_index=gpu.cuda_index, nvml_index=gpu.nvml_index
    )


def short_name(name: str) -> str:
    """Return a device's name without its vendor."""
    return name.removeprefix("NVIDIA ").removeprefix("AMD ").removeprefix("Intel(R) ")


def gpu_sort_key(gpu: Gpu) -> tuple[bool, int, int, int, int]:
    """Return a sort key for GPUs: their CUDA number, or their NVML number for GPUs unknown to CUDA.

    GPUs unknown to CUDA are last. MIG instances follow their GPU.
    """
    instance = (-1, 0) if gpu.mig is None else (gpu.mig.gpu_instance, gpu.mig.compute_instance or 0)
    return gpu.cuda_index is None, gpu.cuda_index if gpu.cuda_index is not None else 0, gpu.nvml_index, *instance


def describe_use(processes: tuple[GpuProcess, ...] | None, me: str | None = None) -> str:
    """Describe who uses a GPU and its memory, as in "busy: root, 12.0 GiB".

    Returns "in use by you, …" if only `me` uses it, and "" if nobody does or if the processes are unknown (None).
    Processes of unknown users, as in a container, are only counted.
    """
    if not processes:
        return ""
    memory = _sum_memory_by_user(processes)
    if me is not None and set(memory) == {me}:
        return tr("in use by {user}").format(user=_format_user_memory(tr("you"), memory[me]))
    return tr("busy: {users}").format(users=_list_users(memory, me))


def list_users(processes: Sequence[GpuProcess]) -> str:
    """List the users of a GPU with their memory, as in "root, 12.0 GiB; ana, 3.0 GiB"."""
    return _list_users(_sum_memory_by_user(processes))


def _list_users(memory: Mapping[str, int | None], me: str | None = None) -> str:
    """List users and their memory in bytes, if it is known. The user `me` is called "you"."""
    return "; ".join(
        _format_user_memory(tr("you") if user == me else user, memory_bytes) for user, memory_bytes in memory.items()
    )


def _sum_memory_by_user(processes: Sequence[GpuProcess]) -> dict[str, int | None]:
    """Return the used bytes of GPU memory by user, or None for a user if the memory of a process is unknown."""
    nameless = [process for process in processes if not (process.user or process.name)]
    nameless_text = tr("{count} processes").format(count=len(nameless)) if len(nameless) > 1 else ""
    memory: dict[str, int | None] = {}
    for process in processes:
        user = process.user or process.name or nameless_text or tr("process {pid}").format(pid=process.pid)
        previous_bytes = memory.get(user, 0)
        memory[user] = (
            None
            if previous_bytes is None or process.memory_used_bytes is None
            else previous_bytes + process.memory_used_bytes
        )
    return memory


def describe_use_briefly(processes: tuple[GpuProcess, ...] | None, me: str | None = None) -> str:
    """Return a shorter form of `describe_use` for narrow rows, as in "busy: 12.0 GiB".

    Names of users are left out if there are several users, or only unknown ones.
    """
    if not processes or len({process.user for process in processes if process.user}) == 1:
        return describe_use(processes, me)
    known_bytes = [process.memory_used_bytes for process in processes if process.memory_used_bytes is not None]
    return tr("busy: {size}").format(size=size(sum(known_bytes))) if known_bytes else tr("busy")


def _format_user_memory(user: str, memory_bytes: int | None) -> str:
    """Return the name of a user and, if it is known, the memory of the user's processes."""
    return user if memory_bytes is None else f"{user}, {size(memory_bytes)}"


@lru_cache(maxsize=1)
def current_user() -> str | None:
    """Return the name of the user who runs this window, or None if unknown."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


def describe_loss(gpu: Gpu) -> str:
    """Describe since when a GPU has been missing, as in "lost since 14:02:31"."""
    return tr("lost") if gpu.lost_since is None else tr("lost since {time}").format(time=clock(gpu.lost_since))


def describe_gpu(gpu: Gpu) -> str:
    """Describe a GPU in a sentence for screen readers."""
    if gpu.lost:
        return f"{gpu.name} {gpu.uuid}: {describe_loss(gpu)}"
    if gpu.asleep:
        return tr("{name} {uuid}: asleep, not woken").format(name=gpu.name, uuid=gpu.uuid)
    parts = [
        tr("utilization {percent}").format(percent=percent(gpu.utilization_percent))
        if gpu.utilization_percent is not None
        else "",
        tr("memory {memory}").format(memory=size_of(gpu.memory_used_bytes, gpu.memory_total_bytes))
        if gpu.memory_used_bytes is not None
        else "",
        celsius(gpu.temperature_c) if gpu.temperature_c is not None else "",
        watts(gpu.power_w) if gpu.power_w is not None else "",
        describe_use(gpu.processes, current_user()),
    ]
    return f"{gpu.name} {gpu.uuid}, {describe_gpu_numbers(gpu)}: " + (", ".join(filter(None, parts)) or tr("no data"))


def describe_cpu(cpu: Cpu) -> str:
    """Describe a processor in a sentence for screen readers."""
    return tr("{name}, {cores}: load {load}, memory {memory}").format(
        name=cpu.name,
        cores=counted(len(cpu.core_load_percent), "core"),
        load=percent(cpu.load_percent),
        memory=size_of(cpu.memory_used_bytes, cpu.memory_total_bytes),
    )


XID_RECENT_S = 3600.0
"""Maximum age in seconds of an Xid error that is shown outside of a GPU's details."""


@dataclass(frozen=True)
class GpuState:
    """Unusual state of a GPU. It is `alarming` if the user should investigate it."""

    text: str
    alarming: bool = False


def states(gpu: Gpu, now: float) -> tuple[GpuState, ...]:
    """Return the unusual states of `gpu` at time `now` (seconds since the epoch), alarming ones first."""
    if gpu.lost:
        return (GpuState(describe_loss(gpu), alarming=True),)
    if gpu.asleep:
        return (GpuState(tr("asleep, not woken")),)
    found = [*_throttle_states(gpu), *_xid_states(gpu, now), *_memory_error_states(gpu)]
    return tuple(sorted(found, key=lambda state: not state.alarming))


def join_states(found: tuple[GpuState, ...]) -> str:
    """Join states into one line.

    If one of them is alarming, the line starts with a warning sign, so that color isn't the only cue.
    """
    text = " · ".join(state.text for state in found)
    sign = "⚠ " if any(state.alarming for state in found) else ""
    return sign + text[:1].upper() + text[1:]


def _throttle_states(gpu: Gpu) -> list[GpuState]:
    """Return a state for each reason for throttling that a GPU reports."""
    return [GpuState(THROTTLE_TEXTS[reason], reason in ALARMING) for reason in gpu.throttled or ()]


def _xid_states(gpu: Gpu, now: float) -> list[GpuState]:
    """Return the state for the latest Xid error (an error code of the driver) if it is recent."""
    if not gpu.xids or now - gpu.xids[-1].time > XID_RECENT_S:
        return []
    latest = gpu.xids[-1]
    is_hardware_fault = latest.number not in PROGRAM_XIDS
    return [GpuState(f"{describe_xid(latest.number)} ({clock(latest.time)})", is_hardware_fault)]


def _memory_error_states(gpu: Gpu) -> list[GpuState]:
    """Return a state for each kind of memory error that a GPU reports, the most severe first."""
    ecc, retired = gpu.ecc, gpu.retired
    found = []
    if ecc.uncorrected:
        found.append(
            GpuState(
                tr("{errors} since the driver was loaded").format(
                    errors=counted(ecc.uncorrected, "uncorrected memory error")
                ),
                alarming=True,
            )
        )
    if retired.rows_failed:
        found.append(GpuState(tr("faulty memory could not be remapped"), alarming=True))
    if retired.rows_pending or retired.pages_pending:
        found.append(GpuState(tr("faulty memory will be taken out of use at the next reset"), alarming=True))
    if ecc.corrected:
        found.append(GpuState(counted(ecc.corrected, "corrected memory error")))
    return found
