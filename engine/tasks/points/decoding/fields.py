"""Fields that points may have, and functions shared by all point cloud readers. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.decoding.reading import Unfit
from engine.data.splits import Labels

LABELS = (
    "label", "labels", "class", "classification", "scalar_label", "scalar_labels", "scalar_class", "scalar_classification",
    "semantic", "sem_class", "category",
)  # fmt: skip
"""Names for the field with the class of a point, in lower case. CloudCompare adds the prefix scalar_."""
FEATURES = ("red", "green", "blue", "intensity", "return_number", "number_of_returns")
"""Inputs of a model in addition to the positions of points, in this order."""
CHUNK_POINTS = 1 << 20
"""Maximum number of points that are read from a file at once."""
MAX_HEADER_BYTES = 1 << 16
MAX_DIGITS = 13
"""A header with a number of points of this many or more digits is rejected."""
_ALIASES = {
    "r": "red",
    "g": "green",
    "b": "blue",
    "diffuse_red": "red",
    "diffuse_green": "green",
    "diffuse_blue": "blue",
}

Points = npt.NDArray[np.float32]
Columns = tuple[npt.NDArray[np.float64], Points, Labels]
"""Positions [n, 3], features [n, f] and labels [n] of some points. The labels are zeros if none were requested."""


class Fields(NamedTuple):
    """Features of the points in a file, a subset of `FEATURES`, and True if the points are labeled."""

    features: tuple[str, ...]
    has_labels: bool


class Head(NamedTuple):
    """Header of a file: the number of points, their features, and True if they are labeled."""

    points: int
    features: tuple[str, ...]
    has_labels: bool


def find_fields(names: Sequence[str]) -> dict[str, str]:
    """Find coordinates, features and labels among the field names of a file.

    Returns a mapping from x, y, z, the names in `FEATURES` and "label" to the field names. Missing fields are left out.
    """
    by_lower_name = {name.lower(): name for name in reversed(names)}
    field_of = {name: by_lower_name[name] for name in ("x", "y", "z", *FEATURES) if name in by_lower_name}
    for alias, name in _ALIASES.items():
        if alias in by_lower_name:
            field_of.setdefault(name, by_lower_name[alias])
    if "intensity" not in field_of and "scalar_intensity" in by_lower_name:
        field_of["intensity"] = by_lower_name["scalar_intensity"]
    label = next((by_lower_name[name] for name in LABELS if name in by_lower_name), None)
    return field_of if label is None else {**field_of, "label": label}


def require_fields(head: Head | Fields, features: Sequence[str], with_labels: bool) -> None:
    """Raise Unfit if a file lacks one of the requested features, or if it has no labels although `with_labels` is True."""
    missing = [name for name in features if name not in head.features]
    if missing:
        raise Unfit(f"its points have no {', '.join(missing)}, unlike others")
    if with_labels and not head.has_labels:
        raise Unfit("its points have no label")


def convert_labels(values: npt.NDArray[np.generic]) -> Labels:
    """Convert labels to int64. NaN, which CloudCompare writes for points without a label, becomes -1.

    Raises Unfit if a label is not a whole number.
    """
    if not np.issubdtype(values.dtype, np.floating):
        return values.astype(np.int64)
    numbers = np.nan_to_num(values.astype(np.float64), nan=-1.0)
    if (numbers != np.round(numbers)).any():
        raise Unfit("its labels are not whole numbers")
    return numbers.astype(np.int64)


def stack_columns(columns: Sequence[npt.NDArray[np.generic]], count: int) -> Points:
    """Stack columns with `count` values each to an array, float32 [count, f]. There may be no columns."""
    if not columns:
        return np.empty((count, 0), np.float32)
    return np.stack([column.astype(np.float32) for column in columns], 1)
