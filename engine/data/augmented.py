"""Examples as training would be given them under the light augmentation. Torch-free."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from msgspec import structs
from PIL import Image

from engine.contract.dataset import Example
from engine.data.crops import crop_margin, draw_crops
from engine.data.drawing import png
from engine.data.idx import Bytes

EPOCHS = 3
"""Examples are shown as they are in so many epochs."""
SIDE = 160
"""Pixels of an augmented example's side."""


def with_augmented(examples: list[Example], *, seed: int, mirror: bool, whole: bool) -> list[Example]:
    """`examples` with what training of `seed` makes of them in its first epochs, where their place in the split is known.

    What is marked on an example moves with it. Pictures are `whole` within the square that is cropped, with black around
    them, or else it is their middle; they are mirrored where `mirror` says so. The draws are the training's own; the places
    are rounded to the example's pixels rather than to those of the size trained at.
    """
    return [
        example
        if example.sample is None
        else structs.replace(example, augmented=_augmented(example, example.sample, seed, mirror, whole))
        for example in examples
    ]


def _augmented(example: Example, sample: int, seed: int, mirror: bool, whole: bool) -> tuple[bytes, ...]:
    margin = crop_margin(SIDE)
    with Image.open(BytesIO(example.png)) as image:
        square = _square(image, SIDE + margin, whole)
    found = []
    for epoch in range(1, EPOCHS + 1):
        ((top, left, mirrored),) = draw_crops(margin, seed, epoch, np.array([sample]), mirror=mirror).tolist()
        window = square[top : top + SIDE, left : left + SIDE]
        found.append(png(np.ascontiguousarray(window[:, ::-1] if mirrored else window)))
    return tuple(found)


def _square(image: Image.Image, side: int, whole: bool) -> Bytes:
    """uint8 [side, side] or [side, side, 3]."""
    plain = image if image.mode == "L" else image.convert("RGB")
    width, height = plain.size
    scale = side / (max if whole else min)(width, height)
    fitted = plain.resize((max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.BILINEAR)
    out = Image.new(plain.mode, (side, side))
    out.paste(fitted, ((side - fitted.width) // 2, (side - fitted.height) // 2))
    return np.asarray(out)
