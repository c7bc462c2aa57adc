"""Warnings about the GPUs that a job will use, with a choice of other GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from engine.checks.gpu_checks import offer_other_gpu
from engine.contract.devices import Gpu, Snapshot, gpu_title
from engine.contract.problems import Problem
from gui.format import size_of
from gui.sources.devices.device_format import states
from gui.translation import tr

_FULL = 0.97
"""Minimum fraction of used memory that counts as full."""

Warnings = dict[str, tuple[Problem, ...]]


def collect_warnings(
    alerts: Mapping[str, tuple[Problem, ...]], machine: Snapshot, run_names: Mapping[str, str], devices: Sequence[str]
) -> Warnings:
    """Return the warnings about the alerted devices and this machine's GPUs, by device.

    Args:
        alerts: Active alerts as problems, by device. They replace warnings about the current state of the device.
        machine: Last snapshot of this machine.
        run_names: Names of the runs that use GPUs, by GPU. The next run waits for them, so their memory will be free.
        devices: Devices of the job.
    """
    warnings: Warnings = dict(alerts)
    for gpu in machine.gpus:
        problems = warnings.get(gpu.uuid) or _find_current_problems(gpu, machine.time, is_held=gpu.uuid in run_names)
        if problems and gpu.uuid in devices:
            choices = offer_other_gpu(devices, gpu, machine)
            # The last problem offers to use another GPU.
            problems = (*problems[:-1], msgspec.structs.replace(problems[-1], choices=choices))
        if problems:
            warnings[gpu.uuid] = problems
    return warnings


def _find_current_problems(gpu: Gpu, now: float, *, is_held: bool) -> tuple[Problem, ...]:
    """Return a warning if the GPU is in an alarming state (see `states`) or its memory is full, otherwise ().

    Full memory is normal if one of the user's runs uses the GPU (`is_held`). There is no warning about a lost GPU,
    because another check reports it as an error.
    """
    if gpu.lost:
        return ()
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    texts = [state.text for state in states(gpu, now) if state.alarming]
    is_full = used is not None and total and used + (gpu.memory_reserved_bytes or 0) >= _FULL * total
    if is_full and not is_held:
        texts.append(tr("{used} are in use").format(used=size_of(used, total)))
    if not texts:
        return ()
    title, text = gpu_title(gpu), "; ".join(texts)
    return (Problem("devices", f"{title}: {text}.", tr("Choose another GPU if one is free."), "warning"),)
