"""Multi-band images, with other than 1 or 3 bands or more than 8 bits, and their conversion to channels. Torch-free.

Satellites, microscopes and depth cameras produce them as TIFF, PNG, PNM, JPEG 2000 or NumPy arrays. Their bands are
converted to 8-bit channels. The range of each band, taken over all files of the dataset, is stretched to 0..255, so
that a value has the same brightness in every file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

from engine.data.decoding.deep import Facts, Values, describe_number_type, read_deep, read_deep_facts
from engine.data.decoding.idx import Bytes
from engine.data.decoding.limits import Unfit
from engine.data.decoding.reading import MAX_TEXT_BYTES, open_image, read_image, read_json, refuse_unusable
from engine.data.decoding.tiff_pages import is_tiff, read_tiff, read_tiff_facts
from engine.data.decoding.transparency import blend, choose_background
from engine.data.splits import sample_evenly
from engine.system.format import counted
from engine.system.regular_files import UnusableFile, open_regular

ENDINGS = (".tif", ".tiff")
HEADERS = 64
"""Number of evenly spaced files whose headers are read to learn the number of bands."""
SAMPLED = 32
"""Number of evenly spaced files that are decoded to learn the range of each band."""
PIXELS_OF_EACH = 4096
CUT_PERCENT = 0.5
"""Percentage of values at each end of a band's range that are cut off as outliers, such as glints and clouds.

Map viewers cut off 2% for more contrast (QGIS's cumulative cut), but a model should see nearly all values.
"""
DEVIATIONS = 3.0
"""Number of standard deviations on either side of the mean that limit a band's range.

They are used if statistics of a band are available instead of a sample.
"""
Floats = npt.NDArray[np.float64]
_DEFINITION, _ACCUMULATED = "esri_model_definition.emd", "esri_accumulated_stats.json"
"""Files with statistics that ArcGIS writes next to exported image chips."""


@dataclass(frozen=True)
class Bands:
    """Conversion of a dataset's multi-band images to 8-bit channels, one for each band.

    In band i, values from `low[i]` to `high[i]` are mapped to 0..255. `mean` and `std` are the mean and standard
    deviation of each channel, scaled to 0..1. They do not include pixels with missing data.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def count(self) -> int:
        """Number of bands."""
        return len(self.low)


@dataclass(frozen=True)
class LearnedBands:
    """Conversion of a dataset's multi-band images, learned from a sample of `sampled` files.

    `kind` describes the number type of the values for users.
    """

    bands: Bands
    kind: str
    sampled: int
    is_8_bits: bool


def learn_bands(folder: str, files: Sequence[str]) -> LearnedBands | None:
    """Learn how to convert multi-band images to 8-bit channels.

    The range of each band comes from ArcGIS's statistics in the dataset folder `folder`, or else from a sample of the
    files. Returns None if the sample contains no multi-band images, if they can't be read, or if all of them are 8-bit
    images with an alpha channel, which need no conversion.
    """
    band_counts = {path: _count_multiple_bands(path) for path in sample_evenly(files, HEADERS)}
    usual_counts = Counter(count for count in band_counts.values() if count is not None).most_common(1)
    if not usual_counts:
        return None
    count = usual_counts[0][0]  # number of bands that most multi-band images have
    usual_files = [path for path in band_counts if band_counts[path] == count]
    sampled = map(_sample_pixels, sample_evenly(usual_files, SAMPLED))
    pixels = [each for each in sampled if each is not None]
    if not pixels:
        return None
    is_8_bits = all(each.dtype == np.uint8 for each in pixels)
    kind = describe_number_type(pixels[0].dtype)
    statistics = _read_statistics(folder, files[0])
    if statistics is not None and len(statistics) >= count:
        bands = _learn_from_statistics(statistics[:count], pixels[0].dtype, is_8_bits)
        return LearnedBands(bands, kind, len(pixels), is_8_bits)
    if count in (2, 4) and all(map(is_opacity, pixels)):
        count -= 1  # the last band is the opacity of the others
        if is_8_bits:
            return None  # an ordinary image
    return LearnedBands(_learn_from_values([each[:count] for each in pixels], is_8_bits), kind, len(pixels), is_8_bits)


def read_facts(stream: IO[bytes]) -> Facts | None:
    """Return the facts about a TIFF, a NumPy array, or another image with more than 8 bits, or None for other images.

    Raises Unfit, and any exception of tifffile.
    """
    head = stream.read(4)
    stream.seek(0)
    return read_tiff_facts(stream) if is_tiff(head) else read_deep_facts(stream)


def read_values(content: bytes, facts: Facts) -> tuple[Values, float | None]:
    """Return all values [h, w, bands] of an image, and its value for missing data, or None if it declares none.

    `facts` are the facts about the image from its header.
    """
    return read_tiff(BytesIO(content)) if is_tiff(content) else (read_deep(content, facts), None)


def read_bands(content: bytes, bands: Bands) -> Bytes | None:
    """Decode a multi-band image to uint8 [h, w, bands]. Returns None for an ordinary image.

    Raises Unfit, and any exception of the decoder.
    """
    facts = read_facts(BytesIO(content))
    if facts is None or not is_multi_band(facts):
        return None
    values, no_data = read_values(content, facts)
    count = values.shape[2]
    has_opacity = count == bands.count + 1 and count in (2, 4)  # gray or RGB with opacity
    if count != bands.count and not has_opacity:
        raise Unfit(f"it has {counted(count, 'band')}, most of the others have {bands.count}")
    levels = stretch_values(values[:, :, : bands.count], bands, no_data)
    if not has_opacity:
        return levels
    alpha = scale_opacity(values[:, :, -1])
    return blend(levels, alpha, choose_background(levels, alpha))


def scale_opacity(values: Values) -> Bytes:
    """Convert a band of opacities to uint8.

    Integers are scaled from the range of their type, and floating-point numbers from 0..1.
    """
    maximum = np.iinfo(values.dtype).max if values.dtype.kind in "ui" else 1
    return np.rint(np.clip(values.astype(np.float32), 0, maximum) * (255 / maximum)).astype(np.uint8)


def count_channels(bands: Bands, channels: int | None) -> int:
    """Return the number of channels that images of a dataset with multi-band images are converted to.

    This is the number of bands. If there is a single band, it is the number of `channels` of the dataset's ordinary
    images, or 1 if `channels` is None because there are none.
    """
    if bands.count > 1:
        return bands.count
    return channels or 1  # a single band can be repeated for images in color


def stretch_values(values: Values, bands: Bands, no_data: float | None = None) -> Bytes:
    """Convert `values` [h, w, bands] to uint8 by stretching the range of each band to 0..255.

    NaN, infinite values, `no_data` (the value for missing data), and all values of a band with an empty range become 0.
    """
    if values.dtype == np.uint8 and bands.low == (0.0,) * bands.count and bands.high == (255.0,) * bands.count:
        return values if no_data is None else np.where(values == no_data, np.uint8(0), values)
    low, high = (np.array(each, np.float32) for each in (bands.low, bands.high))
    factors = np.divide(255, high - low, out=np.zeros_like(low), where=high > low)
    levels = (values.astype(np.float32) - low) * factors
    levels[~np.isfinite(levels)] = 0
    if no_data is not None:
        levels[values == no_data] = 0
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)


@contextmanager
def open_to_show(path: str) -> Iterator[Image.Image]:
    """Context manager that opens an image for display. Like Pillow, it reads only the header.

    A multi-band image is shown as RGB by its first three bands, or in gray by the first one if it has fewer. Each band
    is stretched to its range in this image. Raises UnusableFile and any exception of Pillow. `load` of the returned
    image may raise Unfit or any exception of tifffile.
    """
    if _count_multiple_bands(path) is not None:
        with open_regular(path) as stream, _DisplayedBands(stream) as image:
            yield image
    else:
        with open_image(path) as image:
            yield image


class _DisplayedBands(ImageFile.ImageFile):
    """Multi-band image for display that is decoded when its pixels are needed."""

    format = "bands"
    format_description = "Image of bands"
    _is_decoded = False

    def _open(self) -> None:
        """Read the header and set the mode and the size, as Pillow requires."""
        assert self.fp is not None
        facts = read_facts(self.fp)
        assert facts is not None
        self._facts = facts
        self._mode, self._size = "RGB", (facts.width, facts.height)

    def load(self) -> Any:
        """Decode the pixels on the first call, stretched for display, and return Pillow's access to them."""
        if not self._is_decoded:
            assert self.fp is not None
            self.fp.seek(0)
            values, no_data = read_values(self.fp.read(), self._facts)
            values = values[:, :, :3] if values.shape[2] >= 3 else values[:, :, :1]
            pixels = _drop_missing_data(_select_pixels(values), no_data)
            bands = _learn_from_values([pixels], is_8_bits=values.dtype == np.uint8)
            # A single band is repeated as red, green and blue.
            displayed = np.broadcast_to(stretch_values(values, bands, no_data), (*values.shape[:2], 3))
            self.im = Image.fromarray(np.ascontiguousarray(displayed)).im
            self._is_decoded = True
        return Image.Image.load(self)


def _count_multiple_bands(path: str) -> int | None:
    """Return the number of bands of a multi-band image, or None for ordinary and unreadable images."""
    try:
        with open_regular(path) as stream:
            facts = read_facts(stream)
    except Exception:
        return None  # a broken file may raise nearly anything; decoding the image reports it
    return facts.bands if facts is not None and is_multi_band(facts) else None


def is_multi_band(facts: Facts) -> bool:
    """Return True if the values of an image must be converted to 8-bit channels, given the facts from its header.

    This is the case for more than 8 bits, and for any number of bands except 1 and 3.
    """
    return facts.is_deep or facts.bands not in (1, 3)


def _sample_pixels(path: str) -> Values | None:
    """Return sampled pixels of the image at `path`, [bands, n], excluding missing data, or None if it can't be read."""
    try:
        content = read_image(path)
        facts = read_facts(BytesIO(content))
        assert facts is not None
        values, no_data = read_values(content, facts)
    except Exception:
        return None  # a decoder may raise nearly anything; loading the image reports it
    return _drop_missing_data(_select_pixels(values), no_data)


def _select_pixels(values: Values) -> Values:
    """Return about `PIXELS_OF_EACH` evenly spaced pixels of an image [h, w, bands], as [bands, n]."""
    flat = values.reshape(-1, values.shape[2]).T
    step = max(1, flat.shape[1] // PIXELS_OF_EACH)
    return flat[:, ::step]


def _drop_missing_data(values: Values, no_data: float | None) -> Values:
    """Return `values` [bands, n] without the pixels that are NaN, infinite or `no_data` in any band."""
    has_data = np.isfinite(values).all(0)
    if no_data is not None:
        has_data &= (values != no_data).all(0)
    return values[:, has_data]


def is_opacity(values: Values) -> bool:
    """Return True if the last band in pixels [bands, n] is mostly 0 or the maximum, as is typical for opacity."""
    maximum = np.iinfo(values.dtype).max if values.dtype.kind == "u" else 1
    return bool(2 * np.isin(values[-1], (0, maximum)).sum() > values.shape[1])


def _learn_from_values(pixels: Sequence[Values], is_8_bits: bool) -> Bands:
    """Compute the range of each band from sampled pixels, [bands, n] for each file.

    8-bit bands (`is_8_bits`) keep their full range.
    """
    values = np.concatenate([each.astype(np.float64) for each in pixels], 1)
    if not values.shape[1]:  # all pixels lack data
        values = np.zeros((len(values), 1))
    low, high = np.percentile(values, [CUT_PERCENT, 100 - CUT_PERCENT], axis=1)
    low, high = _find_limits(low, high, pixels[0].dtype, is_8_bits)
    channels = np.clip((values - low[:, None]) / (high - low)[:, None], 0, 1)
    return _create_bands(low, high, channels.mean(1), channels.std(1))


def _learn_from_statistics(statistics: Floats, kind: np.dtype[Any], is_8_bits: bool) -> Bands:
    """Compute the range of each band from `statistics` [bands, 4]: minimum, maximum, mean and standard deviation.

    `kind` is the number type of the values. 8-bit bands (`is_8_bits`) keep their full range.
    """
    minimum, maximum, mean, std = statistics.T
    low, high = np.maximum(minimum, mean - DEVIATIONS * std), np.minimum(maximum, mean + DEVIATIONS * std)
    low, high = _find_limits(low, high, kind, is_8_bits)
    return _create_bands(low, high, (mean - low) / (high - low), std / (high - low))


def _find_limits(low: Floats, high: Floats, kind: np.dtype[Any], is_8_bits: bool) -> tuple[Floats, Floats]:
    """Return the values of each band that are mapped to 0 and to 255, [bands] each, given the range `low` to `high`.

    8-bit bands keep their full range. A constant band gets the range of its number type `kind` if that is unsigned, and
    otherwise a range of 1 above its value, so that the limits differ.
    """
    if is_8_bits:
        return np.zeros_like(low), np.full_like(high, 255)
    is_constant = high <= low
    if kind.kind == "u":
        return np.where(is_constant, 0, low), np.where(is_constant, np.iinfo(kind).max, high)
    return low, np.where(is_constant, low + 1, high)


def _create_bands(low: Floats, high: Floats, mean: Floats, std: Floats) -> Bands:
    """Convert arrays [bands] to `Bands`. A standard deviation below one 8-bit level, as of a constant band, becomes 1."""
    std = np.where(std > 1 / 255, std, 1.0)  # images are divided by it
    return Bands(*(tuple(map(float, values)) for values in (low, high, mean, std)))


def _read_statistics(folder: str, image: str) -> Floats | None:
    """Read the minimum, maximum, mean and standard deviation of each band, [bands, 4], from a file written by ArcGIS.

    The file is searched for in the dataset folder `folder` and in the parent of the folder that contains `image`, the
    path of one of the images. Returns None if there is none. Raises UnusableFile for a malicious or oversized file.
    """
    parsers = ((_DEFINITION, _parse_definition_statistics), (_ACCUMULATED, _convert_accumulated_statistics))
    for parent in dict.fromkeys((folder, os.path.dirname(os.path.dirname(image)))):
        for name, parse in parsers:
            try:
                path = os.path.join(parent, name)
                content = read_json(path, MAX_TEXT_BYTES)
                with refuse_unusable(path):
                    statistics = parse(content)
            except UnusableFile:
                raise
            except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, OverflowError):
                continue
            if len(statistics) and np.isfinite(statistics).all():
                return statistics
    return None


def _parse_definition_statistics(content: Any) -> Floats:
    """Convert a model definition of ArcGIS to the minimum, maximum, mean and deviation of each band, [bands, 4]."""
    rows = [[band[key] for key in ("Min", "Max", "Mean", "StdDev")] for band in content["AllTilesStats"]]
    return np.array(rows, np.float64)


def _convert_accumulated_statistics(content: Any) -> Floats:
    """Convert the accumulated statistics of an ArcGIS export to minimum, maximum, mean and deviation, [bands, 4].

    In the export, M1 is the mean, M2 the sum of squared deviations, and Num the number of pixels.
    """
    bands = content["BandStatsState"]
    rows = [[band["Min"], band["Max"], band["M1"], (band["M2"] / band["Num"]) ** 0.5] for band in bands]
    return np.array(rows, np.float64)
