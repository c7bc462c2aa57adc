"""Text files in the encodings that other programs write."""

from __future__ import annotations

import codecs
import csv
import errno
from pathlib import Path

import pytest
from PIL import Image

from engine.data.decoding.reading import (
    count_folder_channels,
    describe_failure,
    is_gray,
    parse_finite,
    read_text,
    read_text_lines,
    refuse_unusable,
)
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


def test_read_text_lines_strips_and_leaves_out_empty_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("  cat 1 \n\n \n\tdog")
    assert read_text_lines(tmp_path / "a.txt") == ["cat 1", "dog"]


@pytest.mark.parametrize(
    ("word", "number"), [("1.5", 1.5), ("-2e3", -2000), ("nan", None), ("-inf", None), ("x", None)]
)
def test_parse_finite_is_none_for_words_that_are_no_coordinates(word: str, number: float | None) -> None:
    assert parse_finite(word) == number


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnusableFile("a.png", "is a FIFO", ""), "is a FIFO"),
        (MemoryError(), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate"), "memory"),
        (OSError(errno.ELOOP, "Too many levels"), "leads back to itself"),
        (PermissionError(errno.EACCES, "no"), "permission denied"),
        (OSError("File is TRUNCATED"), "truncated or damaged"),
        (ValueError("odd\nmore"), "(odd)"),
        (ValueError(), "(ValueError)"),
    ],
)
def test_describe_failure_gives_the_cause(error: Exception, words: str) -> None:
    assert words in describe_failure(error)


def test_count_folder_channels_are_3_if_any_image_is_in_color(tmp_path: Path) -> None:
    for name, color in (("gray", (7, 7, 7, 0)), ("color", (7, 7, 8, 0))):
        image = Image.new("P", (2, 2))
        image.putpalette([*color, 9, 9, 9, 255], "RGBA")
        assert is_gray(image) == (name == "gray")
        image.save(tmp_path / f"{name}.png")
    gray, color, gone = (str(tmp_path / f"{name}.png") for name in ("gray", "color", "gone"))
    assert [count_folder_channels(*splits) for splits in ([[gray], [gone]], [[gone]], [[gray], [gray, color]])] == [
        1,
        3,
        3,
    ]


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
