"""Inspect images with classes or labels, idx files, and files for user-written programs. Torch-free.

The first and last bytes of each image are checked. Images that may be incomplete, and a sample of the others, are
decoded. Damage in the middle of a file may be missed here. Training reports it later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO

import numpy as np
from PIL import Image

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.header_check import seems_complete
from engine.data.decoding.idx import Bytes
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import (
    check_size,
    decode_header,
    is_gray,
    read_image,
)
from engine.data.decoding.tiff import is_multi_band, open_to_show, read_facts
from engine.data.decoding.transparency import remove_transparency
from engine.data.formats.idx import open_idx_images
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    Inspection,
    LeaveOut,
    MemoryGate,
    Progress,
    draw_examples,
    make_thumbnail,
    select_splits,
    spread_by_class,
    spread_examples,
    start_inspection,
    title_of,
)
from engine.data.splits import (
    AnySplit,
    FileSplit,
    IdxSplit,
    LabelSplit,
    RecognizedDataset,
    dataset_error,
    dataset_warning,
    printable,
)
from engine.system.format import counted

SAMPLE = 512
"""Maximum number of evenly spaced images that are decoded even though their first and last bytes are intact."""
MAX_INCOMPLETE_DECODED = 2048
"""Maximum number of possibly incomplete images that are decoded. Only the headers of additional ones are read."""
CHUNK = 1024
"""Number of files that are passed to the threads at once. Otherwise, a million images would become a million tasks."""
HEADERS_TIMED = 128
"""Number of files whose first and last bytes are checked in one task."""
IDX_EXAMPLE_CANDIDATES = 4096
"""Number of images at the beginning of an idx file among which examples are chosen."""
CACHED_S = 50e-6
"""Seconds per file above which reading is assumed to wait for a disk or network.

Files in the system's cache take a fifth of this time.
"""


def inspect_files(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images in a dataset with one class per image. Unusable files are passed to `leave_out`."""
    splits, result, checker = start_inspection(found, FileSplit, progress, leave_out)
    image_check = ImageCheck(checker.total)
    for name, split in splits:
        readable = checker.report_unusable(split.files, image_check.check_files(split.files, threads))
        for path in split.strays:
            ending = printable(os.path.splitext(path)[1]) or "no extension"
            leave_out(path, f"its extension is not that of an image ({ending})")
        _count_classes(name, found.classes, split, readable, result)
        if name == "train":
            chosen = spread_by_class(split.labels, np.array(readable, np.int64))
            result.examples += draw_examples(chosen, partial(_create_class_example, found.classes, split))
    result.problems += image_check.problems()
    return result


class ImageCheck:
    """Check for unreadable images in a dataset of `total` images.

    Possibly incomplete images are decoded, and so is a sample of the images that seem complete.
    """

    def __init__(self, total: int) -> None:
        self._sample_step = max(-(-total // SAMPLE), 1)  # one in so many complete images is decoded
        self._incomplete_count = 0  # of possibly incomplete images
        self._sampled_count = 0
        self._damaged_count = 0  # of sampled images

    def problems(self) -> list[Problem]:
        """Return a warning if images in the sample turned out to be damaged, since other images may be damaged, too."""
        if not self._damaged_count or self._sample_step == 1:  # with a step of 1, all images are decoded
            return []
        message = (
            f"Of {self._sampled_count:,} images decoded as a sample, {self._damaged_count:,} are damaged within, "
            f"although their beginning and end are intact; more of the others may be."
        )
        return [dataset_warning(message, "Training skips such images and names them.")]

    def check_files(self, files: Sequence[str], threads: int) -> Iterator[str | None]:
        """Yield the reason why a file can't be read, or None if it can be read, for each of the `files` in order."""
        with ThreadPoolExecutor(threads, "inspect") as pool:
            try:
                for start in range(0, len(files), CHUNK):
                    yield from self._check_chunk(list(files[start : start + CHUNK]), start, pool)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _check_chunk(self, paths: list[str], start: int, pool: ThreadPoolExecutor) -> Iterator[str | None]:
        """Yield the reason why a file can't be read, or None, for each of the `paths`.

        `start` is the index of the first one. Possibly incomplete images are always decoded, up to a limit. Only a
        sample of the others is decoded.
        """
        complete = _check_headers(paths, pool)
        checks: dict[int, Callable[[str], None]] = {}
        for index, is_complete in enumerate(complete):
            self._incomplete_count += not is_complete
            if not is_complete:
                checks[index] = _decode if self._incomplete_count <= MAX_INCOMPLETE_DECODED else _read_header
            elif (start + index) % self._sample_step == 0:
                checks[index] = _decode
        gate = MemoryGate()
        reasons = pool.map(lambda index: gate.run_or_explain(checks[index], paths[index]), checks)
        for index, is_complete in enumerate(complete):
            reason = next(reasons) if index in checks else None
            if is_complete and index in checks:
                self._sampled_count += 1
                self._damaged_count += reason is not None
            yield reason


def _check_headers(paths: list[str], pool: ThreadPoolExecutor) -> list[bool]:
    """Return True for each path if its file seems complete. `paths` must not be empty.

    Threads are used only if reading has to wait for a disk. Otherwise, they would cost more time than they save.
    """
    timed, *others = (paths[start : start + HEADERS_TIMED] for start in range(0, len(paths), HEADERS_TIMED))
    started = time.perf_counter()
    complete = _seem_complete(timed)
    waits_for_disk = time.perf_counter() - started > CACHED_S * len(timed)
    for results in pool.map(_seem_complete, others) if waits_for_disk else map(_seem_complete, others):
        complete += results
    return complete


def _seem_complete(paths: list[str]) -> list[bool]:
    return [seems_complete(path) for path in paths]


def _decode(path: str) -> None:
    """Decode an image completely. Raises an exception if it is damaged."""
    content = read_image(path)
    tiff_facts = read_facts(BytesIO(content))
    is_banded = tiff_facts is not None and is_multi_band(tiff_facts)
    with open_to_show(path) if is_banded else decode_header(content) as image:
        # A JPEG is decoded at an eighth of its size, which is fast and still reads every byte.
        image.draft(image.mode, (1, 1))
        image.load()


def _read_header(path: str) -> None:
    """Read the header of an image. Raises an exception if it is damaged, or if the image is too large."""
    with open_to_show(path) as image:
        check_size(image)


def _count_classes(
    name: str, classes: tuple[str, ...], split: FileSplit, readable: list[int], result: Inspection
) -> None:
    """Add the number of readable images in each class to `result`, and warnings about classes without any.

    `name` is "train" or "val", and `readable` holds the indices of the readable images.
    """
    totals = np.bincount(split.labels, minlength=len(classes))
    counts = np.bincount(split.labels[readable], minlength=len(classes))
    by_class = dict(zip(classes, counts.tolist(), strict=True))
    result.splits.append(SplitReport(name, by_class, split.is_drawn))
    if totals.sum() and not counts.sum():
        result.problems.append(_create_unreadable_problem(name, int(totals.sum())))
        return
    for class_name, total, count in zip(classes, totals, counts, strict=True):
        if count or not total:
            continue
        message = f"No {title_of(name)} image of class {class_name} can be read ({counted(total, 'image')})."
        if name == "train":
            result.problems.append(dataset_error(message, "Replace them, or remove the class."))
        else:
            result.problems.append(dataset_warning(message, "The class is never validated."))


def _create_class_example(classes: Sequence[str], split: FileSplit, index: int) -> Example:
    return Example(classes[split.labels[index]], "train", _make_example_png(split.files[index]), int(index))


def inspect_labels(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images in a dataset of images with labels. Unusable files are passed to `leave_out`."""
    splits, result, checker = start_inspection(found, LabelSplit, progress, leave_out)
    image_check = ImageCheck(checker.total)
    for name, split in splits:
        readable = checker.report_unusable(split.files, image_check.check_files(split.files, threads))
        counts = dict(zip(found.classes, split.labels[readable].sum(0).tolist(), strict=True))
        result.splits.append(SplitReport(name, counts, split.is_drawn, total=len(readable)))
        if len(split.files) and not readable:
            result.problems.append(_create_unreadable_problem(name, len(split.files)))
        if name == "train":
            result.examples += draw_examples(
                _select_rare_labels(split, readable), partial(_create_label_example, found.classes, split)
            )
    result.problems += image_check.problems()
    return result


def _select_rare_labels(split: LabelSplit, readable: list[int]) -> list[int]:
    """Return the indices of some readable images that together have many labels, preferably rare ones."""
    counts = split.labels.sum(0)
    # The rarest label of each image. Labels that it lacks count as more frequent than any other.
    rarest = np.where(split.labels, counts, counts.max(initial=0) + 1).argmin(1)
    return spread_by_class(rarest, np.array(readable, np.int64))


def _create_label_example(classes: Sequence[str], split: LabelSplit, index: int) -> Example:
    labels = ", ".join(label for label, is_set in zip(classes, split.labels[index], strict=True) if is_set)
    return Example(labels, "train", _make_example_png(split.files[index]), int(index))


def inspect_idx(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Count the images of each class in idx files, and draw examples. Only the training images are drawn."""
    result = Inspection(channels=1)
    opened: dict[str, Bytes | None] = {}  # pixels by path, or None for an unusable file
    splits = select_splits(found, IdxSplit)
    total = sum(len(split.labels) for _, split in splits)
    done = 0
    for name, split in splits:
        if split.images not in opened:
            opened[split.images] = open_idx_images(split, result.problems)
        pixels = opened[split.images]
        if pixels is None:
            continue
        counts = np.bincount(split.labels, minlength=len(found.classes))
        result.splits.append(SplitReport(name, dict(zip(found.classes, counts.tolist(), strict=True)), split.is_drawn))
        done += len(split.labels)
        progress(done, total)
        if name == "train":
            candidates = np.arange(min(len(split.labels), IDX_EXAMPLE_CANDIDATES))
            for index in spread_by_class(split.labels, candidates):
                row = index if split.rows is None else int(split.rows[index])
                png = make_thumbnail(Image.fromarray(np.array(pixels[row])))
                result.examples.append(Example(found.classes[split.labels[index]], name, png, int(index)))
    return result


def inspect_any_files(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Count the files of a dataset for a user-written program, and draw examples of those that are images."""
    assert isinstance(found.train, AnySplit)
    files = found.train.files
    progress(len(files), len(files))
    result = Inspection([SplitReport("files", {}, total=len(files))])
    images = [path for path in files if is_image(path)]
    result.examples = draw_examples(
        spread_examples(range(len(images))), lambda index: _create_file_example(images[index])
    )
    return result


def _create_file_example(path: str) -> Example:
    with open_to_show(path) as image:
        return Example("", "files", make_thumbnail(remove_transparency(image).convert("RGB")))


def _make_example_png(path: str) -> bytes:
    """Read an image and return it as PNG, shrunk to the size of examples."""
    with open_to_show(path) as image:
        image.draft(image.mode, (EXAMPLE_SIDE * 2, EXAMPLE_SIDE * 2))  # decodes a large JPEG at a reduced size
        return make_thumbnail(remove_transparency(image).convert("L" if is_gray(image) else "RGB"))


def _create_unreadable_problem(name: str, count: int) -> Problem:
    message = f"No {title_of(name)} image can be read ({counted(count, 'image')})."
    return dataset_error(message, "Choose a folder with readable images.")
