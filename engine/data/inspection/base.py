"""The arguments and results that all inspections of datasets share. Torch-free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from typing import TypeVar

import numpy as np
from PIL import Image

from engine.contract.dataset import Example, MaskValue, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.reading import describe_failure
from engine.data.splits import Labels, Recognised, Split

EXAMPLES = 12
EXAMPLE_SIDE = 384
"""The longest side of an example, in pixels."""

Progress = Callable[[int, int], None]
"""Called with how many images are done, of how many."""

LeaveOut = Callable[[str, str], None]
"""Called with the path of each file that cannot be used, and why."""


@dataclass
class Looked:
    """Result of an inspection. `channels` are those of the images, None if unknown."""

    splits: list[SplitReport] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    channels: int | None = None
    mask_values: tuple[MaskValue, ...] = ()


Kind = TypeVar("Kind", bound=Split)
Given = TypeVar("Given")
Seen = TypeVar("Seen")


def splits_of(found: Recognised, kind: type[Kind]) -> list[tuple[str, Kind]]:
    """The splits of a folder, which are of that type, as "train" and "val"."""
    halves = (("train", found.train), ("val", found.val))
    return [(name, split) for name, split in halves if isinstance(split, kind)]


class Turns:
    """Lets threads decode side by side, and one alone what takes too much memory beside others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = 0
        self._alone = False

    def take(self, see: Callable[[Given], Seen], given: Given) -> Seen:
        """`see(given)`. Raises what it raises; MemoryError only where it was alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._busy += 1
        try:
            return see(given)
        except MemoryError:
            pass  # what it has allocated goes with the traceback
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            self._changed.wait_for(lambda: not self._busy)
        try:
            return see(given)
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


class Tally:
    """Tells how far a look has come, of so many files, and which of them it leaves out."""

    def __init__(self, total: int, progress: Progress, leave_out: LeaveOut) -> None:
        self._total, self._progress, self._leave_out = total, progress, leave_out
        self._done = 0

    def usable(self, files: Sequence[str], reasons: Iterable[str | None]) -> list[int]:
        """Yields the indices of the usable `files`, as they are judged."""
        usable = []
        for index, reason in enumerate(reasons):
            self._done += 1
            self._progress(self._done, self._total)
            if reason is None:
                usable.append(index)
            else:
                self._leave_out(files[index], reason)
        return usable

    def seen(self, files: Sequence[str], see: Callable[[int], Seen], threads: int) -> dict[int, Seen]:
        """Maps the index of each usable file to what `see` returns for it; `see` raises for an unusable one."""
        found: dict[int, Seen] = {}
        turns = Turns()

        def reason(index: int) -> str | None:
            try:
                found[index] = turns.take(see, index)
            except Exception as error:  # a broken file may raise nearly anything in a decoder
                return describe_failure(error)
            return None

        with ThreadPoolExecutor(threads, "look") as pool:
            return {index: found[index] for index in self.usable(files, pool.map(reason, range(len(files))))}


def shares_of_classes(
    classes: Sequence[str], counts: Iterable[Labels | None]
) -> tuple[dict[str, int], dict[str, float]]:
    """In how many files each class is, and its share of all that is counted: of the `counts` of each file, None where
    it was not looked into."""
    known = np.array([each[: len(classes)] for each in counts if each is not None], np.int64).reshape(-1, len(classes))
    shares = known.sum(0) / max(int(known.sum()), 1)
    files = dict(zip(classes, (known > 0).sum(0).tolist(), strict=True))
    return files, dict(zip(classes, shares.tolist(), strict=True))


def spread_by_class(labels: np.ndarray, indices: np.ndarray) -> list[int]:
    """Up to `EXAMPLES` of `indices`, from as many classes as possible in turn."""
    by_class = indices[np.argsort(labels[indices], kind="stable")]
    _, firsts, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    turns = [firsts[counts > turn] + turn for turn in range(EXAMPLES)]
    chosen: list[int] = by_class[np.sort(np.concatenate(turns)[:EXAMPLES])].tolist()
    return chosen


def thumbnail(image: Image.Image) -> bytes:
    """`image`, made small in place, as a PNG file's content."""
    image.thumbnail((EXAMPLE_SIDE, EXAMPLE_SIDE))
    stream = BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
