"""Checkpoint files: atomic writes, detection of damage, and retention of older files."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from engine.runs.folder import older_checkpoints
from engine.training.checkpointing.checkpoint_files import (
    CheckpointError,
    DamagedCheckpoint,
    copy_checkpoint,
    delete_older,
    name_older_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from tests.support.planting import FileCreator
from tests.support.syncing import record_syncs


def _content(epoch: int = 3) -> dict[str, Any]:
    return {"weights": torch.arange(3000.0), "epoch": epoch, "classes": ("cat", "dog")}


def _epoch(path: Path) -> int:
    content, _ = read_checkpoint(path)
    assert torch.equal(content["weights"], torch.arange(3000.0))
    return int(content["epoch"])


def test_checkpoint_is_a_zip_with_checksum_comment(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints/last.pt"
    written = write_checkpoint(_content(), path)
    assert written.bytes == path.stat().st_size
    assert [left.name for left in path.parent.iterdir()] == ["last.pt"]
    content, digest = read_checkpoint(path)
    assert content["classes"] == ("cat", "dog")
    assert torch.load(path, weights_only=True)["epoch"] == _epoch(path) == 3
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment == f"footplate sha256 {written.sha256}".encode()
    assert written.sha256 == digest
    as_torch_wrote_it = path.read_bytes()[: -len(archive.comment) - 2] + bytes(2)
    assert digest == hashlib.sha256(as_torch_wrote_it).hexdigest()


def test_read_checkpoint_detects_changed_and_missing_bytes(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    size = write_checkpoint(_content(), path).bytes
    content, places = path.read_bytes(), (*range(0, size - 100, 499), *range(size - 100, size))
    changed = (content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :] for place in places)
    truncated = (content[:left] for left in (size - 1, size - 81, size // 2, 90, 82, 1, 0))
    for damaged in (*changed, *truncated):
        path.write_bytes(damaged)
        with pytest.raises(DamagedCheckpoint, match="checksum is missing or does not match"):
            read_checkpoint(path)


def test_read_checkpoint_runs_no_code(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    write_checkpoint(_content() | {"best": FileCreator(planted)}, tmp_path / "last.pt")
    with pytest.raises(DamagedCheckpoint, match="it contains more than tensors and plain values"):
        read_checkpoint(tmp_path / "last.pt")
    assert not planted.exists()


def test_read_checkpoint_reports_errors_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(_content(), tmp_path / "last.pt")
    monkeypatch.setattr(torch, "load", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        read_checkpoint(tmp_path / "last.pt")


def test_write_checkpoint_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    write_checkpoint(_content(1), path, previous_name="epoch-0-step-0.pt")
    assert older_checkpoints(tmp_path) == {}
    write_checkpoint(_content(2), path, previous_name=name_older_checkpoint(1, 9))
    write_checkpoint(_content(3), path, previous_name=name_older_checkpoint(2, 100))
    write_checkpoint(_content(4), path)
    older = [*older_checkpoints(tmp_path).values()]
    assert [file.name for file in older] == ["epoch-1-step-9.pt", "epoch-2-step-100.pt"]
    assert [_epoch(file) for file in (path, *older)] == [4, 1, 2]


@pytest.mark.parametrize("was_interrupted", [False, True])
def test_write_checkpoint_without_a_new_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_interrupted: bool
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")  # the error that Linux reports for FAT

    path = tmp_path / "last.pt"
    write_checkpoint(_content(1), path)
    if was_interrupted:
        os.link(path, tmp_path / name_older_checkpoint(1, 9))
    else:
        monkeypatch.setattr(os, "link", refuse)
    write_checkpoint(_content(2), path, previous_name=name_older_checkpoint(1, 9))
    assert [_epoch(file) for file in (path, *older_checkpoints(tmp_path).values())] == [2, 1]


def test_write_checkpoint_failure_keeps_files(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    write_checkpoint(_content(1), path)
    (tmp_path / ".last.pt.part").mkdir()
    with pytest.raises(CheckpointError, match=r"last\.pt could not be saved in .*: Is a directory\."):
        write_checkpoint(_content(2), path, previous_name=name_older_checkpoint(1, 9))
    assert _epoch(path) == 1
    assert older_checkpoints(tmp_path) == {}


def test_drop_older_keeps_the_newest(tmp_path: Path) -> None:
    names = ["best.pt", "last.pt", "my-epoch-1-step-1.pt", "epoch-3-step-30.pt", "epoch-2-step-4.pt"]
    for name in (*names, "epoch-1-step-3.pt", "epoch-1-step-2.pt"):
        (tmp_path / name).touch()
    for kept in (5, 2):  # there are four
        delete_older(tmp_path, kept)
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    delete_older(tmp_path, 0)
    assert {path.name for path in tmp_path.iterdir()} == set(names[:3])


@pytest.mark.skipif(sys.platform != "linux", reason="files are named by /proc")
def test_write_checkpoint_syncs_file_then_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with record_syncs(monkeypatch) as names:
        write_checkpoint({"step": 1}, tmp_path / "last.pt")
    assert names == [(str(tmp_path / ".last.pt.part"), []), (str(tmp_path), ["last.pt"])]


@pytest.mark.parametrize("name", [".last.pt.part", "last.pt"])
def test_write_checkpoint_does_not_follow_links(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_bytes(b"mine")
    (tmp_path / name).symlink_to(tmp_path / "outside")
    write_checkpoint(_content(2), tmp_path / "last.pt")
    assert (_epoch(tmp_path / "last.pt"), (tmp_path / "outside").read_bytes()) == (2, b"mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.pt", "outside"]


def test_write_checkpoint_renames_a_folder_at_its_path(tmp_path: Path) -> None:
    (tmp_path / "last.pt").mkdir()
    (tmp_path / "last.pt/mine").touch()
    write_checkpoint(_content(2), tmp_path / "last.pt")
    assert _epoch(tmp_path / "last.pt") == 2
    assert [path.name for path in tmp_path.glob("last.pt.*.folder/*")] == ["mine"]


@pytest.mark.skipif(sys.platform != "linux", reason="files are named by /proc")
def test_copy_checkpoint_replaces_its_target_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "last.pt", tmp_path / "a/b/last.pt"
    write_checkpoint(_content(1), source)
    target.parent.mkdir(parents=True)
    for _ in range(2):
        (target.parent / ".last.pt.part").symlink_to(source)
        with record_syncs(monkeypatch) as names:
            copy_checkpoint(source, target)
        assert (names[-1], [*target.parent.iterdir()]) == ((str(target.parent), ["last.pt"]), [target])
    assert (_epoch(target), target.read_bytes()) == (1, source.read_bytes())


class FailsWithSystemError:
    """Object whose pickling fails with an error whose `__context__` is the system error `number`."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        try:
            raise OSError(self.number, os.strerror(self.number))
        except OSError:
            raise RuntimeError("unexpected position") from None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_write_checkpoint_reports_a_hidden_full_disk(tmp_path: Path, number: int) -> None:
    with pytest.raises(CheckpointError, match=r"the disk \(or the quota\) of .* is full"):
        write_checkpoint({"weights": FailsWithSystemError(number)}, tmp_path / "last.pt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux maps checkpoints")
def test_tensors_are_mapped_from_the_file(tmp_path: Path) -> None:
    """Check that tensors are memory-mapped, so that ranks share pages and read only their shards."""
    path = tmp_path / "last.pt"
    write_checkpoint({"model": torch.arange(1000.0)}, path)
    content, _ = read_checkpoint(path)
    assert str(path) in Path("/proc/self/maps").read_text()
    assert torch.equal(content["model"], torch.arange(1000.0))
    write_checkpoint({"model": torch.zeros(1000)}, path)
    assert torch.equal(content["model"], torch.arange(1000.0))


def test_compressed_checkpoint_is_refused(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 20))
    comment = f"footplate sha256 {hashlib.sha256(packed.getvalue()).hexdigest()}".encode()
    path = tmp_path / "last.pt"
    path.write_bytes(packed.getvalue()[:-2] + len(comment).to_bytes(2, "little") + comment)
    with pytest.raises(DamagedCheckpoint, match="compressed"):
        read_checkpoint(path)
