"""Archives that unpack to much more data than they contain. They must be rejected."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest
import torch

from engine.models.base import TaskError
from engine.models.weights import read_file
from engine.system.archives import PackedArchiveError, refuse_packed


def make_compressed(content: bytes) -> bytes:
    """Return an archive with a small stored member, and a compressed member with `content`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("archive/version", b"3")
        archive.writestr("archive/data.pkl", content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def make_oversized(content: bytes) -> bytes:
    """Return an archive of two members, each of which claims two thirds of the archive's size in the directory."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("archive/version", b"3")
        archive.writestr("archive/data.pkl", content)
    data = bytearray(packed.getvalue())
    claimed = struct.pack("<I", len(data) * 2 // 3) * 2
    for entry in (data.index(b"PK\x01\x02"), data.rindex(b"PK\x01\x02")):
        data[entry + 20 : entry + 28] = claimed
    return bytes(data)


@pytest.mark.parametrize(
    ("make", "reason"), [(make_compressed, "it is compressed"), (make_oversized, "larger than the file")]
)
def test_packed_weights_are_refused(tmp_path: Path, make: object, reason: str) -> None:
    file = tmp_path / "weights.pt"
    file.write_bytes(make(bytes(1 << 20)))  # type: ignore[operator]
    with file.open("rb") as stream, pytest.raises(PackedArchiveError, match=reason):
        refuse_packed(stream)
    with pytest.raises(TaskError, match="can't be read as weights"):
        read_file(str(file))


def test_saved_state_passes() -> None:
    stream = io.BytesIO()
    torch.save({"weight": torch.zeros(1000)}, stream)
    refuse_packed(stream)
    assert stream.tell() == 0
    stream.truncate(1000)
    with pytest.raises(RuntimeError, match="the archive is incomplete"):
        refuse_packed(stream)
    refuse_packed(io.BytesIO(b"\x80\x02."))  # not an archive
