"""Reads point clouds: PLY, and LAS or LAZ, with what each point is labelled as. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.reading import Unfit

EXTENSIONS = frozenset({".ply", ".las", ".laz"})
LABELS = (
    "label", "labels", "class", "classification", "scalar_label", "scalar_labels", "scalar_class", "scalar_classification",
    "semantic", "sem_class", "category",
)  # fmt: skip
"""What people and programs call a point's class in a PLY file, in lower case; CloudCompare puts scalar_ before it."""
FEATURES = ("red", "green", "blue", "intensity", "return_number", "number_of_returns")
"""What may be known of a point besides its place, in the order in which it is given to a model."""
_ALIASES = {
    "r": "red",
    "g": "green",
    "b": "blue",
    "diffuse_red": "red",
    "diffuse_green": "green",
    "diffuse_blue": "blue",
}
_MOST_HEADER = 1 << 16

Points = npt.NDArray[np.float32]


class Head(NamedTuple):
    """What the beginning of a file tells: how many points, which of `FEATURES` they have, and whether they are labelled."""

    points: int
    features: tuple[str, ...]
    labelled: bool


class Cloud(NamedTuple):
    """The points of a file that have a place: float32 [n, 3], in the file's unit from their middle on; the features asked
    for, float32 [n, f]; and their labels, int64 [n]."""

    places: Points
    features: Points
    labels: npt.NDArray[np.int64]


def is_cloud(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in EXTENSIONS


def is_las(name: str) -> bool:
    """Whether a file is LAS or LAZ, in which z is the height."""
    return os.path.splitext(name)[1].lower() != ".ply"


def read_head(path: str) -> Head:
    """Without reading the points. Raises Unfit, or what laspy or the system raises."""
    return _las_head(path) if is_las(path) else _ply_head(path)


def read_cloud(path: str, features: Sequence[str]) -> Cloud:
    """The whole file. Raises Unfit, or nearly anything that a reader may raise for a broken file."""
    places, columns, labels = _las(path, features) if is_las(path) else _ply(path, features)
    whole = np.isfinite(places).all(1)
    if not whole.any():
        raise Unfit("it has no points")
    if not whole.all():
        places, columns, labels = places[whole], columns[whole], labels[whole]
    places = places - (places.min(0) + places.max(0)) / 2  # survey coordinates have more digits than float32
    return Cloud(places.astype(np.float32), np.nan_to_num(columns), labels)


# PLY (Turk: The PLY Polygon File Format, 1994)


def _ply_head(path: str) -> Head:
    with open(path, "rb") as stream:
        begun = stream.read(_MOST_HEADER)
    head, ended, _ = begun.partition(b"end_header")
    if not begun.startswith(b"ply") or not ended:
        raise Unfit("it is empty" if not begun else "it is not a PLY file")
    count, inside, names = 0, False, []
    for line in head.decode("ascii", "replace").splitlines():
        words = line.split()
        if words[:1] == ["element"] and len(words) == 3:
            inside = words[1] == "vertex"
            count = int(words[2]) if inside else count
        elif inside and words[:1] == ["property"]:
            names.append(words[-1])
    if count > os.path.getsize(path):
        raise Unfit("it is truncated")
    known = _columns(names)
    if not {"x", "y", "z"} <= known.keys():
        raise Unfit("its points have no x, y and z")
    return Head(count, tuple(name for name in FEATURES if name in known), "label" in known)


def _columns(names: Sequence[str]) -> dict[str, str]:
    """A vertex's properties by what they are: x, y, z, those of `FEATURES`, and "label"."""
    lower = {name.lower(): name for name in reversed(names)}
    found = {name: lower[name] for name in ("x", "y", "z", *FEATURES) if name in lower}
    for alias, name in _ALIASES.items():
        if alias in lower:
            found.setdefault(name, lower[alias])
    if "intensity" not in found and "scalar_intensity" in lower:
        found["intensity"] = lower["scalar_intensity"]
    label = next((lower[name] for name in LABELS if name in lower), None)
    return found if label is None else {**found, "label": label}


def _ply(path: str, features: Sequence[str]) -> tuple[npt.NDArray[np.float64], Points, npt.NDArray[np.int64]]:
    from plyfile import PlyData

    head = _ply_head(path)
    _need(head, features)
    vertex = PlyData.read(path)["vertex"].data
    known = _columns(vertex.dtype.names)
    places = np.stack([vertex[known[name]] for name in "xyz"], 1).astype(np.float64)
    return places, _stacked([vertex[known[name]] for name in features], len(vertex)), _whole(vertex[known["label"]])


def _whole(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Labels as int64; CloudCompare writes them as floating-point numbers, and no number where there is none."""
    if not np.issubdtype(values.dtype, np.floating):
        return values.astype(np.int64)
    numbers = np.nan_to_num(values.astype(np.float64), nan=-1.0)
    if (numbers != np.round(numbers)).any():
        raise Unfit("its labels are not whole numbers")
    return numbers.astype(np.int64)


# LAS (ASPRS: LAS Specification 1.4)


def _las_head(path: str) -> Head:
    import laspy

    if not os.path.getsize(path):
        raise Unfit("it is empty")
    with laspy.open(path) as reader:
        names = set(reader.header.point_format.dimension_names)
        return Head(reader.header.point_count, tuple(name for name in FEATURES if name in names), True)


def _las(path: str, features: Sequence[str]) -> tuple[npt.NDArray[np.float64], Points, npt.NDArray[np.int64]]:
    import laspy

    _need(_las_head(path), features)
    las = laspy.read(path)
    labels: npt.NDArray[np.int64] = np.asarray(las.classification).astype(np.int64)
    places: npt.NDArray[np.float64] = np.asarray(las.xyz)
    return places, _stacked([np.asarray(las[name]) for name in features], len(labels)), labels


def _need(head: Head, features: Sequence[str]) -> None:
    missing = [name for name in features if name not in head.features]
    if missing:
        raise Unfit(f"its points have no {', '.join(missing)}, which others have")
    if not head.labelled:
        raise Unfit("its points have no label")


def _stacked(columns: Sequence[npt.NDArray[np.generic]], count: int) -> Points:
    if not columns:
        return np.empty((count, 0), np.float32)
    return np.stack([column.astype(np.float32) for column in columns], 1)
