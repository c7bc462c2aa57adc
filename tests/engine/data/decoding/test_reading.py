"""Text files in the encodings that other programs write."""

from __future__ import annotations

import codecs
import csv
import errno
import os
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.decoding.limits import MAX_PIXELS, Unfit
from engine.data.decoding.reading import (
    count_folder_channels,
    decode_header,
    describe_failure,
    is_gray,
    parse_finite,
    read_head,
    read_json,
    read_number,
    read_text,
    read_text_lines,
    refuse_unusable,
)
from engine.system.regular_files import UnusableFile

TEXT = "cat\nStraße\n"


def npy_header(height: int, width: int) -> bytes:
    """Return the header of a NumPy file with an image of bytes."""
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (height, width)})
    return stream.getvalue()


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
    ("text", "number"), [("1.5", 1.5), ("-2e3", -2000), ("nan", None), ("-inf", None), ("x", None)]
)
def test_parse_finite_is_none_for_words_that_are_no_coordinates(text: str, number: float | None) -> None:
    assert parse_finite(text) == number
    if number is None:
        with pytest.raises(Unfit, match=f"line 7 contains {text}, which is not a number"):
            read_number(text, 7)


def test_read_json_limits_the_size_and_explains_errors(tmp_path: Path) -> None:
    path = str(tmp_path / "a.json")
    for text, reason in (
        ("[12]", None),
        ("[1 2]", r"not valid JSON \(Expecting .* column 4"),
        ("[1,2]", "maximum is 4"),
    ):
        Path(path).write_text(text)
        if reason is None:
            assert read_json(path, 4) == [12]
            continue
        with pytest.raises(ValueError, match=reason):
            read_json(path, 4 if "maximum" in reason else 5)
    Path(path).write_text("9" * 5000)  # more digits than `int` accepts
    with pytest.raises(Unfit, match="not valid JSON"):
        read_json(path)


def test_read_head_is_empty_for_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.mkfifo(tmp_path / "fifo")
    assert [read_head(str(tmp_path / name), 2) for name in ("a", "gone", "fifo")] == [b"ab", b"", b""]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "PostScript"),
        (npy_header(3, MAX_PIXELS // 3 + 1), rf"too large \({MAX_PIXELS // 3 + 1:,} x 3 pixels\)"),
    ],
)
def test_decode_header_refuses_files_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        decode_header(content)


@pytest.mark.parametrize(
    ("error", "cause"),
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
def test_describe_failure_gives_the_cause(error: Exception, cause: str) -> None:
    assert cause in describe_failure(error)


def test_count_folder_channels_are_3_if_any_image_is_in_color(tmp_path: Path) -> None:
    for name, color in (("gray", (7, 7, 7, 0)), ("color", (7, 7, 8, 0))):
        image = Image.new("P", (2, 2))
        image.putpalette([*color, 9, 9, 9, 255], "RGBA")
        assert is_gray(image) == (name == "gray")
        image.save(tmp_path / f"{name}.png")
    gray, color, missing = (str(tmp_path / f"{name}.png") for name in ("gray", "color", "missing"))
    folders = ([[missing, gray], []], [[missing]], [[gray], [gray, color]])
    assert [count_folder_channels(*splits) for splits in folders] == [1, 3, 3]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "does not fit in memory"),
        (RecursionError(), "is nested too deeply"),
        (csv.Error("NUL"), "is not a readable table (NUL)"),
    ],
)
def test_parser_errors_make_a_file_unusable(error: Exception, reason: str) -> None:
    with pytest.raises(UnusableFile) as refused, refuse_unusable("a.csv"):
        raise error
    assert refused.value.reason == reason
    assert refused.value.path == "a.csv"
    with pytest.raises(ValueError, match="other"), refuse_unusable("a.csv"):
        raise ValueError("other")
