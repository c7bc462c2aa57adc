"""Exif orientation of images, and conversion of pixels and boxes to the upright image. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from engine.data.decoding.reading import check_size
from engine.data.decoding.tiff import open_to_show
from engine.data.splits import spread_evenly

TAG = 0x0112
"""EXIF tag of the orientation."""
QUARTER = (5, 6, 7, 8)
"""Values of the orientation tag for images that are turned by a quarter, which swaps width and height."""
SAMPLED = 512
"""Number of evenly spaced images whose Exif orientation is read first.

If none of them is rotated, the others are not read.
"""
THREADS = 4

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ORIENTED_TEXTS = (b"XML:com.adobe.xmp\0", b"Raw profile type exif\0")
"""Keywords of PNG texts that may contain an orientation."""
_KEYWORD_BYTES = max(map(len, _ORIENTED_TEXTS))

_Kind = TypeVar("_Kind", bound=np.generic)
Edges = npt.NDArray[np.float64]

_UPRIGHT: dict[int, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    2: lambda planes: planes[..., ::-1],
    3: lambda planes: planes[..., ::-1, ::-1],
    4: lambda planes: planes[..., ::-1, :],
    5: lambda planes: planes.swapaxes(-1, -2),
    6: lambda planes: planes.swapaxes(-1, -2)[..., ::-1],
    7: lambda planes: planes.swapaxes(-1, -2)[..., ::-1, ::-1],
    8: lambda planes: planes.swapaxes(-1, -2)[..., ::-1, :],
}


def turn_upright(planes: npt.NDArray[_Kind], orientation: int) -> npt.NDArray[_Kind]:
    """Return a view of images [..., h, w] that are turned upright according to their Exif orientation, 1 to 8."""
    rotation = _UPRIGHT.get(orientation)
    return planes if rotation is None else rotation(planes)


def turn_edges_upright(edges: Edges, orientation: int, height: float, width: float) -> Edges:
    """Convert boxes [n, 4] (left, top, right, bottom) from a stored image to the upright image.

    `orientation` is the Exif orientation, and `height` and `width` are those of the stored image.
    """
    left, top, right, bottom = edges.T
    if orientation in (2, 3, 7, 8):
        left, right = width - right, width - left
    if orientation in (3, 4, 6, 7):
        top, bottom = height - bottom, height - top
    turned = (top, left, bottom, right) if orientation in QUARTER else (left, top, right, bottom)
    return np.stack(turned, 1)


class Rotation(NamedTuple):
    """Exif orientation of an image that is not upright, and its height and width after it is turned upright."""

    orientation: int
    height: int
    width: int

    @property
    def raw(self) -> tuple[int, int]:
        """Height and width of the pixels as stored in the file."""
        return (self.width, self.height) if self.orientation in QUARTER else (self.height, self.width)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image after it is turned upright."""
        return self.height, self.width


def get_orientation(image: Image.Image) -> int:
    """Return the Exif orientation of an opened image, by default 1, without decoding its pixels if possible.

    Only a PNG whose orientation follows its pixels is decoded. Raises Unfit if it is too large for that.
    """
    if image.format != "PNG" or "exif" in image.info:
        exif = image.getexif()
    elif _has_orientation_after_pixels(image):
        check_size(image)
        exif = image.getexif()
    else:
        exif = Image.Image.getexif(image)  # that of PNG images would decode the pixels to search after them
    orientation: int = exif.get(TAG, 1)  # of another type in a damaged file
    return orientation


def _has_orientation_after_pixels(image: Image.Image) -> bool:
    """Return True if a PNG may have an orientation after its pixels, where exiftool writes it.

    Source: PNG Specification (Third Edition), section 5.3.
    """
    stream = getattr(image, "fp", None)
    if stream is None:  # its pixels have been decoded
        return True
    position = stream.tell()
    stream.seek(len(_PNG_SIGNATURE))
    has_pixels = has_orientation = False
    while not has_orientation and len(chunk := stream.read(8)) == 8:  # the length of the data, and the type
        data = stream.tell()
        if has_pixels and chunk[4:] != b"IDAT":
            has_orientation = chunk[4:] == b"eXIf" or stream.read(_KEYWORD_BYTES).startswith(_ORIENTED_TEXTS)
        has_pixels = has_pixels or chunk[4:] == b"IDAT"
        stream.seek(data + int.from_bytes(chunk[:4]) + 4)  # after the data and their checksum
    stream.seek(position)
    return has_orientation


def get_rotation(image: Image.Image) -> Rotation | None:
    """Return the rotation of an opened image, or None if it is upright. Raises Unfit as `get_orientation` does."""
    orientation = get_orientation(image)
    if orientation not in _UPRIGHT:
        return None
    height, width = image.height, image.width
    if orientation in QUARTER:
        height, width = width, height
    return Rotation(orientation, height, width)


def read_rotation(path: str) -> Rotation | None:
    """Return the rotation of the image at `path`, or None if it is upright or can't be read."""
    try:
        with open_to_show(path) as image:
            return get_rotation(image)
    except Exception:  # a broken file may raise nearly anything in a decoder; loading the image reports it
        return None


def read_rotations(paths: Sequence[str]) -> dict[int, Rotation]:
    """Return the rotations of images that are not upright, keyed by their indices in `paths`.

    The headers are read in several threads. If all images of a sample are upright, the others are not read.
    """
    with ThreadPoolExecutor(THREADS, "turns") as pool:

        def read(indices: Sequence[int]) -> dict[int, Rotation]:
            """Return the rotations of those images with the given indices that are not upright."""
            rotations = zip(indices, pool.map(read_rotation, [paths[index] for index in indices]), strict=True)
            return {index: rotation for index, rotation in rotations if rotation is not None}

        sampled = spread_evenly(len(paths), SAMPLED)
        found = read(sampled)
        if found:
            found |= read(sorted(set(range(len(paths))) - set(sampled)))
    return dict(sorted(found.items()))


def turn_upright_like_image(planes: npt.NDArray[_Kind], path: str, sides: tuple[int, int]) -> npt.NDArray[_Kind]:
    """Turn `planes` [..., h, w] upright if they were drawn on the stored pixels of the image at `path`.

    `sides` are the height and width of the upright image. The planes are turned only if they have the size of the
    stored image and not that of the upright image. Otherwise they are returned unchanged.
    """
    if planes.shape[-2:] == sides:
        return planes
    rotation = read_rotation(path)
    if rotation is None or planes.shape[-2:] != rotation.raw:
        return planes
    return turn_upright(planes, rotation.orientation)
