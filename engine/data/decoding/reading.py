"""How the files of a dataset are opened, and checks of images without torch: whether they are grey or too large, and
why they cannot be read.

A dataset may come from anybody. So none of its files is opened but by `read_image`, `read_text` and `open_image`
here, or by `open_regular`, which they stand on; and whatever is parsed is parsed within `judged`.
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
from engine.data.splits import shown, spread_evenly
from engine.system.regular_files import UnusableFile, open_regular, read_regular

MOST_IMAGE_BYTES = 2 << 30
"""Of a file that holds one image: room for the largest that is decoded, with six bands of 16 bits."""
MOST_TEXT_BYTES = 16 << 20
"""Of a text file that tells of one image, or that names classes."""
MOST_TABLE_BYTES = 512 << 20
"""Of a text file that tells of all images: ten million lines of fifty letters."""

HEADERS = 512
"""Images of a split that are opened to tell grey from colour; where a million are grey, opening all takes a minute."""

GREY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})


def quieten_pillow() -> None:
    """Keeps Pillow's remarks on odd metadata and large images off the terminal, for the whole process.

    Not `warnings.catch_warnings`: it is not safe with threads.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    logging.getLogger("PIL").setLevel(logging.CRITICAL)


def read_image(path: str) -> bytes:
    """The whole content of a file that holds an image. Raises UnusableFile and OSError."""
    return read_regular(path, MOST_IMAGE_BYTES)


_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "surrogateescape"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "replace"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be", "replace"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "replace"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "replace"),
)
"""Byte order marks that Windows programs write at the start of a text, the encoding of each, and its error handler."""


def read_text(path: str | os.PathLike[str], at_most: int = MOST_TEXT_BYTES) -> str:
    """Return a text file's content, decoded as by `decode_text`. Raises UnusableFile and OSError."""
    with judged(path):
        allow_for_text(path)
        return decode_text(read_regular(path, at_most))


def decode_text(content: bytes) -> str:
    """Return text without its byte order mark.

    A mark selects UTF-8, UTF-16 or UTF-32. Other text is read as UTF-8, with undecodable bytes as surrogate escapes.
    """
    for mark, encoding, errors in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, errors)
    return content.decode("utf-8", "surrogateescape")


def read_xml(path: str) -> ElementTree.Element:
    """Return the root of an XML file, its tags without namespaces.

    A byte order mark counts more than the declared encoding, and a file whose declaration can be read as ASCII is not
    of UTF-16, whatever it declares. Raises UnusableFile, OSError, and Unfit for invalid XML or an unknown encoding.
    """
    with judged(path):
        allow_for_text(path)
        content = read_regular(path, MOST_TEXT_BYTES)
        try:
            root = ElementTree.fromstring(_in_encoding_of_expat(content))
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise Unfit(f"it is not valid XML ({shown(str(error))[:200]})") from None
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
    """Return XML decoded if expat would misread it or refuse it, else as it is, without blanks around it.

    Expat reads neither encodings of several bytes per letter nor files that declare another encoding than they have.
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
    """The number in a line of a text file. Raises Unfit for a word that is none."""
    number = finite(word)
    if number is None:
        raise Unfit(f"line {line} contains {shown(word)[:40]}, which is not a number")
    return number


def finite(word: str) -> float | None:
    """The number that `word` writes, None where it writes none or one that is not finite."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


@contextmanager
def judged(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns exceptions that a malicious or oversized file at `path` causes within into UnusableFile."""
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
    """The image at `path`, its header read and no more. Raises UnusableFile, Unfit, and what Pillow raises."""
    with open_regular(path) as stream, open_header(stream) as image:
        check_kind(image)
        yield image


def decode_header(content: bytes) -> Image.Image:
    """The image in `content`, its header read and no more. Raises Unfit, or what Pillow raises."""
    if not content:
        raise Unfit("it is empty")
    image = open_header(BytesIO(content))
    check_kind(image)
    check_size(image)
    return image


def check_kind(image: Image.Image) -> None:
    """Raises Unfit for PostScript, which is a program: Pillow would have Ghostscript run it."""
    if image.format == "EPS":
        raise Unfit("it is PostScript, not an image")


def check_size(image: Image.Image) -> None:
    """Raises Unfit for an opened image that is too large to be decoded."""
    if image.width * image.height > MAX_PIXELS:
        raise Unfit(f"it is too large ({image.width:,} x {image.height:,} pixels)")


def is_grey(image: Image.Image) -> bool:
    """Whether an opened image is grey by its header (and palette)."""
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
    """Whether `error` says that the host had no memory left, as Python or as torch says it."""
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)


def describe_failure(error: BaseException) -> str:
    """Why an image cannot be read, in plain words."""
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
    return f"it is damaged ({shown(first)[:200]})"


def folder_channels(*splits: Sequence[str]) -> int:
    """1 if every image that can be opened is grey, else 3; stops at the first that is not.

    Of each split at most `HEADERS` images are opened, evenly spread.
    """
    quieten_pillow()
    channels: int | None = None
    for path in (files[index] for files in splits for index in spread_evenly(len(files), HEADERS)):
        try:
            with open_image(path) as image:
                if not is_grey(image):
                    return 3
                channels = 1
        except Exception:
            continue  # a decoder may raise nearly anything; whoever decodes the image will name it
    return channels or 3
