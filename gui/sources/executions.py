"""The executions of a run as its log tells of them: on which devices, from when, and to what end."""

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
"""The encoder writes the tag first, so that it is searched for without decoding what lies between."""

_IN_LINE = (LogLine, Warned, CommandReceived, EventsLost)
"""What a run may say without having left the line."""


@dataclass(frozen=True)
class Execution:
    """Times in seconds since the epoch. `start` is when it came to its devices, or when it began to wait for them where
    it never did. `end` and `state` are None for the last one: what became of that is for `RunFolder.state` to say.
    """

    devices: tuple[str, ...]
    start: float
    end: float | None = None
    state: State | None = None


def executions(run: RunFolder) -> list[Execution]:
    """All of them in order; none where the log tells of none. Raises OSError, but not where there is no log."""
    try:
        log = run.events_file.open("rb")
    except FileNotFoundError:
        return []
    with log:
        if not os.fstat(log.fileno()).st_size:
            return []
        offsets = _offsets(log) if _went_on(run) else [0]
        found = [_execution(log, offset) for offset in offsets]
        ends = [_last_before(log, offset) for offset in offsets[1:]]
    told = [each for each in found if each is not None]
    if len(told) != len(offsets):
        return told[-1:]  # torn lines: only the newest is sure
    return [_ended(each, end) for each, end in zip(told, ends, strict=False)] + told[-1:]


def _went_on(run: RunFolder) -> bool:
    """Whether there is more than one, without which a long log need not be gone through."""
    supervisor, last = run.supervisor(), run.last_event()
    known = [supervisor.execution if supervisor is not None else 1]
    return max(known + ([last.execution] if isinstance(last, RunFinished) else [])) > 1


def _offsets(log: IO[bytes]) -> list[int]:
    """Where in the log executions begin."""
    with mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        offsets, at = [0], whole.find(_BEGINNING)
        while at >= 0:
            offsets.append(at + 1)
            at = whole.find(_BEGINNING, at + 1)
    return offsets


def _execution(log: IO[bytes], offset: int) -> Execution | None:
    """The one that begins at `offset`, None where that is no beginning."""
    log.seek(offset)
    events = _events(log)
    started = next(events, None)
    if not isinstance(started, RunStarted):
        return None
    return Execution(tuple(dict.fromkeys(started.job.parallel.devices)), _came(started, events))


def _came(started: RunStarted, events: Iterator[AnyEvent]) -> float:
    """When it came to its devices."""
    came: float | None = started.time
    for event in events:
        if isinstance(event, Waiting):
            came = None
        elif not isinstance(event, _IN_LINE):
            came = event.time if came is None else came
            if not (isinstance(event, PhaseChanged) and event.phase == "starting"):
                break
    return started.time if came is None else came


def _ended(execution: Execution, last: AnyEvent | None) -> Execution:
    state: State = last.outcome if isinstance(last, RunFinished) else "interrupted"
    end = max(last.time, execution.start) if last is not None else execution.start
    return Execution(execution.devices, execution.start, end, state)


_END_BYTES = 1 << 16


def _last_before(log: IO[bytes], offset: int) -> AnyEvent | None:
    """The event that ends at `offset`."""
    log.seek(max(0, offset - _END_BYTES))
    line = log.read(min(offset, _END_BYTES)).rstrip(b"\n").rpartition(b"\n")[2]
    return next(_events([line]), None)


def _events(lines: IO[bytes] | list[bytes]) -> Iterator[AnyEvent]:
    """Those that can be understood."""
    for line in lines:
        try:
            yield EVENT.decode(line)
        except NOT_DECODED:
            continue
