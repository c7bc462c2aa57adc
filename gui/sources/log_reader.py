"""A run's log, read from its file many lines at a time."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from engine.contract.events import EVENT, AnyEvent
from engine.contract.protocol import MAX_FRAME_BYTES
from engine.system.decode_errors import NOT_DECODED

_CHUNK_BYTES = 1 << 16
"""What is decoded at once: a third of a millisecond's work, whose events the processor's cache still holds when they
are sorted into arrays. With 1 MiB a long log took half as long again."""


class LogReader:
    """The events of the log at `path`, from its beginning on, as far as it has been written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._offset = 0
        self._last_n = 0
        self._rest = b""

    def read(self) -> list[AnyEvent] | None:
        """The next events, or None where there are no more for now, or the file cannot be read.

        A torn last line waits for its end; lines that are damaged or of a newer Footplate are passed over.
        """
        try:
            if self._file is None:
                self._file = self._path.open("rb")
                self._file.seek(self._offset)
            chunk = self._file.read(_CHUNK_BYTES)
        except OSError:
            return None
        self._offset += len(chunk)
        if not chunk:
            return None
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._rest = (self._rest + chunk)[:MAX_FRAME_BYTES]  # a longer line is a damaged one in any case
            return []
        lines, self._rest = self._rest + chunk[:end], chunk[end:]
        events = _in_order(_decoded(lines), self._last_n)
        self._last_n = events[-1].n if events else self._last_n
        return events

    def close(self) -> None:
        """Gives the file back; the next `read` opens it again and goes on where the last one ended."""
        if self._file is not None:
            self._file.close()
        self._file = None


def _in_order(events: list[AnyEvent], after: int) -> list[AnyEvent]:
    """The events whose numbers can be believed. Each follows the one before by one; one that jumps, and that the next
    does not go beyond, has been damaged.
    """
    numbers = [event.n for event in events]
    if numbers == list(range(after + 1, after + 1 + len(numbers))):
        return events
    kept = []
    for event, following in zip(events, [*numbers[1:], None], strict=True):
        if event.n == after + 1 or (event.n > after and (following is None or event.n < following)):
            kept.append(event)
            after = event.n
    return kept


def _decoded(lines: bytes) -> list[AnyEvent]:
    try:
        return EVENT.decode_lines(lines)
    except NOT_DECODED:
        return [event for line in lines.split(b"\n") if (event := _decoded_line(line)) is not None]


def _decoded_line(line: bytes) -> AnyEvent | None:
    try:
        return EVENT.decode(line)
    except NOT_DECODED:
        return None
