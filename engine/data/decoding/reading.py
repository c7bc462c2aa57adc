"""Safe opening of dataset files, and checks of images without torch: color, size, and reasons for failures.

Datasets may come from anyone. Files are therefore opened only with `read_image`, `read_text`, `open_image` or
`open_regular`, which the others use, and parsed only inside `refuse_unusable`.
"""

from __future__ import annotations

import codecs
import csv
import errno
import logging
import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
from PIL import Image, UnidentifiedImageError

from engine.data.decoding.limits import MAX_PIXELS, Unfit
from engine.data.decoding.openers import open_header
from engine.data.memory_limit import allow_for_text
from engine.data.splits import printable, spread_evenly
from engine.system.regular_files import UnusableFile, open_regular, read_regular

MAX_IMAGE_BYTES = 2 << 30
"""Largest image file in bytes: enough for the largest image that is decoded, with six bands of 16 bits."""
MAX_TEXT_BYTES = 16 << 20
"""Largest text file, in bytes, about one image or with names of classes."""
MAX_TABLE_BYTES = 512 << 20
"""Largest text file, in bytes, about all images: ten million lines of fifty characters."""

HEADERS = 512
"""Number of images of a split that are opened to distinguish gray from color; opening a million would take a minute."""

GREY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})


def silence_pillow() -> None:
    """Turn off Pillow's warnings about metadata and large images for this process.

    `warnings.catch_warnings` is not safe with threads.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    logging.getLogger("PIL").setLevel(logging.CRITICAL)


def read_image(path: str) -> bytes:
    """Return the content of an image file. Raises UnusableFile or OSError."""
    return read_regular(path, MAX_IMAGE_BYTES)


_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "surrogateescape"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "replace"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be", "replace"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "replace"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "replace"),
)
"""Byte order marks that Windows programs write at the start of a text, the encoding of each, and its error handler."""


def read_text(path: str | os.PathLike[str], at_most: int = MAX_TEXT_BYTES) -> str:
    """Return the content of a text file, decoded with `decode_text`. Raises UnusableFile or OSError."""
    with refuse_unusable(path):
        allow_for_text(path)
        return decode_text(read_regular(path, at_most))


def decode_text(content: bytes) -> str:
    """Decode text and remove its byte order mark.

    A byte order mark selects UTF-8, UTF-16 or UTF-32. Text without a mark is read as UTF-8, with undecodable bytes as
    surrogate escapes.
    """
    for mark, encoding, errors in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, errors)
    return content.decode("utf-8", "surrogateescape")


def read_xml(path: str) -> ElementTree.Element:
    """Return the root element of an XML file, with namespaces removed from the tags.

    A byte order mark takes precedence over the declared encoding. If the declaration is readable as ASCII, the file is
    not read as UTF-16, whatever it declares. Raises UnusableFile, OSError, and Unfit for invalid XML or an unknown
    encoding.
    """
    with refuse_unusable(path):
        allow_for_text(path)
        content = read_regular(path, MAX_TEXT_BYTES)
        try:
            root = ElementTree.fromstring(_in_encoding_of_expat(content))
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise Unfit(f"it is not valid XML ({printable(str(error))[:200]})") from None
        if b"xmlns" in content.replace(b"\0", b""):
            for element in root.iter():
                element.tag = element.tag.rpartition("}")[2]
        return root


_XML_DECLARATION = re.compile(r"""<\?xml\b[^>]{0,200}\?>""")
_XML_ENCODING = re.compile(rb"""<\?xml\b[^>]{0,100}encoding\s*=\s*["']([\w.:-]{1,40})["']""")
_UNKNOWN_TO_EXPAT = frozenset(
    {"gb2312", "gbk", "gb18030", "big5", "cp932", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr", "cp949"}
)


def _in_encoding_of_expat(content: bytes) -> bytes | str:
    """Decode XML that expat would misread or refuse; return other XML unchanged except for surrounding blanks.

    Expat reads no encodings with several bytes per letter, and no files whose declared encoding is wrong.
    """
    for mark, encoding, _ in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return _XML_DECLARATION.sub("", content[len(mark) :].decode(encoding).strip(), count=1)
    content = content.strip() if content.lstrip()[:1] == b"<" and b"\0" not in content[:4] else content
    declared = _XML_ENCODING.match(content)
    if declared is None:
        return content
    name = declared[1].decode("ascii").lower()
    if name.startswith(("utf-16", "utf16", "utf-32", "utf32", "ucs-", "unicode")):
        name = "utf-8"
    elif codecs.lookup(name).name not in _UNKNOWN_TO_EXPAT:
        return content
    return _XML_DECLARATION.sub("", content.decode(name), count=1)


def read_number(word: str, line: int) -> float:
    """Convert a word in `line` of a text file to a number. Raises Unfit if it is not a number."""
    number = finite(word)
    if number is None:
        raise Unfit(f"line {line} contains {printable(word)[:40]}, which is not a number")
    return number


def finite(word: str) -> float | None:
    """Convert a word to a finite number; None for text and infinite numbers."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


@contextmanager
def refuse_unusable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert exceptions that a malicious or oversized file at `path` causes inside the block to UnusableFile."""
    try:
        yield
    except MemoryError:
        words, remedy = "does not fit in memory", "Make it smaller, or remove it."
        raise UnusableFile(path, words, remedy) from None
    except RecursionError:
        raise UnusableFile(path, "is nested too deeply", "Rewrite it, or remove it.") from None
    except csv.Error as error:
        raise UnusableFile(path, f"is not a readable table ({error})", "Rewrite it, or remove it.") from None


@contextmanager
def open_image(path: str) -> Iterator[Image.Image]:
    """Open the image at `path` and read its header. Raises UnusableFile, Unfit, and any exception of Pillow."""
    with open_regular(path) as stream, open_header(stream) as image:
        check_kind(image)
        yield image


def decode_header(content: bytes) -> Image.Image:
    """Open the image in `content` and read its header. Raises Unfit, and any exception of Pillow."""
    if not content:
        raise Unfit("it is empty")
    image = open_header(BytesIO(content))
    check_kind(image)
    check_size(image)
    return image


def check_kind(image: Image.Image) -> None:
    """Raise Unfit for PostScript, which is a program that Pillow would run with Ghostscript."""
    if image.format == "EPS":
        raise Unfit("it is PostScript, not an image")


def check_size(image: Image.Image) -> None:
    """Raise Unfit for an opened image that is too large to decode."""
    if image.width * image.height > MAX_PIXELS:
        raise Unfit(f"it is too large ({image.width:,} x {image.height:,} pixels)")


def is_gray(image: Image.Image) -> bool:
    """Return True if an opened image is gray according to its header and palette."""
    if image.mode == "P" and image.palette is not None:
        levels = np.frombuffer(bytes(image.palette.palette), np.uint8)
        bands = len(image.palette.mode)
        levels = levels[: len(levels) // bands * bands].reshape(-1, bands)[:, :3]
        return bool((levels == levels[:, :1]).all())
    return image.mode in GREY_MODES


_PLAIN_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (Image.DecompressionBombError, f"it is too large (over {MAX_PIXELS:,} pixels)"),
    (UnidentifiedImageError, "it is not a readable image"),
    (PermissionError, "it can't be read (permission denied)"),
    (FileNotFoundError, "it does not exist (a broken link, or removed in the meantime)"),
    (RecursionError, "it is nested too deeply"),
)
_SIGNS_OF_DAMAGE = ("truncated", "incomplete", "end of file", "eof", "not enough", "broken")


def lacks_memory(error: BaseException | None) -> bool:
    """Return True if Python or torch raised the error because the computer has no memory left."""
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)


def describe_failure(error: BaseException) -> str:
    """Return why an image can't be read, for users."""
    text = str(error)
    if isinstance(error, Unfit | UnusableFile):
        return text
    if lacks_memory(error):
        return "there is not enough memory to decode it"
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "it is a link that leads back to itself"
    for kind, words in _PLAIN_WORDS:
        if isinstance(error, kind):
            return words
    if any(sign in text.lower() for sign in _SIGNS_OF_DAMAGE):
        return "it is truncated or damaged"
    first = text.splitlines()[0] if text else type(error).__name__
    return f"it is damaged ({printable(first)[:200]})"


def folder_channels(*splits: Sequence[str]) -> int:
    """Return the number of channels: 1 if all images that can be opened are gray, else 3.

    Stops at the first color image. At most `HEADERS` images of each split, evenly spread, are opened.
    """
    silence_pillow()
    channels: int | None = None
    for path in (files[index] for files in splits for index in spread_evenly(len(files), HEADERS)):
        try:
            with open_image(path) as image:
                if not is_gray(image):
                    return 3
                channels = 1
        except Exception:
            continue  # a decoder may raise nearly anything; decoding the image reports it
    return channels or 3
