"""Inspect images with edges. Torch-free.

The inspection reports differing sizes, images without edges, inverted edges, and examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.limits import require_size
from engine.data.decoding.pixels import read_to_show
from engine.data.decoding.tiff import open_to_show
from engine.data.drawing import encode_png
from engine.data.formats.shared.boxes import get_upright_size
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    Inspection,
    LeaveOut,
    Progress,
    draw_examples,
    spread_examples,
    start_inspection,
    title_of,
)
from engine.data.splits import RecognizedDataset, dataset_error, dataset_warning, spread_evenly
from engine.tasks.edges.decoding import read_edges
from engine.tasks.edges.formats import EdgeSplit

MAX_DECODED = 512
"""Approximate number of edge files in a split that are read. For the other images, only their sizes are read."""
_EDGE_COLOR = np.array([255, 64, 64], np.uint8)


class _EdgeFacts(NamedTuple):
    """Facts about the edges in an image. They are the properties of `AnnotatedEdges` with the same names."""

    edge_fraction: float
    is_inverted: bool


def inspect_edges(dataset: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images, and up to about `MAX_DECODED` edge files of each split, on `threads` threads.

    `progress` is called as the inspection advances, and `leave_out(path, reason)` for each unusable image.
    """
    splits, result, checker = start_inspection(dataset, EdgeSplit, progress, leave_out)
    for name, split in splits:
        sampled = set(spread_evenly(len(split.files), MAX_DECODED))
        checked = checker.check_each(split.files, partial(_check_pair, split, sampled), threads)
        decoded = [each for each in checked.values() if each is not None]
        with_edges = sum(each.edge_fraction > 0 for each in decoded)
        mean_edge_fraction = float(np.mean([each.edge_fraction for each in decoded])) if decoded else 0.0
        result.splits.append(
            SplitReport(
                name, {"edge": with_edges}, split.is_drawn, total=len(checked), shares={"edge": mean_edge_fraction}
            )
        )
        result.problems += _describe_problems(name, decoded, has_usable=bool(checked))
        if name == "train":
            result.examples += draw_examples(spread_examples(list(checked)), partial(_draw_example, split))
    return result


def count_edge_pixels(dataset: RecognizedDataset, split: EdgeSplit, index: int) -> dict[str, Any]:
    """Count the pixels in an image that at least one annotator has drawn. Returns {"pixels": {"edge": count}}."""
    return {"pixels": {"edge": int(read_edges(split.edges[index]).layers.any(0).sum())}}


def _check_pair(split: EdgeSplit, sampled: set[int], index: int) -> _EdgeFacts | None:
    """Check an image and its edges. Returns facts about the edges if the image is `sampled`, otherwise None.

    Raises Unfit, or any exception of the decoder, if the pair is unusable.
    """
    with open_to_show(split.files[index]) as image:
        height, width = get_upright_size(image)
    if index not in sampled:
        return None
    drawn = read_edges(split.edges[index]).rotate_like_image(split.files[index], (height, width))
    require_size(drawn.sides, (height, width), message_start="its edges have")
    return _EdgeFacts(drawn.edge_fraction, drawn.is_inverted)


def _describe_problems(name: str, decoded: Sequence[_EdgeFacts], *, has_usable: bool) -> list[Problem]:
    """Return the problems with the edges in a split, for example images without edges, or inverted edges.

    Args:
        name: Name of the split.
        decoded: Facts about the edge files that were read.
        has_usable: False if no image in the split can be used.
    """
    title = title_of(name)
    if not has_usable:
        return [
            dataset_error(f"None of the {title} images can be used.", "Choose a folder with readable images and edges.")
        ]
    inverted = sum(each.is_inverted for each in decoded)
    without_edges = sum(each.edge_fraction == 0 for each in decoded)
    problems = []
    if without_edges == len(decoded):
        remedy = "Edges are white on black, brighter than 30% of white."
        problems.append(dataset_error(f"None of the {title} images has an edge.", remedy))
    elif without_edges:
        message = f"{without_edges:,} of {len(decoded):,} {title} images have no edges."
        problems.append(
            dataset_warning(
                message, "The model learns no edges from them, and every edge that it predicts in them counts as wrong."
            )
        )
    if inverted:
        message = f"In {inverted:,} of {len(decoded):,} {title} images, more than half of the pixels are edges."
        problems.append(dataset_warning(message, "Edges must be white on black; invert those that are black on white."))
    return problems


def _draw_example(split: EdgeSplit, index: int) -> Example:
    """Return an example for display: a training image with the edges from all annotators in red."""
    image = read_to_show(split.files[index]).convert("RGB")
    edges = read_edges(split.edges[index]).rotate_like_image(split.files[index], image.size[::-1])
    drawn = Image.fromarray(edges.layers.any(0).astype(np.uint8) * 255)
    image.thumbnail((EXAMPLE_SIDE, EXAMPLE_SIDE))
    # A thin line keeps some of its brightness if many pixels are merged.
    strength = np.asarray(drawn.resize(image.size, Image.Resampling.BOX))[:, :, None] / 255.0
    opacity = np.minimum(strength * max(1, drawn.width / image.width), 1)
    pixels = np.asarray(image) * (1 - opacity) + _EDGE_COLOR * opacity
    return Example("", "train", encode_png(np.rint(pixels).astype(np.uint8)), index)
