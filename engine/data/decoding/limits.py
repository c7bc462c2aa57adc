"""Size limits for decoding files, and the error for files that exceed them."""

from __future__ import annotations

MAX_PIXELS = 178_956_970
"""Maximum number of pixels in an image: twice Pillow's MAX_IMAGE_PIXELS, which warns of decompression bombs."""
MAX_VALUES = 4 * MAX_PIXELS
"""Maximum number of values in a file (pixels times bands). More would take gigabytes of memory."""


Size = tuple[int, int]
"""Height and width of an image, in pixels."""


class Unfit(ValueError):  # noqa: N818 - it describes the file
    """Raised when a file can't or must not be decoded. The message gives the reason."""


def require_size(size: Size, expected: Size, *, message_start: str) -> None:
    """Raise Unfit if `size`, the size of an annotation, differs from `expected`, the size of its image.

    `message_start` consists of the subject and the verb of the error message, such as "its mask has".
    """
    if size != expected:
        of_image = f"the image has {expected[1]} x {expected[0]}"
        raise Unfit(f"{message_start} a different size ({size[1]} x {size[0]} pixels, {of_image})")
