"""What can be told of pictures without torch: whether they are grey, too large, or why they cannot be read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable

import numpy as np
from PIL import Image, UnidentifiedImageError

from engine.contract.problems import Problem
from engine.data.formats import IdxSplit, read_idx_or_explain, shown, wrong
from engine.data.idx import Bytes

MAX_PIXELS = 178_956_970
"""Larger pictures are passed over: it is where Pillow suspects a decompression bomb, twice its MAX_IMAGE_PIXELS."""

GREY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})


def quieten_pillow() -> None:
    """Keeps Pillow's remarks on odd metadata and large pictures off the terminal, for the whole process.

    Not `warnings.catch_warnings`: it is not safe with threads.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class TooLarge(ValueError):
    """A picture has more than `MAX_PIXELS`."""


def header_checked(image: Image.Image) -> None:
    """Raises TooLarge for an opened picture that should not be decoded."""
    if image.width * image.height > MAX_PIXELS:
        raise TooLarge(f"it is too large ({image.width:,} x {image.height:,} pixels)")


def is_grey(image: Image.Image) -> bool:
    """Whether an opened picture is grey by its header (and palette)."""
    if image.mode == "P" and image.palette is not None:
        levels = np.frombuffer(bytes(image.palette.palette), np.uint8)
        bands = len(image.palette.mode)
        levels = levels[: len(levels) // bands * bands].reshape(-1, bands)[:, :3]
        return bool((levels == levels[:, :1]).all())
    return image.mode in GREY_MODES


def describe_failure(error: BaseException) -> str:
    """Why a picture cannot be read, in plain words."""
    text = str(error)
    match error:
        case TooLarge():
            return text
        case Image.DecompressionBombError():
            return "it is too large (over 178,956,970 pixels)"
        case UnidentifiedImageError():
            return "it is not a picture that can be read"
        case PermissionError():
            return "it may not be read (permission denied)"
        case FileNotFoundError():
            return "it is not there (a broken link, or removed meanwhile)"
        case MemoryError():
            return "there is not enough memory to decode it"
    if any(word in text.lower() for word in ("truncated", "incomplete", "end of file", "eof", "not enough", "broken")):
        return "it is truncated or damaged"
    first = text.splitlines()[0] if text else type(error).__name__
    return f"it is damaged ({shown(first)[:200]})"


def folder_channels(files: Iterable[str]) -> int:
    """1 if every picture that can be opened is grey, else 3; stops at the first that is not."""
    quieten_pillow()
    channels: int | None = None
    for path in files:
        try:
            with Image.open(path) as image:
                if not is_grey(image):
                    return 3
                channels = 1
        except Exception:
            continue  # a decoder may raise nearly anything; whoever decodes the picture will name it
    return channels or 3


def open_idx_pictures(split: IdxSplit, problems: list[Problem]) -> Bytes | None:
    """The idx file's pictures, uint8 [N, rows, columns], or None with the reason added to `problems`."""
    pixels = read_idx_or_explain(split.images, 3, problems)
    if pixels is None:
        return None
    needed = len(split.labels) if split.rows is None else None
    if needed is not None and len(pixels) != needed:
        name = shown(os.path.basename(split.images))
        message = f"{name} holds {len(pixels):,} pictures, but there are {needed:,} labels."
        problems.append(wrong(message, "Use image and label files that belong together."))
        return None
    return pixels
