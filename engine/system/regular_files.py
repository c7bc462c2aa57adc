"""Opens regular files and nothing else: whoever opens a FIFO waits for ever, and a device may never end."""

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
_MOST_PATH_BYTES = 1 << 13
"""Above PATH_MAX of Linux."""


class LastOpened:
    """The file that was opened last, by this process or by one that it has forked: whoever is ended by a decoder
    cannot say any more what it was reading. Notes nothing until it is `shared`.
    """

    def __init__(self) -> None:
        self._shared: mmap.mmap | None = None

    def share(self) -> None:
        """From now on, and in what is forked from now on, each file is noted; none is as yet."""
        self._shared = mmap.mmap(-1, _MOST_PATH_BYTES)

    def note(self, path: str | os.PathLike[str]) -> None:
        if self._shared is not None:
            written = os.fsencode(path)[: _MOST_PATH_BYTES - 1] + b"\0"
            self._shared[: len(written)] = written

    def path(self) -> str:
        """ "" where none has been opened."""
        return os.fsdecode(self._shared[:].partition(b"\0")[0]) if self._shared is not None else ""


LAST_OPENED = LastOpened()


class UnusableFile(ValueError):  # noqa: N818 - it describes the file
    """The file at `path` is not to be read. `words` say why behind its name, as in "is a FIFO, not a regular file";
    the text itself begins with "it".
    """

    def __init__(self, path: str | os.PathLike[str], words: str, remedy: str = REPLACE) -> None:
        super().__init__(f"it {words}")
        self.path = os.fspath(path)
        self.words = words
        self.remedy = remedy


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """The file at `path`, opened to be read. Raises UnusableFile for what is no regular file, and OSError.

    What was opened is what is looked at, so that nobody can put another file in its place between the two.
    """
    return open(path, "rb", opener=open_descriptor)


def read_regular(path: str | os.PathLike[str], at_most: int) -> bytes:
    """A file's whole content, as long as the file says that it is. Raises UnusableFile also for one of more than
    `at_most` bytes, and OSError.
    """
    with open(path, "rb", buffering=0, opener=open_descriptor) as stream:
        length = os.fstat(stream.fileno()).st_size
        if length > at_most:
            raise UnusableFile(path, f"has {length:,} bytes; the maximum is {at_most:,}", "Make it smaller.")
        return stream.read(length) or b""


def kind_of(mode: int) -> str:
    """What a file that is not regular is, by the mode that stat gives."""
    return _KINDS.get(stat.S_IFMT(mode), "a file of an unknown kind")


def open_descriptor(path: str | os.PathLike[str], flags: int = _READ) -> int:
    """The same as the system has it; a folder is opened, too, as Python by itself refuses to. What says that it is
    empty is so: a file of /proc or /sys may say it and go on for ever, or wait for news (proc(5): kmsg, pagemap).
    """
    LAST_OPENED.note(path)
    try:
        descriptor = os.open(path, flags | _NONBLOCK)
    except OSError as error:
        if error.errno == ENXIO:  # sockets, and devices that nothing serves
            raise UnusableFile(path, f"is {kind_of(os.stat(path).st_mode)}, not a regular file") from None
        if error.errno == EAGAIN:  # fcntl(2), “Leases”: opening it in the usual way would wait for up to 45 s
            raise UnusableFile(path, "is in use by another program", "Wait for that program, or close it.") from None
        raise
    info = os.fstat(descriptor)
    if stat.S_ISDIR(info.st_mode) or (stat.S_ISREG(info.st_mode) and info.st_size):
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(info.st_mode):
        return os.open(os.devnull, flags)
    raise UnusableFile(path, f"is {kind_of(info.st_mode)}, not a regular file")
