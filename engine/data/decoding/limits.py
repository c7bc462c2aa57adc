"""Limits for the files that are decoded, and the error for files that exceed them."""

from __future__ import annotations

MAX_PIXELS = 178_956_970
"""Limit on the pixels of an image: twice Pillow's MAX_IMAGE_PIXELS, from where it suspects a decompression bomb."""
MAX_VALUES = 4 * MAX_PIXELS
"""Limit on the values of a file in all its bands; more would take gigabytes."""


Size = tuple[int, int]
"""Height and width."""


class Unfit(ValueError):  # noqa: N818 - it describes the file
    """Error: a file must not or can't be decoded. The text says why."""


def require_size(subject: str, size: Size, expected: Size) -> None:
    """Raise Unfit unless annotations have the size of their image.

    `subject` is the beginning of the message, such as "its mask has".
    """
    if size != expected:
        of_image = f"the image has {expected[1]} x {expected[0]}"
        raise Unfit(f"{subject} a different size ({size[1]} x {size[0]} pixels, {of_image})")
