"""Time intervals in which runs on this machine have recently been executed, with their devices.

An execution is a life of a run's supervisor. A run that has been resumed has several.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, NamedTuple

from PySide6.QtCore import QObject, Signal

from engine.contract.devices import is_gpu
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
from engine.runs.folder import ENDED, RunFolder, RunSummary, State
from engine.runs.resume import last_execution
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_LINE_BYTES, iterate_complete_lines, open_file
from gui.sources.background import describe_error
from gui.titles import run_title

RECENT_S = 86_400.0
"""Maximum age in seconds of an ended execution that graphs mark."""


@dataclass(frozen=True)
class RunInterval:
    """Time interval of one execution of a run, for graphs. Times are in seconds since the epoch.

    Attributes:
        devices: Devices that it uses or used, or () while it is queued.
        start: Time at which it got its devices.
        end: Time at which it ended, or None while it is active.
        supervisor: Process id of the local supervisor, or None if there is none.
    """

    run_id: str
    name: str
    devices: tuple[str, ...]
    state: State
    start: float
    end: float | None = None
    supervisor: int | None = None

    @property
    def is_active(self) -> bool:
        return self.end is None


class RunIntervals(QObject):
    """Intervals of the executions of runs that are active or ended within the last 24 hours.

    Attributes:
        intervals: Interval of each execution, oldest first.
        unread: Errors of unreadable runs, by run id. Their last known executions remain in `intervals`.

    Signals:
        changed(): `intervals` or `unread` has changed.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.intervals: tuple[RunInterval, ...] = ()
        self.unread: Mapping[str, str] = {}

    def replace(self, intervals: tuple[RunInterval, ...], unread: Mapping[str, str]) -> None:
        """Replace `intervals` and `unread`, and emit `changed` if one of them differs."""
        if (intervals, unread) != (self.intervals, self.unread):
            self.intervals, self.unread = intervals, unread
            self.changed.emit()

    def run_names_by_gpu(self) -> dict[str, str]:
        """Return the names of active runs by the GPUs that they use. Keys of remote GPUs are "HOST:UUID"."""
        return {
            device: interval.name
            for interval in self.intervals
            if interval.is_active
            for device in interval.devices
            if is_gpu(device)
        }


class _ReadRun(NamedTuple):
    """Intervals of a run's executions, and the summary that the run had when its log was read."""

    summary: RunSummary
    intervals: tuple[RunInterval, ...]


class IntervalReader:
    """Reader of the intervals of executions, which caches those of an ended run until the run's summary changes."""

    def __init__(self) -> None:
        self._known_runs: dict[str, _ReadRun] = {}  # results of the last reading, by run id

    def read(self, runs: Collection[RunSummary], unread: dict[str, str]) -> tuple[RunInterval, ...]:
        """Return the intervals of executions of `runs` that are active or ended in the last 24 hours, oldest first.

        If a run can't be read, its error is added to `unread` by run id, and its last known intervals are returned.
        """
        known_runs = {run_id: self._known_runs[run_id] for run_id in unread if run_id in self._known_runs}
        for run in runs:
            previous = self._known_runs.get(run.run_id)
            if previous is not None and previous.summary == run and run.state in ENDED:
                known_runs[run.run_id] = previous
                continue
            try:
                known_runs[run.run_id] = _ReadRun(run, _read_intervals(run))
            except (FileNotFoundError, PermissionError):
                continue  # deleted or not readable
            except Exception as error:  # a damaged run must not hide the others
                unread[run.run_id] = describe_error(error)
                if previous is not None:
                    known_runs[run.run_id] = previous
        self._known_runs = known_runs
        oldest = time.time() - RECENT_S
        all_intervals = (interval for read in known_runs.values() for interval in read.intervals)
        recent = (interval for interval in all_intervals if interval.end is None or interval.end >= oldest)
        return tuple(sorted(recent, key=lambda interval: interval.start))


def _read_intervals(summary: RunSummary) -> tuple[RunInterval, ...]:
    """Read the intervals of a run's executions, or none if the run ended more than `RECENT_S` seconds ago.

    Raises OSError, or any other exception if a file is damaged.
    """
    run, name = RunFolder(summary.folder), run_title(summary)
    if summary.state in ENDED and _is_log_too_old(run):
        return ()
    last, parsed = run.last_event(), read_executions(run)
    earlier = [
        RunInterval(summary.run_id, name, each.devices, each.state, each.start, each.end)
        for each in parsed
        if each.state is not None  # not the newest, whose state is in the summary
    ]
    devices = parsed[-1].devices if parsed else tuple(dict.fromkeys(summary.devices))
    start = parsed[-1].start if parsed else summary.started
    if summary.state in ENDED:
        end, supervisor = (max(last.time, start) if last is not None else start), None
    else:
        end, supervisor = None, run.supervisor()
    newest = RunInterval(
        run_id=summary.run_id,
        name=name,
        devices=() if summary.state == "waiting" else devices,
        state=summary.state,
        start=start,
        end=end,
        # Otherwise the process is on another machine.
        supervisor=supervisor.pid if supervisor is not None and not summary.slurm else None,
    )
    return (*earlier, newest)


def _is_log_too_old(run: RunFolder) -> bool:
    """Return True if the run's log exists and was last written more than `RECENT_S` seconds ago."""
    try:
        return run.events_file.stat().st_mtime < time.time() - RECENT_S
    except FileNotFoundError:
        return False


_BEGINNING = b'\n{"type":"run_started"'
"""Tag of the event that begins an execution. It can be found without decoding every line."""

QUEUE_EVENTS = (Waiting, LogLine, Warned, CommandReceived, EventsLost)
"""Types of events that a queued run may log."""


@dataclass(frozen=True)
class Execution:
    """Execution as read from the log of a run. Times are in seconds since the epoch.

    Attributes:
        start: Time at which it got its devices, or at which it joined the queue if it never got them.
        end: Time of its last event, or None for the newest execution.
        state: Outcome, or None for the newest execution, whose state is `RunFolder.state`.
    """

    devices: tuple[str, ...]
    start: float
    end: float | None = None
    state: State | None = None


def read_executions(run: RunFolder) -> list[Execution]:
    """Read all executions of a run in order. Return an empty list if it has no log. Raises OSError."""
    try:
        log = open_file(run.events_file)
    except FileNotFoundError:
        return []
    with log:
        if not os.fstat(log.fileno()).st_size:
            return []
        offsets = _find_offsets(log) if last_execution(run) > 1 else [0]  # without reading a long log in full
        parsed = [_decode_execution(log, offset) for offset in offsets]
        ends = [_decode_last_event(log, offset) for offset in offsets[1:]]
    decoded = [each for each in parsed if each is not None]
    if len(decoded) != len(offsets):
        return decoded[-1:]  # with damaged lines, only the newest execution is certain
    earlier = decoded[:-1]
    return [_end_execution(each, last) for each, last in zip(earlier, ends, strict=True)] + decoded[-1:]


def _find_offsets(log: IO[bytes]) -> list[int]:
    """Return the byte offset of the first event of each execution.

    The log is searched for `_BEGINNING`, which is a line break and the beginning of such an event's line.
    """
    offsets, start, remainder = [0], 0, b""
    while b"\n" in (chunk := log.read(MAX_LINE_BYTES)):  # a chunk without a newline is the end, or damaged
        text = remainder + chunk
        position = text.find(_BEGINNING)
        while position >= 0:
            offsets.append(start + position + 1)  # after the line break
            position = text.find(_BEGINNING, position + 1)
        remainder = text[1 - len(_BEGINNING) :]  # may contain the start of a `_BEGINNING` that the next chunk completes
        start += len(text) - len(remainder)
    return offsets


def _decode_execution(log: IO[bytes], offset: int) -> Execution | None:
    """Decode the execution that begins at `offset`. Return None if none begins there."""
    log.seek(offset)
    events = valid_events(iterate_complete_lines(log))
    started = next(events, None)
    if not isinstance(started, RunStarted):
        return None
    return Execution(tuple(dict.fromkeys(started.job.parallel.devices)), _find_device_time(started, events))


def _find_device_time(started: RunStarted, events: Iterator[AnyEvent]) -> float:
    """Return the time when the execution got its devices, or its start time if its log ends before that."""
    start: float | None = started.time  # None while it waits in the queue
    for event in events:
        if isinstance(event, Waiting):
            start = None
        elif not isinstance(event, QUEUE_EVENTS):
            start = event.time if start is None else start
            # The phase "starting" is also logged before the queue.
            if not (isinstance(event, PhaseChanged) and event.phase == "starting"):
                break
    return started.time if start is None else start


def _end_execution(execution: Execution, last: AnyEvent | None) -> Execution:
    """Return `execution` with its end and outcome, derived from its event `last`.

    `last` is None if the last event is damaged. The execution then counts as interrupted right at its start.
    """
    state: State = last.outcome if isinstance(last, RunFinished) else "interrupted"
    end = max(last.time, execution.start) if last is not None else execution.start
    return Execution(execution.devices, execution.start, end, state)


_END_BYTES = 1 << 16
"""Bytes that are searched for the last event before an offset. A longer event counts as damaged."""


def _decode_last_event(log: IO[bytes], offset: int) -> AnyEvent | None:
    """Decode the event in the line that ends at `offset`. Return None if it is damaged."""
    log.seek(max(0, offset - _END_BYTES))
    line = log.read(min(offset, _END_BYTES)).rstrip(b"\n").rpartition(b"\n")[2]
    return next(valid_events([line]), None)


def valid_events(lines: Iterable[bytes]) -> Iterator[AnyEvent]:
    """Yield the events in the `lines` of a log. Skip damaged lines."""
    for line in lines:
        try:
            yield EVENT.decode(line)
        except NOT_DECODED:
            continue
