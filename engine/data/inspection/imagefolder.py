"""Inspection of folders of images by class. Torch-free.

Each file is checked by its first and last bytes. Files that may be incomplete are decoded, and a sample of the others.
Damage in the middle of a file may be missed here; training reports it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Self

import numpy as np

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.header_check import seems_complete
from engine.data.decoding.reading import (
    check_size,
    decode_header,
    describe_failure,
    folder_channels,
    is_gray,
    read_image,
)
from engine.data.decoding.tiff import facts_in, is_special, open_to_show
from engine.data.decoding.transparency import opaque
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    FileChecker,
    Inspection,
    LeaveOut,
    MemoryGate,
    Progress,
    splits_of_type,
    spread_by_class,
    thumbnail,
)
from engine.data.splits import FileSplit, RecognizedDataset, dataset_error, dataset_warning, printable

SAMPLE = 512
"""Number of images that are decoded although they seem complete, about, evenly spread over the dataset."""
ODD_DECODED = 2048
"""Images that are decoded because they may be incomplete; of further ones the headers are read."""
CHUNK = 1024
"""Files that are given to the threads at a time, so that a million images don't become a million tasks."""
HEADERS_TIMED = 128
"""Files whose first and last bytes are checked in one task."""
CACHED_S = 50e-6
"""Seconds per file above which checks wait for a disk or a network; cached files take a fifth of it."""


def inspect_files(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images of a dataset of images by class."""
    splits = splits_of_type(found, FileSplit)
    result = Inspection(channels=folder_channels(*(split.files for _, split in splits)))
    total = sum(len(split.files) for _, split in splits)
    checker, image_check = FileChecker(total, progress, leave_out), ImageCheck.at(total)
    for name, split in splits:
        readable = checker.usable_indices(split.files, image_check.check_files(split.files, threads))
        for path in split.strays:
            ending = printable(os.path.splitext(path)[1]) or "no extension"
            leave_out(path, f"its extension is not that of an image ({ending})")
        _count(name, found.classes, split, readable, result)
        if name == "train":
            result.examples += _examples(name, found.classes, split, readable)
    result.problems += image_check.problems()
    return result


class ImageCheck:
    """Check of image files that decodes one in `every` of those that seem complete."""

    def __init__(self, every: int) -> None:
        self.every = every
        self._odd = 0
        self.sampled = 0
        self.damaged_within = 0

    @classmethod
    def at(cls, images: int) -> Self:
        """Return a check for that many images."""
        return cls(every=max(-(-images // SAMPLE), 1))

    def problems(self) -> list[Problem]:
        """Return the warning about damage in a sample, which other images may have as well."""
        if not self.damaged_within or self.every == 1:
            return []
        message = (
            f"Of {self.sampled:,} images decoded as a sample, {self.damaged_within:,} are damaged within, "
            f"although their beginning and end are intact; more of the others may be."
        )
        return [dataset_warning(message, "Training skips such images and names them.")]

    def check_files(self, files: Sequence[str], threads: int) -> Iterator[str | None]:
        """Yield why each file can't be read, or None."""
        with ThreadPoolExecutor(threads, "look") as pool:
            try:
                for start in range(0, len(files), CHUNK):
                    yield from self._check_chunk(list(files[start : start + CHUNK]), start, pool)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _check_chunk(self, paths: list[str], start: int, pool: ThreadPoolExecutor) -> Iterator[str | None]:
        complete = _check_headers(paths, pool)
        closer: dict[int, Callable[[str], None]] = {}
        for index, seems in enumerate(complete):
            self._odd += not seems
            if not seems:
                closer[index] = _decode if self._odd <= ODD_DECODED else _read_header
            elif (start + index) % self.every == 0:
                closer[index] = _decode
        gate = MemoryGate()
        reasons = pool.map(lambda index: _failure(gate, closer[index], paths[index]), closer)
        for index, seems in enumerate(complete):
            reason = next(reasons) if index in closer else None
            if seems and index in closer:
                self.sampled += 1
                self.damaged_within += reason is not None
            yield reason


def _check_headers(paths: list[str], pool: ThreadPoolExecutor) -> list[bool]:
    """Return which files seem complete. Threads are used only if reading waits for a disk: else they cost more."""
    first, *parts = (paths[at : at + HEADERS_TIMED] for at in range(0, len(paths), HEADERS_TIMED))
    started = time.perf_counter()
    complete = _seem_complete(first)
    waits = time.perf_counter() - started > CACHED_S * len(first)
    for each in pool.map(_seem_complete, parts) if waits else map(_seem_complete, parts):
        complete += each
    return complete


def _seem_complete(paths: list[str]) -> list[bool]:
    return [seems_complete(path) for path in paths]


def _failure(gate: MemoryGate, check: Callable[[str], None], path: str) -> str | None:
    """Return why `check` raises for a file; None if it doesn't."""
    try:
        gate.run(check, path)
    except Exception as error:  # a broken file may raise nearly anything in a decoder
        return describe_failure(error)
    return None


def _decode(path: str) -> None:
    content = read_image(path)
    facts = facts_in(BytesIO(content))
    with open_to_show(path) if facts is not None and is_special(facts) else decode_header(content) as image:
        # A JPEG is decoded at an eighth of its size, which is quick and still meets every byte.
        image.draft(image.mode, (1, 1))
        image.load()


def _read_header(path: str) -> None:
    with open_to_show(path) as image:
        check_size(image)


def _count(name: str, classes: tuple[str, ...], split: FileSplit, readable: list[int], result: Inspection) -> None:
    present = np.bincount(split.labels, minlength=len(classes))
    counts = np.bincount(split.labels[readable], minlength=len(classes))
    by_class = dict(zip(classes, counts.tolist(), strict=True))
    result.splits.append(SplitReport(name, by_class, split.is_drawn))
    title = "training" if name == "train" else "validation"
    if present.sum() and not counts.sum():
        result.problems.append(
            dataset_error(
                f"None of the {present.sum():,} {title} images can be read.", "Choose a folder with readable images."
            )
        )
        return
    for class_name, had, left in zip(classes, present, counts, strict=True):
        if had and not left and name == "train":
            message = f"None of the {had:,} training images of class {class_name} can be read."
            result.problems.append(dataset_error(message, "Replace them, or remove the class."))
        elif had and not left:
            message = f"None of the {had:,} validation images of class {class_name} can be read."
            result.problems.append(dataset_warning(message, "The class is never validated."))


def _examples(name: str, classes: tuple[str, ...], split: FileSplit, readable: list[int]) -> list[Example]:
    examples = []
    for index in spread_by_class(split.labels, np.array(readable, np.int64)):
        try:
            with open_to_show(split.files[index]) as image:
                image.draft(image.mode, (EXAMPLE_SIDE * 2, EXAMPLE_SIDE * 2))
                png = thumbnail(opaque(image).convert("L" if is_gray(image) else "RGB"))
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        examples.append(Example(classes[split.labels[index]], name, png, int(index)))
    return examples
