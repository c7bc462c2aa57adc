"""Looks a dataset folder through and reports what is there and what is wrong. Torch-free.

Each picture is judged by how it begins and ends. Those that are not plainly whole are decoded, and a sample of the
others; so damage within one may be missed, and is told when training comes across it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np
from PIL import Image

from engine.contract.dataset import DatasetReport, Example, SplitReport, Unreadable
from engine.contract.problems import Problem, errors
from engine.data.files import Files
from engine.data.formats import PICTURES_BY_CLASS, recognise
from engine.data.found import FileSplit, IdxSplit, MaskSplit, Recognised, shown, warn, wrong
from engine.data.glance import seems_whole
from engine.data.idx import Bytes
from engine.data.idx_dataset import open_idx_pictures
from engine.data.mask_inspection import look_through_masks
from engine.data.reading import check_size, describe_failure, folder_channels, is_grey, open_picture, quieten_pillow

EXAMPLES = 12
EXAMPLE_SIDE = 96
UNREADABLE_SHOWN = 1000
SAMPLE = 512
"""About so many pictures are decoded though they seem whole, evenly spread over the dataset."""
ODD_DECODED = 2048
"""So many that do not seem whole, or of a format of which that cannot be told, are decoded; of more, the header is
read."""
CHUNK = 1024
"""Files handed to the threads at a time, so that a million pictures do not become a million waiting tasks."""
GLANCES = 128
"""Files glanced at in one go."""
CACHED_S = 50e-6
"""A glance that takes longer than this waits for a disk or a network; one at what the system holds takes a fifth."""

Progress = Callable[[int, int], None]
"""Called with how many pictures are done, of how many."""


@dataclass
class _Findings:
    """What the look through all files collects."""

    folder: str
    unreadable: list[Unreadable] = field(default_factory=list)
    unreadable_count: int = 0
    splits: list[SplitReport] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    channels: int = 3

    def leave_out(self, path: str, reason: str) -> None:
        self.unreadable_count += 1
        if len(self.unreadable) < UNREADABLE_SHOWN:
            self.unreadable.append(Unreadable(shown(os.path.relpath(path, self.folder)), reason))


def inspect(
    folder: str,
    *,
    val_fraction: float,
    seed: int,
    progress: Progress,
    formats: Sequence[str] = PICTURES_BY_CLASS,
    threads: int | None = None,
) -> DatasetReport:
    """Looks through `folder`, which is to be of one of `formats`. Never raises for what may be wrong with it: that is in the report's problems."""
    begun = time.perf_counter()
    quieten_pillow()
    folder = os.path.abspath(os.path.expanduser(folder))
    progress(0, 0)
    found = recognise(folder, val_fraction=val_fraction, seed=seed, formats=formats)
    findings = _Findings(folder, problems=list(found.problems))
    if isinstance(found.train, MaskSplit) and isinstance(found.val, MaskSplit):
        findings.channels = folder_channels(found.train.files, found.val.files)
        if not errors(findings.problems):
            _look_through_masks(found, findings, progress, threads or min(4, os.cpu_count() or 1))
    elif isinstance(found.train, FileSplit) and isinstance(found.val, FileSplit):
        findings.channels = folder_channels(found.train.files, found.val.files)
        _look_through_files(found, findings, progress, threads or min(4, os.cpu_count() or 1))
    elif not errors(findings.problems):
        _look_through_idx(found, findings, progress)
    return DatasetReport(
        folder=shown(folder),
        format=found.format,
        classes=found.classes,
        splits=tuple(findings.splits),
        channels=findings.channels,
        unreadable=tuple(findings.unreadable),
        unreadable_count=findings.unreadable_count,
        examples=tuple(findings.examples),
        problems=tuple(findings.problems),
        seconds=time.perf_counter() - begun,
    )


def _look_through_masks(found: Recognised, findings: _Findings, progress: Progress, threads: int) -> None:
    looked = look_through_masks(found, progress, findings.leave_out, threads)
    findings.splits += looked.splits
    findings.examples += looked.examples
    findings.problems += looked.problems
    _judge_unreadable(findings)


# Files


def _look_through_files(found: Recognised, findings: _Findings, progress: Progress, threads: int) -> None:
    halves = (("train", found.train), ("val", found.val))
    splits = [(name, split) for name, split in halves if isinstance(split, FileSplit)]
    total = sum(len(split.files) for _, split in splits)
    done = 0
    look = _Look(every=max(-(-total // SAMPLE), 1))
    for name, split in splits:
        readable = np.ones(len(split.files), bool)
        for place, reason in enumerate(look.through(split.files, threads)):
            done += 1
            progress(done, total)
            if reason is not None:
                readable[place] = False
                findings.leave_out(split.files[place], reason)
        for path in split.strays:
            ending = shown(os.path.splitext(path)[1]) or "no ending"
            findings.leave_out(path, f"it is not a picture by its name ({ending})")
        _count(name, found.classes, split, readable, findings)
        if name == "train":
            findings.examples += _file_examples(name, found.classes, split, readable)
    _judge_unreadable(findings)
    if look.damaged_within and look.every > 1:
        message = (
            f"Of {look.sampled:,} pictures that were decoded as a sample, {look.damaged_within:,} begin and end as "
            "they should but are damaged within; more of the others may be."
        )
        findings.problems.append(warn(message, "Training passes over such pictures and names them."))


class _Look:
    """Looks at files one after another, and decodes every so many-th of those that seem whole."""

    def __init__(self, every: int) -> None:
        self.every = every
        self._odd = 0
        self.sampled = 0
        self.damaged_within = 0

    def through(self, files: Files, threads: int) -> Iterator[str | None]:
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
        closer: dict[int, Callable[[str], str | None]] = {}
        for place, seems in enumerate(whole):
            self._odd += not seems
            if not seems:
                closer[place] = _decode if self._odd <= ODD_DECODED else _read_header
            elif (start + place) % self.every == 0:
                closer[place] = _decode
        reasons = pool.map(lambda place: closer[place](paths[place]), closer)
        for place, seems in enumerate(whole):
            reason = next(reasons) if place in closer else None
            if seems and place in closer:
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


def _decode(path: str) -> str | None:
    try:
        with open(path, "rb") as stream:
            content = stream.read()
        with open_picture(content) as image:
            # A JPEG is decoded at an eighth of its size, which is quick and still meets every byte.
            image.draft(image.mode, (1, 1))
            image.load()
    except Exception as error:  # a broken file may raise nearly anything in a decoder
        return describe_failure(error)
    return None


def _read_header(path: str) -> str | None:
    try:
        with Image.open(path) as image:
            check_size(image)
    except Exception as error:
        return describe_failure(error)
    return None


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


def _judge_unreadable(findings: _Findings) -> None:
    count = findings.unreadable_count
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
    by_class = places[np.argsort(labels[places], kind="stable")]
    _, firsts, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    turns = [firsts[counts > turn] + turn for turn in range(EXAMPLES)]
    chosen: list[int] = by_class[np.sort(np.concatenate(turns)[:EXAMPLES])].tolist()
    return chosen


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
