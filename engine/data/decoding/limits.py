"""Limits of the files that are decoded, and the error of a file that is not to be."""

from __future__ import annotations

MAX_PIXELS = 178_956_970
"""Larger images are passed over: it is where Pillow suspects a decompression bomb, twice its MAX_IMAGE_PIXELS."""
MAX_VALUES = 4 * MAX_PIXELS
"""A file with more values, of all of its bands, is passed over: they take gigabytes."""


Size = tuple[int, int]
"""Height and width."""


class Unfit(ValueError):  # noqa: N818 - it describes the file
    """A file is not to be decoded; the text says why."""


def require_size(subject: str, size: Size, expected: Size) -> None:
    """Raise Unfit unless annotations have the size of their image; `subject` names them with a verb ("its mask has")."""
    if size != expected:
        of_image = f"the image has {expected[1]} x {expected[0]}"
        raise Unfit(f"{subject} a different size ({size[1]} x {size[0]} pixels, {of_image})")
