"""Results for each pixel as files: PNG with a palette or in grey, and TIFF with the georeference of the image."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image

from engine.data.decoding.idx import Bytes
from engine.data.decoding.masks import NO_CLASS
from engine.data.decoding.tiff_rows import NO_DATA_TAG, Georeference
from engine.system import paths

STRIP_ROWS = 256
_PACKING = 6
"""zlib's own middle between speed and size."""
_ASCII = 2
"""TIFF 6.0's type of text."""


def into_place(path: Path, write: Callable[[Path], object]) -> None:
    """Has `write` write a file beside `path`, for its user alone, and puts it there when it is whole. Raises what
    `write` raises, and OSError, with nothing left behind.
    """
    paths.make_folder(path.parent)
    descriptor, name = tempfile.mkstemp(prefix=".part-", suffix=path.suffix, dir=path.parent)
    os.close(descriptor)
    try:
        write(Path(name))
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def write_png(path: Path, plane: Bytes, colours: Bytes | None) -> None:
    """A plane uint8 [h, w] of numbers that stand for `colours` uint8 [256, 3], or of grey levels. Raises OSError."""
    image = Image.fromarray(plane)
    if colours is not None:
        image.putpalette(colours.tobytes())
    into_place(path, lambda part: image.save(part, "PNG"))


def write_tiff(
    path: Path, rows: Iterable[Bytes], sides: tuple[int, int], colours: Bytes | None, place: Georeference | None
) -> None:
    """A plane of such `sides`, height and width, that comes as some rows uint8 [n, w] at a time, from its top to its
    bottom.

    It has the tags of `place` as they are. Of numbers, those without a class are "no data" to programs that show
    maps. Raises OSError.
    """
    from tifffile import TiffWriter

    tags = list(place.tags) if place is not None else []
    if colours is not None and place is not None:
        tags.append((NO_DATA_TAG, _ASCII, 0, str(NO_CLASS), True))
    strips = (zlib.compress(strip.tobytes(), _PACKING) for strip in _in_strips(rows))

    def write(part: Path) -> None:
        with TiffWriter(part, bigtiff=sides[0] * sides[1] > 1 << 31) as writer:
            writer.write(
                strips,
                shape=sides,
                dtype=np.uint8,
                photometric="minisblack" if colours is None else "palette",
                colormap=None if colours is None else colours.T.astype(np.uint16) * 257,
                rowsperstrip=STRIP_ROWS,
                compression="zlib",
                metadata=None,
                software="Footplate",
                extratags=tags,
            )

    into_place(path, write)


def _in_strips(rows: Iterable[Bytes]) -> Iterator[Bytes]:
    held: list[Bytes] = []
    count = 0
    for part in rows:
        held.append(part)
        count += len(part)
        if count >= STRIP_ROWS:
            together = np.concatenate(held)
            whole = count // STRIP_ROWS * STRIP_ROWS
            for first in range(0, whole, STRIP_ROWS):
                yield together[first : first + STRIP_ROWS]
            held, count = [together[whole:]], count - whole
    if count:
        yield np.concatenate(held)
