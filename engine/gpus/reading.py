"""What the reader tells the watchdog: one JSON line per interval."""

from __future__ import annotations

import msgspec

from engine.contract.devices import Gpu, Nvml, Topology


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """NVML's answers at one moment, and how long its calls took. `gpus` says nothing unless `nvml.status` is "ok".

    `topology` is told when it is new.
    """

    nvml: Nvml
    gpus: tuple[Gpu, ...] = ()
    topology: Topology | None = None
    call_s: float | None = None
