"""Numbers of the GPUs in the terminal, and remarks on the GPUs' state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from engine.contract.devices import Gpu, gpu_title
from engine.gpus.quantities import ALARMING, PROGRAM_XIDS, THROTTLE_TEXTS, describe_xid
from engine.system.format import NOT_KNOWN


class Remark(NamedTuple):
    """Remark on a GPU. `alarming` is True if something is wrong."""

    text: str
    alarming: bool = True


def number_gpus(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the displayed number of each GPU by its UUID.

    The number is the CUDA index, as used by `--devices`, or a dash if CUDA doesn't list the GPU. If CUDA's indices of
    all GPUs are unknown, NVML's are used. A MIG instance has the number of its GPU followed by its own: "0/3".
    """
    is_cuda_order_known = any(gpu.cuda_index is not None for gpu in gpus if gpu.mig is None)
    numbers: dict[str, str] = {}
    for gpu in gpus:  # NVML lists a GPU before its instances
        if gpu.mig is not None:
            number = f"{numbers.get(gpu.mig.parent_uuid, NOT_KNOWN)}/{gpu.mig.gpu_instance}"
            if gpu.mig.compute_instance:  # not for the first one, 0
                number += f"/{gpu.mig.compute_instance}"
            numbers[gpu.uuid] = number
        else:
            index = gpu.cuda_index if is_cuda_order_known else gpu.nvml_index
            numbers[gpu.uuid] = NOT_KNOWN if index is None else str(index)
    return numbers


def list_remarks(gpu: Gpu) -> list[Remark]:
    """Return the remarks on a GPU, alarming ones first. A lost or sleeping GPU has only one."""
    if gpu.lost:
        if gpu.lost_since is None:
            return [Remark(f"{gpu_title(gpu)} is lost: the driver can't reach it; restart the computer")]
        return [Remark(f"lost since {format_clock_time(gpu.lost_since)}: these are its last values")]
    if gpu.asleep:
        return [Remark("asleep, not woken", alarming=False)]
    throttled = [
        Remark(THROTTLE_TEXTS[reason], reason in ALARMING) for reason in gpu.throttled or () if reason != "idle"
    ]
    found = [*_list_faults(gpu), *throttled]
    if gpu.mig_enabled:
        found.append(Remark("MIG is on", alarming=False))
    return sorted(found, key=lambda remark: not remark.alarming)


def format_clock_time(time_s: float) -> str:
    """Format a time in seconds since the epoch as local time, e.g. "14:02:31"."""
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def _list_faults(gpu: Gpu) -> list[Remark]:
    """Return remarks on the errors and the faulty memory of a GPU."""
    found = []
    if gpu.xids:
        last = gpu.xids[-1]
        more = f" ({len(gpu.xids) - 1} before it)" if len(gpu.xids) > 1 else ""
        text = f"{describe_xid(last.number)}, at {format_clock_time(last.time)}{more}"
        found.append(Remark(text, alarming=last.number not in PROGRAM_XIDS))
    if gpu.ecc.uncorrected:
        found.append(Remark(f"{gpu.ecc.uncorrected} uncorrected memory errors since the driver was loaded"))
    if gpu.retired.rows_failed:
        found.append(Remark("remapping of a faulty memory row has failed: have the GPU replaced"))
    if gpu.retired.rows_pending or gpu.retired.pages_pending:
        found.append(Remark("faulty memory is taken out of use at the next reset: restart the computer"))
    return found
