"""How large the images of a folder are, by a sample of them. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.dataset import ImageSizes
from engine.data.decoding.tiff import open_to_show
from engine.data.splits import spread_evenly

SAMPLED = 64
"""About so many files are looked at."""


def image_sizes(files: Sequence[str]) -> ImageSizes | None:
    """The sizes of some of `files`, evenly spread, from their headers; None if none of them has one."""
    found = []
    for index in spread_evenly(len(files), SAMPLED):
        try:
            with open_to_show(files[index]) as image:
                found.append(image.size)
        except Exception:  # a broken file may raise nearly anything; what looks at all of them tells of it
            continue
    found.sort(key=lambda size: size[0] * size[1])
    return ImageSizes(found[0], found[len(found) // 2], found[-1], len(found)) if found else None
