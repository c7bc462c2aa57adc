"""Inspection of a sample of masks: whether they look like masks of their images and number objects. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np
import numpy.typing as npt

from engine.data.decoding.masks import NO_CLASS
from engine.data.decoding.reading import MAX_PIXELS, Unfit, decode_header, open_image, read_image
from engine.data.splits import spread_evenly

SAMPLE = 12
"""Masks that are opened."""
_FEW_VALUES = 64
"""An image with so few values or colors is one of labels."""
_MOST_FREQUENT = 16
_LEAST_SHARE = 0.75
"""Share of the pixels that have one of the `_MOST_FREQUENT` values, or the value of their left neighbor, at least."""
_MOST_LOOKED_AT = 1 << 21
"""Pixels of a mask that are inspected."""
_MOST_OBJECTS = 4
"""Values from which on consecutive ones are numbers of objects even if every mask has equally many."""


@dataclass
class MaskLooks:
    """What a sample of masks looks like.

    Attributes:
        readable: Masks that could be opened.
        label_like: Those with the few values or flat areas of labels.
        fitting: Those with the size of their image.
        colored: Those with several channels that differ.
        numbers: Different values besides 0 in each readable mask.
        has_zero: True if any of them contains 0.
    """

    readable: int = 0
    label_like: int = 0
    fitting: int = 0
    colored: int = 0
    numbers: list[list[int]] = field(default_factory=list)
    has_zero: bool = False

    @property
    def are_labels(self) -> bool:
        """True if most masks look like labels."""
        return 2 * self.label_like > self.readable

    @property
    def fit(self) -> bool:
        """True if most masks have the size of their images."""
        return 2 * self.fitting > self.readable

    @property
    def most_numbers(self) -> int:
        """Number of values besides 0 in the mask with most of them."""
        return max(map(len, self.numbers), default=0)

    @property
    def number_objects(self) -> bool:
        """True if the values are those of a count: 1 to k in every mask, with a k that differs from mask to mask."""
        counts = {len(values) for values in self.numbers if values}
        consecutive = all(values == list(range(1, len(values) + 1)) for values in self.numbers)
        return consecutive and max(counts, default=0) >= _MOST_OBJECTS and len(counts) > 1

    @property
    def are_classes(self) -> bool:
        """True if the values can't be a count in most masks, as those of classes are not."""
        gaps = sum(values != list(range(1, len(values) + 1)) for values in self.numbers)
        different = {value for values in self.numbers for value in values}
        return 2 * gaps > len(self.numbers) > 1 and len(different) < sum(map(len, self.numbers))


def inspect_masks(pairs: Sequence[tuple[str, str]]) -> MaskLooks:
    """Return what an evenly spread sample of masks looks like, given images with their masks."""
    looks = MaskLooks()
    for index in spread_evenly(len(pairs), SAMPLE):
        image, mask = pairs[index]
        try:
            pixels = read_pixels(mask)
        except Exception:  # a broken file may raise nearly anything in a decoder; its loading will report it
            continue
        looks.readable += 1
        looks.fitting += _has_size(image, pixels.shape[:2])
        flat = _one_channel(pixels)
        looks.colored += flat.dtype == np.int32 and pixels.ndim == 3
        looks.label_like += _is_label_like(flat)
        values = np.unique(flat[: max(1, _MOST_LOOKED_AT // max(flat.shape[1], 1))])
        looks.has_zero |= bool((values == 0).any())
        looks.numbers.append([int(value) for value in values[:NO_CLASS] if value])
    return looks


def read_pixels(path: str) -> npt.NDArray[np.generic]:
    """Return the pixels of a mask, [h, w] or [h, w, channels]: palette indices, levels or colors."""
    content = read_image(path)
    if not path.lower().endswith(".npy"):
        with decode_header(content) as image:
            return np.asarray(image)
    version = np.lib.format.read_magic(BytesIO(content[:8]))
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    stream = BytesIO(content)
    stream.seek(8)
    shape, _, kind = read_header(stream)
    if kind.hasobject or len(shape) not in (2, 3) or np.prod(shape, dtype=np.int64) > MAX_PIXELS:
        raise Unfit("it is not an array of a mask's pixels")
    return np.load(BytesIO(content), allow_pickle=False)


def _one_channel(pixels: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return the values [h, w] of a mask, colors as 0xRRGGBB in int32."""
    if pixels.ndim == 2:
        return pixels
    colors = pixels[..., :3]
    if colors.shape[2] < 3 or (colors == colors[..., :1]).all():
        return colors[..., 0]
    wide = colors.astype(np.int32)
    return (wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2]


def _is_label_like(values: npt.NDArray[np.generic]) -> bool:
    values = values[: max(1, _MOST_LOOKED_AT // max(values.shape[1], 1))]
    _, counts = np.unique(values, return_counts=True)
    if len(counts) <= _FEW_VALUES:
        return True
    frequent = np.sort(counts)[-_MOST_FREQUENT:].sum() / values.size
    flat = np.mean(values[:, 1:] == values[:, :-1]) if values.shape[1] > 1 else 0.0
    return bool(max(frequent, flat) >= _LEAST_SHARE)


def _has_size(path: str, shape: tuple[int, ...]) -> bool:
    """Return True if an image has a height and width, upright or turned as its EXIF data may ask for."""
    try:
        with open_image(path) as image:
            return shape in ((image.height, image.width), (image.width, image.height))
    except Exception:  # a broken file may raise nearly anything in a decoder; its loading will report it
        return False
