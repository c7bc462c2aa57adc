"""What is known of each sample that is done, a line each, so that nothing is done twice however the work ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from engine.system import paths

WORK_FOLDER = ".footplate"
"""In the folder of the results: where the journals are until all is done."""
_PATTERN = "journal-*.jsonl"


class ObjectEntry(msgspec.Struct, array_like=True, frozen=True):
    """An object: its class, its score, its box (x1, y1, x2, y2 in pixels), its area in pixels, and which they are as
    COCO's packed run lengths, "" of a box alone.
    """

    number: int
    score: float
    box: tuple[float, float, float, float]
    area: float
    runs: str = ""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A sample that is done, or a frame of one. `sample` is its number in the order of the sources; `name` what its
    files are called, without an ending; `path` what it is called in tables. `last` of the last frame of a video, and
    of every other sample.

    `skipped` says why there is no result; else `words`, `classes` and `scores` are as in `PredictedRow`, and what the
    formats are made of is in `probabilities`, `objects` (of an image of `height` and `width`) or `output`. `files`
    are those that were written for it, by format.
    """

    sample: int
    frame: int = 0
    last: bool = True
    name: str = ""
    path: str = ""
    skipped: str = ""
    words: str = ""
    classes: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    height: int = 0
    width: int = 0
    probabilities: tuple[float, ...] = ()
    objects: tuple[ObjectEntry, ...] = ()
    output: Any = None
    files: dict[str, str] = {}


_ENTRY = msgspec.json.Decoder(Entry)


class Journal:
    """Entries appended to a file of one worker's own, from any of its threads; each is with the system when `add`
    returns.
    """

    def __init__(self, folder: Path, start: int, rank: int) -> None:
        self._stream = open(  # noqa: SIM115 - it stays open
            folder / f"journal-{start:04}-{rank:04}.jsonl", "ab", buffering=0, opener=paths.open_private
        )
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def add(self, *entries: Entry) -> None:
        """Raises OSError."""
        lines = memoryview(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
        with self._lock:
            while lines:
                lines = lines[self._stream.write(lines) :]


class Done:
    """The samples that journals tell of: which are done, and their entries in the order of the samples. A sample
    counts where its last entry is there, with all entries of the same journal.
    """

    def __init__(self, folder: Path, samples: int) -> None:
        self._files = sorted(folder.glob(_PATTERN))
        self._where = np.full((samples, 2), -1, np.int64)
        """Of each sample the journal and the offset of its first entry there."""
        for number, file in enumerate(self._files):
            begun: dict[int, int] = {}
            with file.open("rb") as stream:
                offset = 0
                for line in stream:
                    entry, at, offset = _entry(line), offset, offset + len(line)
                    if entry is None:
                        continue
                    begun.setdefault(entry.sample, at)
                    if entry.last:
                        self._where[entry.sample] = number, begun.pop(entry.sample)

    @property
    def starts(self) -> int:
        """How often the work was started before."""
        return max((int(file.stem.split("-")[1]) for file in self._files), default=0)

    @property
    def samples(self) -> npt.NDArray[np.bool_]:
        """Which samples are done, bool [samples]."""
        return self._where[:, 0] >= 0

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order of the samples and of the frames."""
        streams = [file.open("rb") for file in self._files]
        try:
            for sample, (number, offset) in enumerate(self._where.tolist()):
                if number < 0:
                    continue
                streams[number].seek(offset)
                for line in streams[number]:
                    entry = _entry(line)
                    if entry is not None and entry.sample == sample:
                        yield entry
                        if entry.last:
                            break
        finally:
            for stream in streams:
                stream.close()


def _entry(line: bytes) -> Entry | None:
    """None of a line that was being written when the work ended, or that a full disk broke off."""
    try:
        return _ENTRY.decode(line) if line.endswith(b"\n") else None
    except msgspec.DecodeError:
        return None
