"""Whether image files look like masks of labels rather than like photographs. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.data.decoding.reading import decode_header, read_image

MOST_VALUES = 64
"""Different values that a mask has at most, to be taken for one by its looks alone."""
LEAST_FLAT = 0.7
"""Share of pixels of a mask that equal their left neighbor, at least."""


def looks_like_labels(paths: Sequence[str]) -> bool:
    """Return True if most of the files that can be read are one-channel images of few values in flat areas."""
    votes = [vote for path in paths if (vote := _vote(path)) is not None]
    return bool(votes) and 2 * sum(votes) > len(votes)


def _vote(path: str) -> bool | None:
    try:
        with decode_header(read_image(path)) as image:
            if image.mode == "P":
                return True
            if image.mode not in ("1", "L", "I", "I;16", "RGB"):
                return False
            pixels = np.asarray(image if image.mode != "1" else image.convert("L"))
    except Exception:  # a broken file may raise nearly anything in a decoder
        return None
    if pixels.ndim == 3:
        if (pixels[..., :1] != pixels).any():
            return False
        pixels = pixels[..., 0]
    flat = float((pixels[:, 1:] == pixels[:, :-1]).mean()) if pixels.shape[1] > 1 else 0.0
    return len(np.unique(pixels)) <= MOST_VALUES and flat >= LEAST_FLAT
