"""States of a GPU: lost, asleep, slowed down, failing."""

from __future__ import annotations

from dataclasses import dataclass

from engine.contract.devices import Gpu
from engine.gpus.quantities import ALARMING, THROTTLE_TEXTS
from engine.gpus.xid_words import PROGRAM_XIDS, xid_words
from gui.format import clock, counted
from gui.sources.devices import device_format

XID_RECENT_S = 3600.0
"""Age after which an Xid is only in the detail of a GPU."""


@dataclass(frozen=True)
class State:
    """State of a GPU; `alarming` if somebody should look into it."""

    text: str
    alarming: bool = False


def states(gpu: Gpu, now: float) -> tuple[State, ...]:
    """Return the unusual states of `gpu` at `now` (seconds since the epoch), alarming ones first."""
    if gpu.lost:
        return (State(device_format.lost(gpu), True),)
    if gpu.asleep:
        return (State("asleep, not woken"),)
    found = [*_throttled(gpu), *_xid(gpu, now), *_errors(gpu)]
    return tuple(sorted(found, key=lambda state: not state.alarming))


def joined(found: tuple[State, ...]) -> str:
    """Join the states to one line, with a sign for alarming ones, so that color is not the only cue."""
    text = " · ".join(state.text for state in found)
    sign = "⚠ " if any(state.alarming for state in found) else ""
    return sign + text[:1].upper() + text[1:]


def _throttled(gpu: Gpu) -> list[State]:
    return [State(THROTTLE_TEXTS[reason], reason in ALARMING) for reason in gpu.throttled or ()]


def _xid(gpu: Gpu, now: float) -> list[State]:
    """Return the latest Xid if it is recent."""
    if not gpu.xids or now - gpu.xids[-1].time > XID_RECENT_S:
        return []
    latest = gpu.xids[-1]
    return [State(f"{xid_words(latest.number)} ({clock(latest.time)})", latest.number not in PROGRAM_XIDS)]


def _errors(gpu: Gpu) -> list[State]:
    """Return the faults of the memory."""
    ecc, retired = gpu.ecc, gpu.retired
    found = []
    if ecc.uncorrected:
        found.append(State(f"{counted(ecc.uncorrected, 'uncorrected memory error')} since the driver was loaded", True))
    if retired.rows_failed:
        found.append(State("faulty memory could not be remapped", True))
    if retired.rows_pending or retired.pages_pending:
        found.append(State("faulty memory will be taken out of use at the next reset", True))
    if ecc.corrected:
        found.append(State(counted(ecc.corrected, "corrected memory error")))
    return found
