"""Disk space that run folders take."""

from __future__ import annotations

import os
from pathlib import Path

from engine.runs.folder import RunFolder
from engine.runs.holding import FolderSize, measure_folder


def test_holding_measures_files_and_freed_space(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.checkpoints.mkdir(parents=True)
    (run.path / "job.toml").write_bytes(b"x" * 100)
    (run.checkpoints / "last.pt").write_bytes(os.urandom((1 << 20) + 1))  # not a multiple of the block size
    (run.checkpoints / "best.pt").write_bytes(os.urandom(1 << 20))
    size = measure_folder(run.path)
    assert (size.bytes, size.checkpoint_bytes) == (101 + (2 << 20), 1 + (2 << 20))
    assert size.freed_bytes >= 2 << 20
    os.link(run.checkpoints / "best.pt", tmp_path / "kept.pt")
    linked = measure_folder(run.path)
    assert linked.bytes == size.bytes
    assert size.freed_bytes - linked.freed_bytes >= 1 << 20
    assert measure_folder(tmp_path / "nothing") == FolderSize()
    assert size + linked == FolderSize(
        size.bytes + linked.bytes,
        size.checkpoint_bytes + linked.checkpoint_bytes,
        size.freed_bytes + linked.freed_bytes,
    )
