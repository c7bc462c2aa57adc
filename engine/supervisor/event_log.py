"""Writer of a run's `events.jsonl`, which gives events their numbers and times.

The supervisor is the only writer of this file. A full or missing disk does not stop the run: events that can't be
written wait in memory, and readers see the file and the memory as a single stream.
"""

from __future__ import annotations

import os
import re
import time
from array import array
from bisect import bisect_right
from pathlib import Path

from engine.contract.events import DROPPABLE, ENCODE, AnyEvent, EventsLost, RunFinished, Warned
from engine.system import paths
from engine.system.files import MAX_DAMAGED_BYTES, iterate_complete_lines
from engine.system.format import counted

MEMORY_LIMIT_BYTES = 32 << 20
"""Maximum size in bytes of the log's lines that wait in memory to be written.

Beyond it, step metrics and device samples are dropped, without taking up numbers.
"""
RECENT_BYTES = 1 << 20
"""Number of bytes at the end of the stream that are kept in memory for clients that keep up with it."""
RETRY_S = 1.0
"""Seconds between attempts to write the waiting lines, and between checks of the file."""
INDEX_EVERY = 1024
"""Number of lines between two entries of the index, which locates lines in the log by their number."""

_READ_BYTES = 1 << 16
_NUMBER = re.compile(rb'\{"type":"\w+","n":(\d{1,15}),')
"""Pattern for the start of an encoded line, including its number. A number with more digits is damaged."""
_CONTINUES = "Training continues, and events are kept in memory. Free some space on the disk of the run folder."
_DELETED = (
    "The run's log was deleted or moved during training, so the run stops. To train again, start a new run, or put the "
    "folder back and resume."
)
_CHANGED = (
    "Another program replaced or truncated the run's log during training, so the run stops. Resume the run when nothing "
    "else writes to its folder."
)


class DamagedLog(ValueError):  # noqa: N818 - describes the file
    """Raised when a file is not the log of a run, because too many bytes follow its last complete line."""


class EventLog:
    """Log of numbered events in the file at `path`, which may contain the events of earlier executions.

    The lines in the file and those that wait in memory to be written form a single stream. Offsets are positions in
    bytes in this stream.

    Raises:
        DamagedLog: The file was not written by a run.
    """

    def __init__(self, path: Path, memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> None:
        self._path = path
        self._memory_limit = memory_limit_bytes
        self._fd: int | None = None
        self._written = 0  # offset up to which the stream is in the file
        self._recent = bytearray()  # lines at the end of the stream
        self.recent_offset = 0
        """Offset of the first line that is in memory."""
        # Number and offset of every `INDEX_EVERY`-th line.
        self._indexed_numbers = array("Q")
        self._indexed_offsets = array("Q")
        self._line_count = 0
        self._lost_count = 0  # number of events that were dropped for lack of memory
        self._is_finished = False
        """True after `RunFinished`, which is the last event of an execution."""
        self._fault: str | None = None  # reason why the file can't be written
        self._fault_since = 0.0  # time of the first failure (time.monotonic)
        self._retry_at = 0.0  # time of the next try to write
        self._check_at = 0.0  # time of the next check for changes by other programs
        self.damage = ""
        """Description of a change that another program has made to the file, or "" if there was none."""
        self.next_n = 1  # number of the next line
        self._index_file()

    @property
    def end(self) -> int:
        """Offset of the end of the stream."""
        return self.recent_offset + len(self._recent)

    @property
    def fault(self) -> str | None:
        """Reason why the file can't be written at present, or None if it can."""
        return self._fault

    def append(self, event: AnyEvent) -> bool:
        """Add `event` with the next number and the current time. Return False if it was dropped for lack of memory."""
        if self.end - self._written > self._memory_limit and isinstance(event, DROPPABLE):
            self._lost_count += 1
            return False
        if isinstance(event, RunFinished):
            self.retry(at_once=True)  # add its warnings before the last event
        self._is_finished = isinstance(event, RunFinished)
        self._add(event)
        if self._fault is not None:
            self.retry()
            return True
        self._write()
        if self._fault is not None and not self._is_finished:
            self._add(Warned(code="log_unwritable", message=f"The log can't be written: {self._fault}. {_CONTINUES}"))
        return True

    def copy(self, lines: bytes) -> None:
        """Append complete lines from another log without changing them. They keep their numbers."""
        for line in lines.splitlines(keepends=True):
            number = _read_number(line)
            self._index_line(self.next_n if number is None else number, self.end)
            self._recent += line
        self._write()

    def retry(self, *, at_once: bool = False) -> None:
        """Try to write the waiting lines if the time for the next attempt has come, or if `at_once` is True.

        If it succeeds, log how long they have waited.
        """
        if self._fault is None or (not at_once and time.monotonic() < self._retry_at):
            return
        count = self._recent.count(b"\n", self._written - self.recent_offset)
        fault, since = self._fault, self._fault_since
        self._fault = None
        self._write()
        if self._fault is not None:
            self._fault_since = since
            return
        if self._is_finished:
            return  # no warning may follow the last event
        message = (
            f"The log is writable again after {time.monotonic() - since:.0f} s ({fault}), and now has the "
            f"{counted(count, 'event')} that had been kept in memory."
        )
        self._add(Warned(code="log_delayed", message=message))
        if self._lost_count:
            self._add(EventsLost(count=self._lost_count, reason=f"the log could not be written: {fault}"))
            self._lost_count = 0
        self._write()

    def check_file(self) -> Warned | None:
        """Return a warning if another program has deleted, replaced or truncated the log. Its text is stored in `damage`.

        Return None if the log is intact, if its damage was already reported, or within a second of the last check.
        """
        now = time.monotonic()
        if self._fd is None or self.damage or now < self._check_at:
            return None
        self._check_at = now + RETRY_S
        code = "log_changed"
        try:
            opened = os.fstat(self._fd)
            is_intact = os.path.samestat(os.stat(self._path), opened) and opened.st_size >= self._written
        except FileNotFoundError:
            is_intact, code = False, "log_deleted"
        except OSError:
            return None  # a network disk may be unreachable for a moment
        if is_intact:
            return None
        self.damage = _DELETED if code == "log_deleted" else _CHANGED
        return Warned(code=code, message=self.damage)

    def read(self, offset: int, size: int = _READ_BYTES) -> bytes:
        """Return complete lines from `offset` on, about `size` bytes but at least one line.

        At the end of the stream, the result is empty.
        """
        while True:
            data = self._read_bytes(offset, size)
            length = data.rfind(b"\n") + 1
            if length or offset + size >= self.end:
                return data[:length]
            size *= 4

    def offset_of(self, n: int) -> int:
        """Return the offset of the line with number `n`, or the end of the stream if there is no such line yet.

        If that line is damaged, the result is the offset after the last line with a lower number.
        """
        if n >= self.next_n:
            return self.end
        index = bisect_right(self._indexed_numbers, n)
        after_lower = offset = self._indexed_offsets[index - 1] if index else 0
        stop = self._indexed_offsets[index] if index < len(self._indexed_offsets) else self.end
        while offset < stop and (lines := self.read(offset)):
            for line in lines.splitlines(keepends=True):
                number = _read_number(line)
                if number == n:
                    return offset
                offset += len(line)
                # Lines from `stop` on have higher numbers, unless they are damaged.
                if number is not None and number < n and offset <= stop:
                    after_lower = offset
        return after_lower

    def close(self) -> None:
        """Try once more to write the waiting lines, then flush and close the file."""
        self.retry(at_once=True)
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.fsync(fd)
            except OSError as error:
                print(f"The log could not be flushed to disk: {error}", flush=True)
            os.close(fd)

    def _add(self, event: AnyEvent) -> None:
        """Give `event` the next number and the current time, and add it to the lines that wait to be written."""
        event.n, event.time = self.next_n, time.time()
        self._index_line(event.n, self.end)
        self._recent += ENCODE.encode(event) + b"\n"

    def _write(self) -> None:
        """Write the waiting lines to the file, and free the memory of lines that are in the file.

        If the file can't be written, the reason is stored in `_fault`.
        """
        try:
            fd = self._open()
            while self._written < self.end:
                self._written += os.write(fd, self._recent[self._written - self.recent_offset :])
        except OSError as error:
            self._fault = error.strerror or str(error)
            self._fault_since = time.monotonic()
            self._retry_at = self._fault_since + RETRY_S
            print(f"The log can't be written: {error}", flush=True)
        surplus = min(len(self._recent) - RECENT_BYTES, self._written - self.recent_offset)
        if surplus > RECENT_BYTES:  # rarely, since it moves the remaining bytes
            length = self._recent.rfind(b"\n", 0, surplus) + 1
            del self._recent[:length]
            self.recent_offset += length

    def _open(self) -> int:
        """Return the descriptor of the log file. If it is not open, open or create it. Raises OSError."""
        if self._fd is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
            self._fd = paths.open_private(str(self._path), flags)
        return self._fd

    def _index_line(self, number: int, offset: int) -> None:
        """Count the line at `offset`, and add it to the index if it is an `INDEX_EVERY`th line.

        Numbers in the index increase. An earlier entry whose number is not lower belongs to a damaged line, and is
        removed.
        """
        self.next_n = number + 1
        while self._indexed_numbers and self._indexed_numbers[-1] >= number:
            self._indexed_numbers.pop()
            self._indexed_offsets.pop()
        if self._line_count % INDEX_EVERY == 0:
            self._indexed_numbers.append(number)
            self._indexed_offsets.append(offset)
        self._line_count += 1

    def _index_file(self) -> None:
        """Index the lines of earlier executions.

        An incomplete last line is removed. New lines continue the numbering.
        """
        try:
            fd = self._open()
            offset = count = 0
            with open(fd, "rb", closefd=False) as stream:
                for line in iterate_complete_lines(stream):
                    number = _read_number(line)
                    if number is not None:
                        self._index_line(number, offset)
                    offset += len(line)
                    count += 1
                if stream.seek(0, os.SEEK_END) > offset + MAX_DAMAGED_BYTES:
                    raise DamagedLog(f"{self._path} has no valid line after byte {offset:,}; move it away")
                os.ftruncate(fd, offset)
            self._written = self.recent_offset = offset
            self.next_n = max(self.next_n, count + 1)  # the last lines may be damaged and have no number
        except OSError as error:
            self._fault = error.strerror or str(error)
            self._fault_since = time.monotonic()

    def _read_bytes(self, offset: int, size: int) -> bytes:
        """Return `size` bytes of the stream from `offset` on, or fewer at its end or if the file was truncated."""
        data = b""
        if offset < self.recent_offset:
            if self._fd is None:
                return b""
            expected = min(size, self.recent_offset - offset)
            os.lseek(self._fd, offset, os.SEEK_SET)  # with O_APPEND, writing ignores the position
            data = os.read(self._fd, expected)
            if len(data) < expected:
                return data
        start = offset + len(data) - self.recent_offset
        return data + self._recent[start : start + size - len(data)]


def _read_number(line: bytes) -> int | None:
    """Return the number in an encoded line, or None if the line is damaged."""
    match = _NUMBER.match(line)
    return int(match[1]) if match else None
