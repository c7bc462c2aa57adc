"""Locks on files, which one process at a time can hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.system import file_locks
from engine.system.file_locks import is_same_file, lock_file, locked, try_lock, unlock


@pytest.mark.skipif(sys.platform == "win32", reason="child processes inherit no descriptors")
def test_unlock_applies_to_copies_of_the_descriptor(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    descriptor = lock_file(file)
    assert descriptor is not None
    with subprocess.Popen(["sleep", "60"], pass_fds=[descriptor]) as child:
        try:
            with pytest.raises(TimeoutError), locked(file, 0.0):
                pass
            unlock(descriptor)
            with locked(file, 5.0):
                assert lock_file(file) is None
        finally:
            child.kill()


def test_file_that_is_removed_before_it_is_locked_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lock"

    def remove_and_lock(descriptor: int) -> bool:
        file.unlink()
        return try_lock(descriptor)

    monkeypatch.setattr(file_locks, "try_lock", remove_and_lock)
    assert lock_file(file) is None


def test_removed_file_is_another_file(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    descriptor = lock_file(file)
    assert descriptor is not None
    assert is_same_file(descriptor, file)
    file.unlink()
    assert not is_same_file(descriptor, file)
    file.touch()
    assert not is_same_file(descriptor, file)
    unlock(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_locked_ends_with_an_exception(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with pytest.raises(KeyError), locked(file, 0.0):
        raise KeyError
    with locked(file, 0.0):
        file.unlink()
        with locked(file, 0.0):  # another file by now
            assert file.exists()
