"""What a GPU gives cause for saying, beyond its numbers."""

from __future__ import annotations

import time
from typing import NamedTuple

from engine.contract.devices import Gpu, gpu_title
from engine.gpus.quantities import ALARMING, THROTTLE_TEXTS
from engine.gpus.xid_words import PROGRAM_XIDS, xid_words


class Remark(NamedTuple):
    """`alarming` if something is wrong, rather than of the GPU's usual work."""

    text: str
    alarming: bool = True


def remarks(gpu: Gpu) -> list[Remark]:
    """The graver ones first. Of a GPU that is lost or asleep nothing else is said, since nothing else is known."""
    if gpu.lost:
        if gpu.lost_since is None:
            return [Remark(f"{gpu_title(gpu)} is lost: the driver can't reach it; restart the computer")]
        return [Remark(f"lost since {clock(gpu.lost_since)}: these are its last values")]
    if gpu.asleep:
        return [Remark("asleep, not woken", alarming=False)]
    held = [Remark(THROTTLE_TEXTS[reason], reason in ALARMING) for reason in gpu.throttled or () if reason != "idle"]
    found = [*_faults(gpu), *held]
    if gpu.mig_enabled:
        found.append(Remark("MIG is on", alarming=False))
    return sorted(found, key=lambda remark: not remark.alarming)


def clock(moment: float) -> str:
    """14:02:31, by this host's clock."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


def _faults(gpu: Gpu) -> list[Remark]:
    found = []
    if gpu.xids:
        last = gpu.xids[-1]
        more = f" ({len(gpu.xids) - 1} before it)" if len(gpu.xids) > 1 else ""
        words = f"{xid_words(last.number)}, at {clock(last.time)}{more}"
        found.append(Remark(words, alarming=last.number not in PROGRAM_XIDS))
    if gpu.ecc.uncorrected:
        found.append(Remark(f"{gpu.ecc.uncorrected} uncorrected memory errors since the driver was loaded"))
    if gpu.retired.rows_failed:
        found.append(Remark("remapping of a faulty memory row has failed: have the GPU replaced"))
    if gpu.retired.rows_pending or gpu.retired.pages_pending:
        found.append(Remark("faulty memory is taken out of use at the next reset: restart the computer"))
    return found
