"""Tells which runs hold or wait for the devices of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.contract.devices import CPU
from engine.system.format import listed
from gui.titles import device_title

Ahead = Mapping[str, tuple[str, ...]]
"""Maps each device to the titles of the runs that hold it or wait for it, in that order."""

_NAMED = 2
"""The most runs named; the others are counted."""


def words(found: Ahead, devices: Sequence[str], names: Mapping[str, str], at_once: bool) -> str:
    """Which runs hold or wait for `devices`, and what that means for a run that starts now or, unless `at_once`, when
    they are free; "" where there are none. `names` are the GPUs', by UUID.
    """
    busy = [device for device in dict.fromkeys(devices) if found.get(device)]
    runs = list(dict.fromkeys(run for device in busy for run in found[device]))
    if not runs:
        return ""
    where = listed("the CPU" if device == CPU else names.get(device) or device_title(device) for device in busy)
    others = listed([f"“{title}”" for title in runs], most=_NAMED)
    if at_once:
        return f"Shares {where} with {others}; sharing slows every run down."
    return f"Waits for {where}, behind {others}."
