"""Recognized datasets with their splits, and messages shared by all formats. Torch-free.

Paths are str with surrogate escapes for names that are not UTF-8. `printable` makes them displayable.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from engine.contract.problems import Choice, Problem
from engine.data.files import Files

LAYOUT = "Choose a folder with one folder of images per class, or with train and val folders divided in the same way."

Labels = npt.NDArray[np.int64]
T = TypeVar("T")
_LONE_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Pattern for lone surrogates (halves of a UTF-16 pair).

Those that stand for undecodable bytes of a file name (PEP 383) do not match.
"""


class Split(Protocol):
    """Interface for splits of a dataset. Each kind of annotations has a separate class.

    `is_drawn` is True if the split was sampled from the training samples and does not exist in the folder. A class may
    have an attribute `per_sample` with the names of the lists and arrays that have an item for each sample. The default
    is ("files",). Classes that store samples in other ways have a method `select` (see `splitting.select_samples`).
    """

    @property
    def is_drawn(self) -> bool: ...


@dataclass(frozen=True, eq=False)
class FileSplit:
    """Split of image files. `labels[i]` is the class of `files[i]`. `strays` are files without an image extension."""

    files: Files
    labels: Labels
    strays: Files
    is_drawn: bool = False

    def select(self, is_selected: npt.NDArray[np.bool_], *, is_drawn: bool) -> FileSplit:
        """Return a split with only the images for which `is_selected`, bool [n], is True.

        `is_drawn` is True if the new split is sampled from the training samples and does not exist in the folder. It
        then has no strays.
        """
        strays = Files.of() if is_drawn else self.strays
        return FileSplit(self.files.select(is_selected), self.labels[is_selected], strays, is_drawn)


@dataclass(frozen=True, eq=False)
class IdxSplit:
    """Split of images in the idx file `images`.

    `rows` are the rows of the file that belong to the split, or None for all rows. `labels[i]` is the class of the
    image in `rows[i]`.
    """

    images: str
    labels: Labels
    rows: Labels | None = None
    is_drawn: bool = False

    def select(self, is_selected: npt.NDArray[np.bool_], *, is_drawn: bool) -> IdxSplit:
        """Return a split with only the images for which `is_selected`, bool [n], is True.

        `is_drawn` is True if the new split is sampled from the training samples and does not exist in the folder.
        """
        rows: Labels = np.arange(len(is_selected)) if self.rows is None else self.rows
        return IdxSplit(self.images, self.labels[is_selected], rows[is_selected], is_drawn)


@dataclass(frozen=True, eq=False)
class LabelSplit:
    """Split of image files with labels. `labels`, bool [N, C], is True for all labels of an image."""

    per_sample: ClassVar[tuple[str, ...]] = ("files", "labels")
    files: Sequence[str]
    labels: npt.NDArray[np.bool_]
    is_drawn: bool = False


@dataclass(frozen=True, eq=False)
class MaskSplit:
    """Split of image files and masks. The file `masks[i]` contains the class of every pixel in `files[i]`."""

    per_sample: ClassVar[tuple[str, ...]] = ("files", "masks")
    files: Sequence[str]
    masks: Sequence[str]
    is_drawn: bool = False

    @property
    def annotation_files(self) -> Sequence[str]:
        return self.masks


@dataclass(frozen=True, eq=False)
class AnySplit:
    """All files of a dataset folder, which a user-written program divides into splits."""

    holds_images: ClassVar[bool] = False
    files: Sequence[str]
    is_drawn: bool = False


@dataclass(frozen=True)
class MaskCode:
    """Mapping from values in masks, or from point labels, to classes.

    `values[i]` is the value of class i: a gray level, a palette index, or a color 0xRRGGBB if `colors` is True. Values
    in `ignored`, and pixels outside the image, have no class. If `nearest` is True, each pixel has the class with the
    nearest value, as in masks saved as JPEG. `palette` holds the color of each class in the palette that all masks
    share, or -1 if it is unknown. It is empty if the masks have no palette. `notes` are warnings about the
    interpretation of the values.
    """

    values: tuple[int, ...]
    colors: bool = False
    ignored: tuple[int, ...] = ()
    nearest: bool = False
    palette: tuple[int, ...] = ()
    notes: tuple[Problem, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class RecognizedDataset:
    """Result of recognizing a dataset: its splits, or the problems that prevent it from being read.

    Attributes:
        format: Id of the format in `registry.FORMATS`, followed by a colon and its variant if it has one, or "" if none
            was chosen.
        classes: Printable class names in the order of their numbers.
        train: Training split. It exists unless `problems` contain an error.
        val: Validation split. It exists unless `problems` contain an error.
        problems: All errors and warnings.
        code: Meaning of the values in masks and point labels, or None for other kinds.
        other: Kind of annotations that the folder has instead of the requested kind, or "" if it has the requested
            kind.
        test: Test split, or None if the folder has none. It is the same object as `val` if one split serves both
            purposes.
        kind: Kind of annotations that were read (see `registry.KINDS`), or "" if none were read.
        title: Name of the format for messages.
        certain: True if the evidence is so strong that users need not check samples before training.
    """

    format: str
    classes: tuple[str, ...] = ()
    train: Split | None = None
    val: Split | None = None
    problems: tuple[Problem, ...] = ()
    code: MaskCode | None = None
    other: str = ""
    test: Split | None = None
    kind: str = ""
    title: str = ""
    evidence: tuple[str, ...] = ()
    certain: bool = True

    @property
    def format_id(self) -> str:
        """Id of the format without its variant."""
        return self.format.partition(":")[0]

    @property
    def splits(self) -> dict[str, Any]:
        """Splits by "train", "val" and "test". A split for both validation and test is only in "val"."""
        test = None if self.test is self.val else self.test
        named = {"train": self.train, "val": self.val, "test": test}
        return {name: split for name, split in named.items() if split is not None}


def printable(path: str) -> str:
    r"""Convert a path to valid Unicode.

    Bytes that are not UTF-8 become \xNN, and lone surrogates from JSON become \uNNNN.
    """
    if path.isascii():
        return path
    path = _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", path)
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def dataset_error(message: str, remedy: str = LAYOUT, choices: tuple[Choice, ...] = ()) -> Problem:
    return Problem("dataset", message, remedy, choices=choices)


def dataset_warning(message: str, remedy: str = "", choices: tuple[Choice, ...] = ()) -> Problem:
    return Problem("dataset", message, remedy, "warning", choices)


def warn_about(names: Sequence[str], noun: str, text: str, remedy: str) -> list[Problem]:
    """Return a warning with the number of files and the names of the first ones, or [] if there are no files.

    Args:
        names: Paths or names. Only the last part of a path is shown.
        noun: Singular noun for the files.
        text: Words between the count and the names: "without a class:" or "without area, in".
        remedy: Advice.
    """
    if not names:
        return []
    return [dataset_warning(f"{count_sentence(names, noun)} {text} {first_names(names)}.", remedy)]


def warn_unreadable(faults: Sequence[tuple[str, str]], noun: str, remedy: str) -> list[Problem]:
    """Return a warning with the number of unreadable things and the first one, or [] if there are none.

    Each of `faults` is the path of a file and the reason why the file or an entry in it can't be read. `noun` names the
    unreadable thing in the singular, such as "annotation" or "line".
    """
    if not faults:
        return []
    path, reason = faults[0]
    more = f"; and {len(faults) - 1:,} more" if len(faults) > 1 else ""
    count = count_sentence([path for path, _ in faults], noun)
    return [dataset_warning(f"{count} that can't be read ({first_names([path])}: {reason}{more}).", remedy)]


def make_unrecognized(problem: Problem, other: str = "") -> RecognizedDataset:
    """Return the result for a folder that has no splits because of `problem`.

    `other` is the kind of annotations that the folder has instead of the requested kind, or "".
    """
    return RecognizedDataset("", problems=(problem,), other=other)


def count_sentence(names: Sequence[str], noun: str, plural: str = "") -> str:
    """Return the beginning of a sentence that counts `names`: "There is 1 image" or "There are 1,204 images".

    `noun` is the singular. `plural` is only needed if it is irregular.
    """
    plural = plural or noun + ("es" if noun.endswith("x") else "s")
    return f"There is 1 {noun}" if len(names) == 1 else f"There are {len(names):,} {plural}"


def first_names(paths: Sequence[str]) -> str:
    """Return the printable names of the first three files, followed by an ellipsis if there are more."""
    return abbreviate_names(list(dict.fromkeys(os.path.basename(path) for path in paths)))


def abbreviate_names(names: Sequence[str], count: int = 3) -> str:
    """Join the first `count` names in printable form, followed by an ellipsis if there are more."""
    return ", ".join(map(printable, names[:count])) + (", …" if len(names) > count else "")


def spread_evenly(length: int, count: int) -> list[int]:
    """Return at most `count` evenly spaced indices of a sequence with `length` items, starting with 0."""
    return list(range(0, length, max(-(-length // count), 1)))


def sample_evenly(items: Sequence[T], count: int) -> list[T]:
    """Return at most `count` evenly spaced items of a sequence, starting with the first."""
    return [items[index] for index in spread_evenly(len(items), count)]


def order_by_hash(keys: Iterable[bytes], labels: Labels, seed: int) -> Labels:
    """Return the indices of all samples [n], sorted by class, and within each class by a hash.

    `keys` identify the samples, `labels` are their classes, [n], and the hash is computed from the seed and the key.
    """
    salted = hashlib.blake2b(digest_size=8, salt=seed.to_bytes(8, "little", signed=True))
    digests = bytearray()
    for key in keys:
        # Copying the salted hash takes half the time of creating a new one.
        digest = salted.copy()
        digest.update(key)
        digests += digest.digest()
    return np.lexsort((np.frombuffer(digests, ">u8").astype(np.uint64), labels))


def draw_validation(keys: Iterable[bytes], labels: Labels, val_fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Choose validation samples from each class and return them as a mask, bool [n].

    `keys` identify the samples, and `labels` are their classes, [n]. The fraction `val_fraction` of each class is
    chosen, but at least one sample and not all of them. From a class with one sample, none is chosen. The choice
    depends on a hash of the seed and the sample's key. It is therefore the same on every computer and hardly changes
    when images are added. If `val_fraction` is 0, no samples are chosen.
    """
    if not val_fraction:
        return np.zeros(len(labels), bool)
    order = order_by_hash(keys, labels, seed)
    counts = np.bincount(labels)
    chosen = np.zeros(len(labels), bool)
    class_ends = np.cumsum(counts).tolist()  # in `order`
    for end, count in zip(class_ends, counts.tolist(), strict=True):
        held_out = min(max(round(count * val_fraction), 1), count - 1)
        start = end - count
        chosen[order[start : start + max(held_out, 0)]] = True  # `held_out` is -1 for an empty class
    return chosen
