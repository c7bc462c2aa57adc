"""Reading of files with size limits."""

from __future__ import annotations

import errno
import io
import os
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from engine.system import cache_limit
from engine.system.cache_limit import limit_bytes, limit_file
from engine.system.decode_errors import decode_file
from engine.system.files import (
    MAX_DAMAGED_BYTES,
    MAX_LINE_BYTES,
    iterate_complete_lines,
    open_file,
    read_end,
    read_file,
)
from engine.system.regular_files import UnusableFile, open_regular, read_regular

ANY, NUMBERS = msgspec.json.Decoder(), msgspec.json.Decoder(list[int])


def test_files_are_read_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    file.write_bytes(b"[1, 2, 3]")
    assert read_file(file, 9) == read_regular(file, 9) == read_end(file, 99) == b"[1, 2, 3]"
    assert decode_file(file, NUMBERS, 9) == [1, 2, 3]
    assert read_end(file, 2) == b"3]"
    with pytest.raises(OSError, match="it has 9 bytes; the maximum is 8") as raised:
        read_file(file, 8)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(file))
    with pytest.raises(UnusableFile, match="it has 9 bytes; the maximum is 8") as refused:
        read_regular(file, 8)
    assert (refused.value.path, refused.value.remedy) == (str(file), "Make it smaller.")
    assert decode_file(file, NUMBERS, 8) is None


@pytest.mark.parametrize(
    ("content", "decoder"), [(b"{", ANY), (b'"\xff"', ANY), (b"[" * 100_000, ANY), (b'["a"]', NUMBERS)]
)
def test_damaged_files_are_not_decoded(tmp_path: Path, content: bytes, decoder: msgspec.json.Decoder[object]) -> None:
    (tmp_path / "file").write_bytes(content)
    assert decode_file(tmp_path / "file", decoder) is decode_file(tmp_path / "missing", decoder) is None


def test_lines_are_complete() -> None:
    long = b"x" * (MAX_LINE_BYTES + 5) + b"\n"
    lines = list(iterate_complete_lines(io.BytesIO(b"a\n\n" + long + b"b\nincomplete")))
    assert lines[:2] == [b"a\n", b"\n"]
    assert (b"".join(lines[2:-1]), lines[-1]) == (long, b"b\n")
    assert list(iterate_complete_lines(io.BytesIO(b"a\n" + b"x" * MAX_DAMAGED_BYTES + b"\nb\n"))) == [b"a\n"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_other_kinds_of_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path, reason in (("pipe", "is a FIFO"), ("socket", "is a socket"), (os.devnull, "is a device")):
            with pytest.raises(UnusableFile, match=f"it {reason}, not a regular file"):
                open_regular(path)
            with pytest.raises(OSError, match=f"it {reason}, not a regular file"):
                open_file(path)
    assert read_regular("/proc/version", 1000) == b"", "files without a size may be endless"
    with open_file("/proc/version") as stream:  # a log may still be empty
        assert stream.read(5) == b"Linux"


def test_cache_limit_is_that_of_variable_file_or_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache_limit.LIMIT_VARIABLE, raising=False)
    default = limit_bytes()
    assert 0 < default <= cache_limit.DEFAULT_LIMIT_BYTES
    limit_file().parent.mkdir(parents=True)
    for content, expected in (("7000", 7000), ("many", default)):
        limit_file().write_text(content)
        assert limit_bytes() == expected
    monkeypatch.setenv(cache_limit.LIMIT_VARIABLE, "0.5")
    assert limit_bytes() == 1 << 29
    for text in ("many", "", "inf"):
        monkeypatch.setenv(cache_limit.LIMIT_VARIABLE, text)
        with pytest.raises(ValueError, match=f"FOOTPLATE_CACHE_LIMIT_GIB is “{text}”, not a number of GiB"):
            limit_bytes()
