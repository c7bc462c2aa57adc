"""Recorder of fsync calls."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def record_syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, list[str]]]]:
    """Record each call of fsync in the block: the path of the file or folder, and the folder's entries at that time.

    Files have no entries. Entries whose names start with a dot are left out.
    """
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
