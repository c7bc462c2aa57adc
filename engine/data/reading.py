"""What can be told of pictures without torch: whether they are grey, too large, or why they cannot be read."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from io import BytesIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from engine.data.found import shown, spread_evenly

MAX_PIXELS = 178_956_970
"""Larger pictures are passed over: it is where Pillow suspects a decompression bomb, twice its MAX_IMAGE_PIXELS."""

HEADERS = 512
"""Pictures of a split that are opened to tell grey from colour; where a million are grey, opening all takes a minute."""

GREY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})


def quieten_pillow() -> None:
    """Keeps Pillow's remarks on odd metadata and large pictures off the terminal, for the whole process.

    Not `warnings.catch_warnings`: it is not safe with threads.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    logging.getLogger("PIL").setLevel(logging.CRITICAL)


class Unfit(ValueError):  # noqa: N818 - it describes the file
    """A file is not to be decoded; the text says why."""


def open_picture(content: bytes) -> Image.Image:
    """The picture in `content`, its header read and no more. Raises Unfit, or what Pillow raises."""
    if not content:
        raise Unfit("it is empty")
    image = Image.open(BytesIO(content))
    check_size(image)
    return image


def check_size(image: Image.Image) -> None:
    """Raises Unfit for an opened picture that is too large to be decoded."""
    if image.width * image.height > MAX_PIXELS:
        raise Unfit(f"it is too large ({image.width:,} x {image.height:,} pixels)")


def is_grey(image: Image.Image) -> bool:
    """Whether an opened picture is grey by its header (and palette)."""
    if image.mode == "P" and image.palette is not None:
        levels = np.frombuffer(bytes(image.palette.palette), np.uint8)
        bands = len(image.palette.mode)
        levels = levels[: len(levels) // bands * bands].reshape(-1, bands)[:, :3]
        return bool((levels == levels[:, :1]).all())
    return image.mode in GREY_MODES


_PLAIN_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (Image.DecompressionBombError, f"it is too large (over {MAX_PIXELS:,} pixels)"),
    (UnidentifiedImageError, "it is not a picture that can be read"),
    (PermissionError, "it may not be read (permission denied)"),
    (FileNotFoundError, "it is not there (a broken link, or removed meanwhile)"),
    (MemoryError, "there is not enough memory to decode it"),
)
_SIGNS_OF_DAMAGE = ("truncated", "incomplete", "end of file", "eof", "not enough", "broken")


def describe_failure(error: BaseException) -> str:
    """Why a picture cannot be read, in plain words."""
    text = str(error)
    if isinstance(error, Unfit):
        return text
    for kind, words in _PLAIN_WORDS:
        if isinstance(error, kind):
            return words
    if any(sign in text.lower() for sign in _SIGNS_OF_DAMAGE):
        return "it is truncated or damaged"
    first = text.splitlines()[0] if text else type(error).__name__
    return f"it is damaged ({shown(first)[:200]})"


def folder_channels(*splits: Sequence[str]) -> int:
    """1 if every picture that can be opened is grey, else 3; stops at the first that is not.

    Of each split at most `HEADERS` pictures are opened, evenly spread.
    """
    quieten_pillow()
    channels: int | None = None
    for path in (files[place] for files in splits for place in spread_evenly(len(files), HEADERS)):
        try:
            with Image.open(path) as image:
                if not is_grey(image):
                    return 3
                channels = 1
        except Exception:
            continue  # a decoder may raise nearly anything; whoever decodes the picture will name it
    return channels or 3
