"""Locks on files, which the kernel takes back from a process that ends, however it ends.

They are those of flock(2) on Linux and macOS: a forked child shares its parent's until it closes the file or ends. On
Windows a byte far behind the content is locked by `msvcrt.locking`, which has not been tried there.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

NOT_OFFERED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of locking a file on a file system without locks (NFS without its lock service, some FUSE file systems)."""

_TAKEN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_BYTE = 1 << 30
_POLL_S = 0.002


def open_file(path: Path, flags: int = 0) -> int:
    """A descriptor to lock, of a file for the user alone; no link is followed, and no pipe waited for. Raises
    OSError.
    """
    return os.open(path, _FLAGS | flags, 0o600)


def take(descriptor: int) -> bool:
    """Locks the file; False where somebody else has it locked. Raises OSError (see `NOT_OFFERED`)."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, _BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def give_back(descriptor: int) -> None:
    """Unlocks the file and closes it, whoever else may have a copy of the descriptor."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, _BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether `path` leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


@contextmanager
def locked(path: Path, patience_s: float) -> Iterator[None]:
    """Has the lock of the file at `path`, which is made if missing. Raises TimeoutError after `patience_s`, OSError."""
    deadline = time.monotonic() + patience_s
    while (descriptor := _taken(path)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} has been locked for {patience_s:g} s")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        give_back(descriptor)


def _taken(path: Path) -> int | None:
    """The locked file at `path`; None where somebody else has it, or it was removed between the two looks."""
    descriptor = open_file(path, os.O_CREAT)
    try:
        if take(descriptor) and is_at(descriptor, path):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
