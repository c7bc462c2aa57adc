"""TIFFs that are no images for people: other numbers of bands than 1 and 3, or other values than 8 bits. Torch-free.

Satellites and microscopes give them. Their bands become the channels of an image, of 8 bits each as all others: the
range that a band's values are in over the whole dataset is stretched to 0..255, so that what is dark in one file
stays dark.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

from engine.data.decoding.idx import Bytes
from engine.data.decoding.reading import MAX_PIXELS, Unfit, judged, open_image, read_text
from engine.data.splits import spread_evenly
from engine.system.format import counted
from engine.system.regular_files import UnusableFile, open_regular

if TYPE_CHECKING:
    from tifffile import TiffFile, TiffPage, TiffPageSeries, TiffTag

ENDINGS = (".tif", ".tiff")
HEADERS = 64
"""Files whose headers are read to learn how many bands there are, evenly spread."""
SAMPLED = 32
"""Files that are decoded for the range of each band, evenly spread."""
PIXELS_OF_EACH = 4096
CUT_PERCENT = 0.5
"""At each end so much of a band's values are taken for outliers, such as glints and clouds. Programs that show maps
cut 2 % for people to see more (QGIS's cumulative cut); a model is left most of that."""
DEVIATIONS = 3.0
"""Where the values' extremes and their mean and standard deviation are known, so many of these around the mean "
"are kept."""
MAX_VALUES = 4 * MAX_PIXELS
"""A file with more values, of all of its bands, is passed over: they take gigabytes."""
MOST_BANDS = 512
"""More are taken for something else, such as the pages of a document or the frames of a film."""

_SIGNS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_STACKS = ("shaped", "imagej", "ome")
"""Kinds of TIFF, as tifffile calls them, that say themselves that their pages belong to one array."""
_PILLOWS = (3, 5, 6)
"""Colours by a palette, as CMYK, and as YCbCr (TIFF 6.0, PhotometricInterpretation), which Pillow converts."""
_DEFINITION, _ACCUMULATED = "esri_model_definition.emd", "esri_accumulated_stats.json"
"""What ArcGIS leaves beside the chips that it exports."""

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Bands:
    """How the bands of a dataset's TIFFs become channels: in band i the values from `low[i]` to `high[i]` become
    0..255.

    `mean` and `std` are those of the channels, scaled to 0..1; values equal to a file's "no data" count nowhere.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def count(self) -> int:
        return len(self.low)


def is_tiff(content: bytes) -> bool:
    return content.startswith(_SIGNS)


def learn_bands(folder: str, files: Sequence[str]) -> Bands | None:
    """How the TIFFs among `files`, in the dataset's `folder`, become images; None where there are none, or none that
    need it. Read from ArcGIS's statistics of the bands, else from some of the files."""
    tiffs = [path for row in spread_evenly(len(files), HEADERS) if (path := files[row]).lower().endswith(ENDINGS)]
    counts = {path: count for path in tiffs if (count := _special_bands(path)) is not None}
    if not counts:
        return None
    ((count, _),) = Counter(counts.values()).most_common(1)
    alike = [path for path in counts if counts[path] == count]
    read = [values for row in spread_evenly(len(alike), SAMPLED) if (values := _some_values(alike[row])) is not None]
    if not read:
        return None
    whole = all(values.dtype == np.uint8 for values in read)
    told = _told(folder, files[0])
    if told is not None and len(told) >= count:
        return _by_statistics(told[:count], read[0].dtype, whole)
    if count in (2, 4) and all(map(_is_opacity, read)):
        count -= 1  # what is drawn by the opacity of each pixel is the other bands
        if whole:
            return None
    return _by_values([values[:count] for values in read], whole)


def read_bands(content: bytes, bands: Bands) -> Bytes:
    """The TIFF in `content` as uint8 [h, w, bands]. Raises Unfit, or what tifffile raises."""
    values, no_data = _read(BytesIO(content))
    count = values.shape[2]
    if count < bands.count or (count > bands.count and not (count == bands.count + 1 and count in (2, 4))):
        raise Unfit(f"it has {counted(count, 'band')}, most of the others have {bands.count}")
    return stretched(values[:, :, : bands.count], bands, no_data)


def read_levels(content: bytes) -> tuple[Values, float | None]:
    """Return a TIFF's values [h, w, bands] as stored, and the one that stands for missing data.

    Raises Unfit, or what tifffile raises.
    """
    return _read(BytesIO(content))


def stretched(values: Values, bands: Bands, no_data: float | None = None) -> Bytes:
    """`values` [h, w, bands] as uint8; what is not a number or `no_data` becomes 0."""
    if values.dtype == np.uint8 and bands.low == (0.0,) * bands.count and bands.high == (255.0,) * bands.count:
        return values if no_data is None else np.where(values == no_data, np.uint8(0), values)
    low, high = (np.array(each, np.float32) for each in (bands.low, bands.high))
    levels = (values.astype(np.float32) - low) * (255 / (high - low))
    blank = ~np.isfinite(levels) if no_data is None else ~np.isfinite(levels) | (values == no_data)
    levels[blank] = 0
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)


@contextmanager
def open_to_show(path: str) -> Iterator[Image.Image]:
    """The image at `path` for people, its header read and no more, as Pillow opens it. Of a TIFF of bands the first
    three are shown, or the first, each stretched to its own range.

    Raises UnusableFile and what Pillow raises; its `load` may raise Unfit, or what tifffile raises.
    """
    if path.lower().endswith(ENDINGS) and _special_bands(path) is not None:
        with open_regular(path) as stream, _ShownTiff(stream) as image:
            yield image
    else:
        with open_image(path) as image:
            yield image


class _ShownTiff(ImageFile.ImageFile):
    """A TIFF of bands, decoded when its pixels are asked for."""

    format = "TIFF"
    format_description = "TIFF of bands"
    _decoded = False

    def _open(self) -> None:
        from tifffile import TiffFile

        assert self.fp is not None
        with TiffFile(self.fp) as file:
            part, axes = image_in(file)
            sizes = dict(zip(axes, part.shape, strict=True))
        self._mode, self._size = "RGB", (sizes["X"], sizes["Y"])

    def load(self) -> Any:
        if not self._decoded:
            assert self.fp is not None
            self.fp.seek(0)
            values, no_data = _read(self.fp)
            values = values[:, :, :3] if values.shape[2] >= 3 else values[:, :, :1]
            own = _by_values([_without(_some(values), no_data)], values.dtype == np.uint8)
            shown = np.broadcast_to(stretched(values, own, no_data), (*values.shape[:2], 3))
            self.im = Image.fromarray(np.ascontiguousarray(shown)).im
            self._decoded = True
        return Image.Image.load(self)


def image_in(file: TiffFile) -> tuple[TiffPage | TiffPageSeries, str]:
    """The part of a file that is the image, and the order of its axes: its first page, or all of a stack's. Raises
    Unfit for one of more pages than a stack may have: tifffile would read all of them, which may overlap, by the
    hour."""
    page = file.pages.first
    if len(file.pages) > MOST_BANDS:
        raise Unfit(f"it has {len(file.pages):,} pages; at most {MOST_BANDS:,} are supported")
    series = file.series[0]
    if page.samplesperpixel == 1 and series.kind in _STACKS and len(series.shape) == 3:
        return series, "S" + series.axes[1:]
    return page, page.axes


def _read(source: Any) -> tuple[Values, float | None]:
    """All values [h, w, bands], and which of them stands for none."""
    from tifffile import TiffFile

    quieten_tifffile()
    with TiffFile(source) as file:
        part, axes = image_in(file)
        sizes = dict(zip(axes, part.shape, strict=True))
        if not set(axes) <= set("SYX") or sizes.get("S", 1) > MOST_BANDS:
            raise Unfit(f"it is not one image ({' x '.join(map(str, part.shape))})")
        if sizes["Y"] * sizes["X"] * sizes.get("S", 1) > MAX_VALUES:
            bands = f" in {sizes['S']} bands" if "S" in sizes else ""
            raise Unfit(f"it is too large ({sizes['X']:,} x {sizes['Y']:,} pixels{bands})")
        if sizes["Y"] * sizes["X"] > MAX_PIXELS:
            raise Unfit(f"it is too large ({sizes['X']:,} x {sizes['Y']:,} pixels)")
        page = file.pages.first
        if math.prod(page.chunked) > len(page.dataoffsets):
            raise Unfit("it is truncated")
        tag = page.tags.get("GDAL_NODATA")
        values = part.asarray()
    if values.dtype.kind not in "uifb":
        raise Unfit(f"its data type is not supported ({values.dtype})")
    if "S" not in axes:
        values = values[:, :, None]
    elif axes[0] == "S":
        values = np.moveaxis(values, 0, 2)
    return values.astype(np.uint8) * np.uint8(255) if values.dtype == bool else values, as_number(tag)


def as_number(tag: TiffTag | None) -> float | None:
    """The "no data" that GDAL writes as text; not a number is none anyhow."""
    try:
        value = float(str(tag.value)) if tag is not None else float("nan")
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _special_bands(path: str) -> int | None:
    """How many bands a file has where it is no image for people; None for one that is, and one that cannot be read."""
    from tifffile import TiffFile

    quieten_tifffile()
    try:
        with open_regular(path) as stream, TiffFile(stream) as file:
            part, axes = image_in(file)
            count = int(dict(zip(axes, part.shape, strict=True)).get("S", 1))
            kind = part.dtype
            pillows = file.pages.first.photometric in _PILLOWS
    except Exception:
        return None  # a broken file may raise nearly anything; whoever decodes the image names it
    if kind is None or kind.kind not in "uifb" or pillows or count > MOST_BANDS:
        return None
    return count if kind not in (np.uint8, np.bool_) or count not in (1, 3) else None


def _some_values(path: str) -> Values | None:
    """Some pixels [bands, n] of a file, none of them without data; None of one that cannot be read."""
    try:
        with open_regular(path) as stream:
            values, no_data = _read(stream)
    except Exception:
        return None  # a decoder may raise nearly anything; whoever loads the image names it
    return _without(_some(values), no_data)


def _some(values: Values) -> Values:
    """About `PIXELS_OF_EACH` of the pixels of `values` [h, w, bands], as [bands, n]."""
    flat = values.reshape(-1, values.shape[2]).T
    return flat[:, :: max(1, flat.shape[1] // PIXELS_OF_EACH)]


def _without(values: Values, no_data: float | None) -> Values:
    """`values` [bands, n] but for those pixels of which a band is not a number or `no_data`."""
    there = np.isfinite(values).all(0)
    return values[:, there if no_data is None else there & (values != no_data).all(0)]


def _is_opacity(values: Values) -> bool:
    """Whether the last of the bands [bands, n] is mostly all or nothing, as an opacity is and light hardly ever."""
    most = np.iinfo(values.dtype).max if values.dtype.kind == "u" else 1
    return bool(np.isin(values[-1], (0, most)).mean() > 0.5) if values.size else False


def _by_values(read: Sequence[Values], whole: bool) -> Bands:
    """By pixels [bands, n] of several files; those of 8 bits (`whole`) stay as they are."""
    values = np.concatenate([each.astype(np.float64) for each in read], 1)
    if not values.shape[1]:
        values = np.zeros((len(values), 1))
    low, high = np.percentile(values, [CUT_PERCENT, 100 - CUT_PERCENT], axis=1)
    low, high = _range(low, high, read[0].dtype, whole)
    channels = np.clip((values - low[:, None]) / (high - low)[:, None], 0, 1)
    return _bands(low, high, channels.mean(1), channels.std(1))


def _by_statistics(told: npt.NDArray[np.float64], kind: np.dtype[Any], whole: bool) -> Bands:
    """By minimum, maximum, mean and standard deviation of each band."""
    least, most, mean, std = told.T
    low, high = np.maximum(least, mean - DEVIATIONS * std), np.minimum(most, mean + DEVIATIONS * std)
    low, high = _range(low, high, kind, whole)
    return _bands(low, high, (mean - low) / (high - low), std / (high - low))


def _range(
    low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], kind: np.dtype[Any], whole: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The range of each band that is kept; one whose values are all the same keeps that of its `kind` of numbers."""
    if whole:
        return np.zeros_like(low), np.full_like(high, 255)
    flat = high <= low
    if kind.kind == "u":
        return np.where(flat, 0, low), np.where(flat, np.iinfo(kind).max, high)
    return low, np.where(flat, low + 1, high)


def _bands(*each: npt.NDArray[np.float64]) -> Bands:
    low, high, mean, std = each
    std = np.where(std > 1 / 255, std, 1.0)  # a band that is always the same stays so
    return Bands(*(tuple(map(float, values)) for values in (low, high, mean, std)))


def _told(folder: str, file: str) -> npt.NDArray[np.float64] | None:
    """What ArcGIS tells of the bands, [bands, 4] of minimum, maximum, mean and standard deviation; None where it "
    "does not."""
    for parent in dict.fromkeys((folder, os.path.dirname(os.path.dirname(file)))):
        for name, read in ((_DEFINITION, _of_definition), (_ACCUMULATED, _of_accumulated)):
            try:
                path = os.path.join(parent, name)
                with judged(path):
                    told = read(json.loads(read_text(path)))
            except UnusableFile:
                raise
            except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, OverflowError):
                continue
            if len(told) and np.isfinite(told).all():
                return told
    return None


def _of_definition(content: Any) -> npt.NDArray[np.float64]:
    rows = [[band[key] for key in ("Min", "Max", "Mean", "StdDev")] for band in content["AllTilesStats"]]
    return np.array(rows, np.float64)


def _of_accumulated(content: Any) -> npt.NDArray[np.float64]:
    """Of the state that ArcGIS carries on while it exports: the mean (M1), and the sum of the squares around it "
    "(M2)."""
    rows = [
        [band["Min"], band["Max"], band["M1"], (band["M2"] / band["Num"]) ** 0.5] for band in content["BandStatsState"]
    ]
    return np.array(rows, np.float64)


def quieten_tifffile() -> None:
    """Keeps tifffile's remarks on odd tags off the terminal."""
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
