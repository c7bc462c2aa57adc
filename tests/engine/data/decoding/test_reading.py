"""Text files in the encodings that other programs write."""

from __future__ import annotations

import codecs
import csv
from pathlib import Path

import pytest

from engine.data.decoding.reading import read_text, refuse_unusable
from engine.system.regular_files import UnusableFile

TEXT = "cat\nStraße\n"


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode("utf-8"),
        TEXT.encode("utf-8-sig"),
        codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"),
    ],
    ids=["utf-8", "utf-8 with a mark", "utf-16-le", "utf-16-be", "utf-32-le"],
)
def test_read_text_decodes_by_the_byte_order_mark(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes(content)
    assert read_text(path) == TEXT


def test_read_text_keeps_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes(b"caf\xe9\n")
    assert read_text(path).encode("utf-8", "surrogateescape") == b"caf\xe9\n"


def test_read_text_survives_half_a_utf16_character(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes(codecs.BOM_UTF16_LE + "cat".encode("utf-16-le") + b"\x41")
    assert read_text(path).startswith("cat")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "does not fit in memory"),
        (RecursionError(), "is nested too deeply"),
        (csv.Error("NUL"), "is not a readable table (NUL)"),
    ],
)
def test_errors_of_parsers_make_a_file_unusable(error: Exception, words: str) -> None:
    with pytest.raises(UnusableFile) as refused, refuse_unusable("a.csv"):
        raise error
    assert refused.value.reason == words
    assert refused.value.path == "a.csv"
    with pytest.raises(ValueError, match="other"), refuse_unusable("a.csv"):
        raise ValueError("other")
