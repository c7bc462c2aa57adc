"""Looks folders of point clouds through: how many points of each class there are, which clouds cannot be read, and what they
look like. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem
from engine.data.clouds import read_cloud, read_head
from engine.data.drawing import png
from engine.data.found import Labels, MaskCode, PointSplit, Recognised, spread_evenly, warn, wrong
from engine.data.looking import EXAMPLE_SIDE, EXAMPLES, LeaveOut, Looked, Progress
from engine.data.masks import NO_CLASS
from engine.data.point_drawing import draw_points
from engine.data.points import classes_of
from engine.data.reading import describe_failure

READ = 64
"""About so many clouds of a split are read whole, evenly spread, for the share of each class; of the others their heads."""
DRAWN_POINTS = 20_000
"""Of a cloud with more points, so many are drawn, evenly spread."""


def look_through_points(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Looks at every cloud of `found`, whose splits are of points. `leave_out(path, reason)` is told of those that cannot be
    used."""
    looked = Looked()
    splits = [
        (name, split) for name, split in (("train", found.train), ("val", found.val)) if isinstance(split, PointSplit)
    ]
    looked.channels = max(3 + len(split.features) for _, split in splits)
    total, done = sum(len(split.files) for _, split in splits), 0
    assert found.code is not None
    for name, split in splits:
        read = set(spread_evenly(len(split.files), READ))
        codes = [found.code if place in read else None for place in range(len(split.files))]
        points, clouds = np.zeros((2, len(found.classes)), np.int64)
        usable = []
        with ThreadPoolExecutor(threads, "look") as pool:
            for place, (reason, counts) in enumerate(pool.map(_judge, split.files, codes)):
                done += 1
                progress(done, total)
                if reason:
                    leave_out(split.files[place], reason)
                    continue
                usable.append(place)
                if counts is not None:
                    points += counts[: len(points)]
                    clouds += counts[: len(points)] > 0
        counted = dict(zip(found.classes, clouds.tolist(), strict=True))
        shares = dict(zip(found.classes, (points / max(int(points.sum()), 1)).tolist(), strict=True))
        looked.splits.append(SplitReport(name, counted, split.made, total=len(usable), shares=shares))
        looked.problems += _judge_classes(name, shares, bool(usable))
        if name == "train":
            looked.examples += _examples(split, usable, found.code)
    return looked


def _judge(path: str, code: MaskCode | None) -> tuple[str, Labels | None]:
    """Why the cloud cannot be used, "" where nothing is known against it; with `code` also its points by class."""
    try:
        if code is None:
            read_head(path)
            return "", None
        classes = classes_of(read_cloud(path, ()).labels, code)
        return "", np.bincount(classes, minlength=NO_CLASS + 1)
    except Exception as error:  # a broken file may raise nearly anything in a reader
        return describe_failure(error), None


def _judge_classes(name: str, shares: dict[str, float], usable: bool) -> list[Problem]:
    title = "training" if name == "train" else "validation"
    if not usable:
        return [wrong(f"None of the {title} clouds can be used.", "Choose a folder of whole point clouds.")]
    never = [class_name for class_name, share in shares.items() if not share]
    if not never:
        return []
    what = "never learnt" if name == "train" else "never validated"
    named = ", ".join(never[:5]) + (f" and {len(never) - 5} more" if len(never) > 5 else "")
    return [warn(f"No point of the {title} clouds is of {named}: that is {what}.")]


def _examples(split: PointSplit, usable: Sequence[int], code: MaskCode) -> list[Example]:
    """Some clouds in the colours of their classes."""
    found = []
    for row in spread_evenly(len(usable), EXAMPLES)[:EXAMPLES]:
        try:
            places, _, labels = read_cloud(split.files[usable[row]], ())
            rows = spread_evenly(len(places), DRAWN_POINTS)
            drawn = draw_points(places[rows], classes_of(labels[rows], code), EXAMPLE_SIDE)
        except Exception:
            continue  # it could be read a moment ago; a picture fewer is shown
        found.append(Example("", "train", png(drawn)))
    return found
