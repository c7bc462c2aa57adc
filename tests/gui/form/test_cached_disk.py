"""The disk as the form sees it: looked at on threads, and once more where it may have changed meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from engine.checks.disk import Kind, RealDisk
from gui.form import cached_disk
from gui.form.cached_disk import CachedDisk


def test_refresh_during_a_refresh_follows_it(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look under way saw the disk before the change, and nobody asks again after it."""
    seen, released = threading.Event(), threading.Event()
    real = RealDisk.kind

    def slow(disk: RealDisk, path: str) -> Kind:
        kind = real(disk, path)
        seen.set()
        assert released.wait(120)
        return kind

    monkeypatch.setattr(RealDisk, "kind", slow)
    monkeypatch.setattr(cached_disk, "GRACE_S", 0.02)
    path = tmp_path / "dataset"
    parent = QObject()
    disk = CachedDisk(parent)
    disk.kind(str(path))
    disk.refresh()
    assert seen.wait(120)
    path.mkdir()
    disk.start_pass()
    disk.kind(str(path))
    disk.refresh()
    released.set()
    qtbot.waitUntil(lambda: disk.kind(str(path)) == real(RealDisk(), str(path)))
