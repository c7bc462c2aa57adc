"""Arguments, results and helper functions that all inspections share. Torch-free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from PIL import Image

from engine.contract.dataset import Example, MaskValue, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.reading import count_folder_channels, describe_failure
from engine.data.drawing import encode_png
from engine.data.splits import Labels, RecognizedDataset, Split, spread_evenly

EXAMPLES = 12
EXAMPLE_SIDE = 384
"""Maximum side length of example images, in pixels."""

Progress = Callable[[int, int], None]
"""Callback that receives the number of inspected images and the total number of images."""

LeaveOut = Callable[[str, str], None]
"""Callback that receives the path of an unusable file and the reason."""


@dataclass
class Inspection:
    """Result of inspecting a dataset.

    `channels` is the number of channels of the images, or None if it is unknown. `mask_values` is only set for masks.
    """

    splits: list[SplitReport] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    channels: int | None = None
    mask_values: tuple[MaskValue, ...] = ()


SplitT = TypeVar("SplitT", bound=Split)
Argument = TypeVar("Argument")
Result = TypeVar("Result")


def select_splits(found: RecognizedDataset, split_type: type[SplitT]) -> list[tuple[str, SplitT]]:
    """Return the training and validation split if they have this type, each preceded by its name "train" or "val"."""
    named_splits = (("train", found.train), ("val", found.val))
    return [(name, split) for name, split in named_splits if isinstance(split, split_type)]


class MemoryGate:
    """Limit on memory during decoding: a call that runs out of memory is repeated while no other thread decodes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the two attributes below
        self._working = 0  # number of threads that are working
        self._is_exclusive = False  # True while a thread repeats a call, and no other thread may work

    def run(self, check: Callable[[Argument], Result], argument: Argument) -> Result:
        """Return `check(argument)`. After a MemoryError, wait until no other thread is working and call it again."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_exclusive)
            self._working += 1
        try:
            return check(argument)
        except MemoryError:
            pass  # the memory is released with the traceback
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()
        with self._changed:
            self._changed.wait_for(lambda: not self._is_exclusive)
            self._is_exclusive = True
            self._changed.wait_for(lambda: not self._working)
        try:
            return check(argument)
        finally:
            with self._changed:
                self._is_exclusive = False
                self._changed.notify_all()

    def run_or_explain(self, check: Callable[[Argument], object], argument: Argument) -> str | None:
        """Call `check(argument)` as in `run`, and return None, or for users the reason why it raised an exception."""
        try:
            self.run(check, argument)
        except Exception as error:  # a broken file may raise nearly anything in a decoder
            return describe_failure(error)
        return None


class FileChecker:
    """Counter for checked files that reports the progress and the unusable files.

    `total` is the number of files in all splits. `progress` receives the number of checked files and `total`, and
    `leave_out` the path of an unusable file and the reason.
    """

    def __init__(self, total: int, progress: Progress, leave_out: LeaveOut) -> None:
        self.total, self._progress, self._leave_out = total, progress, leave_out
        self._done = 0  # number of checked files

    def report_unusable(self, files: Sequence[str], reasons: Iterable[str | None]) -> list[int]:
        """Report unusable files and return the indices of the usable ones.

        `reasons` holds the reason why a file is unusable, or None if it is usable, for each of the `files`.
        """
        usable = []
        for index, reason in enumerate(reasons):
            self._done += 1
            self._progress(self._done, self.total)
            if reason is None:
                usable.append(index)
            else:
                self._leave_out(files[index], reason)
        return usable

    def check_each(self, files: Sequence[str], check: Callable[[int], Result], threads: int) -> dict[int, Result]:
        """Call `check` with the index of each file, in several threads, and return the results of usable files.

        They are keyed by index. `check` raises an exception for an unusable file, which is then reported.
        """
        results: dict[int, Result] = {}
        gate = MemoryGate()

        def check_one(index: int) -> None:
            results[index] = check(index)

        # The checks run while `report_unusable` iterates over the reasons, which fills `results`.
        with ThreadPoolExecutor(threads, "inspect") as pool:
            reasons = pool.map(lambda index: gate.run_or_explain(check_one, index), range(len(files)))
            return {index: results[index] for index in self.report_unusable(files, reasons)}


def start_inspection(
    found: RecognizedDataset, split_type: type[SplitT], progress: Progress, leave_out: LeaveOut
) -> tuple[list[tuple[str, SplitT]], Inspection, FileChecker]:
    """Return the splits to inspect, an `Inspection` to fill in, and a `FileChecker` for the files of the splits.

    The splits are the training and validation split, if they have the type `split_type`, each preceded by its name. The
    `Inspection` has only the number of image channels so far. `progress` and `leave_out` are passed to the
    `FileChecker`.
    """
    splits = select_splits(found, split_type)
    files: list[Sequence[str]] = [getattr(split, "files", ()) for _, split in splits]
    return (
        splits,
        Inspection(channels=count_folder_channels(*files)),
        FileChecker(sum(map(len, files)), progress, leave_out),
    )


def draw_examples(indices: Iterable[int], draw: Callable[[int], Example]) -> list[Example]:
    """Return examples of the samples with these `indices`, which the function `draw` creates.

    A sample that has become unreadable is left out.
    """
    examples = []
    for index in indices:
        with suppress(Exception):  # a broken file may raise nearly anything in a decoder
            examples.append(draw(index))
    return examples


def spread_examples(usable: Sequence[int]) -> list[int]:
    """Return at most `EXAMPLES` evenly spaced elements of `usable`, the indices of usable samples."""
    return [usable[row] for row in spread_evenly(len(usable), EXAMPLES)]


def title_of(name: str) -> str:
    """Return the adjective for the split `name` in messages: "training" for "train" and "validation" for "val"."""
    return "training" if name == "train" else "validation"


def describe_missing_class(name: str) -> str:
    """Return the effect on a class that the split `name` lacks: "never learned" for "train", or "never validated"."""
    return "never learned" if name == "train" else "never validated"


def count_classes(classes: Sequence[str], counts: Iterable[Labels | None]) -> tuple[dict[str, int], dict[str, float]]:
    """Return the number of files that contain each class, and the fraction of each class in the sum of all counts.

    `counts` has the number of objects or pixels of each class in each file, or None if the file was not counted.
    """
    counts_by_file = np.array([each[: len(classes)] for each in counts if each is not None], np.int64).reshape(
        -1, len(classes)
    )
    shares = counts_by_file.sum(0) / max(int(counts_by_file.sum()), 1)
    files = dict(zip(classes, (counts_by_file > 0).sum(0).tolist(), strict=True))
    return files, dict(zip(classes, shares.tolist(), strict=True))


def spread_by_class(labels: np.ndarray, indices: np.ndarray) -> list[int]:
    """Return at most `EXAMPLES` of the sample `indices`, chosen from as many classes as possible.

    `labels` holds the class of every sample.
    """
    by_class = indices[np.argsort(labels[indices], kind="stable")]
    _, firsts, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    # Each round takes another sample of each class.
    rounds = [firsts[counts > number] + number for number in range(EXAMPLES)]
    chosen: list[int] = by_class[np.sort(np.concatenate(rounds)[:EXAMPLES])].tolist()
    return chosen


def make_thumbnail(image: Image.Image) -> bytes:
    """Shrink an image in place to `EXAMPLE_SIDE` and return it as PNG."""
    image.thumbnail((EXAMPLE_SIDE, EXAMPLE_SIDE))
    return encode_png(np.asarray(image))
