"""Looks a dataset folder through, picture by picture, and reports what is there and what is wrong. Torch-free."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from typing import NamedTuple

import numpy as np
from PIL import Image

from engine.contract.dataset import DatasetReport, Example, SplitReport, Unreadable
from engine.contract.problems import Problem, errors
from engine.data.formats import recognise
from engine.data.found import FileSplit, IdxSplit, Recognised, shown, warn, wrong
from engine.data.idx import Bytes
from engine.data.idx_dataset import open_idx_pictures
from engine.data.reading import describe_failure, is_grey, open_picture, quieten_pillow

EXAMPLES = 12
EXAMPLE_SIDE = 96
UNREADABLE_SHOWN = 1000
CHUNK = 256
"""Files handed to the threads at a time, so that a million pictures do not become a million waiting tasks."""

Progress = Callable[[int, int], None]
"""Called with how many pictures are done, of how many."""


class _Look(NamedTuple):
    """What one file turned out to be: `reason` says why it cannot be read, `grey` is None where its header can't."""

    reason: str | None
    grey: bool | None


@dataclass
class _Findings:
    """What the look through all files collects."""

    unreadable: list[Unreadable] = field(default_factory=list)
    splits: list[SplitReport] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    channels: int = 3


def inspect(
    folder: str, *, val_fraction: float, seed: int, progress: Progress, threads: int | None = None
) -> DatasetReport:
    """Looks through `folder`. Never raises for what may be wrong with it: that is in the report's problems."""
    begun = time.perf_counter()
    quieten_pillow()
    folder = os.path.abspath(os.path.expanduser(folder))
    progress(0, 0)
    found = recognise(folder, val_fraction=val_fraction, seed=seed)
    findings = _Findings(problems=list(found.problems))
    if isinstance(found.train, FileSplit) and isinstance(found.val, FileSplit):
        _look_through_files(folder, found, findings, progress, threads or min(4, os.cpu_count() or 1))
    elif not errors(findings.problems):
        _look_through_idx(found, findings, progress)
    return DatasetReport(
        folder=shown(folder),
        format=found.format,
        classes=found.classes,
        splits=tuple(findings.splits),
        channels=findings.channels,
        unreadable=tuple(findings.unreadable[:UNREADABLE_SHOWN]),
        unreadable_count=len(findings.unreadable),
        examples=tuple(findings.examples),
        problems=tuple(findings.problems),
        seconds=time.perf_counter() - begun,
    )


# Files


def _look(path: str) -> _Look:
    grey = None
    try:
        with open(path, "rb") as stream:
            content = stream.read()
        with open_picture(content) as image:
            grey = is_grey(image)
            # A JPEG is decoded at an eighth of its size, which is quick and still meets every byte.
            image.draft(image.mode, (1, 1))
            image.load()
    except Exception as error:  # a broken file may raise nearly anything in a decoder
        return _Look(describe_failure(error), grey)
    return _Look(None, grey)


def _look_through_files(folder: str, found: Recognised, findings: _Findings, progress: Progress, threads: int) -> None:
    splits = [("train", found.train), ("val", found.val)]
    total = sum(len(split.files) for _, split in splits if isinstance(split, FileSplit))
    done = 0
    greys: set[bool] = set()
    for name, split in splits:
        if not isinstance(split, FileSplit):
            continue
        readable = np.zeros(len(split.files), bool)
        for place, look in _looks(split.files, threads):
            done += 1
            progress(done, total)
            readable[place] = look.reason is None
            if look.grey is not None:
                greys.add(look.grey)
            if look.reason is not None:
                path = shown(os.path.relpath(split.files[place], folder))
                findings.unreadable.append(Unreadable(path, look.reason))
        for path in split.strays:
            ending = shown(os.path.splitext(path)[1]) or "no ending"
            reason = f"it is not a picture by its name ({ending})"
            findings.unreadable.append(Unreadable(shown(os.path.relpath(path, folder)), reason))
        _count(name, found.classes, split, readable, findings)
        if name == "train":
            findings.examples += _file_examples(name, found.classes, split, readable)
    findings.channels = 1 if greys == {True} else 3
    _judge_unreadable(findings, total)


def _looks(files: list[str], threads: int) -> Iterator[tuple[int, _Look]]:
    with ThreadPoolExecutor(threads, "look") as pool:
        try:
            for start in range(0, len(files), CHUNK):
                yield from enumerate(pool.map(_look, files[start : start + CHUNK]), start)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _count(name: str, classes: tuple[str, ...], split: FileSplit, readable: np.ndarray, findings: _Findings) -> None:
    there = np.bincount(split.labels, minlength=len(classes))
    counts = np.bincount(split.labels[readable], minlength=len(classes))
    by_class = dict(zip(classes, counts.tolist(), strict=True))
    findings.splits.append(SplitReport(name, by_class, split.made))
    title = "training" if name == "train" else "validation"
    if there.sum() and not counts.sum():
        findings.problems.append(
            wrong(f"None of the {there.sum():,} {title} pictures can be read.", "Choose a folder of whole pictures.")
        )
        return
    for class_name, had, left in zip(classes, there, counts, strict=True):
        if had and not left and name == "train":
            message = f"None of the {had:,} training pictures of class {class_name} can be read."
            findings.problems.append(wrong(message, "Replace them, or remove the class."))
        elif had and not left:
            message = f"None of the {had:,} validation pictures of class {class_name} can be read."
            findings.problems.append(warn(message, "The class is never validated."))


def _judge_unreadable(findings: _Findings, total: int) -> None:
    count = len(findings.unreadable)
    if not count:
        return
    named = "; ".join(f"{each.path}: {each.reason}" for each in findings.unreadable[:3])
    more = f"; and {count - 3:,} more" if count > 3 else ""
    files = "1 file is" if count == 1 else f"{count:,} files are"
    message = f"{files} left out ({named}{more})."
    findings.problems.append(warn(message, "Replace or remove what should not be there; training goes on without."))


def _file_examples(name: str, classes: tuple[str, ...], split: FileSplit, readable: np.ndarray) -> list[Example]:
    examples = []
    for place in _spread(split.labels, np.flatnonzero(readable)):
        try:
            with Image.open(split.files[place]) as image:
                image.draft(image.mode, (EXAMPLE_SIDE * 2, EXAMPLE_SIDE * 2))
                png = _thumbnail(image.convert("L" if is_grey(image) else "RGB"))
        except Exception:
            continue  # it could be read a moment ago; a picture fewer is shown
        examples.append(Example(classes[split.labels[place]], name, png))
    return examples


def _spread(labels: np.ndarray, places: np.ndarray) -> list[int]:
    """Up to `EXAMPLES` of `places`, from as many classes as possible in turn."""
    per_class = [places[labels[places] == label] for label in np.unique(labels[places])]
    rounds = [int(each[turn]) for turn in range(EXAMPLES) for each in per_class if turn < len(each)]
    return sorted(rounds[:EXAMPLES], key=lambda place: int(labels[place]))


def _thumbnail(image: Image.Image) -> bytes:
    image.thumbnail((EXAMPLE_SIDE, EXAMPLE_SIDE))
    stream = BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


# idx


def _look_through_idx(found: Recognised, findings: _Findings, progress: Progress) -> None:
    findings.channels = 1
    opened: dict[str, Bytes | None] = {}
    splits = [
        (name, split) for name, split in (("train", found.train), ("val", found.val)) if isinstance(split, IdxSplit)
    ]
    total = sum(len(split.labels) for _, split in splits)
    done = 0
    for name, split in splits:
        if split.images not in opened:
            opened[split.images] = open_idx_pictures(split, findings.problems)
        pixels = opened[split.images]
        if pixels is None:
            continue
        counts = np.bincount(split.labels, minlength=len(found.classes))
        findings.splits.append(SplitReport(name, dict(zip(found.classes, counts.tolist(), strict=True)), split.made))
        done += len(split.labels)
        progress(done, total)
        if name == "train":
            for place in _spread(split.labels, np.arange(min(len(split.labels), 4096))):
                row = place if split.rows is None else int(split.rows[place])
                png = _thumbnail(Image.fromarray(np.array(pixels[row])))
                findings.examples.append(Example(found.classes[split.labels[place]], name, png))
