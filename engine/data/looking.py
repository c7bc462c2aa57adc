"""What every look through a dataset's folder is given, and what it gives. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np
from PIL import Image

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem

EXAMPLES = 12
EXAMPLE_SIDE = 256
"""The longest side of an example, in pixels."""

Progress = Callable[[int, int], None]
"""Called with how many pictures are done, of how many."""

LeaveOut = Callable[[str, str], None]
"""Called with the path of each file that cannot be used, and why."""


@dataclass
class Looked:
    """What a look gives besides what it tells on its way. `channels` are those of the pictures, None where it did not come
    across them."""

    splits: list[SplitReport] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    channels: int | None = None


def spread_by_class(labels: np.ndarray, places: np.ndarray) -> list[int]:
    """Up to `EXAMPLES` of `places`, from as many classes as possible in turn."""
    by_class = places[np.argsort(labels[places], kind="stable")]
    _, firsts, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    turns = [firsts[counts > turn] + turn for turn in range(EXAMPLES)]
    chosen: list[int] = by_class[np.sort(np.concatenate(turns)[:EXAMPLES])].tolist()
    return chosen


def thumbnail(image: Image.Image) -> bytes:
    """`image`, made small in place, as a PNG file's content."""
    image.thumbnail((EXAMPLE_SIDE, EXAMPLE_SIDE))
    stream = BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
