"""Executions of a run in its log: their devices, start, end and outcome."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from engine.contract.events import (
    EVENT,
    AnyEvent,
    CommandReceived,
    EventsLost,
    LogLine,
    PhaseChanged,
    RunFinished,
    RunStarted,
    Waiting,
    Warned,
)
from engine.runs.folder import RunFolder, State
from engine.system.decode_errors import NOT_DECODED

_BEGINNING = b'\n{"type":"run_started"'
"""Tag that begins an execution; it is searched for without decoding the lines between."""

_IN_LINE = (LogLine, Warned, CommandReceived, EventsLost)
"""Events that a queued run may log."""


@dataclass(frozen=True)
class Execution:
    """One execution of a run, with times in seconds since the epoch.

    Attributes:
        start: Time at which it got its devices, or began to wait for them if it never did.
        end: Time of its last event, None for the newest execution.
        state: Outcome, None for the newest execution, whose state is `RunFolder.state`.
    """

    devices: tuple[str, ...]
    start: float
    end: float | None = None
    state: State | None = None


def executions(run: RunFolder) -> list[Execution]:
    """Return all executions in order, none without a log. Raises OSError."""
    try:
        log = run.events_file.open("rb")
    except FileNotFoundError:
        return []
    with log:
        if not os.fstat(log.fileno()).st_size:
            return []
        offsets = _offsets(log) if _has_several(run) else [0]
        parsed = [_execution(log, offset) for offset in offsets]
        ends = [_last_before(log, offset) for offset in offsets[1:]]
    known = [each for each in parsed if each is not None]
    if len(known) != len(offsets):
        return known[-1:]  # torn lines: only the newest is sure
    return [_ended(each, end) for each, end in zip(known, ends, strict=False)] + known[-1:]


def _has_several(run: RunFolder) -> bool:
    """Return True if the run has several executions, without scanning a long log."""
    supervisor, last = run.supervisor(), run.last_event()
    known = [supervisor.execution if supervisor is not None else 1]
    return max(known + ([last.execution] if isinstance(last, RunFinished) else [])) > 1


def _offsets(log: IO[bytes]) -> list[int]:
    """Find the offsets at which executions begin."""
    with mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ) as view:
        offsets, at = [0], view.find(_BEGINNING)
        while at >= 0:
            offsets.append(at + 1)
            at = view.find(_BEGINNING, at + 1)
    return offsets


def _execution(log: IO[bytes], offset: int) -> Execution | None:
    """Parse the execution at `offset`; return None if none starts there."""
    log.seek(offset)
    events = _events(log)
    started = next(events, None)
    if not isinstance(started, RunStarted):
        return None
    return Execution(tuple(dict.fromkeys(started.job.parallel.devices)), _device_time(started, events))


def _device_time(started: RunStarted, events: Iterator[AnyEvent]) -> float:
    """Return the time at which the execution got its devices."""
    start: float | None = started.time
    for event in events:
        if isinstance(event, Waiting):
            start = None
        elif not isinstance(event, _IN_LINE):
            start = event.time if start is None else start
            if not (isinstance(event, PhaseChanged) and event.phase == "starting"):
                break
    return started.time if start is None else start


def _ended(execution: Execution, last: AnyEvent | None) -> Execution:
    state: State = last.outcome if isinstance(last, RunFinished) else "interrupted"
    end = max(last.time, execution.start) if last is not None else execution.start
    return Execution(execution.devices, execution.start, end, state)


_END_BYTES = 1 << 16


def _last_before(log: IO[bytes], offset: int) -> AnyEvent | None:
    """Parse the event that ends at `offset`."""
    log.seek(max(0, offset - _END_BYTES))
    line = log.read(min(offset, _END_BYTES)).rstrip(b"\n").rpartition(b"\n")[2]
    return next(_events([line]), None)


def _events(lines: IO[bytes] | list[bytes]) -> Iterator[AnyEvent]:
    """Decode the lines, skipping damaged ones."""
    for line in lines:
        try:
            yield EVENT.decode(line)
        except NOT_DECODED:
            continue
