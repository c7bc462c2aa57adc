"""Looks folders of point clouds through: how many points of each class there are, which clouds cannot be read, and
what they look like. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.masks import NO_CLASS
from engine.data.decoding.point_clouds import count_labels, read_cloud, read_head
from engine.data.drawing import png
from engine.data.formats.point_classes import classes_of
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    EXAMPLES,
    LeaveOut,
    Looked,
    Progress,
    Tally,
    shares_of_classes,
    splits_of,
)
from engine.data.point_drawing import draw_points
from engine.data.splits import Labels, MaskCode, PointSplit, Recognised, spread_evenly, warn, wrong
from engine.system.format import listed

READ = 64
"""About so many clouds of a split are read whole, evenly spread, for the share of each class; of the others "
"their heads."""
DRAWN_POINTS = 20_000
"""Of a cloud with more points, so many are drawn, evenly spread."""


def look_through_points(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Inspects every cloud of `found`, whose splits are of points. `leave_out(path, reason)` is called for each
    unusable one."""
    splits = splits_of(found, PointSplit)
    looked = Looked(channels=max(3 + len(split.features) for _, split in splits))
    tally = Tally(sum(len(split.files) for _, split in splits), progress, leave_out)
    code = found.code
    assert code is not None
    for name, split in splits:
        read = set(spread_evenly(len(split.files), READ))
        seen = tally.seen(split.files, partial(_see, split, code, read), threads)
        counted, shares = shares_of_classes(found.classes, seen.values())
        looked.splits.append(SplitReport(name, counted, split.made, total=len(seen), shares=shares))
        looked.problems += _judge_classes(name, shares, bool(seen))
        if name == "train":
            looked.examples += _examples(split, list(seen), code)
    return looked


def _see(split: PointSplit, code: MaskCode, read: set[int], index: int) -> Labels | None:
    """A cloud's points by class, where it is among those that are to be `read`. Raises what a reader raises, or
    Unfit, for one that cannot be used."""
    if index not in read:
        read_head(split.files[index])
        return None
    labels, points = count_labels(split.files[index])
    counts = np.zeros(NO_CLASS + 1, np.int64)
    np.add.at(counts, classes_of(labels, code), points)
    return counts


def _judge_classes(name: str, shares: dict[str, float], usable: bool) -> list[Problem]:
    title = "training" if name == "train" else "validation"
    if not usable:
        return [wrong(f"None of the {title} clouds can be used.", "Choose a folder with readable point clouds.")]
    never = [class_name for class_name, share in shares.items() if not share]
    if not never:
        return []
    what = "never learned" if name == "train" else "never validated"
    return [warn(f"The {title} clouds have no points of {listed(never, most=5)}; this is {what}.")]


def _examples(split: PointSplit, usable: Sequence[int], code: MaskCode) -> list[Example]:
    """Some clouds in the colours of their classes."""
    found = []
    for row in spread_evenly(len(usable), EXAMPLES)[:EXAMPLES]:
        try:
            positions, _, labels, _ = read_cloud(split.files[usable[row]], ())
            rows = spread_evenly(len(positions), DRAWN_POINTS)
            drawn = draw_points(positions[rows], classes_of(labels[rows], code), EXAMPLE_SIDE)
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        found.append(Example("", "train", png(drawn)))
    return found
