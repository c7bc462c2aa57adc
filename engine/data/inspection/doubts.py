"""Find probable mistakes in valid datasets.

These are images that share an annotation, classes that differ in spelling only, copies of an image with different
annotations, and gray images among color images. Torch-free.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import is_gray, open_image
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.formats.shared.instances import InstanceSplit
from engine.data.formats.shared.unpacking import name_within
from engine.data.inspection.contents import Contents, locate_file
from engine.data.splits import (
    FileSplit,
    Labels,
    LabelSplit,
    RecognizedDataset,
    dataset_warning,
    first_names,
    spread_evenly,
)
from engine.system.format import listed

NAMED = 3  # examples in a warning
_SAMPLED = 128
"""Maximum number of evenly spaced images in a split whose headers are read to tell gray from color."""
_SEARCHED = 1000
"""Maximum number of images in a split that are searched for an example of a class with several spellings."""


def find_doubts(found: RecognizedDataset, folder: str, contents: Contents, *, has_bands: bool = False) -> list[Problem]:
    """Return warnings about probable mistakes in a dataset.

    `contents` remembers the files that it has read before. Images that have bands (`has_bands`) are neither gray nor in
    color.
    """
    splits = list(found.splits.values())
    problems = [*_report_shared_annotations(splits, folder), *_report_spellings(found, folder)]
    problems += _report_conflicts(splits, folder, contents)
    if not has_bands:
        problems += _report_mixed_colors(splits)
    return problems


def _report_shared_annotations(splits: Sequence[Any], folder: str) -> list[Problem]:
    """Return a warning about images that share an annotation, or [] if there are none.

    This happens if the names of images differ only in the extension, or if a path in the dataset is wrong.
    """
    shared = list(_find_shared_annotations(splits))
    if not shared:
        return []
    named = "; ".join(" and ".join(name_within(path, folder) for path in pair) for pair in shared[:NAMED])
    more = "; …" if len(shared) > NAMED else ""
    pairs = "2 images share" if len(shared) == 1 else f"{len(shared):,} pairs of images share"
    message = f"{pairs} an annotation, or one of them has none because of that ({named}{more})."
    return [
        dataset_warning(
            message, "Give each image a name of its own and an annotation of that name, or remove one of the two."
        )
    ]


def _find_shared_annotations(splits: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield pairs of paths of images that share an annotation."""
    keys = [_list_keys(split) for split in splits]
    for pair in _find_repetitions(chain.from_iterable(keys)):
        (first, first_row), (second, second_row) = (locate_file(keys, index) for index in pair)
        images = splits[first].files[first_row], splits[second].files[second_row]
        # Different keys may have the same hash, and an image may be in two splits.
        if keys[first][first_row] != keys[second][second_row] or images[0] == images[1]:
            continue
        annotations = {_identify_annotation(splits[first], first_row), _identify_annotation(splits[second], second_row)}
        # Equal, not compared, or one image lacks an annotation because the other one has taken it.
        if len(annotations) == 1 or b"" in annotations:
            yield images


def _list_keys(split: Any) -> Sequence[str]:
    """Return a key for each image in a split, which is equal for images that share an annotation.

    Returns () for splits without separate annotations.
    """
    if isinstance(split, BoxSplit | InstanceSplit):
        return [os.path.splitext(path)[0] for path in split.files]
    files: Sequence[str] = getattr(split, "annotation_files", ())
    return files


def _find_repetitions(names: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the index of the first occurrence, and the index of the repetition, for each repeated name.

    Names are compared by their hashes only.
    """
    hashes = np.fromiter(map(hash, names), np.int64)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    positions = np.arange(len(hashes))
    is_first = np.diff(ordered, prepend=ordered[:1] - 1) != 0  # differs from the hash before it
    # Position of the first of the equal hashes at each position.
    firsts = np.maximum.accumulate(np.where(is_first, positions, 0))
    for position in positions[~is_first].tolist():
        yield int(order[firsts[position]]), int(order[position])


def _identify_annotation(split: Any, index: int) -> bytes:
    """Return bytes that identify the boxes or the instances of an image.

    Returns b"" if there are none, and for annotations of other kinds, which are not compared.
    """
    if isinstance(split, InstanceSplit):
        return split.sources[index].state()
    if not isinstance(split, BoxSplit):
        return b""
    rows = split.rows_of(index)
    return split.boxes[rows].tobytes() + split.labels[rows].tobytes()


def _report_spellings(found: RecognizedDataset, folder: str) -> list[Problem]:
    """Return a warning about classes whose names differ only in case, whitespace, "-", "_" or the encoding of accents."""
    by_key: dict[str, list[int]] = {}
    for number, name in enumerate(found.classes):
        by_key.setdefault(spelling_key(name), []).append(number)
    problems = []
    for numbers in by_key.values():
        if len(numbers) > 1:
            names = [
                f"“{_show_blanks(found.classes[number])}”{_find_example(found, number, folder)}" for number in numbers
            ]
            message = f"The classes {listed(names)} differ in spelling only."
            problems.append(dataset_warning(message, "If they are one class, give them the same name everywhere."))
    return problems


def spelling_key(name: str) -> str:
    """Normalize the name of a class, so that all of its spellings give the same result.

    The result has lower case, single spaces instead of underscores and dashes, and composed accents.
    """
    name = unicodedata.normalize("NFKC", name).casefold()
    return re.sub(r"[\s_]+|(?<=\w)-(?=[^\W\d])", " ", name).strip()


def _show_blanks(name: str) -> str:
    """Make differences between two spellings of `name` visible.

    Unusual whitespace is replaced with escape sequences, and separate accents are mentioned in parentheses.
    """
    composed = unicodedata.normalize("NFC", name)
    if composed != name:
        return f"{composed} (with separate accents)"
    return "".join(letter if letter == " " or not letter.isspace() else f"\\u{ord(letter):04x}" for letter in name)


def _find_example(found: RecognizedDataset, number: int, folder: str) -> str:
    """Return the name of an image that contains the class `number`, in parentheses, or "" if none is found quickly."""
    for split in found.splits.values():
        images: Iterable[int] = ()
        if isinstance(split, FileSplit):
            images = np.flatnonzero(split.labels == number).tolist()
        elif isinstance(split, LabelSplit):
            images = np.flatnonzero(split.labels[:, number]).tolist()
        elif isinstance(split, BoxSplit):
            boxes = np.flatnonzero(split.labels == number)
            images = (np.searchsorted(split.bounds, boxes, side="right") - 1).tolist()
        elif isinstance(split, InstanceSplit):
            sampled = spread_evenly(len(split.files), _SEARCHED)
            images = (index for index in sampled if number in split.sources[index].labels())
        index = next(iter(images), None)
        if index is not None:
            return f" ({name_within(split.files[index], folder)})"
    return ""


def _report_conflicts(splits: Sequence[Any], folder: str, contents: Contents) -> list[Problem]:
    """Return a warning about copies of an image that have different classes or labels, or [] if there are none."""
    if not all(isinstance(split, FileSplit | LabelSplit) for split in splits):
        return []
    groups = np.concatenate([_number_groups(split) for split in splits])
    listings = [split.files for split in splits]
    pairs = []
    for copies in contents.find_equal(listings, groups):  # each with files of at least two groups
        other = next(index for index in copies if groups[index] != groups[copies[0]])
        positions = [locate_file(listings, index) for index in (copies[0], other)]
        pairs.append([listings[listing][row] for listing, row in positions])
    if not pairs:
        return []
    names = [" and ".join(name_within(path, folder) for path in pair) for pair in pairs[:NAMED]]
    images = "1 image is" if len(pairs) == 1 else f"{len(pairs):,} images are"
    targets = "classes" if isinstance(splits[0], FileSplit) else "sets of labels"
    message = f"{images} in different {targets} ({'; '.join(names)}{'; …' if len(pairs) > NAMED else ''})."
    return [dataset_warning(message, "Keep each image once, with the right one.")]


def _number_groups(split: FileSplit | LabelSplit) -> Labels:
    """Return a number for each image, int64 [n], which is the same for images with the same class or labels."""
    if isinstance(split, FileSplit):
        return split.labels
    return np.fromiter((hash(row.tobytes()) for row in split.labels), np.int64, len(split.labels))


def _report_mixed_colors(splits: Sequence[Any]) -> list[Problem]:
    """Return a warning if a dataset contains both gray and color images, otherwise []."""
    gray: list[str] = []
    colored: list[str] = []
    for split in splits:
        files = getattr(split, "files", ())
        for index in spread_evenly(len(files), _SAMPLED):
            path = files[index]
            if not is_image(path):
                continue
            try:
                with open_image(path) as image:
                    (gray if is_gray(image) else colored).append(path)
            except Exception:
                continue  # a broken file may raise nearly anything; the inspection of the files reports it
    if not gray or not colored:
        return []
    sampled = len(gray) + len(colored)
    message = (
        f"Of {sampled:,} images inspected, {len(gray):,} {'is' if len(gray) == 1 else 'are'} gray ({first_names(gray)}) and "
        f"{len(colored):,} {'is' if len(colored) == 1 else 'are'} in color ({first_names(colored)})."
    )
    remedy = "Gray images are trained on as color images of three equal channels. Check that no class or split is mostly gray."
    return [dataset_warning(message, remedy)]
