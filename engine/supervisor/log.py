"""The event log: the one writer of `events.jsonl`, numbering every line.

A disk that is full or gone never stops anything: lines that cannot be written wait in memory, in order, and
what the file and the memory hold together reads as one stream.
"""

from __future__ import annotations

import os
import time
from array import array
from pathlib import Path

from engine.contract.events import DROPPABLE, ENCODE, AnyEvent, EventsLost, Warned

MEMORY_LIMIT_BYTES = 32 << 20
"""Above this much unwritten, step metrics and device samples are dropped before they get a number."""

RETRY_S = 1.0
INDEX_EVERY = 1024
_READ_BYTES = 1 << 16
_GOES_ON = "Training goes on, and events wait in memory. Make room on the disk that holds the run's folder."


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
        self._index = array("Q")
        self._lost = 0
        self._fault: str | None = None
        self._fault_since = 0.0
        self._retry_at = 0.0
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
        self._add(event)
        if self._fault is not None:
            self.retry()
            return True
        self._write()
        if self._fault is not None:
            self._add(Warned(code="log_unwritable", message=f"The log cannot be written: {self._fault}. {_GOES_ON}"))
        return True

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
        seconds = time.monotonic() - since
        text = f"The log could be written again after {seconds:.0f} s ({fault}); {waited} events had waited in memory."
        self._add(Warned(code="log_delayed", message=text))
        if self._lost:
            self._add(EventsLost(count=self._lost, reason=f"the log could not be written: {fault}"))
            self._lost = 0
        self._write()

    def read(self, offset: int, size: int = _READ_BYTES) -> bytes:
        """Whole lines from `offset` on, about `size` bytes of them; at least one line unless at the end."""
        while True:
            data = self._bytes(offset, size)
            last = data.rfind(b"\n") + 1
            if last or offset + size >= self.end:
                return data[:last]
            size *= 4

    def offset_of(self, n: int) -> int:
        """Where the line of number `n` begins; the end where it is still to come."""
        if n >= self.next_n:
            return self.end
        n = max(1, n)
        offset = self._index[(n - 1) // INDEX_EVERY]
        to_skip = (n - 1) % INDEX_EVERY
        while to_skip:
            for line in self.read(offset).splitlines(keepends=True)[:to_skip]:
                offset += len(line)
                to_skip -= 1
        return offset

    def close(self) -> None:
        """Writes what still waits, if it can be, and brings it to the disk."""
        self.retry(at_once=True)
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.fsync(fd)
            except OSError as error:
                print(f"The log could not be brought to the disk: {error}", flush=True)
            os.close(fd)

    def _add(self, event: AnyEvent) -> None:
        event.n, event.time = self.next_n, time.time()
        if (self.next_n - 1) % INDEX_EVERY == 0:
            self._index.append(self.end)
        self.next_n += 1
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
            print(f"The log cannot be written: {error}", flush=True)

    def _open(self) -> int:
        if self._fd is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
            self._fd = os.open(self._path, flags, 0o644)
        return self._fd

    def _take_up(self) -> None:
        """Counts the lines that are there already; a torn last one is cut off."""
        try:
            fd = self._open()
            offset = 0
            with open(fd, "rb", closefd=False) as stream:
                for line in stream:
                    if not line.endswith(b"\n"):
                        os.ftruncate(fd, offset)
                        break
                    if (self.next_n - 1) % INDEX_EVERY == 0:
                        self._index.append(offset)
                    self.next_n += 1
                    offset += len(line)
            self._written = offset
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
