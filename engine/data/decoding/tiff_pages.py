"""Read TIFF images with tifffile, in their full bit depth and with all bands. Torch-free."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.data.decoding.deep import COMPLEX_NUMBERS, Facts, Values
from engine.data.decoding.limits import MAX_PIXELS, MAX_VALUES, Unfit

if TYPE_CHECKING:
    from tifffile import TiffFile, TiffPage, TiffPageSeries

NO_DATA_TAG = 42113
"""Tag GDAL_NODATA, which contains the value for missing data."""
MAX_BANDS = 512
"""Maximum number of bands or pages. Files with more are probably documents or films."""

_SIGNS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_STACKS = ("shaped", "imagej", "ome")
"""Kinds of TIFFs, as named by tifffile, that declare their pages to be one array."""
_CONVERTED_BY_PILLOW = (3, 5, 6)
"""Photometric interpretations that Pillow converts: palette, CMYK and YCbCr (TIFF 6.0)."""
_ALPHAS = (1, 2)
"""Codes of extra samples that contain opacity: 1 with and 2 without premultiplied colors (TIFF 6.0, ExtraSamples)."""


def is_tiff(content: bytes) -> bool:
    """Return True if `content` begins with a signature of TIFF or BigTIFF."""
    return content.startswith(_SIGNS)


def find_image(file: TiffFile) -> tuple[TiffPage | TiffPageSeries, str]:
    """Return the image in a TIFF (its first page or a stack of pages), and the order of its axes, such as "YXS".

    Raises Unfit for too many pages: tifffile would read all of them, and overlapping pages would take hours.
    """
    page = file.pages.first
    if len(file.pages) > MAX_BANDS:
        raise Unfit(f"it has {len(file.pages):,} pages; at most {MAX_BANDS:,} are supported")
    series = file.series[0]
    # Pages with one band each that form one array are the bands of an image.
    if page.samplesperpixel == 1 and series.kind in _STACKS and len(series.shape) == 3:
        return series, "S" + series.axes[1:]
    return page, page.axes


def find_single_image(file: TiffFile) -> tuple[TiffPage | TiffPageSeries, str, dict[str, int]]:
    """Return the results of `find_image` for a TIFF, and the length of each axis.

    Raises Unfit for too many pages, and for axes other than rows, columns and bands.
    """
    image, axes = find_image(file)
    lengths = dict(zip(axes, image.shape, strict=True))
    if not set(axes) <= set("SYX") or lengths.get("S", 1) > MAX_BANDS:
        raise Unfit(f"it is not one image ({' x '.join(map(str, image.shape))})")
    return image, axes, lengths


def read_tiff_facts(source: Any) -> Facts | None:
    """Return the facts about the image in a TIFF, or None if Pillow has to read it, for example to convert its colors.

    `source` is a path or a stream. Raises Unfit, and any exception of tifffile.
    """
    from tifffile import TiffFile

    silence_tifffile()
    with TiffFile(source) as file:
        image, axes = find_image(file)
        lengths = dict(zip(axes, image.shape, strict=True))
        page = file.pages.first
        kind = image.dtype  # None for a number type that numpy lacks
        needs_pillow = page.photometric in _CONVERTED_BY_PILLOW
        has_alpha = find_alpha(page) is not None
        is_white_zero = int(page.photometric) == 0
    if kind is not None and kind.kind == "c":
        raise Unfit(COMPLEX_NUMBERS)
    bands = lengths.get("S", 1)
    if kind is None or kind.kind not in "uifb" or needs_pillow or bands > MAX_BANDS:
        return None
    largest = int(np.iinfo(kind).max) if kind in (np.uint8, np.uint16) else None
    return Facts(lengths["Y"], lengths["X"], bands, kind, largest, has_alpha, is_white_zero)


def find_alpha(page: TiffPage) -> int | None:
    """Return the TIFF code (see `_ALPHAS`) for the opacity in the last band of a page, or None if it has no opacity."""
    codes = tuple(map(int, page.extrasamples or ()))
    return codes[0] if len(codes) == 1 and codes[0] in _ALPHAS and page.samplesperpixel in (2, 4) else None


def read_tiff(source: Any) -> tuple[Values, float | None]:
    """Return all values [h, w, bands] of a TIFF, and its value for missing data, or None if it declares none.

    Bits become 0 and 255. Raises Unfit, and any exception of tifffile.
    """
    from tifffile import TiffFile

    silence_tifffile()
    with TiffFile(source) as file:
        image, axes, lengths = find_single_image(file)
        height, width, bands = lengths["Y"], lengths["X"], lengths.get("S", 1)
        if height * width * bands > MAX_VALUES or height * width > MAX_PIXELS:
            in_bands = f" in {bands} bands" if bands > 1 else ""
            raise Unfit(f"it is too large ({width:,} x {height:,} pixels{in_bands})")
        page = file.pages.first
        if math.prod(page.chunked) > len(page.dataoffsets):  # fewer tiles or strips than the image needs
            raise Unfit("it is truncated")
        no_data = parse_no_data(page.tags.valueof(NO_DATA_TAG))
        values = image.asarray()
    if values.dtype.kind not in "uifb":
        raise Unfit(COMPLEX_NUMBERS if values.dtype.kind == "c" else f"its data type is not supported ({values.dtype})")
    if "S" not in axes:
        values = values[:, :, None]
    elif axes[0] == "S":
        values = np.moveaxis(values, 0, 2)
    return values.astype(np.uint8) * np.uint8(255) if values.dtype == bool else values, no_data


def parse_no_data(text: object) -> float | None:
    """Parse the content of the tag GDAL_NODATA, the value for missing data as text, or None for a missing tag.

    Returns None if the text is not a finite number. NaN needs no declaration, since it always means missing data.
    """
    try:
        value = float(str(text).strip("\0 "))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def silence_tifffile() -> None:
    """Turn off tifffile's warnings about unusual tags."""
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
