"""Size limits for files that are decoded, and the error for files that exceed them."""

from __future__ import annotations

MAX_PIXELS = 178_956_970
"""Largest number of pixels in an image. It is twice Pillow's MAX_IMAGE_PIXELS, which warns of decompression bombs."""
MAX_VALUES = 4 * MAX_PIXELS
"""Largest number of values in a file, in all bands together. More would take gigabytes."""


Size = tuple[int, int]
"""Height and width."""


class Unfit(ValueError):  # noqa: N818 - it describes the file
    """Raised when a file can't or must not be decoded. The message gives the reason."""


def require_size(subject: str, size: Size, expected: Size) -> None:
    """Raise Unfit if annotations don't have the same size as their image.

    `subject` is the beginning of the message, such as "its mask has".
    """
    if size != expected:
        of_image = f"the image has {expected[1]} x {expected[0]}"
        raise Unfit(f"{subject} a different size ({size[1]} x {size[0]} pixels, {of_image})")
