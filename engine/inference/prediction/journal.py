"""Journals of completed samples, with one entry per line, and the threads that write them.

With them, interrupted work can be resumed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from engine.system import paths
from engine.system.files import open_file

WORK_FOLDER = ".footplate"
"""Name of the folder for journals and other internal files inside the output folder."""
WRITER_THREADS = 2
"""Number of threads that write the results of predictions."""
MAX_QUEUED = 3
"""Maximum number of batches whose results wait to be written."""
_JOURNAL_PATTERN = "journal-*.jsonl"


class ObjectEntry(msgspec.Struct, array_like=True, frozen=True):
    """Predicted object in a journal entry.

    Attributes:
        number: Class number.
        score: Score in 0..1.
        box: x1, y1, x2 and y2 in pixels.
        area: Area in pixels.
        runs: COCO's compressed run lengths of the mask, or "" if there is only a box.
    """

    number: int
    score: float
    box: tuple[float, float, float, float]
    area: float
    runs: str = ""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Journal entry for a completed sample, or for a frame of a video.

    Attributes:
        sample: Number of the sample.
        frame: Number of the frame in a video, otherwise 0.
        last: False for all frames of a video except the last.
        name: Name of the sample's files, without an extension.
        path: Path of the sample in tables.
        skipped: Reason if there is no result, otherwise "". Then the fields below are empty.
        words: Short description of the prediction.
        classes: Numbers of the predicted classes.
        scores: Their scores, or the fractions of pixels or points that they cover.
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        output: Output of a task whose kind of prediction is unknown, as nested lists.
        files: Paths of the files written for the sample, by format.
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
    """Journal of the samples that one worker has completed. Its methods are thread-safe."""

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
        """Append entries, and return after they are passed to the operating system. Raises OSError."""
        lines = memoryview(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
        with self._lock:
            while lines:
                lines = lines[self._stream.write(lines) :]


class Writers:
    """Threads that write the results of batches while the model computes the next ones.

    The queue of waiting batches is bounded. `on_written` is called after each batch with its number of samples.
    """

    def __init__(self, journal: Journal, on_written: Callable[[int], None]) -> None:
        self._journal, self._on_written = journal, on_written
        self._pool = ThreadPoolExecutor(WRITER_THREADS, "results")
        self._queued: deque[tuple[Future[None], int]] = deque()

    def __enter__(self) -> Self:
        return self

    def submit(self, create_entry: Callable[..., Entry], *columns: Any) -> None:
        """Queue a batch of results. A writer thread creates its journal entries with `map(create_entry, *columns)`.

        The first column holds the samples of the batch. Raises the error of an earlier batch if it failed.
        """
        while len(self._queued) >= MAX_QUEUED:
            self._finish_oldest()
        self._queued.append((self._pool.submit(self._write, create_entry, *columns), len(columns[0])))

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all queued batches, or drop those that have not begun if the context ends with an error."""
        try:
            while error_type is None and self._queued:
                self._finish_oldest()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _finish_oldest(self) -> None:
        """Wait until the oldest queued batch is written, and report it. Raises the error of its writer thread."""
        future, count = self._queued.popleft()
        future.result()
        self._on_written(count)

    def _write(self, create_entry: Callable[..., Entry], *columns: Any) -> None:
        """Create the entries of a batch, which writes their result files, and add them to the journal."""
        self._journal.add(*map(create_entry, *columns))


class CompletedSamples:
    """Completed samples found in the journals of a folder, with their entries.

    A sample counts as completed if a single journal contains all of its entries.
    """

    def __init__(self, folder: Path, samples: int) -> None:
        self._files = sorted(folder.glob(_JOURNAL_PATTERN))
        self._positions = np.full((samples, 2), -1, np.int64)
        """Index of the journal that contains each sample, and offset of its first entry, or -1."""
        for journal_index, file in enumerate(self._files):
            first_offsets: dict[int, int] = {}
            with open_file(file) as stream:
                offset = 0  # of the line in the file
                for line in stream:
                    entry = _decode_entry(line)
                    if entry is not None:
                        first_offsets.setdefault(entry.sample, offset)
                        if entry.last:
                            self._positions[entry.sample] = journal_index, first_offsets.pop(entry.sample)
                    offset += len(line)

    @property
    def starts(self) -> int:
        """Number of times that workers have started on this prediction."""
        starts = (int(file.stem.split("-")[1]) for file in self._files)  # in names as `Journal` creates them
        return max(starts, default=0)

    @property
    def samples(self) -> npt.NDArray[np.bool_]:
        """Mask of the completed samples, bool [samples]."""
        return self._positions[:, 0] >= 0

    def iterate_entries(self) -> Iterator[Entry]:
        """Yield the journal entries of all completed samples, in the order of samples and frames."""
        streams = [open_file(file) for file in self._files]
        try:
            for sample, (journal_index, offset) in enumerate(self._positions.tolist()):
                if journal_index < 0:  # the sample is not completed
                    continue
                streams[journal_index].seek(offset)
                for line in streams[journal_index]:
                    entry = _decode_entry(line)
                    if entry is not None and entry.sample == sample:
                        yield entry
                        if entry.last:
                            break
        finally:
            for stream in streams:
                stream.close()


def _decode_entry(line: bytes) -> Entry | None:
    """Decode a line of a journal, or return None if it is incomplete."""
    try:
        return _ENTRY.decode(line)
    except msgspec.DecodeError:
        return None
