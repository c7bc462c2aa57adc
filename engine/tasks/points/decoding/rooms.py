"""Reader for rooms in the layout of S3DIS (Armeni et al. 2016). Torch-free.

A room is a table with all points, and one table for each object. The points of a room are stored in ROOM/ROOM.txt, and
those of its objects in files such as ROOM/Annotations/chair_1.txt. Each line has x, y, z, red, green and blue.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

import numpy as np

from engine.tasks.points.decoding.fields import Columns, Fields, Head, require_fields
from engine.tasks.points.decoding.tables import Table, count_points, read_chunks_with_layout

ANNOTATIONS = "Annotations"
CLASSES = (
    "ceiling", "floor", "wall", "beam", "column", "window", "door", "table", "chair", "sofa", "bookcase", "board", "clutter",
)  # fmt: skip
"""Class names in the order of the class numbers that are usual for S3DIS."""
NO_LABEL = -1
_SYNONYMS = {"stairs": "clutter"}
"""Names of objects in S3DIS that count as another class, mapped to that class."""
_TABLE = Table(("x", "y", "z", "red", "green", "blue"), None, 0, is_guessed=False)
_FIELDS = Fields(("red", "green", "blue"), True)


def is_room(path: str) -> bool:
    """Return True if a file is a room of S3DIS: it is named like its folder, which also has a folder of annotations."""
    folder, name = os.path.split(path)
    return os.path.splitext(name)[0] == os.path.basename(folder) and os.path.isdir(os.path.join(folder, ANNOTATIONS))


def find_unknown_objects(path: str) -> list[str]:
    """Return the object files of an S3DIS room whose names match no class."""
    return [name for name in _list_object_files(path) if _parse_class_number(name) is None]


def read_fields(path: str) -> Fields:
    """Return the fields that the points in a room of S3DIS have."""
    return _FIELDS


def read_head(path: str) -> Head:
    """Return the number of points in a room of S3DIS, and their fields."""
    return Head(count_points(path, _TABLE), *_FIELDS)


def read_chunks(path: str, features: Sequence[str], with_labels: bool) -> Iterator[Columns]:
    """Yield the points of a room in chunks: positions [n, 3], features [n, f] and labels [n].

    If `with_labels` is True, the points are ordered by object, and points of objects with an unknown class get the
    label -1. Otherwise they are in the order of the room's file.
    """
    require_fields(_FIELDS, features, with_labels)
    if not with_labels:
        yield from read_chunks_with_layout(path, _TABLE, features, with_labels=False)
        return
    for name in _list_object_files(path):
        class_number = _parse_class_number(name)
        label = NO_LABEL if class_number is None else class_number
        object_path = _get_annotation_path(path, name)
        for positions, columns, _ in read_chunks_with_layout(object_path, _TABLE, features, with_labels=False):
            yield positions, columns, np.full(len(positions), label, np.int64)


def _list_object_files(path: str) -> list[str]:
    """Return the sorted names of the files with the objects of the S3DIS room at `path`."""
    names = os.listdir(_get_annotation_path(path))
    return sorted(name for name in names if name.lower().endswith(".txt") and not name.startswith("."))


def _get_annotation_path(path: str, *names: str) -> str:
    """Return the path of the annotation folder of the room at `path`, or of the file `names` in this folder."""
    return os.path.join(os.path.dirname(path), ANNOTATIONS, *names)


def _parse_class_number(name: str) -> int | None:
    """Return the number of the class in the name of an object file, such as chair_1.txt, or None if it is unknown."""
    class_name = re.sub(r"_\d+$", "", os.path.splitext(name)[0]).lower()
    class_name = _SYNONYMS.get(class_name, class_name)
    return CLASSES.index(class_name) if class_name in CLASSES else None
