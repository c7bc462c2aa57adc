"""Exceptions that decoding damaged or malicious bytes raises, and the decoding of files that may be damaged."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from engine.system.files import MAX_BYTES, read_file

_Content = TypeVar("_Content")

NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All exceptions that msgspec's decoders raise. For invalid UTF-8, it is Python's own exception."""


def decode_file(file: Path, decoder: msgspec.json.Decoder[_Content], at_most: int = MAX_BYTES) -> _Content | None:
    """Decode a JSON file. Returns None if it can't be read, is invalid, or is longer than `at_most` bytes."""
    try:
        return decoder.decode(read_file(file, at_most))
    except (OSError, *NOT_DECODED):
        return None
