"""Find, sample and read annotation files, mostly JSON, and collect their faults. Torch-free."""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from engine.contract.problems import Problem
from engine.data.decoding.reading import (
    BYTE_ORDER_MARKS,
    MAX_TABLE_BYTES,
    Unfit,
    describe_failure,
    read_json,
    refuse_unusable,
)
from engine.data.formats.tree import Tree
from engine.data.memory_limit import allow_for_text
from engine.data.splits import count_sentence, dataset_error, dataset_warning, first_names, printable, sample_evenly
from engine.system.regular_files import UnusableFile, open_regular, read_regular

MAX_BYTES = 4 << 30
"""Maximum size in bytes of a JSON file. For comparison, a file in LVIS has 1.1 GB."""
MAX_FILES = 20
"""Maximum number of files per folder that are opened to detect a format. The largest ones are opened first.

The number is limited since some formats have one file per image.
"""
DEPTH = 3
CHUNK_BYTES = 1 << 20
SAMPLED = 20
"""Maximum number of files about one image each that are opened to detect their format."""
MAX_FILES_SAMPLED = 500
"""Maximum number of files about one image each that are opened to find one with at least one object."""
_MAX_SAMPLE_BYTES = 64 << 20
_PATIENCE = 4
"""Number of chunks without any of its keys after which `sample_lists` stops reading a file."""
_NOT_A_NUMBER = re.compile(rb'("(?:[^"\\]++|\\.)*+(?:"|\Z))|-?(?:NaN|Infinity)', re.DOTALL)
_PATH = re.compile(r"`\$([^`]*)`")
_MISSING_FIELD = re.compile(r"required field `([^`]*)`")
_BYTE = re.compile(r"\(byte (\d+)\)")
_ITEM = re.compile(r"[\s,]*(?=\S)")
_DECODER = json.JSONDecoder()
_EMPTY = re.compile(r"\s*\]")
_MAX_BUFFERED = 64 << 20
"""Number of characters after which `sample_lists` stops searching for the end of an entry."""
_LONGEST_KEY = 64  # characters of a key that two chunks may divide
_MAX_UNDECODED = 1 << 16
"""Number of characters that `sample_lists` returns for an entry that can't be decoded."""

T = TypeVar("T")


class Fault(NamedTuple):
    """Kind of fault in the entries of a JSON file.

    `one` and `many` describe a single entry and several entries with this fault.
    """

    one: str
    many: str
    remedy: str = "Such entries are left out; export the file again."


UNUSABLE = Fault("entry with a missing or unusable value", "entries with a missing or unusable value")


def find_json_files(tree: Tree, ending: str = ".json") -> dict[str, list[str]]:
    """Return the files with the extension `ending`, keyed by folder, largest first.

    Only folders up to `DEPTH` levels deep are searched. All paths are relative to the dataset folder.
    """
    found = {}
    for folder in tree.walk(depth=DEPTH):
        names = [os.path.join(folder, name) for name in tree.files(folder, ending)]
        if names:
            found[folder] = sorted(names, key=lambda name: (-_get_size_bytes(tree.path(name)), name))
    return found


def _get_size_bytes(path: str) -> int:
    """Return the size of a file in bytes, or 0 if it is missing or a broken link."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def iterate_text_chunks(path: str) -> Iterator[str]:
    """Yield the text of a file in chunks of about `CHUNK_BYTES`. Raises OSError or UnusableFile."""
    with open_regular(path) as stream:
        start = stream.read(CHUNK_BYTES)
        encoding, mark_length = _detect_encoding(start)
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(start[mark_length:])
        while chunk := stream.read(CHUNK_BYTES):
            yield decoder.decode(chunk)


def read_head(path: str) -> str:
    """Return the first chunk of a text file, or "" if it can't be read. Raises UnusableFile if it is not a file."""
    try:
        return next(iterate_text_chunks(path), "")
    except OSError:
        return ""


def sample_lists(path: str, keys: Sequence[str], until: str, count: int = 50) -> dict[str, list[Any]]:
    """Return the first entries, at most `count`, of each of the lists with the given keys in a JSON object, by key.

    Reading stops once the list `until` is found and is not empty, or after several chunks without any of the keys.
    Lists that were not found are left out. If the end of a list's first entry is not found, the list contains only the
    beginning of that entry's text. Returns {} for a file that is not a JSON object or can't be read. Raises
    UnusableFile if the path is not a file.
    """
    found: dict[str, list[Any]] = {}
    pattern = re.compile(rf'"({"|".join(keys)})"\s*:\s*\[')
    buffer = ""  # text from the key of an unfinished list on, or the end of the previous chunk
    unfinished = None  # match of that key
    try:
        for number, chunk in enumerate(iterate_text_chunks(path)):
            if number == 0 and not chunk.lstrip().startswith("{"):
                break  # it is not a JSON object
            buffer += chunk
            unfinished = _find_lists(buffer, pattern, count, found)
            is_hopeless = not found and number >= _PATIENCE
            if found.get(until) or is_hopeless or len(buffer) > _MAX_BUFFERED:
                break
            # The next chunk may complete the first entry of the unfinished list, or a key.
            buffer = buffer[unfinished.start() :] if unfinished is not None else buffer[-_LONGEST_KEY:]
        if unfinished is not None:
            found.setdefault(unfinished[1], [buffer[:_MAX_UNDECODED]])
    except OSError:
        pass
    return found


def _find_lists(buffer: str, pattern: re.Pattern[str], count: int, found: dict[str, list[Any]]) -> re.Match[str] | None:
    """Add the first entries of each list in `buffer` to `found`, unless entries of this list were found before.

    A list that the end of the buffer cuts off has the entries that are complete. Returns the match of `pattern`, which
    finds the keys, for the first list without a complete entry, or None if there is no such list.
    """
    unfinished = None
    for match in pattern.finditer(buffer):
        if found.get(match[1]):
            continue
        items = parse_items(buffer, match.end(), count)
        if items or _EMPTY.match(buffer, match.end()):
            found[match[1]] = items
        elif unfinished is None:
            unfinished = match
    return unfinished


def iterate_text_windows(path: str, count: int = 8, length: int = 1 << 18) -> Iterator[str]:
    """Yield sections of a text file that start at `count` evenly spaced positions.

    A section has `length` bytes, but those that start within the first `count * length` bytes extend at least to the
    end of these. The first section thus contains all of a short file. Ends early if reading fails. Raises UnusableFile
    if the path is not a file.
    """
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            encoding, _ = _detect_encoding(stream.read(4))
            # Multiples of 4 bytes don't divide a character of UTF-16.
            for start in dict.fromkeys(size * number // count // 4 * 4 for number in range(count)):
                stream.seek(start)
                yield stream.read(max(length, min(size, count * length) - start)).decode(encoding, "replace")
    except OSError:
        pass


def parse_items(text: str, start: int, count: int) -> list[Any]:
    """Parse at most `count` entries of a JSON list in `text`.

    `start` is the position after the bracket that opens the list. Fewer entries are returned if the list or the text
    ends.
    """
    items: list[Any] = []
    while len(items) < count and (match := _ITEM.match(text, start)):
        try:
            item, start = _DECODER.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            break
        items.append(item)
    return items


def _detect_encoding(start: bytes) -> tuple[str, int]:
    """Return the encoding of a text, detected from its first bytes, and the length of its byte order mark."""
    for mark, name, _ in BYTE_ORDER_MARKS:
        if start.startswith(mark):
            return name, len(mark)
    if start[1:2] == b"\0":
        return "utf-16-le", 0
    return ("utf-16-be", 0) if start[:1] == b"\0" else ("utf-8", 0)


def read_json_bytes(path: str) -> bytes:
    """Return the content of a JSON file as UTF-8, with NaN and infinities replaced by null.

    The memory limit of this process, if any, is raised in proportion to the size of the file. Raises OSError or
    UnusableFile if the file can't be read or is too large, and Unfit if it is not a text.
    """
    with refuse_unusable(path):
        allow_for_text(path)
        content = read_regular(path, MAX_BYTES)
        encoding, mark_length = _detect_encoding(content[:4])
        if encoding != "utf-8":
            content = content[mark_length:].decode(encoding, "replace").encode("utf-8", "replace")
        elif mark_length:
            content = content[mark_length:]
        if not content.isascii():
            _check_utf8(content)
        if b"NaN" in content or b"Infinity" in content:
            content = _NOT_A_NUMBER.sub(lambda found: found[1] or b"null", content)
        return content


def _check_utf8(content: bytes) -> None:
    """Raise Unfit if a text is not UTF-8.

    The text is checked in chunks to avoid a second copy in memory.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(content), CHUNK_BYTES):
        try:
            decoder.decode(content[start : start + CHUNK_BYTES])
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, start + error.start) + 1
            raise Unfit(f"line {line:,} is not in UTF-8; save the file in that encoding") from None


def decode_file(
    path: str, name: str, decoder: msgspec.json.Decoder[T], problems: list[Problem], remedy: str
) -> T | None:
    """Decode a JSON file. If this fails, append an error with the position in the file to `problems` and return None.

    `name` is the name of the file in the error, and `remedy` its remedy.
    """
    try:
        return parse_file(path, decoder)
    except (OSError, UnusableFile, Unfit) as error:
        problems.append(create_read_error(name, error, remedy))
        return None


def create_read_error(name: str, error: Exception, remedy: str) -> Problem:
    """Return an error that the annotation file `name` can't be read, with the reason."""
    return dataset_error(f"{printable(name)} can't be read: {describe_failure(error)}.", remedy)


def parse_file(path: str, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a JSON file. Raises OSError, UnusableFile, or Unfit with the position of the fault."""
    content = read_json_bytes(path)
    with refuse_unusable(path):
        try:
            return decoder.decode(content)
        except msgspec.ValidationError as error:
            raise Unfit(f"{_find_path_in_file(error) or 'its content'} is missing or of another type") from None
        except msgspec.DecodeError as error:
            raise Unfit(_explain_malformed(error, content) if content.strip() else "it is empty") from None


def _find_path_in_file(error: msgspec.ValidationError) -> str:
    """Return the path, such as images[3].id, of the value that msgspec reports as missing or mistyped in a JSON file.

    Returns "" if the entire content has another type.
    """
    parts = [match[1].lstrip(".") for pattern in (_PATH, _MISSING_FIELD) if (match := pattern.search(str(error)))]
    return ".".join(filter(None, parts))


def _explain_malformed(error: msgspec.DecodeError, content: bytes) -> str:
    """Describe why the content of a JSON file is invalid, with the number of the line if msgspec reports it."""
    found = _BYTE.search(str(error))
    if found is None:
        return "it ends in the middle" if "truncated" in str(error) else "it is not valid JSON"
    line = content.count(b"\n", 0, int(found[1])) + 1
    return f"line {line:,} is not valid JSON"


class EntryFaults:
    """Collector for unusable entries in a JSON file, which are reported with paths such as annotations[12].bbox."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._places: dict[Fault, list[str]] = {}  # paths in the file, by kind of fault

    def add(self, fault: Fault, place: str) -> None:
        """Record that the entry with the path `place`, such as annotations[12].bbox, has this kind of fault."""
        self._places.setdefault(fault, []).append(place)

    def decode_each(
        self, decoder: msgspec.json.Decoder[T], entries: Iterable[msgspec.Raw], key: str
    ) -> Iterator[tuple[str, T]]:
        """Decode the entries of the list `key` and yield the path and content of each valid one.

        The others are recorded as faults.
        """
        for index, entry in enumerate(entries):
            place = f"{key}[{index}]"
            try:
                yield place, decoder.decode(entry)
            except msgspec.ValidationError as error:
                self.add(UNUSABLE, ".".join(filter(None, (place, _find_path_in_file(error)))))
            except (msgspec.DecodeError, RecursionError):
                self.add(UNUSABLE, place)

    def problems(self) -> Iterator[Problem]:
        """Yield a warning for each kind of fault, with the number of entries that have it."""
        for fault, places in self._places.items():
            message = (
                f"{count_sentence(places, fault.one, fault.many)} in {printable(self._name)}: {first_names(places)}."
            )
            yield dataset_warning(message, fault.remedy)


def select_likely(paths: Sequence[str]) -> list[str]:
    """Return the `SAMPLED` paths nearest to the dataset folder, followed by an evenly spaced sample of the others.

    A file about all images is usually near the dataset folder.
    """
    order = sorted(paths, key=lambda path: (path.count(os.sep), path))
    return [*order[:SAMPLED], *sample_evenly(order[SAMPLED:], SAMPLED)]


def find_words(path: str, words: Iterable[bytes]) -> set[bytes]:
    """Return those `words` that occur in a UTF-8 or UTF-16 file. Raises UnusableFile or OSError."""
    missing = set(words)
    found: set[bytes] = set()
    overlap = max(map(len, missing), default=1)
    with open_regular(path) as stream:
        length = os.fstat(stream.fileno()).st_size
        if length > MAX_TABLE_BYTES:
            raise UnusableFile(path, f"has {length:,} bytes; the maximum is {MAX_TABLE_BYTES:,}", "Divide it.")
        end = b""  # of the previous chunk, since a word may be divided between two chunks
        while missing and (chunk := stream.read(CHUNK_BYTES)):
            chunk = end + chunk.replace(b"\0", b"")  # without zeros, UTF-16 is found, too
            found |= {word for word in missing if word in chunk}
            missing -= found
            end = chunk[-overlap:]
    return found


def sample_json(path: str, words: Iterable[bytes]) -> Any:
    """Return the content of a JSON file about one image.

    Returns None if the file can't be read, is very large, or lacks one of the `words`.
    """
    required = set(words)
    try:
        if os.stat(path).st_size > _MAX_SAMPLE_BYTES or find_words(path, required) != required:
            return None
        return read_json(path)
    except (OSError, ValueError):
        return None


def read_first_items(path: str, count: int = SAMPLED) -> list[Any]:
    """Return the first entries, at most `count`, of a JSON file that contains a list. A large file is read only partly.

    Returns [] for other JSON files. Raises UnusableFile or OSError.
    """
    with refuse_unusable(path):
        chunks = iterate_text_chunks(path)
        text = next(chunks, "").lstrip()
        if not text.startswith("["):
            return []
        for more_chunks in (4, 64):  # until the first entry is complete
            text += "".join(islice(chunks, more_chunks))
            if items := parse_items(text, 1, count):
                return items
    return []
