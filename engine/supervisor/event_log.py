"""The event log: the one writer of `events.jsonl`, numbering every line.

A disk that is full or gone never stops anything: lines that cannot be written wait in memory, in order, and
what the file and the memory hold together reads as one stream. A file that is deleted under the run is made again.
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

MEMORY_LIMIT_BYTES = 32 << 20
"""With more unwritten bytes than this, step metrics and device samples are dropped before they are numbered."""

RETRY_S = 1.0
INDEX_EVERY = 1024
_READ_BYTES = 1 << 16
_COPY_BYTES = 1 << 20
_NUMBER = re.compile(rb'\{"type":"\w+","n":(\d{1,15}),')
"""How the encoder begins a line, and its number; of one with more digits something else has been made."""
_GOES_ON = "Training continues, and events are kept in memory. Free some space on the disk of the run folder."


class EventLog:
    """Appends events to the file at `path`, going on from where an earlier execution left off.

    Offsets count bytes in the stream that the file and the lines still waiting in memory make together.
    """

    def __init__(self, path: Path, memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> None:
        self._path = path
        self._memory_limit = memory_limit_bytes
        self._fd: int | None = None
        self._written = 0
        self._waiting = bytearray()
        self._numbers = array("Q")
        self._offsets = array("Q")
        """Of every so many lines the number, ever higher, and where it begins."""
        self._lines = 0
        self._lost = 0
        self._homeless = self._cut = False
        self._is_over = False
        """Whether the last event tells the end of an execution, after which the log has nothing more to say of
        itself."""
        self._fault: str | None = None
        self._fault_since = 0.0
        self._retry_at = 0.0
        self._look_at = 0.0
        self.next_n = 1
        self._take_up()

    @property
    def end(self) -> int:
        """The offset after the last line."""
        return self._written + len(self._waiting)

    @property
    def fault(self) -> str | None:
        """Why the file cannot be written at the moment, or None."""
        return self._fault

    def append(self, event: AnyEvent) -> bool:
        """Numbers, dates and writes `event`. False where it had to be dropped."""
        if len(self._waiting) > self._memory_limit and isinstance(event, DROPPABLE):
            self._lost += 1
            return False
        if isinstance(event, RunFinished):
            self.retry(at_once=True)  # what is to be said of the log comes before the end
        self._is_over = isinstance(event, RunFinished)
        self._add(event)
        if self._fault is not None:
            self.retry()
            return True
        self._write()
        if self._fault is not None and not self._is_over:
            self._add(Warned(code="log_unwritable", message=f"The log can't be written: {self._fault}. {_GOES_ON}"))
        return True

    def copy(self, lines: bytes) -> None:
        """Adds whole lines of another run's log, as they stand there."""
        for line in lines.splitlines(keepends=True):
            number = _number(line)
            self._count(self.next_n if number is None else number, self.end)
            self._waiting += line
        self._write()

    def retry(self, *, at_once: bool = False) -> None:
        """Tries again to write what waits, if that is due; after a fault, tells what became of the events."""
        if self._fault is None or (not at_once and time.monotonic() < self._retry_at):
            return
        waited = self._waiting.count(b"\n")
        fault, since = self._fault, self._fault_since
        self._fault = None
        self._write()
        if self._fault is not None:
            self._fault_since = since
            return
        if self._is_over:
            return
        seconds = time.monotonic() - since
        text = (
            f"The log is writable again after {seconds:.0f} s ({fault}); {waited} events that were kept in "
            "memory have been written."
        )
        self._add(Warned(code="log_delayed", message=text))
        if self._lost:
            self._add(EventsLost(count=self._lost, reason=f"the log could not be written: {fault}"))
            self._lost = 0
        self._write()

    def make_again(self, *, at_once: bool = False) -> bool:
        """Makes the file and its folder again, with all that it held, where somebody has deleted them or put another
        file in its place: True where that was so. Looks once a second, and tells of a file that was cut short.
        """
        now = time.monotonic()
        if self._fd is None or (now < self._look_at and not at_once):
            return False
        self._look_at = now + RETRY_S
        if self._cut and not self._is_over:
            self._tell_cut()
        try:
            known = os.fstat(self._fd)
            if known.st_size < self._written:
                self._cut_to(known.st_size)
            if self._is_in_order(known):
                return False
            paths.make_folder(self._path.parent)
            self._copy_to(self._path)
        except OSError as error:
            self._tell_homeless(error.strerror or str(error))
            return False
        self._homeless = False
        return True

    def read(self, offset: int, size: int = _READ_BYTES) -> bytes:
        """Whole lines from `offset` on, about `size` bytes of them; at least one line unless at the end."""
        while True:
            data = self._bytes(offset, size)
            last = data.rfind(b"\n") + 1
            if last or offset + size >= self.end:
                return data[:last]
            size *= 4

    def offset_of(self, n: int) -> int:
        """Where the line of number `n` begins, or what is left of it; the end where it is still to come."""
        if n >= self.next_n:
            return self.end
        index = bisect_right(self._numbers, n)
        found = offset = self._offsets[index - 1] if index else 0
        stop = self._offsets[index] if index < len(self._offsets) else self.end
        # Else after the last lower number, since a damaged one may be too high.
        while offset < stop and (lines := self.read(offset)):
            for line in lines.splitlines(keepends=True):
                number = _number(line)
                if number == n:
                    return offset
                offset += len(line)
                if number is not None and number < n and offset <= stop:
                    found = offset
        return found

    def close(self) -> None:
        """Writes what still waits, if it can be, and brings it to the disk."""
        self.make_again(at_once=True)
        self.retry(at_once=True)
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.fsync(fd)
            except OSError as error:
                print(f"The log could not be flushed to disk: {error}", flush=True)
            os.close(fd)

    def _add(self, event: AnyEvent) -> None:
        event.n, event.time = self.next_n, time.time()
        self._count(event.n, self.end)
        self._waiting += ENCODE.encode(event) + b"\n"

    def _write(self) -> None:
        try:
            fd = self._open()
            while self._waiting:
                done = os.write(fd, self._waiting)
                self._written += done
                del self._waiting[:done]
        except OSError as error:
            self._fault = error.strerror or str(error)
            self._fault_since = time.monotonic()
            self._retry_at = self._fault_since + RETRY_S
            print(f"The log can't be written: {error}", flush=True)

    def _open(self) -> int:
        if self._fd is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
            self._fd = paths.open_private(str(self._path), flags)
        return self._fd

    def _is_in_order(self, known: os.stat_result) -> bool:
        """Whether the file in hand is still what is found at its path."""
        try:
            return os.path.samestat(os.stat(self._path), known)
        except FileNotFoundError:
            return False

    def _tell_homeless(self, why: str) -> None:
        if not self._homeless and not self._is_over:
            self._homeless = True
            message = (
                f"The run folder was deleted and can't be created again: {why}. Training continues, and its "
                "events are kept in memory until it ends."
            )
            self.append(Warned(code="log_unwritable", message=message))

    def _cut_to(self, size: int) -> None:
        """Takes note that somebody has cut the file short. What stood there is gone, and numbers go on."""
        del self._numbers[:], self._offsets[:]
        self._written = size
        self._cut = True

    def _tell_cut(self) -> None:
        """Once readers have been put back to the file's end, since they are to read this."""
        self._cut = False
        message = "The log was truncated by another program: some earlier events are missing. Training continues."
        self.append(Warned(code="log_cut", message=message))

    def _copy_to(self, path: Path) -> None:
        """Goes on in a new file at `path`, with what the one in hand holds. Raises OSError, with nothing changed."""
        assert self._fd is not None
        temporary = path.with_name(f".{path.name}.part")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        copy = paths.open_private(str(temporary), flags)
        try:
            for offset in range(0, self._written, _COPY_BYTES):
                block = memoryview(self._bytes(offset, min(_COPY_BYTES, self._written - offset)))
                while block:
                    block = block[os.write(copy, block) :]
            os.replace(temporary, path)
        except OSError:
            os.close(copy)
            temporary.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd = copy

    def _count(self, number: int, offset: int) -> None:
        """Notes that the line of a number begins at `offset`. The numbers in the index rise: those before that are not
        lower had been damaged.
        """
        self.next_n = number + 1
        while self._numbers and self._numbers[-1] >= number:
            self._numbers.pop()
            self._offsets.pop()
        if self._lines % INDEX_EVERY == 0:
            self._numbers.append(number)
            self._offsets.append(offset)
        self._lines += 1

    def _take_up(self) -> None:
        """Goes through the lines that are there already: numbers go on after the last one that can be read, and a torn
        last line is cut off.
        """
        try:
            fd = self._open()
            offset = lines = 0
            with open(fd, "rb", closefd=False) as stream:
                for line in stream:
                    if not line.endswith(b"\n"):
                        os.ftruncate(fd, offset)
                        break
                    number = _number(line)
                    if number is not None:
                        self._count(number, offset)
                    offset += len(line)
                    lines += 1
            self._written = offset
            self.next_n = max(self.next_n, lines + 1)
        except OSError as error:
            self._fault = error.strerror or str(error)
            self._fault_since = time.monotonic()

    def _bytes(self, offset: int, size: int) -> bytes:
        data = b""
        if offset < self._written and self._fd is not None:
            os.lseek(self._fd, offset, os.SEEK_SET)  # writes append wherever this stands
            data = os.read(self._fd, min(size, self._written - offset))
        if len(data) < size:
            start = max(0, offset - self._written)
            data += self._waiting[start : start + size - len(data)]
        return data


def _number(line: bytes) -> int | None:
    """The number of a line; None where it is damaged."""
    match = _NUMBER.match(line)
    return int(match[1]) if match else None
