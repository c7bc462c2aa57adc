"""Message from the reader to the watchdog: one JSON line per interval."""

from __future__ import annotations

import msgspec

from engine.contract.devices import Gpu, Nvml, Topology


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """NVML's answers at one moment, with the duration of its calls in seconds.

    `gpus` is meaningful only if `nvml.status` is "ok". `topology` is set when it has changed.
    """

    nvml: Nvml
    gpus: tuple[Gpu, ...] = ()
    topology: Topology | None = None
    call_s: float | None = None
