"""Reader of a run's folder on a worker thread: log, state, and connection to the supervisor."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from engine.contract.events import EVENT, AnyEvent
from engine.contract.job import Job
from engine.runs.connection import RunConnection
from engine.runs.folder import ENDED, RunFolder, State
from engine.runs.interruptions import explain_interruption
from engine.runs.slurm import find_job_elsewhere
from engine.runs.slurm_job import FILE, SlurmJob, read_slurm
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_DAMAGED_BYTES, open_file
from gui.sources.run_intervals import valid_events
from gui.sources.run_queue import describe_device_user

_CHUNK_BYTES = 1 << 16
"""Number of bytes to decode at once, which takes a third of a millisecond.

The events are then still in the CPU's cache when they are sorted into arrays. With 1 MiB, reading a long log takes 1.5
times as long.
"""

FolderVersion = tuple[int, int]
"""Sum of the modification times of files that change when a run is resumed, in nanoseconds, and size of the log."""


@dataclass(frozen=True)
class PollResult:
    """Result of reading a run's folder, or a part of it, at one moment.

    Attributes:
        events: Events that were added to the log.
        is_partial: True if the end of the log hasn't been reached. The fields below are then unset, unless only the
            state was read.
        state: State of the run, or None if it wasn't read.
        job: Job of the run, which is read with the first state, or None if it can't be read.
        version: Value that changes when the run is resumed or writes something, or None if the folder was removed.
        slurm: SLURM job of the run.
        is_remote: True if the supervisor runs under SLURM on another machine and can't be reached.
        interruption: Explanation of an interrupted run.
        connection: New connection to the supervisor.
        users: Texts about the runs that use the devices that this queued run waits for, by run id.
    """

    events: Sequence[AnyEvent] = ()
    is_partial: bool = False
    state: State | None = None
    job: Job | None = None
    version: FolderVersion | None = None
    slurm: SlurmJob | None = None
    is_remote: bool = False
    interruption: str = ""
    connection: RunConnection | None = None
    users: Mapping[str, str] = field(default_factory=dict)


class RunReader:
    """Reader of a run's folder. Its methods may block on a slow disk, so they run on worker threads, one at a time."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._log = LogReader(run.events_file)
        self._stalled_at = -1
        """Number of the event at which the log seemed to end before the last event of an ended run, or -1."""

    def read(self, seconds: float, connect_after: int) -> PollResult:
        """Read the log for up to `seconds`. At its end, read the state, and connect to the supervisor of an active run.

        The supervisor then sends the events after number `connect_after`, or after the last one read if that is higher.
        With 0 seconds, only the state is read.
        """
        if not seconds:
            slurm, is_remote = self._read_slurm()
            # The log was not read, so it may contain more.
            return PollResult(
                is_partial=True, state=self._run.state(), job=self._run.job(), slurm=slurm, is_remote=is_remote
            )
        events: list[AnyEvent] = []
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            chunk = self._log.read()
            if chunk is None:
                break
            events += chunk
        else:  # the time is over
            return PollResult(events, is_partial=True)
        version = self._read_version()  # read before the state, so that a change in between is noticed at the next poll
        state = self._run.state()
        if self._should_read_again(state):
            return PollResult(events, is_partial=True)
        slurm, is_remote = self._read_slurm()
        can_connect = state not in (*ENDED, "starting")
        return PollResult(
            events=events,
            state=state,
            version=version,
            slurm=slurm,
            is_remote=is_remote,
            interruption=explain_interruption(self._run) if state == "interrupted" else "",
            connection=self._connect(max(connect_after, self._log.last_number)) if can_connect else None,
        )

    def _should_read_again(self, state: State) -> bool:
        """Return True if the run ended after the log was read, so that its last event is still missing.

        This also remembers the end of the log. If another read has not found more events, the line of the last event is
        damaged, and the result is False.
        """
        if state not in ENDED:
            self._stalled_at = -1
            return False
        last = self._run.last_event()
        is_missing = last is not None and last.n > self._log.last_number
        if not is_missing or self._stalled_at == self._log.last_number:
            return False
        self._stalled_at = self._log.last_number
        return True

    def poll_version(self) -> PollResult:
        """Return a `PollResult` with only the version of the run's files. The version changes if the run is resumed."""
        return PollResult(version=self._read_version())

    def read_device_users(self, run_ids: Iterable[str]) -> PollResult:
        """Return a `PollResult` with only `users`: a text about each of the runs `run_ids`. Raises OSError."""
        folder = paths.runs_folder()
        return PollResult(users={run_id: describe_device_user(RunFolder(folder / run_id)) for run_id in run_ids})

    def close(self) -> None:
        """Close the log. The next read reopens it."""
        self._log.close()

    def _read_slurm(self) -> tuple[SlurmJob | None, bool]:
        """Return the run's SLURM job, and True if its supervisor runs under SLURM on another machine."""
        slurm = read_slurm(self._run.path)
        return slurm, slurm is not None and find_job_elsewhere(self._run) is not None

    def _connect(self, last_number: int) -> RunConnection | None:
        """Connect to the run's supervisor, which sends the events after `last_number`. Return None if it is unreachable."""
        try:
            return RunConnection(self._run, from_n=last_number + 1, timeout_s=0)
        except OSError:
            return None

    def _read_version(self) -> FolderVersion | None:
        """Return a value that changes with the run's files, or None if there is no log."""
        try:
            log_bytes = self._run.events_file.stat().st_size
        except OSError:
            return None
        # Each execution writes supervisor.json, and each change of the SLURM job slurm.json.
        return _read_mtime_ns(self._run.supervisor_file) + _read_mtime_ns(self._run.path / FILE), log_bytes


def _read_mtime_ns(file: Path) -> int:
    """Return the time of a file's last change in nanoseconds, or 0 if it can't be read."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


class LogReader:
    """Reader of a growing log, which returns its events in chunks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._offset = 0
        self._incomplete_line = b""
        self.last_number = 0
        """Number of the last event that has been read."""

    def read(self) -> list[AnyEvent] | None:
        """Return the next events, or None at the end of the log or if it can't be read.

        An incomplete last line is read when it is complete. Damaged lines and unknown events from a newer Footplate are
        skipped. A line that is too long ends the log.
        """
        try:
            if len(self._incomplete_line) > MAX_DAMAGED_BYTES:
                return None
            if self._file is None:
                self._file = open_file(self._path)
                self._file.seek(self._offset)
            chunk = self._file.read(_CHUNK_BYTES)
        except OSError:
            return None
        self._offset += len(chunk)
        if not chunk:
            return None
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._incomplete_line += chunk
            return []
        lines, self._incomplete_line = self._incomplete_line + chunk[:end], chunk[end:]
        events = _drop_implausible(_decode_lines(lines), self.last_number)
        self.last_number = events[-1].n if events else self.last_number
        return events

    def close(self) -> None:
        """Close the file. The next `read` reopens it at the same offset."""
        if self._file is not None:
            self._file.close()
        self._file = None


def _drop_implausible(events: list[AnyEvent], after: int) -> list[AnyEvent]:
    """Return the events with plausible numbers, in order. `after` is the number of the event before them.

    Numbers rise by one from event to event. A larger jump is accepted if the number after it is even higher, or if
    there is no event after it that could disprove it.
    """
    numbers = [event.n for event in events]
    if numbers == list(range(after + 1, after + 1 + len(numbers))):
        return events
    plausible = []
    for event, next_number in zip(events, [*numbers[1:], None], strict=True):
        is_plausible_jump = event.n > after and (next_number is None or event.n < next_number)
        if event.n == after + 1 or is_plausible_jump:
            plausible.append(event)
            after = event.n
    return plausible


def _decode_lines(lines: bytes) -> list[AnyEvent]:
    """Decode all lines at once or, if one is damaged, each valid line."""
    try:
        return EVENT.decode_lines(lines)
    except NOT_DECODED:
        return list(valid_events(lines.split(b"\n")))
