"""Opening of files only if they are regular. Opening a FIFO may block forever, and reading a device may never end."""

from __future__ import annotations

import mmap
import os
import stat
from errno import EAGAIN, ENXIO
from io import BufferedReader

_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
REPLACE = "Replace it with a regular file, or remove it."
_MAX_PATH_BYTES = 1 << 13
"""Maximum length of a recorded path in bytes. It is more than PATH_MAX on Linux."""


class LastOpened:
    """Record of the path of the file that this process or a forked child has opened last.

    It shows which file made a decoder crash the process. Nothing is recorded until `share` is called.
    """

    def __init__(self) -> None:
        self._shared: mmap.mmap | None = None

    def share(self) -> None:
        """Record paths from now on, in memory shared with the processes that this process forks later."""
        self._shared = mmap.mmap(-1, _MAX_PATH_BYTES)

    def record(self, path: str | os.PathLike[str]) -> None:
        """Record that `path` is about to be opened. Does nothing before `share` is called."""
        if self._shared is not None:
            written = os.fsencode(path)[: _MAX_PATH_BYTES - 1] + b"\0"
            self._shared[: len(written)] = written

    def path(self) -> str:
        """Return the path of the file that was opened last, or "" if there is none."""
        return os.fsdecode(self._shared[:].partition(b"\0")[0]) if self._shared is not None else ""


LAST_OPENED = LastOpened()


class UnusableFile(ValueError):  # noqa: N818 - it describes the file
    """Raised when the file at `path` must not be read.

    `reason` follows the file's name, as in "is a FIFO, not a regular file". The message starts with "it" instead of the
    name.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str, remedy: str = REPLACE) -> None:
        super().__init__(f"it {reason}")
        self.path = os.fspath(path)
        self.reason = reason
        self.remedy = remedy


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open the regular file at `path` for reading. Raises UnusableFile and OSError.

    The check uses the opened file, so that nobody can replace it between the check and its use.
    """
    return open(path, "rb", opener=open_descriptor)


def read_regular(path: str | os.PathLike[str], at_most: int) -> bytes:
    """Read a regular file up to the size that it reports.

    Raises OSError and UnusableFile. The latter is also raised for a file with more than `at_most` bytes.
    """
    with open(path, "rb", buffering=0, opener=open_descriptor) as stream:
        length = os.fstat(stream.fileno()).st_size
        if length > at_most:
            raise UnusableFile(path, f"has {length:,} bytes; the maximum is {at_most:,}", "Make it smaller.")
        return stream.read(length) or b""


def describe_type(mode: int) -> str:
    """Describe the type of a file that is not regular, given its mode, as in "a FIFO" or "a device"."""
    return _KINDS.get(stat.S_IFMT(mode), "a file of an unknown kind")


def open_descriptor(path: str | os.PathLike[str], flags: int = _READ, *, may_grow: bool = False) -> int:
    """Open a regular file or a folder, and return its file descriptor. Raises UnusableFile and OSError.

    For a file with a reported size of 0, /dev/null is opened instead, since files in /proc and /sys may be endless or
    block (proc(5): kmsg, pagemap). If `may_grow` is True, the file itself is opened, and the caller must limit how much
    it reads. `flags` are those of `os.open`.
    """
    LAST_OPENED.record(path)
    try:
        descriptor = os.open(path, flags | _NONBLOCK)
    except OSError as error:
        if error.errno == ENXIO:  # a socket, or a device without a driver
            raise UnusableFile(path, f"is {describe_type(os.stat(path).st_mode)}, not a regular file") from None
        if error.errno == EAGAIN:  # fcntl(2), “Leases”: opening it normally would wait for up to 45 s
            raise UnusableFile(path, "is in use by another program", "Wait for that program, or close it.") from None
        raise
    info = os.fstat(descriptor)
    if stat.S_ISDIR(info.st_mode) or (stat.S_ISREG(info.st_mode) and (info.st_size or may_grow)):
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(info.st_mode):
        return os.open(os.devnull, flags)
    raise UnusableFile(path, f"is {describe_type(info.st_mode)}, not a regular file")
