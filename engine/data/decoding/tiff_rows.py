"""Read the rows and the georeference of TIFFs that are larger than memory. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from engine.data.decoding.deep import Values
from engine.data.decoding.idx import Bytes
from engine.data.decoding.limits import Unfit
from engine.data.decoding.tiff import Bands, scale_opacity, stretch_values
from engine.data.decoding.tiff_pages import NO_DATA_TAG, find_alpha, find_single_image, parse_no_data, silence_tifffile
from engine.data.decoding.transparency import blend, choose_background
from engine.data.splits import spread_evenly
from engine.system.regular_files import open_regular

if TYPE_CHECKING:
    from tifffile import TiffPage

GEO_TAGS = (33550, 33922, 34264, 34735, 34736, 34737, 50844)
"""Tags of the georeference: those in annex F of OGC GeoTIFF 1.1, and the rational polynomial coefficients.

In order: ModelPixelScale, ModelTiepoint, ModelTransformation, GeoKeyDirectory, GeoDoubleParams, GeoAsciiParams and
RPCCoefficientTag.
"""
_JPEGS = (6, 7, 34892, 33007)
"""Compression schemes based on JPEG. Their tiles or strips need additional tables from the page to be decoded.

See `TiffPage.segments` of tifffile.
"""
_PLAIN = (0, 1, 2)
"""Photometric interpretations with plain levels: white-is-zero gray, black-is-zero gray, and RGB."""
_YCBCR = 6  # photometric interpretation in TIFF
PREMULTIPLIED = 1
"""Value of the TIFF 6.0 tag ExtraSamples for opacity with premultiplied colors."""
SAMPLED_ROWS = 64
"""Number of evenly spaced rows that determine the background color of a transparent image."""
MAX_SEGMENT_BYTES = 1 << 29
"""Maximum size in bytes of a decoded tile or strip in a file that is read row by row."""

GeoTags = tuple[tuple[int, int, int, Any, bool], ...]
"""TIFF tags in the form of tifffile's `extratags`.

Each tag has a code, data type, count and value, and True if it is written only on the first page.
"""


class Georeference(NamedTuple):
    """Georeference: position of an image on Earth as TIFF tags, and its value for missing data, or None."""

    tags: GeoTags
    no_data: float | None


def read_georeference(path: str) -> Georeference | None:
    """Return the georeference of a TIFF, or None if it has none or can't be read."""
    from tifffile import TiffFile

    silence_tifffile()
    try:
        with open_regular(path) as stream, TiffFile(stream) as file:
            page = file.pages.first
            # As tifffile expects them for writing. The last value restricts a tag to the first page.
            tags = tuple(
                (tag.code, int(tag.dtype), tag.count, tag.value, True)
                for tag in page.tags.values()
                if tag.code in GEO_TAGS
            )
            no_data = parse_no_data(page.tags.valueof(NO_DATA_TAG))
    except Exception:
        return None  # a broken file may raise nearly anything; decoding the image reports it
    return Georeference(tags, no_data) if tags else None


class TiffRows:
    """Image in a TIFF whose rows are read on demand.

    `bands` converts a multi-band image to channels. If it is None, the file is read as an ordinary image with
    `channels` channels.

    Attributes:
        sides: Height and width of the image.
        no_data: Value for missing data, or None if the file declares none.
    """

    def __init__(self, stream: Any, channels: int, bands: Bands | None) -> None:
        """Read the header of the TIFF in `stream`. Raises Unfit if its rows can't be read separately."""
        from tifffile import TiffFile, TiffPageSeries

        silence_tifffile()
        self._bands, self._channels = bands, channels
        file = TiffFile(stream)
        image, _, lengths = find_single_image(file)
        self.sides = (lengths["Y"], lengths["X"])
        self._pages: Sequence[Any] = list(image.pages) if isinstance(image, TiffPageSeries) else [image]
        page = file.pages.first
        self.no_data = parse_no_data(page.tags.valueof(NO_DATA_TAG))
        self._require_row_access(page, image.dtype)
        self._is_inverted = page.photometric == 0  # white-is-zero gray
        # Code of the opacity in the last band (see `find_alpha`), or None if there is none or it counts as a band.
        self._alpha = find_alpha(page) if bands is None or bands.count == lengths.get("S", 1) - 1 else None
        self._mapped_pages: list[Values] | None = None
        if all(each.is_contiguous and each.compression == 1 and each.planarconfig == 1 for each in self._pages):
            # The stored pixels are uncompressed and in order, so that they can be mapped into memory.
            kinds = [np.dtype(each.dtype).newbyteorder(file.byteorder) for each in self._pages]
            self._mapped_pages = [
                np.memmap(stream, kind, "r", each.dataoffsets[0], each.shape)
                for kind, each in zip(kinds, self._pages, strict=True)
            ]

    def rows(self, first: int, last: int) -> Bytes:
        """Return the rows from `first` up to, but not including, `last`, uint8 [rows, width, channels]."""
        levels, alpha = self._read_levels(first, last)
        if alpha is not None:
            levels = blend(levels, alpha, self._background)
        if self._bands is not None:
            return levels if levels.shape[2] == self._channels else np.repeat(levels, self._channels, 2)
        if levels.shape[2] < 3:  # gray
            return np.repeat(levels[:, :, :1], self._channels, 2)
        colors = levels[:, :, :3]
        return np.asarray(Image.fromarray(colors).convert("L"))[:, :, None] if self._channels == 1 else colors

    def _read_levels(self, first: int, last: int) -> tuple[Bytes, Bytes | None]:
        """Return the 8-bit levels of the rows `first` to `last` - 1, [rows, width, bands], and their opacity.

        The opacity is uint8 [rows, width], or None for an opaque image.
        """
        values = self._read_values(first, last)
        alpha = scale_opacity(values[:, :, -1]) if self._alpha is not None else None
        if self._bands is not None:
            return stretch_values(values[:, :, : self._bands.count], self._bands, self.no_data), alpha
        if alpha is None:
            return 255 - values if self._is_inverted else values, None
        levels = values[:, :, :-1]
        if self._alpha == PREMULTIPLIED:  # divide the colors by the opacity, as `blend` expects
            levels = np.minimum(levels * np.uint16(255) // np.maximum(alpha, 1)[..., None], 255).astype(np.uint8)
        return 255 - levels if self._is_inverted else levels, alpha

    @cached_property
    def _background(self) -> int | None:
        """Background level that replaces transparency in all rows, or None for opaque images (see `choose_background`).

        It is determined from a sample of rows, since the image may not fit in memory.
        """
        sampled = [self._read_levels(row, row + 1) for row in spread_evenly(self.sides[0], SAMPLED_ROWS)]
        levels, alphas = zip(*sampled, strict=True)
        return choose_background(np.concatenate(levels), np.concatenate(alphas))

    def blank(self, first: int, last: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the pixels without data in the rows `first` to `last` - 1, bool [rows, width].

        All bands of such a pixel are NaN, infinite or the value for missing data.
        """
        values = self._read_values(first, last)
        is_missing = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        if self.no_data is not None:
            is_missing |= values == self.no_data
        return np.asarray(is_missing.all(2))

    def _require_row_access(self, page: TiffPage, kind: Any) -> None:
        """Raise Unfit if the file can't be read row by row, given its first page and the number type of its values."""
        if self._bands is None and (kind != np.uint8 or page.photometric not in (*_PLAIN, _YCBCR)):
            raise Unfit("it is of a kind that is only read whole")
        if kind is None or kind.kind not in "uifb":
            raise Unfit(f"its data type is not supported ({kind})")
        if math.prod(page.chunked) > len(page.dataoffsets):
            raise Unfit("it is truncated")
        if page.compression != 1 and math.prod(page.chunks) * kind.itemsize > MAX_SEGMENT_BYTES:
            raise Unfit("it is too large, and not divided into tiles or strips")

    def _read_values(self, first: int, last: int) -> Values:
        """Return the stored values of the rows `first` to `last` - 1, [rows, width, bands], in any byte order."""
        if self._mapped_pages is not None:
            pages = [np.asarray(mapped[first:last]) for mapped in self._mapped_pages]
        else:
            pages = [_decode_rows(page, first, last) for page in self._pages]
        values = np.concatenate([each[:, :, None] if each.ndim == 2 else each for each in pages], 2)
        return values.astype(np.uint8) * np.uint8(255) if values.dtype == bool else values


@contextmanager
def open_rows(path: str, channels: int, bands: Bands | None) -> Iterator[TiffRows]:
    """Open a TIFF to read it row by row. See `TiffRows` for the arguments.

    Raises Unfit if the file does not support this, and nearly any other exception for a damaged file.
    """
    with open_regular(path) as stream:
        yield TiffRows(stream, channels, bands)


def _decode_rows(page: Any, first: int, last: int) -> Values:
    """Decode the rows `first` to `last` - 1 of a page, stored in tiles or strips, to [rows, width, samples]."""
    width, samples = page.imagewidth, page.samplesperpixel
    tile_height, tile_width = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, width)
    planes = samples if page.planarconfig == 2 and samples > 1 else 1  # 2: each sample is stored separately
    tile_rows, tile_columns = -(-page.imagelength // tile_height), -(-width // tile_width)
    out = np.zeros((last - first, width, samples), page.dtype)
    handle = page.parent.filehandle
    tables = {"jpegtables": page.jpegtables, "jpegheader": page.jpegheader} if page.compression in _JPEGS else {}
    used_rows = range(first // tile_height, -(-last // tile_height))
    for plane, row, column in product(range(planes), used_rows, range(tile_columns)):
        index = (plane * tile_rows + row) * tile_columns + column
        count = page.databytecounts[index]
        if not count:
            continue  # the tile or strip was never written, and its pixels are 0
        with handle.lock:
            handle.seek(page.dataoffsets[index])
            content = handle.read(count)
        # The first result is the decoded tile. Its first dimension is the depth, which is 1.
        tile = page.decode(content, index, _fullsize=page.is_tiled, **tables)[0][0]
        top, left = row * tile_height, column * tile_width
        # The part of the tile that is inside the requested rows and inside the image.
        begin, end = max(first, top), min(last, top + tile.shape[0])
        right = min(width, left + tile.shape[1])
        values = tile[begin - top : end - top, : right - left]
        if planes > 1:
            out[begin - first : end - first, left:right, plane] = values[:, :, 0]
        else:
            out[begin - first : end - first, left:right] = values
    return out
