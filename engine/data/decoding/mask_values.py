"""Read the pixel values of masks and convert them to classes. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from engine.data.decoding.deep import NUMPY, is_array, read_array_header
from engine.data.decoding.idx import Bytes
from engine.data.decoding.openers import ArrayImage
from engine.data.decoding.reading import MAX_PIXELS, Unfit, decode_header, open_image
from engine.data.decoding.tiff_pages import NO_DATA_TAG, is_tiff, parse_no_data, read_tiff
from engine.data.splits import MaskCode
from engine.system.regular_files import open_regular

NO_CLASS = 255
"""Class number for pixels without a class. Losses and metrics ignore them, following the convention of PASCAL VOC."""
GRAY = 0x010101
"""Factor that converts a gray level to its color 0xRRGGBB."""
WHITE = 0xFFFFFF
NOT_A_NUMBER = -(1 << 31)
"""Value that replaces NaN, and numbers too large to be a class, in floating-point masks."""
JPEG_SPREAD = 24
"""Maximum difference between the channels of a gray pixel in a JPEG, since JPEG compression changes colors slightly."""

_BLOCK_PIXELS = 1 << 20
"""Number of mask pixels that are processed at once to limit memory, since each takes many bytes."""
_SMALL_TYPES = (np.uint8, np.uint16)
"""Number types that have few enough values for a lookup table of all values."""
_LOSSY_FORMATS = frozenset({"JPEG", "MPO", "AVIF"})

Values = npt.NDArray[np.integer[Any]]
Mode = Literal["gray", "palette", "color"]


@dataclass(frozen=True, eq=False)
class MaskValues:
    """Pixel values of a mask, [h, w]. `mode` is the type of its image.

    A gray mask holds levels, a mask with a palette holds indices, and a color mask holds 0xRRGGBB. `palette` has the
    color 0xRRGGBB for each index. `no_data` is the level that the file declares as missing data. `lossy` is True if the
    compression of the file changes levels. `transparent` is True if some pixels are transparent.
    """

    values: Values
    mode: Mode = "gray"
    palette: Values | None = None
    no_data: int | None = None
    lossy: bool = False
    transparent: bool = False


def read_values(content: bytes) -> MaskValues:
    """Decode a mask from an image or a NumPy array (.npy).

    Raises Unfit, and any exception of Pillow, tifffile or NumPy.
    """
    if is_array(content):
        return _read_array_values(content)
    try:
        with decode_header(content) as image:
            return _read_image_values(image, content)
    except Unfit:
        raise
    except Exception:
        if is_tiff(content):  # Pillow supports neither 64-bit numbers nor some compressions
            levels, no_data = read_tiff(BytesIO(content))
            return _convert_levels(levels, no_data)
        raise


def read_mask_size(path: str) -> tuple[int, int]:
    """Return the height and width of a mask from its header. Raises the same exceptions as `open_image`."""
    with open_regular(path) as stream:
        if is_array(stream.read(len(NUMPY))):
            stream.seek(0)
            shape, kind = read_array_header(stream)
            # A view with the shape of the array, but of a single number in memory, since only the shape matters.
            height, width = _drop_unit_dimensions(np.broadcast_to(np.zeros((), kind), shape)).shape[:2]
            return height, width
    with open_image(path) as image:
        return image.height, image.width


def _read_image_values(image: Image.Image, content: bytes) -> MaskValues:
    """Return the values of a mask in an opened image, given the content of its file.

    Raises Unfit for unsuitable modes.
    """
    is_lossy = image.format in _LOSSY_FORMATS or "jpeg" in str(image.info.get("compression", ""))
    is_lossy |= image.format == "WEBP" and b"VP8L" not in content[:64]  # VP8L is lossless
    if image.mode in ("RGB", "RGBA", "RGBX"):
        pixels = np.asarray(image)
        transparent = image.mode == "RGBA" and bool((pixels[..., 3] < 255).any())
        return MaskValues(pack_colors(pixels), "color", lossy=is_lossy, transparent=transparent)
    if image.mode in ("P", "PA"):
        indices = np.asarray(image)
        colors = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
        return MaskValues(indices if indices.ndim == 2 else indices[..., 0], "palette", pack_colors(colors))
    if image.mode == "LA":
        pixels = np.asarray(image)
        return MaskValues(pixels[..., 0], transparent=bool((pixels[..., 1] < 255).any()))
    if image.mode not in ("1", "L", "I", "F") and not image.mode.startswith("I;16"):
        raise Unfit(f"a mask must have a palette, gray levels or colors, but this one has the mode {image.mode}")
    levels = np.asarray(image)  # also sets `no_data` of an `ArrayImage`
    if isinstance(image, ArrayImage):
        no_data = image.no_data
    else:
        no_data = parse_no_data(getattr(image, "tag_v2", {}).get(NO_DATA_TAG))  # only TIFFs have `tag_v2`
    return _convert_levels(levels, no_data, lossy=is_lossy)


def _read_array_values(content: bytes) -> MaskValues:
    """Return the values of a mask in the content of a NumPy file. Raises Unfit if the array is not a mask."""
    levels = _drop_unit_dimensions(np.load(BytesIO(content), allow_pickle=False))
    if levels.shape[0] * levels.shape[1] > MAX_PIXELS:
        raise Unfit(f"it is too large ({levels.shape[1]:,} x {levels.shape[0]:,} pixels)")
    if levels.ndim == 3:
        return MaskValues(pack_colors(levels), "color")
    return _convert_levels(levels)


def _drop_unit_dimensions(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Remove leading and trailing dimensions of size 1 from the array of a mask.

    Returns [h, w], or uint8 [h, w, 3] for colors. Raises Unfit for other shapes and number types.
    """
    squeezed = array
    while squeezed.ndim > 2 and 1 in (squeezed.shape[0], squeezed.shape[-1]):
        squeezed = squeezed[0] if squeezed.shape[0] == 1 else squeezed[..., 0]
    is_color = squeezed.ndim == 3 and squeezed.shape[2] == 3 and squeezed.dtype == np.uint8
    if (squeezed.ndim != 2 and not is_color) or array.dtype.kind not in "buif":
        raise Unfit(f"a mask must be an array of height x width numbers, but this one is {array.shape} {array.dtype}")
    return squeezed


def _convert_levels(levels: npt.NDArray[Any], no_data: float | None = None, *, lossy: bool = False) -> MaskValues:
    """Convert an array of any number type, [h, w] or [h, w, bands], to mask values.

    Three bands of uint8 are colors, and any other array must have a single band. `no_data` is the level for missing
    data. Raises Unfit for fractional numbers and other numbers of bands.
    """
    if levels.ndim == 3:
        if levels.shape[2] == 3 and levels.dtype == np.uint8:
            return MaskValues(pack_colors(levels), "color", lossy=lossy)
        if levels.shape[2] != 1:
            raise Unfit(f"a mask must have one band, but this one has {levels.shape[2]} of {levels.dtype}")
        levels = levels[..., 0]
    # Such large levels, and NaN, become `NOT_A_NUMBER`, which always means missing data and needs no declaration.
    missing = None if no_data is None or abs(no_data) >= -NOT_A_NUMBER else int(no_data)
    if levels.dtype == bool:  # True becomes 255, as in Pillow's conversion to 8 bits
        return MaskValues(levels.astype(np.uint8) * np.uint8(255), no_data=missing)
    if levels.dtype.kind == "f":
        return MaskValues(_to_integers(levels), no_data=missing)
    native = levels.astype(levels.dtype.newbyteorder("="), copy=False)
    return MaskValues(native.astype(np.int64) if native.dtype == np.uint64 else native, no_data=missing, lossy=lossy)


def _to_integers(levels: npt.NDArray[np.floating[Any]]) -> Values:
    """Convert floating-point levels to integers. Raises Unfit for fractional numbers.

    NaN and numbers beyond the range of int32 become `NOT_A_NUMBER`, the lowest int32.
    """
    is_missing = ~(np.abs(levels) < -NOT_A_NUMBER)
    levels_without_missing = np.where(is_missing, 0, levels)
    is_fraction = levels_without_missing != np.rint(levels_without_missing)
    if is_fraction.any():
        value = float(levels_without_missing[is_fraction][0])
        raise Unfit(f"it has floating-point values such as {value:.6g}, but classes need whole numbers")
    integers: Values = levels_without_missing.astype(np.int32)
    integers[is_missing] = NOT_A_NUMBER
    return integers


def pack_colors(pixels: npt.NDArray[Any]) -> Values:
    """Convert pixels, uint8 [..., C] with at least 3 channels, to colors 0xRRGGBB."""
    colors: Values = pixels[..., 0].astype(np.int32)
    for band in (1, 2):
        colors <<= 8
        colors |= pixels[..., band]
    return colors


def class_colors(count: int) -> Bytes:
    """Return one color for each class, uint8 [count, 3].

    The colors are those of PASCAL VOC. The bits of the class number become, in turn, the highest bits of red, green and
    blue (`VOClabelcolormap` in the development kit).
    """
    numbers = np.arange(count)
    colors = np.zeros((count, 3), np.uint8)
    for bit in range(8):
        for channel in range(3):
            colors[:, channel] |= (((numbers >> (3 * bit + channel)) & 1) << (7 - bit)).astype(np.uint8)
    return colors


def are_gray(colors: Values, spread: int = 0) -> bool:
    """Return True if the channels of every color 0xRRGGBB differ by at most `spread`."""
    bands = np.stack([colors >> 16 & 0xFF, colors >> 8 & 0xFF, colors & 0xFF])
    return bool((bands.max(0) - bands.min(0)).max(initial=0) <= spread)


def align_values(mask: MaskValues, code: MaskCode) -> Values:
    """Convert the values of a mask to the kind of values that `code` uses: gray levels, palette indices or colors.

    Raises Unfit for a color mask if `code` does not use colors, and for a palette with colors that the palette in
    `code` lacks.
    """
    if code.colors:
        match mask.mode:
            case "palette":
                return _look_up_colors(mask)
            case "gray":
                return mask.values.astype(np.int64) * GRAY
            case "color":
                return mask.values
    if mask.mode == "color":
        colors = find_distinct_values(mask)
        if not are_gray(colors, JPEG_SPREAD if code.nearest else 0):
            not_gray = next(color for color in colors.tolist() if not are_gray(np.array([color])))
            raise Unfit(f"its mask contains the color #{not_gray:06x}, but the other masks are gray")
        return mask.values >> 8 & 0xFF  # green, which is (nearly) equal to red and blue
    if mask.mode == "palette" and code.palette:
        return _convert_to_palette(mask, code)
    return mask.values


def _look_up_colors(mask: MaskValues) -> Values:
    """Return the colors 0xRRGGBB of a mask with a palette. Raises Unfit if the palette lacks an index."""
    assert mask.palette is not None
    _require_colors(mask)
    return mask.palette[mask.values]


def _require_colors(mask: MaskValues) -> None:
    """Raise Unfit if a mask uses an index that its palette lacks."""
    assert mask.palette is not None
    if int(mask.values.max(initial=0)) >= len(mask.palette):
        raise Unfit(f"its palette has no color for the index {int(mask.values.max())}")


def _convert_to_palette(mask: MaskValues, code: MaskCode) -> Values:
    """Convert the indices of a mask, whose palette may have another order, to the palette in `code`.

    If no used index has different colors in the two palettes, the indices are returned unchanged, even those that a
    palette lacks. Otherwise, this raises Unfit if the mask uses an index that its own palette lacks, or a color that
    the palette in `code` lacks.
    """
    # Without the classes whose color is unknown (-1).
    expected = {value: color for value, color in zip(code.values, code.palette, strict=True) if color >= 0}
    used = find_distinct_values(mask).tolist()
    assert mask.palette is not None
    palette = mask.palette.tolist()
    used_colors = {index: palette[index] for index in used if index < len(palette)}
    is_same_palette = all(expected.get(index, color) == color for index, color in used_colors.items())
    if is_same_palette:
        return mask.values
    _require_colors(mask)
    by_color = {color: index for index, color in expected.items()}
    indices = np.full(mask.values.shape, -1, np.int64)
    for index in used:
        if palette[index] not in by_color:
            raise Unfit(f"its palette has the color #{palette[index]:06x}, unlike those of the other masks")
        indices[mask.values == index] = by_color[palette[index]]
    return indices


def class_plane(mask: MaskValues, code: MaskCode) -> Bytes:
    """Return the class of each pixel as uint8 [h, w], with `NO_CLASS` for pixels without a class.

    Raises Unfit for a value that does not belong to any class.
    """
    return look_up_classes(align_values(mask, code), code)


def look_up_classes(values: Values, code: MaskCode) -> Bytes:
    """Return the class of each value in `values`, [h, w], which `align_values` has converted.

    The result is uint8 [h, w], with NO_CLASS for ignored values. Raises Unfit for a value that does not belong to any
    class.
    """
    coded_values = np.array([*code.values, *code.ignored], np.int64)
    if code.nearest:
        levels = np.sort(coded_values)
        # Each value becomes the nearest coded one.
        midpoints = (levels[1:] + levels[:-1]) / 2
        values = levels[np.searchsorted(midpoints, values)]
    order = np.argsort(coded_values, kind="stable")  # a value that occurs twice has the class of its first position

    def look_up(block: Values) -> tuple[Bytes, npt.NDArray[np.bool_]]:
        """Return the class of each value in an array, and True for each value that is neither a class nor ignored."""
        positions = order[np.minimum(np.searchsorted(coded_values[order], block), len(coded_values) - 1)]
        classes = np.where(positions < len(code.values), positions, NO_CLASS).astype(np.uint8)
        return classes, coded_values[positions] != block

    plane: Bytes
    if values.dtype in _SMALL_TYPES:
        # Each possible value is looked up once.
        by_value, is_unknown_value = look_up(np.arange(np.iinfo(values.dtype).max + 1))
        plane, is_unknown = by_value[values], is_unknown_value[values]
    else:
        plane, is_unknown = np.empty(values.shape, np.uint8), np.empty(values.shape, bool)
        for rows in _iterate_blocks(values):
            plane[rows], is_unknown[rows] = look_up(values[rows])
    if is_unknown.any():
        value = int(values[is_unknown][0])
        text = f"#{value:06x}" if code.colors else str(value)
        raise Unfit(f"its mask contains the value {text}, which belongs to no class")
    return plane


def find_distinct_values(mask: MaskValues) -> Values:
    """Return the distinct values in a mask, sorted."""
    return count_values(mask.values)[0]


def count_values(values: Values) -> tuple[Values, Values]:
    """Return the distinct values in [h, w], sorted, and the number of pixels with each value."""
    if values.dtype not in _SMALL_TYPES:
        flat = values.ravel()  # masks have long runs of equal values, which are faster to sort than pixels
        run_starts = np.flatnonzero(np.append(True, flat[1:] != flat[:-1])) if len(flat) else np.zeros(0, np.int64)
        run_lengths = np.diff(np.append(run_starts, len(flat)))
        present, positions = np.unique(flat[run_starts], return_inverse=True)
        totals = np.zeros(len(present), np.int64)
        np.add.at(totals, positions, run_lengths)
        return present, totals
    counts = np.zeros(np.iinfo(values.dtype).max + 1, np.int64)
    for rows in _iterate_blocks(values):
        counts += np.bincount(values[rows].ravel(), minlength=len(counts))
    present = np.flatnonzero(counts)
    return present, counts[present]


def merge_counts(counts: list[tuple[Values, Values]]) -> tuple[Values, Values, Values]:
    """Merge the results of `count_values` for several masks.

    Returns the distinct values, the number of pixels with each value, and the number of masks that contain it.
    """
    mask_values = np.concatenate([np.zeros(0, np.int64), *(values for values, _ in counts)])
    mask_pixels = np.concatenate([np.zeros(0, np.int64), *(pixels for _, pixels in counts)])
    values, positions = np.unique(mask_values, return_inverse=True)
    totals = np.zeros(len(values), np.int64)
    np.add.at(totals, positions, mask_pixels)
    return values, totals, np.bincount(positions, minlength=len(values))


def _iterate_blocks(values: Values) -> Iterator[slice]:
    """Yield row slices that divide `values` [h, w] into blocks of about `_BLOCK_PIXELS` pixels."""
    height = max(1, _BLOCK_PIXELS // max(values.shape[1], 1))
    return (slice(top, top + height) for top in range(0, len(values), height))
