"""File locks, which the kernel releases when a process ends in any way.

Linux and macOS use flock(2). A forked child shares its parent's lock until it closes the file or exits. Windows uses
`msvcrt.locking` on a byte far beyond the content, which has not been tested.
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

LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
"""Numbers of the errors that locking raises on file systems without locks.

Examples are NFS without its lock service and some FUSE file systems.
"""

_LOCKED_ERRORS = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_BYTE = 1 << 30
"""Position of the locked byte on Windows, after the content, which other processes can then still read."""
_POLL_S = 0.002


def open_file(path: Path, flags: int = 0) -> int:
    """Open the file at `path` for reading, writing and locking, and return its descriptor. Raises OSError.

    Links aren't followed, and opening a pipe doesn't block. `flags` are additional flags of `os.open`. With
    `os.O_CREAT`, a missing file is created so that only this user can access it.
    """
    return os.open(path, _FLAGS | flags, 0o600)


def try_lock(descriptor: int) -> bool:
    """Try to lock a file. Return False if another process has locked it. Raises OSError (see `LOCKS_UNSUPPORTED`)."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, _BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED_ERRORS:
            return False
        raise
    return True


def unlock(descriptor: int) -> None:
    """Unlock a file and close it, even if another process has a copy of the descriptor."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, _BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def is_same_file(descriptor: int, path: Path) -> bool:
    """Return True if `path` refers to the file with this descriptor."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


@contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Context manager that holds a lock on the file at `path`. The file is created if it is missing.

    Raises OSError, and TimeoutError if another process keeps the lock for `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while (descriptor := lock_file(path)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} has been locked for {timeout_s:g} s")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        unlock(descriptor)


def lock_file(path: Path) -> int | None:
    """Lock the file at `path` and return its descriptor. The file is created if it is missing. Raises OSError.

    Returns None if another process has locked it, or if it was removed in the meantime.
    """
    descriptor = open_file(path, os.O_CREAT)
    try:
        if try_lock(descriptor) and is_same_file(descriptor, path):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
