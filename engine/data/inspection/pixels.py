"""Find images that lose contrast before they reach the model. Torch-free.

These are images with a single color, images that use few of their levels, and images with transparency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from engine.contract.problems import Problem
from engine.data.decoding.deep import NARROW
from engine.data.decoding.idx import Bytes
from engine.data.decoding.image_files import is_image
from engine.data.decoding.pixels import decode_pixels
from engine.data.decoding.reading import decode_header, read_image
from engine.data.decoding.tiff import Bands, LearnedBands
from engine.data.decoding.transparency import BLACK, choose_background
from engine.data.splits import dataset_warning, first_names, spread_evenly
from engine.system.format import counted

SAMPLED = 24
"""Maximum number of images that are decoded to check their pixels, evenly spaced in the dataset."""
PIXELS_OF_EACH = 4096
SIDE = 512
"""Minimum side in pixels of sampled JPEGs after decoding, which reduces larger ones to save time."""
CONSTANT = 3
"""Maximum difference between the levels, 0 to 255, of images that count as nearly constant.

The darkest and the brightest 1% of the pixels are not counted.
"""
CUT_PERCENT = 1.0
"""Percentage of the pixels that are cut off at each end to find the range of the levels."""
FEWEST_BLANK = 3
"""Minimum number of single-color images for a warning about them."""
BLANK = 0.1
"""Minimum fraction of single-color images for a warning about them.

If most images have a single color, there is no warning either.
"""


@dataclass
class _Sample:
    """Sampled image in the form that the model receives.

    `pixels`, uint8 [n, channels], are some of its pixels. `background` is the level that replaces its transparency, or
    None if the image is opaque.
    """

    path: str
    pixels: Bytes
    background: int | None

    @property
    def is_blank(self) -> bool:
        return bool((self.pixels == self.pixels[:1]).all())


def check_pixels(files: Sequence[str], channels: int, learned: LearnedBands | None) -> list[Problem]:
    """Return problems with the pixels of `files`, using a sample that is decoded in the same way as for the model.

    `learned` is the conversion of multi-band images, or None for ordinary images.
    """
    bands = None if learned is None else learned.bands
    samples: list[_Sample] = []
    for index in spread_evenly(len(files), SAMPLED):
        if is_image(files[index]):
            try:
                samples.append(_read_sample(files[index], channels, bands))
            except Exception:
                continue  # a decoder may raise nearly anything; loading the image reports it
    problems = [_warn_about_depth(learned)] if learned is not None and not learned.is_8_bits else []
    if samples:
        problems += _warn_about_transparency(samples)
        problems += _warn_about_few_levels(samples) or _warn_about_blank_images(samples)
    return problems


def _read_sample(path: str, channels: int, bands: Bands | None) -> _Sample:
    """Read some pixels of an image as a model with `channels` input channels receives them.

    `bands` are the selected bands of a multi-band image, or None for other images. JPEGs are decoded at a reduced size.
    """
    content = read_image(path)
    if content.startswith(b"\xff\xd8"):  # a JPEG
        with decode_header(content) as image:
            image.draft(image.mode, (SIDE, SIDE))
            pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
        return _Sample(path, _spread_pixels(pixels), background=None)
    background = None
    if bands is None:  # the bands of a multi-band image have no transparency
        with decode_header(content) as image:
            background = _find_background(image)
    return _Sample(path, _spread_pixels(decode_pixels(content, channels, bands)), background)


def _find_background(image: Image.Image) -> int | None:
    """Return the level that replaces the transparency of an 8-bit image, or None if it is opaque or has more bits."""
    if not image.has_transparency_data or image.mode.startswith("I"):
        return None
    pixels = np.asarray(image.convert("RGBA"))
    return choose_background(pixels[..., :3], pixels[..., 3])


def _spread_pixels(pixels: Bytes) -> Bytes:
    """Return about `PIXELS_OF_EACH` evenly spaced pixels of an image [h, w] or [h, w, channels], as [n, channels]."""
    flat = pixels.reshape(pixels.shape[0] * pixels.shape[1], -1)
    return flat[:: max(1, len(flat) // PIXELS_OF_EACH)]


def _warn_about_depth(learned: LearnedBands) -> Problem:
    """Return a warning that states the range of values that is converted to 8 bits."""
    bands = learned.bands
    number = f"{bands.low[0]:,.6g} to {bands.high[0]:,.6g}"
    ranges = (
        f"values from {number} become" if bands.count == 1 else f"the values of each band (the first: {number}) become"
    )
    message = f"The images have {learned.kind}: {ranges} the levels 0 to 255, by a sample of {counted(learned.sampled, 'image')}."
    remedy = (
        "Training, validation and predictions use the same range. To choose it yourself, convert the images to 8 bits."
    )
    return dataset_warning(message, remedy)


def _warn_about_transparency(samples: Sequence[_Sample]) -> list[Problem]:
    """Return a warning about transparent images that states the background that replaces the transparency."""
    transparent = [each for each in samples if each.background is not None]
    if not transparent:
        return []
    on_black = sum(each.background == BLACK for each in transparent)
    background = "black" if on_black == len(transparent) else "white"
    if 0 < on_black < len(transparent):
        background = f"white, {on_black:,} of them on black"
    reason = " since what is visible is nearly white" if on_black else ""
    have = "has" if len(transparent) == 1 else "have"
    message = f"{len(transparent):,} of {len(samples):,} images inspected {have} transparent parts; the model sees them on {background}{reason}."
    return [dataset_warning(message, "To choose another background, save the images without transparency.")]


def _warn_about_few_levels(samples: Sequence[_Sample]) -> list[Problem]:
    """Return a warning if all sampled images together use only few of the 256 levels."""
    pixels = np.concatenate([each.pixels for each in samples])
    lowest, highest = int(pixels.min()), int(pixels.max())
    low, high = np.percentile(pixels, [CUT_PERCENT, 100 - CUT_PERCENT], axis=0)
    if highest <= 255 // NARROW and highest > lowest:
        message = f"The images use only the levels {lowest} to {highest} of 255, so they are nearly black to the model."
        remedy = f"Multiply all of them by {255 // highest}, or save them with their full bit depth. If they are masks, choose the folder above."
        return [dataset_warning(message, remedy)]
    if float((high - low).max()) <= CONSTANT:
        levels = f"levels {low.min():.0f} to {high.max():.0f} of 255"
        message = f"As the model sees them, the {len(samples):,} images inspected are nearly constant ({levels})."
        remedy = "Check that the folder holds the images, and save them with a range that shows their content."
        return [dataset_warning(message, remedy)]
    return []


def _warn_about_blank_images(samples: Sequence[_Sample]) -> list[Problem]:
    """Return a warning if some of the images consist of a single color, but not most of them."""
    blank = [each.path for each in samples if each.is_blank]
    if len(blank) < max(FEWEST_BLANK, BLANK * len(samples)) or 2 * len(blank) > len(samples):
        return []
    message = f"{len(blank):,} of {len(samples):,} images inspected are a single color ({first_names(blank)})."
    return [dataset_warning(message, "If they show nothing, remove them; otherwise save them with all of their bits.")]
