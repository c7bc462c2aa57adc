"""What recognising a dataset folder gives, and what every format needs for it. Torch-free.

Paths are str with surrogate escapes for names that are not UTF-8; `shown` makes them fit to print.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.contract.problems import Problem

LAYOUT = "Give a folder with one folder of pictures per class, or with train and val folders of such."

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FileSplit:
    """Pictures as files. `labels[i]` is the class of `files[i]`; `strays` are files that are no pictures by name."""

    files: list[str]
    labels: Labels
    strays: list[str] = field(default_factory=list)
    made: bool = False


@dataclass(frozen=True, eq=False)
class IdxSplit:
    """Pictures in idx files. `rows` are those of the file that belong to the split, None for all."""

    images: str
    labels: Labels
    rows: Labels | None = None
    made: bool = False


@dataclass(frozen=True, eq=False)
class Recognised:
    """What a folder is. `format` is "imagefolder", "idx" or ""; without an error in `problems` both splits are there.

    `classes` are in torchvision's order (sorted names) and fit to print.
    """

    format: str
    classes: tuple[str, ...] = ()
    train: FileSplit | IdxSplit | None = None
    val: FileSplit | IdxSplit | None = None
    problems: tuple[Problem, ...] = ()


def shown(path: str) -> str:
    r"""`path` as valid Unicode: bytes that are not UTF-8 appear as \xNN."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def wrong(message: str, remedy: str = LAYOUT) -> Problem:
    return Problem("dataset", message, remedy)


def warn(message: str, remedy: str = "") -> Problem:
    return Problem("dataset", message, remedy, "warning")


def nothing(problem: Problem) -> Recognised:
    return Recognised("", problems=(problem,))


def draw_validation(keys: list[bytes], labels: Labels, val_fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which samples go to validation: of each class the given share, at least one where it has two.

    The order is that of a hash of seed and name, so it is the same on every machine and hardly
    changes when pictures are added.
    """
    chosen = np.zeros(len(keys), bool)
    members: dict[int, list[int]] = defaultdict(list)
    for place, label in enumerate(labels.tolist()):
        members[label].append(place)
    salt = seed.to_bytes(8, "little", signed=True)
    for places in members.values():
        places.sort(key=lambda place: hashlib.blake2b(keys[place], digest_size=8, salt=salt).digest())
        count = min(max(round(len(places) * val_fraction), 1), len(places) - 1)
        chosen[places[:count]] = True
    return chosen
