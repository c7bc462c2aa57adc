"""Open files of a dataset safely, and examine images without torch.

Datasets may come from anyone. Therefore files are opened only with `read_image`, `read_text`, `open_image` or
`open_regular`, and parsed only inside `refuse_unusable`.
"""

from __future__ import annotations

import codecs
import csv
import errno
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image, UnidentifiedImageError

from engine.data.decoding.limits import MAX_PIXELS, Unfit
from engine.data.decoding.openers import open_header
from engine.data.memory_limit import allow_for_text
from engine.data.splits import printable, sample_evenly
from engine.system.regular_files import UnusableFile, open_regular, read_regular

MAX_IMAGE_BYTES = 2 << 30
"""Maximum size of an image file in bytes, enough for the largest image that is decoded, with six bands of 16 bits."""
MAX_TEXT_BYTES = 16 << 20
"""Maximum size in bytes of a text file that describes one image or lists class names."""
MAX_TABLE_BYTES = 512 << 20
"""Maximum size in bytes of a text file that describes all images: ten million lines with fifty characters each."""

HEAD_BYTES = 1 << 16
"""Number of bytes at the beginning of a file that are read to detect its format."""
HEADERS = 512
"""Number of images in a split that are opened to find out if it is gray. Opening a million would take a minute."""

GRAY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})


def silence_pillow() -> None:
    """Turn off Pillow's warnings about metadata and large images for the rest of this process.

    They can't be turned off only while a file is read, since `warnings.catch_warnings` is not thread-safe.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    logging.getLogger("PIL").setLevel(logging.CRITICAL)


def read_image(path: str) -> bytes:
    """Return the content of an image file. Raises UnusableFile or OSError."""
    return read_regular(path, MAX_IMAGE_BYTES)


BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "surrogateescape"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "replace"),  # before UTF-16, since its mark begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be", "replace"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "replace"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "replace"),
)
"""Byte order marks that Windows programs write at the beginning of a text, each with its encoding and error handler."""


def read_text(path: str | os.PathLike[str], at_most: int = MAX_TEXT_BYTES) -> str:
    """Read a text file of at most `at_most` bytes and decode it with `decode_text`. Raises UnusableFile or OSError.

    The memory limit of this process, if it has one, is increased to make room for the text.
    """
    with refuse_unusable(path):
        allow_for_text(path)
        return decode_text(read_regular(path, at_most))


def decode_text(content: bytes) -> str:
    """Decode text and remove its byte order mark.

    The byte order mark selects UTF-8, UTF-16 or UTF-32. Text without a mark is decoded as UTF-8. Bytes that are not
    UTF-8 become surrogate escapes.
    """
    for mark, encoding, errors in BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, errors)
    return content.decode("utf-8", "surrogateescape")


def read_text_lines(path: str | os.PathLike[str], at_most: int = MAX_TEXT_BYTES) -> list[str]:
    """Return the lines of a text file without surrounding whitespace. Empty lines are left out.

    Raises the same exceptions as `read_text`.
    """
    return [line for each in read_text(path, at_most).splitlines() if (line := each.strip())]


def read_json(path: str, at_most: int = MAX_TABLE_BYTES) -> Any:
    """Return the content of a JSON file of at most `at_most` bytes.

    Raises UnusableFile, OSError, and Unfit if it is not valid JSON.
    """
    with refuse_unusable(path):
        text = read_text(path, at_most)
        try:
            return json.loads(text)
        except ValueError as error:
            raise Unfit(f"it is not valid JSON ({printable(str(error))[:200]})") from None


def read_head(path: str, count: int = HEAD_BYTES) -> bytes:
    """Return the first `count` bytes of a file, or b"" if it can't be read."""
    try:
        with open_regular(path) as stream:
            return stream.read(count)
    except (OSError, UnusableFile):
        return b""


def read_xml(path: str) -> ElementTree.Element:
    """Return the root element of an XML file. Namespaces are removed from the tags.

    A byte order mark takes precedence over the declared encoding. If the declaration is readable as ASCII, the file
    can't be UTF-16, so a declaration of UTF-16 is ignored. Raises UnusableFile, OSError, and Unfit for invalid XML or
    an unknown encoding.
    """
    with refuse_unusable(path):
        allow_for_text(path)  # raises the memory limit
        content = read_regular(path, MAX_TEXT_BYTES)
        try:
            root = ElementTree.fromstring(_decode_for_expat(content))
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise Unfit(f"it is not valid XML ({printable(str(error))[:200]})") from None
        if b"xmlns" in content.replace(b"\0", b""):  # without zeros, UTF-16 is found, too
            for element in root.iter():
                element.tag = element.tag.rpartition("}")[2]
        return root


_XML_DECLARATION = re.compile(r"""<\?xml\b[^>]{0,200}\?>""")
_XML_ENCODING = re.compile(rb"""<\?xml\b[^>]{0,100}encoding\s*=\s*["']([\w.:-]{1,40})["']""")
_UNKNOWN_TO_EXPAT = frozenset(
    {"gb2312", "gbk", "gb18030", "big5", "cp932", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr", "cp949"}
)


def _decode_for_expat(content: bytes) -> bytes | str:
    """Convert the content of an XML file to a form that the parser expat accepts.

    Bytes are returned with at most surrounding whitespace removed. The content is decoded to text only if it has a byte
    order mark, declares a wrong encoding, or declares a multi-byte encoding that expat doesn't support, such as GBK.
    """
    for mark, encoding, _ in BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return _XML_DECLARATION.sub("", content[len(mark) :].decode(encoding).strip(), count=1)
    if content.lstrip().startswith(b"<"):
        content = content.strip()
    declaration = _XML_ENCODING.match(content)
    if declaration is None:
        return content
    name = declaration[1].decode("ascii").lower()
    # A declaration that was found as ASCII can't be in UTF-16 or UTF-32, so the encoding in it is wrong.
    if name.startswith(("utf-16", "utf16", "utf-32", "utf32", "ucs-", "unicode")):
        name = "utf-8"
    elif codecs.lookup(name).name not in _UNKNOWN_TO_EXPAT:
        return content
    return _XML_DECLARATION.sub("", content.decode(name), count=1)


def read_number(word: str, line: int) -> float:
    """Convert a word from line `line` of a text file to a number. Raises Unfit if it is not a finite number."""
    number = parse_finite(word)
    if number is None:
        raise Unfit(f"line {line} contains {printable(word)[:40]}, which is not a number")
    return number


def parse_finite(word: str) -> float | None:
    """Convert text to a number. Returns None if it is not a number, or is infinite or NaN."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


@contextmanager
def refuse_unusable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert the exceptions that reading a malicious or oversized file at `path` may raise to UnusableFile."""
    try:
        yield
    except MemoryError:
        reason, remedy = "does not fit in memory", "Make it smaller, or remove it."
        raise UnusableFile(path, reason, remedy) from None
    except RecursionError:
        raise UnusableFile(path, "is nested too deeply", "Rewrite it, or remove it.") from None
    except csv.Error as error:
        raise UnusableFile(path, f"is not a readable table ({error})", "Rewrite it, or remove it.") from None


@contextmanager
def open_image(path: str) -> Iterator[Image.Image]:
    """Open the image at `path` and read its header. Raises UnusableFile, Unfit, and any exception of Pillow."""
    with open_regular(path) as stream, open_header(stream) as image:
        refuse_postscript(image)
        yield image


def decode_header(content: bytes) -> Image.Image:
    """Open the image in `content`, the bytes of a file, and read its header. Its pixels are decoded later.

    Raises Unfit, and any exception of Pillow.
    """
    if not content:
        raise Unfit("it is empty")
    image = open_header(BytesIO(content))
    refuse_postscript(image)
    check_size(image)
    return image


def refuse_postscript(image: Image.Image) -> None:
    """Raise Unfit for PostScript files, which are programs that Pillow would run with Ghostscript."""
    if image.format == "EPS":
        raise Unfit("it is PostScript, not an image")


def check_size(image: Image.Image) -> None:
    """Raise Unfit if an opened image is too large to decode."""
    if image.width * image.height > MAX_PIXELS:
        raise Unfit(f"it is too large ({image.width:,} x {image.height:,} pixels)")


def is_gray(image: Image.Image) -> bool:
    """Return True if the header and palette of an opened image show that it is gray."""
    if image.mode == "P" and image.palette is not None:
        levels = np.frombuffer(bytes(image.palette.palette), np.uint8)
        bands = len(image.palette.mode)
        levels = levels[: len(levels) // bands * bands].reshape(-1, bands)[:, :3]
        return bool((levels == levels[:, :1]).all())
    return image.mode in GRAY_MODES


_PLAIN_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (Image.DecompressionBombError, f"it is too large (over {MAX_PIXELS:,} pixels)"),
    (UnidentifiedImageError, "it is not a readable image"),
    (PermissionError, "it can't be read (permission denied)"),
    (FileNotFoundError, "it does not exist (a broken link, or removed in the meantime)"),
    (RecursionError, "it is nested too deeply"),
)
_SIGNS_OF_DAMAGE = ("truncated", "incomplete", "end of file", "eof", "not enough", "broken")


def lacks_memory(error: BaseException | None) -> bool:
    """Return True if Python or torch raised the error because memory is exhausted."""
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)


def describe_failure(error: BaseException) -> str:
    """Describe for users why an image can't be read."""
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
    first_line = text.splitlines()[0] if text else type(error).__name__
    return f"it is damaged ({printable(first_line)[:200]})"


def count_folder_channels(*splits: Sequence[str]) -> int:
    """Return the number of image channels for several splits: 1 if all readable images are gray, otherwise 3.

    `splits` are lists of paths. At most `HEADERS` evenly spaced images of each split are opened, until one is in color.
    Turns off Pillow's warnings in this process.
    """
    silence_pillow()
    has_gray = False
    for path in (path for files in splits for path in sample_evenly(files, HEADERS)):
        try:
            with open_image(path) as image:
                if not is_gray(image):
                    return 3
                has_gray = True
        except Exception:
            continue  # a decoder may raise nearly anything; decoding the image reports it
    return 1 if has_gray else 3
