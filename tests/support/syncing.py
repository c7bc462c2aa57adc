"""Recorder of fsync calls."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, list[str]]]]:
    """Record every synced file or folder, with the visible entries of a folder at that time."""
    found: list[tuple[str, list[str]]] = []
    sync = os.fsync

    def note_and_sync(file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        held = [name for name in sorted(os.listdir(path)) if not name.startswith(".")] if os.path.isdir(path) else []
        found.append((path, held))
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", note_and_sync)
        yield found
