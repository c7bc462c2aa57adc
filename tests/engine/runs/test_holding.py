"""Disk space that run folders take."""

from __future__ import annotations

import os
from pathlib import Path

from engine.runs.folder import RunFolder
from engine.runs.holding import Holding, holding


def test_holding_measures_files_and_freed_space(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.checkpoints.mkdir(parents=True)
    (run.path / "job.toml").write_bytes(b"x" * 100)
    (run.checkpoints / "last.pt").write_bytes(os.urandom((1 << 20) + 1))  # not a multiple of the block size
    (run.checkpoints / "best.pt").write_bytes(os.urandom(1 << 20))
    held = holding(run.path)
    assert (held.bytes, held.checkpoint_bytes) == (101 + (2 << 20), 1 + (2 << 20))
    assert held.freed_bytes >= 2 << 20
    os.link(run.checkpoints / "best.pt", tmp_path / "kept.pt")
    linked = holding(run.path)
    assert linked.bytes == held.bytes
    assert held.freed_bytes - linked.freed_bytes >= 1 << 20
    assert holding(tmp_path / "nothing") == Holding()
    assert held + linked == Holding(
        held.bytes + linked.bytes,
        held.checkpoint_bytes + linked.checkpoint_bytes,
        held.freed_bytes + linked.freed_bytes,
    )
