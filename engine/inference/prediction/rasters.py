"""Write results for each pixel as PNG, with a palette or in gray, or as TIFF with the georeference of the image."""

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
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.tiff_pages import NO_DATA_TAG
from engine.data.decoding.tiff_rows import Georeference
from engine.system import paths

STRIP_ROWS = 256
_ZLIB_LEVEL = 6
"""Compression level of written images, the default of zlib."""
_TIFF_ASCII = 2
"""Number of the data type for text in TIFF 6.0."""


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically: `write` creates it at a temporary path, and it is then moved to `path`.

    Raises OSError and the errors of `write`. After an error, no files are left behind.
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


def write_png(path: Path, plane: Bytes, colors: Bytes | None) -> None:
    """Write a plane, uint8 [h, w], as a PNG image. Raises OSError.

    Its values are indices into the palette `colors`, uint8 [256, 3], or gray levels if `colors` is None.
    """
    image = Image.fromarray(plane)
    if colors is not None:
        image.putpalette(colors.tobytes())
    write_file(path, lambda temporary: image.save(temporary, "PNG"))


def write_tiff(
    path: Path, rows: Iterable[Bytes], sides: tuple[int, int], colors: Bytes | None, georeference: Georeference | None
) -> None:
    """Write a plane as a TIFF image. Raises OSError.

    Args:
        path: File to write.
        rows: Chunks of rows from top to bottom, uint8 [n, w].
        sides: Height and width of the plane.
        colors: Palette, uint8 [256, 3]. Pixels without a class are then marked as "no data" for map programs. None for
            gray levels.
        georeference: Georeference whose tags are copied, or None.
    """
    from tifffile import TiffWriter

    tags = list(georeference.tags) if georeference is not None else []
    if colors is not None and georeference is not None:
        # Code, type, number of values (0 for text, whose length is known), value, and True for the first page only.
        tags.append((NO_DATA_TAG, _TIFF_ASCII, 0, str(NO_CLASS), True))
    strips = (zlib.compress(strip.tobytes(), _ZLIB_LEVEL) for strip in _divide_into_strips(rows))

    def write_to(temporary: Path) -> None:
        with TiffWriter(temporary, bigtiff=sides[0] * sides[1] > 1 << 31) as writer:
            writer.write(
                strips,
                shape=sides,
                dtype=np.uint8,
                photometric="minisblack" if colors is None else "palette",
                colormap=None if colors is None else colors.T.astype(np.uint16) * 257,  # from 8 to 16 bits
                rowsperstrip=STRIP_ROWS,
                compression="zlib",
                metadata=None,
                software="Footplate",
                extratags=tags,
            )

    write_file(path, write_to)


def _divide_into_strips(rows: Iterable[Bytes]) -> Iterator[Bytes]:
    """Divide `rows`, which arrive in chunks, into strips of `STRIP_ROWS` rows. The last one may be shorter."""
    chunks: list[Bytes] = []
    row_count = 0
    for chunk in rows:
        chunks.append(chunk)
        row_count += len(chunk)
        if row_count >= STRIP_ROWS:
            pending_rows = np.concatenate(chunks)
            complete_rows = row_count // STRIP_ROWS * STRIP_ROWS
            for first in range(0, complete_rows, STRIP_ROWS):
                yield pending_rows[first : first + STRIP_ROWS]
            chunks, row_count = [pending_rows[complete_rows:]], row_count - complete_rows
    if row_count:
        yield np.concatenate(chunks)
