"""Tells which runs hold or wait for the devices of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.contract.devices import CPU

Ahead = Mapping[str, tuple[str, ...]]
"""Maps each device to the titles of the runs that hold it or wait for it, in that order."""

_NAMED = 2
"""The most runs named; the others are counted."""


def words(found: Ahead, devices: Sequence[str], names: Mapping[str, str], at_once: bool, action: str) -> str:
    """When a run on `devices` starts, and behind whom; "" where nobody is ahead of it. `names` are the GPUs', by UUID,
    and `action` is what the form's button says."""
    busy = [device for device in dict.fromkeys(devices) if found.get(device)]
    runs = list(dict.fromkeys(run for device in busy for run in found[device]))
    if not runs:
        return ""
    where = _listed(["the CPU" if device == CPU else names.get(device, device) for device in busy])
    if at_once:
        on = "is" if len(runs) == 1 else "are"
        return f"{_runs(runs)} {on} on {where} too: side by side, each is slower."
    begins = "Starts" if action == "Train" else "Resumes"
    return f"{begins} when {where} {'is' if len(busy) == 1 else 'are'} free: behind {_runs(runs)}."


def _runs(titles: Sequence[str]) -> str:
    named = [f"“{title}”" for title in titles[:_NAMED]]
    more = len(titles) - len(named)
    return _listed([*named, "1 more" if more == 1 else f"{more} more"] if more else named)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
