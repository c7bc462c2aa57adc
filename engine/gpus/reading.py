"""What the reader tells the watchdog: one JSON line per interval."""

from __future__ import annotations

import msgspec

from engine.contract.devices import Gpu, Nvml


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """NVML's answers at one moment. `gpus` says nothing unless `nvml.status` is "ok"."""

    nvml: Nvml
    gpus: tuple[Gpu, ...] = ()
