"""Open images that Pillow alone can't open: NumPy arrays, HEIF, and TIFFs that only tifffile decodes. Torch-free."""

from __future__ import annotations

from functools import cache
from typing import IO, Any

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from engine.data.decoding.deep import choose_mode, is_array, make_image, read_deep, read_deep_facts
from engine.data.decoding.limits import Unfit
from engine.data.decoding.tiff_pages import is_tiff, read_tiff, read_tiff_facts
from engine.system.plugins import install_command

_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")
"""Brands in the header of HEIF files, for HEVC coding or for any coding (ISO/IEC 23008-12, annex B)."""
_AVIF = (b"avif", b"avis")


def open_header(stream: IO[bytes]) -> Image.Image:
    """Open the image in `stream` and read its header. Raises Unfit, and any exception of Pillow.

    The first HEIF image registers pillow-heif with Pillow for the whole process.
    """
    head = stream.read(64)
    if is_array(head):
        return ArrayImage(stream)
    # AVIF, which Pillow reads, may have the brand "mif1", too.
    is_heif = head[4:8] == b"ftyp" and head[8:12] in _HEIF and not _is_avif(head)
    if is_heif and not register_heif():
        raise Unfit(f"it is a HEIF image; to read it, run: {install_command('heif')}")
    try:
        return Image.open(stream)
    except UnidentifiedImageError:
        if not is_tiff(head):
            raise
        return ArrayImage(stream)


def _is_avif(head: bytes) -> bool:
    """Return True if the file type box at the beginning of a file lists a brand of AVIF."""
    length = int.from_bytes(head[:4])
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, min(length, len(head)), 4))]
    return any(brand in _AVIF for brand in brands)


@cache
def register_heif() -> bool:
    """Register pillow-heif as a decoder of Pillow. Returns False if it is not installed."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


class ArrayImage(ImageFile.ImageFile):
    """Pillow image whose pixels are decoded by another library: a NumPy array, or a TIFF that Pillow can't open.

    `load` raises Unfit if Pillow has no suitable mode for the values.

    Attributes:
        no_data: Value for missing data in a loaded TIFF, or None if it declares none.
    """

    format = "array"
    format_description = "Array of values"
    no_data: float | None = None
    _is_decoded = False

    def _open(self) -> None:
        """Read the header and set the mode and the size, as Pillow requires. Raises UnidentifiedImageError."""
        assert self.fp is not None
        self.fp.seek(0)
        self._is_tiff = is_tiff(self.fp.read(4))
        self.fp.seek(0)
        facts = read_tiff_facts(self.fp) if self._is_tiff else read_deep_facts(self.fp)
        if facts is None:
            raise UnidentifiedImageError("cannot identify image file")
        self._facts = facts
        self._mode, self._size = choose_mode(facts), (facts.width, facts.height)

    def load(self) -> Any:
        """Decode the pixels on the first call, and return Pillow's pixel access object. Sets `no_data` of a TIFF."""
        if not self._is_decoded:
            assert self.fp is not None
            self.fp.seek(0)
            if self._is_tiff:
                values, self.no_data = read_tiff(self.fp)
                # Pillow inverts the 8-bit images that it can read, so that 0 is black. Deeper ones are not inverted.
                if values.dtype == np.uint8 and self._facts.is_white_zero:
                    values = np.concatenate([255 - values[:, :, :1], values[:, :, 1:]], 2)
            else:
                values = read_deep(self.fp.read(), self._facts)
            self.im = make_image(values).im
            self._is_decoded = True
        return Image.Image.load(self)
