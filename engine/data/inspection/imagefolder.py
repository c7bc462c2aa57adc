"""Looks folders of images by class through. Torch-free.

Each image is judged by how it begins and ends. Those that are not plainly whole are decoded, and a sample of the
others; so damage within one may be missed here, and is reported when training reads it.
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
from engine.data.decoding.header_check import seems_whole
from engine.data.decoding.reading import (
    check_size,
    decode_header,
    describe_failure,
    folder_channels,
    is_grey,
    read_image,
)
from engine.data.decoding.tiff import facts_in, is_special, open_to_show
from engine.data.decoding.transparency import opaque
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    LeaveOut,
    Looked,
    Progress,
    Tally,
    Turns,
    splits_of,
    spread_by_class,
    thumbnail,
)
from engine.data.splits import FileSplit, Recognised, shown, warn, wrong

SAMPLE = 512
"""About so many images are decoded though they seem whole, evenly spread over the dataset."""
ODD_DECODED = 2048
"""So many that do not seem whole, or of a format of which that cannot be told, are decoded; of more, the header is
read."""
CHUNK = 1024
"""Files handed to the threads at a time, so that a million images do not become a million waiting tasks."""
GLANCES = 128
"""Files glanced at in one go."""
CACHED_S = 50e-6
"""A glance that takes longer than this waits for a disk or a network; one at what the system holds takes a fifth."""


def look_through_files(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Looks at every image of `found`, whose splits are of files."""
    splits = splits_of(found, FileSplit)
    looked = Looked(channels=folder_channels(*(split.files for _, split in splits)))
    total = sum(len(split.files) for _, split in splits)
    tally, look = Tally(total, progress, leave_out), Look.at(total)
    for name, split in splits:
        readable = tally.usable(split.files, look.through(split.files, threads))
        for path in split.strays:
            ending = shown(os.path.splitext(path)[1]) or "no extension"
            leave_out(path, f"its extension is not that of an image ({ending})")
        _count(name, found.classes, split, readable, looked)
        if name == "train":
            looked.examples += _examples(name, found.classes, split, readable)
    looked.problems += look.problems()
    return looked


class Look:
    """Looks at files one after another, and decodes every so many-th of those that seem whole."""

    def __init__(self, every: int) -> None:
        self.every = every
        self._odd = 0
        self.sampled = 0
        self.damaged_within = 0

    @classmethod
    def at(cls, images: int) -> Self:
        """A look at so many images."""
        return cls(every=max(-(-images // SAMPLE), 1))

    def problems(self) -> list[Problem]:
        """The problem of the files that were not inspected closely."""
        if not self.damaged_within or self.every == 1:
            return []
        message = (
            f"Of {self.sampled:,} images decoded as a sample, {self.damaged_within:,} are damaged within, "
            f"although their beginning and end are intact; more of the others may be."
        )
        return [warn(message, "Training skips such images and names them.")]

    def through(self, files: Sequence[str], threads: int) -> Iterator[str | None]:
        """Why each file cannot be read, None where nothing is known against it."""
        with ThreadPoolExecutor(threads, "look") as pool:
            try:
                for start in range(0, len(files), CHUNK):
                    yield from self._through_chunk(list(files[start : start + CHUNK]), start, pool)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _through_chunk(self, paths: list[str], start: int, pool: ThreadPoolExecutor) -> Iterator[str | None]:
        whole = _glance_at_all(paths, pool)
        closer: dict[int, Callable[[str], None]] = {}
        for index, seems in enumerate(whole):
            self._odd += not seems
            if not seems:
                closer[index] = _decode if self._odd <= ODD_DECODED else _read_header
            elif (start + index) % self.every == 0:
                closer[index] = _decode
        turns = Turns()
        reasons = pool.map(lambda index: _told(turns, closer[index], paths[index]), closer)
        for index, seems in enumerate(whole):
            reason = next(reasons) if index in closer else None
            if seems and index in closer:
                self.sampled += 1
                self.damaged_within += reason is not None
            yield reason


def _glance_at_all(paths: list[str], pool: ThreadPoolExecutor) -> list[bool]:
    """Whether each seems whole. Threads are for waiting together: where there is nothing to wait for they only hand
    the interpreter to and fro."""
    first, *parts = (paths[at : at + GLANCES] for at in range(0, len(paths), GLANCES))
    begun = time.perf_counter()
    whole = _glance(first)
    waits = time.perf_counter() - begun > CACHED_S * len(first)
    for each in pool.map(_glance, parts) if waits else map(_glance, parts):
        whole += each
    return whole


def _glance(paths: list[str]) -> list[bool]:
    return [seems_whole(path) for path in paths]


def _told(turns: Turns, look: Callable[[str], None], path: str) -> str | None:
    """Why a file cannot be read, by a look that raises then."""
    try:
        turns.take(look, path)
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


def _count(name: str, classes: tuple[str, ...], split: FileSplit, readable: list[int], looked: Looked) -> None:
    there = np.bincount(split.labels, minlength=len(classes))
    counts = np.bincount(split.labels[readable], minlength=len(classes))
    by_class = dict(zip(classes, counts.tolist(), strict=True))
    looked.splits.append(SplitReport(name, by_class, split.made))
    title = "training" if name == "train" else "validation"
    if there.sum() and not counts.sum():
        looked.problems.append(
            wrong(f"None of the {there.sum():,} {title} images can be read.", "Choose a folder with readable images.")
        )
        return
    for class_name, had, left in zip(classes, there, counts, strict=True):
        if had and not left and name == "train":
            message = f"None of the {had:,} training images of class {class_name} can be read."
            looked.problems.append(wrong(message, "Replace them, or remove the class."))
        elif had and not left:
            message = f"None of the {had:,} validation images of class {class_name} can be read."
            looked.problems.append(warn(message, "The class is never validated."))


def _examples(name: str, classes: tuple[str, ...], split: FileSplit, readable: list[int]) -> list[Example]:
    examples = []
    for index in spread_by_class(split.labels, np.array(readable, np.int64)):
        try:
            with open_to_show(split.files[index]) as image:
                image.draft(image.mode, (EXAMPLE_SIDE * 2, EXAMPLE_SIDE * 2))
                png = thumbnail(opaque(image).convert("L" if is_grey(image) else "RGB"))
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        examples.append(Example(classes[split.labels[index]], name, png, int(index)))
    return examples
