"""Classes of SemanticKITTI (Behley et al. 2019): the default ones, or those in a semantic-kitti.yaml. Torch-free."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from engine.data.decoding.reading import read_text
from engine.data.splits import printable
from engine.system.regular_files import UnusableFile

DEFINITION = "semantic-kitti.yaml"
VAL_SEQUENCES = ("08",)
_MAX_BYTES = 1 << 20
_CLASSES: Mapping[str, tuple[int, ...]] = {
    "car": (10, 252),
    "bicycle": (11,),
    "motorcycle": (15,),
    "truck": (18, 258),
    "other-vehicle": (20, 13, 16, 256, 257, 259),
    "person": (30, 254),
    "bicyclist": (31, 253),
    "motorcyclist": (32, 255),
    "road": (40, 60),
    "parking": (44,),
    "sidewalk": (48,),
    "other-ground": (49,),
    "building": (50,),
    "fence": (51,),
    "vegetation": (70,),
    "trunk": (71,),
    "terrain": (72,),
    "pole": (80,),
    "traffic-sign": (81,),
}
"""Labels of each class, with the main label first (semantic-kitti.yaml: learning_map, learning_map_inv)."""
_UNLABELED = (0, 1, 52, 99)
_SECTION_LINE = re.compile(r"(\w+)\s*:\s*(?:#.*)?")
_ENTRY_LINE = re.compile(r"\s+(\w+)\s*:\s*(.+?)\s*(?:#.*)?")


class KittiClasses(NamedTuple):
    """Classes of SemanticKITTI and their labels.

    Each class has one main label, listed in `values`. `merged` pairs each additional label with the main label of its
    class. The labels `ignored` belong to no class.
    """

    names: tuple[str, ...]
    values: tuple[int, ...]
    ignored: tuple[int, ...]
    merged: tuple[tuple[int, int], ...]


_DEFAULT = KittiClasses(
    tuple(_CLASSES),
    tuple(values[0] for values in _CLASSES.values()),
    _UNLABELED,
    tuple((other, values[0]) for values in _CLASSES.values() for other in values[1:]),
)


def find_kitti_classes(folder: str, files: Sequence[str], labels: Iterable[int]) -> KittiClasses | None:
    """Return the classes of a folder in the layout of SemanticKITTI, or None if the folder has another layout.

    The classes are defined in a semantic-kitti.yaml in the folder or its parent. Without this file, they are the
    default classes, or None if these don't cover all `labels` or fewer than two of the labels belong to a class.
    """
    if not all(map(find_sequence, files)):
        return None
    for parent in dict.fromkeys((folder, os.path.dirname(folder.rstrip(os.sep)))):
        path = os.path.join(parent, DEFINITION)
        if os.path.isfile(path):
            return _read_definition(path)
    default_labels = {*_DEFAULT.values, *_DEFAULT.ignored, *(label for label, _ in _DEFAULT.merged)}
    class_labels = set(labels) - set(_UNLABELED)
    return _DEFAULT if class_labels <= default_labels and len(class_labels) >= 2 else None


def find_sequence(path: str) -> str:
    """Return the number of the sequence that contains a scan ("08"), or "" if its path has no sequences/NN/velodyne."""
    parts = os.path.normpath(path).split(os.sep)
    if len(parts) < 4 or parts[-2].lower() != "velodyne" or parts[-4].lower() != "sequences":
        return ""
    return parts[-3] if parts[-3].isdecimal() else ""


def _read_definition(path: str) -> KittiClasses:
    """Read the classes in a semantic-kitti.yaml. Raises UnusableFile and OSError.

    Only its sections with one entry per line are read: `labels` names the labels in the files, `learning_map` maps them
    to class numbers, and `learning_map_inv` maps these to one label each.
    """
    sections: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for line in read_text(path, _MAX_BYTES).splitlines():
        if match := _SECTION_LINE.fullmatch(line):
            section = sections.setdefault(match[1], {})
        elif match := _ENTRY_LINE.fullmatch(line):
            key, value = match.groups()
            section[key] = value.strip("'\"")
    try:
        names = {int(label): printable(name) for label, name in sections["labels"].items()}
        number_of = {int(label): int(number) for label, number in sections["learning_map"].items()}
        label_of = {int(number): int(label) for number, label in sections["learning_map_inv"].items()}
        is_ignored = {int(number): flag.lower() == "true" for number, flag in sections["learning_ignore"].items()}
        class_numbers = sorted(number for number in label_of if not is_ignored.get(number, False))
        return KittiClasses(
            names=tuple(names[label_of[number]] for number in class_numbers),
            values=tuple(label_of[number] for number in class_numbers),
            ignored=tuple(label for label, number in number_of.items() if number not in class_numbers),
            merged=tuple(
                (label, label_of[number])
                for label, number in number_of.items()
                if number in class_numbers and label != label_of[number]
            ),
        )
    except (KeyError, ValueError) as error:
        reason = f"lacks labels, learning_map, learning_map_inv or learning_ignore, or an entry of these ({error})"
        raise UnusableFile(path, reason, "Use the file of semantic-kitti-api, or remove it.") from None
