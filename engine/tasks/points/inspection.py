"""Inspect point clouds: points per class, unreadable and incomplete clouds, and examples. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.drawing import encode_png
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    FileChecker,
    Inspection,
    LeaveOut,
    Progress,
    count_classes,
    describe_missing_class,
    draw_examples,
    select_splits,
    spread_examples,
    title_of,
)
from engine.data.inspection.samples import count_by_class
from engine.data.splits import (
    Labels,
    MaskCode,
    RecognizedDataset,
    dataset_error,
    dataset_warning,
    first_names,
    spread_evenly,
)
from engine.system.format import listed
from engine.tasks.points.classes import label_classes
from engine.tasks.points.decoding.clouds import count_labels, read_cloud, read_head
from engine.tasks.points.drawing import draw_points, encode_points
from engine.tasks.points.formats import PointSplit

MAX_COUNTED = 64
"""Approximate number of clouds in a split that are read to determine the fraction of each class.

Of the other clouds, only the headers are read.
"""
DRAWN_POINTS = 20_000
"""Maximum number of points that are drawn from a cloud. They are evenly spaced in the file."""


def inspect_points(dataset: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect every point cloud in a dataset.

    `leave_out(path, reason)` is called for each unusable file.
    """
    splits = select_splits(dataset, PointSplit)
    result = Inspection(channels=max(3 + len(split.features) for _, split in splits))
    checker = FileChecker(sum(len(split.files) for _, split in splits), progress, leave_out)
    code = dataset.code
    assert code is not None
    for name, split in splits:
        counted_indices = set(spread_evenly(len(split.files), MAX_COUNTED))
        checked = checker.check_each(split.files, partial(_inspect_cloud, split, code, counted_indices), threads)
        clouds_with_class, fractions = count_classes(dataset.classes, [each.by_class for each in checked.values()])
        result.splits.append(SplitReport(name, clouds_with_class, split.is_drawn, total=len(checked), shares=fractions))
        result.problems += _check_classes(name, fractions, has_usable=bool(checked))
        result.problems += _report_invalid_points(
            {split.files[index]: each.invalid_points for index, each in checked.items()}
        )
        if name == "train":
            result.examples += draw_examples(spread_examples(list(checked)), partial(_draw_example, split, code))
    return result


def count_class_points(dataset: RecognizedDataset, split: PointSplit, index: int) -> dict[str, Any]:
    """Count the points of each class in a cloud. Returns {"pixels": {class name: count}}.

    Points without a class are counted under the name "".
    """
    assert dataset.code is not None
    labels, counts = count_labels(split.files[index])
    numbers = np.repeat(label_classes(labels, dataset.code), counts)
    return {"pixels": count_by_class(dataset.classes, numbers)}


class _CheckedCloud(NamedTuple):
    """Number of points by class and number of invalid points in a checked cloud."""

    by_class: Labels | None = None
    """Number of points by class, or None if only the header was read."""
    invalid_points: int = 0
    """Number of points without valid coordinates."""


def _inspect_cloud(split: PointSplit, code: MaskCode, counted_indices: set[int], index: int) -> _CheckedCloud:
    """Count the points of a cloud by class if its index is in `counted_indices`. Otherwise only check its header.

    Raises Unfit, or the errors of its reader.
    """
    head = read_head(split.files[index])
    if index not in counted_indices:
        return _CheckedCloud()
    labels, points = count_labels(split.files[index])
    counts = np.zeros(NO_CLASS + 1, np.int64)
    np.add.at(counts, label_classes(labels, code), points)
    return _CheckedCloud(counts, max(0, head.points - int(points.sum())))


def _report_invalid_points(invalid_points: Mapping[str, int]) -> list[Problem]:
    """Return a problem that reports points without valid coordinates, if there are any.

    `invalid_points` is the number of such points in each file.
    """
    files = [path for path, count in invalid_points.items() if count]
    total = sum(invalid_points.values())
    if not total:
        return []
    points = "1 point has" if total == 1 else f"{total:,} points have"
    message = f"{points} no valid coordinates and {'is' if total == 1 else 'are'} left out ({first_names(files)})."
    return [dataset_warning(message, "If you need these points, repair the files.")]


def _check_classes(name: str, fractions: dict[str, float], *, has_usable: bool) -> list[Problem]:
    """Return an error if no cloud of the split `name` can be used, or a warning if some classes have no points.

    `fractions` maps each class name to its fraction of the points. `has_usable` is True if a cloud can be used.
    """
    title = title_of(name)
    if not has_usable:
        return [
            dataset_error(f"None of the {title} clouds can be used.", "Choose a folder with readable point clouds.")
        ]
    absent = [class_name for class_name, fraction in fractions.items() if not fraction]
    if not absent:
        return []
    message = f"The {title} clouds have no points of {listed(absent, most=5)}; this is {describe_missing_class(name)}."
    return [dataset_warning(message)]


def _draw_example(split: PointSplit, code: MaskCode, index: int) -> Example:
    """Return an example for display: a cloud in the colors of its classes."""
    positions, _, labels, _ = read_cloud(split.files[index], ())
    rows = spread_evenly(len(positions), DRAWN_POINTS)
    positions, classes = positions[rows], label_classes(labels[rows], code)
    drawn = draw_points(positions, classes, EXAMPLE_SIDE)
    return Example("", "train", encode_png(drawn, encode_points(positions, classes)))
