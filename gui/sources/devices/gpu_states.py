"""What state a GPU is in, in words: lost, asleep, held back, failing."""

from __future__ import annotations

from dataclasses import dataclass

from engine.contract.devices import Gpu
from engine.gpus.quantities import ALARMING, THROTTLE_TEXTS
from engine.gpus.xid_words import PROGRAM_XIDS, xid_words
from gui.format import clock, counted
from gui.sources.devices import device_format

XID_SHOWN_S = 3600.0
"""For how long an Xid is part of a GPU's state; the detail lists them all."""


@dataclass(frozen=True)
class State:
    """`alarming` is what somebody should look into."""

    text: str
    alarming: bool = False


def states(gpu: Gpu, now: float) -> tuple[State, ...]:
    """What there is to say of `gpu` at `now` (seconds since the epoch), the alarming first; nothing where all is
    usual.
    """
    if gpu.lost:
        return (State(device_format.lost(gpu), True),)
    if gpu.asleep:
        return (State("asleep, not woken"),)
    found = [*_throttled(gpu), *_xid(gpu, now), *_errors(gpu)]
    return tuple(sorted(found, key=lambda state: not state.alarming))


def joined(found: tuple[State, ...]) -> str:
    """All states as one line, with a sign before what alarms, so that colour is not needed to tell."""
    text = " · ".join(state.text for state in found)
    sign = "⚠ " if any(state.alarming for state in found) else ""
    return sign + text[:1].upper() + text[1:]


def _throttled(gpu: Gpu) -> list[State]:
    return [State(THROTTLE_TEXTS[reason], reason in ALARMING) for reason in gpu.throttled or ()]


def _xid(gpu: Gpu, now: float) -> list[State]:
    """The latest Xid, where it is recent."""
    if not gpu.xids or now - gpu.xids[-1].time > XID_SHOWN_S:
        return []
    latest = gpu.xids[-1]
    return [State(f"{xid_words(latest.number)} ({clock(latest.time)})", latest.number not in PROGRAM_XIDS)]


def _errors(gpu: Gpu) -> list[State]:
    """What is wrong with the memory, where anything is."""
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
