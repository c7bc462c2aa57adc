"""Sizes of the images in a folder, from a sample. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.dataset import ImageSizes
from engine.data.decoding.tiff import open_to_show
from engine.data.splits import spread_evenly

SAMPLED = 64
"""Number of files whose headers are read, about."""


def image_sizes(files: Sequence[str]) -> ImageSizes | None:
    """Return the smallest, median and largest size in a sample of files; None if none can be read."""
    found = []
    for index in spread_evenly(len(files), SAMPLED):
        try:
            with open_to_show(files[index]) as image:
                found.append(image.size)
        except Exception:  # a broken file may raise nearly anything; what looks at all of them tells of it
            continue
    found.sort(key=lambda size: size[0] * size[1])
    return ImageSizes(found[0], found[len(found) // 2], found[-1], len(found)) if found else None
