"""Decoded images of one dataset at one size on disk, shared by runs and by the workers of a run.

`pixels` is a file of rows, uint8 [channels, size, size] each, that readers map; `index` has a record for each row:
whose image it is, of which state of its file, and a checksum. An image gets its row under a lock; a row is written by
whoever decodes its image first, pixels before record, and never again. So neither a crash, nor another run at the
same time, nor a file that has changed can make anybody take what is not whole and current: what record, file and
checksum do not agree on is decoded again, into another row. Torch-free.
"""

from __future__ import annotations

import errno
import hashlib
import math
import mmap
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from engine.data.cache.cache_space import (
    ABOUT,
    INDEX,
    PIXELS,
    CacheInfo,
    CacheRefused,
    alone,
    hold,
    locked,
    make_room,
    remove,
)
from engine.data.cache.store import Store
from engine.data.decoding.idx import Bytes
from engine.data.splits import Labels, printable

RECORD = np.dtype([("path", "<u8"), ("file_bytes", "<i8"), ("mtime_ns", "<i8"), ("checksum", "<u4"), ("aspect", "<f4")])
"""`path` is a hash of the path below the dataset's folder; `file_bytes` is 0 as long as the row is not written; `aspect` is
the width over height of the original image."""

_POSITIVE = (1 << 63) - 1


class CachedImages(Store):
    """The cache of the images `files`, all below `folder`; from any thread, but for `close`. A second file `beside`
    each may also go into what is cached; `kind` separates what is made of the same files in other ways.

    `on_failure(reason)` is called once, when nothing more can be written; what is there can still be read.
    Raises CacheRefused where there is no room, or no folder to write to.
    """

    def __init__(
        self,
        folder: str,
        files: Sequence[str],
        *,
        beside: Sequence[str] = (),
        kind: str = "",
        size: int,
        channels: int,
        version: int,
        on_failure: Callable[[str], None],
    ) -> None:
        self._files = files
        self._beside = beside
        self._shape = (channels, size, size)
        self._row_bytes = channels * size * size
        self._on_failure = on_failure
        self._failed = False
        self._extending = threading.Lock()
        self._states: dict[int, tuple[int, int]] = {}
        self._paths = _hashes(files, folder)
        folder = os.path.realpath(folder)
        what = b"%s\0%d %d %d%s" % (os.fsencode(folder), size, channels, version, kind.encode())
        key = hashlib.blake2b(what, digest_size=12)
        with locked() as root, ExitStack() as undo:
            self.folder = root / key.hexdigest()
            known = _records(self.folder / INDEX)["path"]
            if len(known) > 2 * _distinct(known) and remove(self.folder):
                known = known[:0]  # most rows were of files as they no longer are
            self._rows, new = _assign(known, self._paths)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            if not len(known):
                undo.callback(remove, self.folder)
            (self.folder / ABOUT).write_bytes(msgspec.json.encode(CacheInfo(printable(folder), size, channels)))
            self._index_file = _open(self.folder / INDEX, undo)
            self._pixels_file = _open(self.folder / PIXELS, undo)
            hold(self._index_file)
            os.utime(self._index_file)
            if len(new):
                make_room(len(new) * (self._row_bytes + RECORD.itemsize))
            self._extend(len(known), new)
            undo.pop_all()

    def close(self) -> None:
        """Lets others remove the set."""
        del self._index, self._pixels  # whose maps hold the files, and so the lock, as well
        for descriptor in (self._index_file, self._pixels_file):
            os.close(descriptor)

    def find(self, sample: int) -> bool:
        """Whether the sample's image is there, whole, and of its file as it is now."""
        try:
            state = self._state_of(sample)
        except OSError:
            return False
        self._states[sample] = state  # of before the file is read: one that changes meanwhile is found out next time
        if self._is_whole(sample, state):
            return True
        if self._index[self._rows[sample]]["file_bytes"]:
            self._take_another_row(sample)
            return self._is_whole(sample, state)
        return False

    def put(self, sample: int, pixels: Bytes, aspect: float) -> bool:
        """Store an image that `find` has not found, uint8 [C, s, s]. Return False if that failed."""
        state = self._states.pop(sample, None)
        if state is None or self._failed:
            return False
        row = int(self._rows[sample])
        there = self._index[row]
        pixels = np.ascontiguousarray(pixels)
        checksum = self._checksum(sample, state, pixels, np.float32(aspect))
        record = np.array((self._paths[sample], *state, checksum, aspect), RECORD)
        try:
            with alone(self._pixels_file, row * self._row_bytes, self._row_bytes):
                if there["file_bytes"]:  # another worker was quicker, maybe with the file as it was before or is now
                    return bool((there["file_bytes"], there["mtime_ns"]) == state)
                _write(self._pixels_file, pixels.data.cast("B"), row * self._row_bytes)
                _write(self._index_file, record.tobytes(), row * RECORD.itemsize)
        except OSError as error:
            self._fail(error.strerror or str(error))
            return False
        return True

    def aspect(self, sample: int) -> float:
        return float(self._index[self._rows[sample]]["aspect"])

    def gather(self, samples: Labels, out: Bytes) -> None:
        """Copies images that `find` has found or `put` has kept to `out`, uint8 [n, C, s, s]."""
        rows = self._rows[samples]
        np.take(self._pixels, rows, axis=0, out=out, mode="clip")

    def _state_of(self, sample: int) -> tuple[int, int]:
        """The bytes of an image's file and when it was changed; of two files together, what changes with either."""
        info = os.stat(self._files[sample])
        if not self._beside:
            return info.st_size, info.st_mtime_ns
        second = os.stat(self._beside[sample])
        return info.st_size + second.st_size, info.st_mtime_ns ^ (second.st_mtime_ns << 1) & _POSITIVE

    def _is_whole(self, sample: int, state: tuple[int, int]) -> bool:
        row = int(self._rows[sample])
        record = self._index[row]
        if (record["file_bytes"], record["mtime_ns"]) != state:
            return False
        return bool(record["checksum"] == self._checksum(sample, state, self._pixels[row], record["aspect"]))

    def _checksum(self, sample: int, state: tuple[int, int], pixels: Bytes, aspect: np.float32) -> int:
        return zlib.crc32(pixels.data, zlib.crc32(b"%d %d %d %a" % (self._paths[sample], *state, float(aspect))))

    def _take_another_row(self, sample: int) -> None:
        """Gives a sample whose row is not to be trusted another one: one that somebody else took for it, or a new
        one.
        """
        with self._extending:
            try:
                with locked():
                    known = len(self._index)
                    rows = os.fstat(self._index_file).st_size // RECORD.itemsize
                    later = _mapped(self._index_file, RECORD, (rows,))[known:]["path"]
                    own = np.flatnonzero(later == self._paths[sample])
                    if len(own):
                        row = known + int(own[-1])
                        self._map(known + len(later))
                    else:
                        row = known + len(later)
                        make_room(self._row_bytes + RECORD.itemsize)
                        self._extend(row, self._paths[sample : sample + 1])
            except CacheRefused as refused:
                self._states.pop(sample, None)
                self._fail(str(refused))
            else:
                self._rows[sample] = row

    def _extend(self, known: int, new: npt.NDArray[np.uint64]) -> None:
        """Appends rows for the paths `new` to the `known` ones; the folder's lock is held."""
        records = np.zeros(len(new), RECORD)
        records["path"] = new
        # The pixels first: a record never stands for a row that is not there.
        os.ftruncate(self._pixels_file, (known + len(new)) * self._row_bytes)
        _write(self._index_file, records.tobytes(), known * RECORD.itemsize)
        self._map(known + len(new))

    def _map(self, rows: int) -> None:
        # By descriptor: somebody may have cleared the folder by hand, and another run may have made it anew.
        self._index = _mapped(self._index_file, RECORD, (rows,))
        self._pixels = _mapped(self._pixels_file, np.dtype(np.uint8), (rows, *self._shape))

    def _fail(self, reason: str) -> None:
        if not self._failed:
            self._failed = True
            self._on_failure(reason)


def filled_rows(folder: Path) -> int:
    """How many images the set in `folder` holds."""
    return int(np.count_nonzero(_records(folder / INDEX)["file_bytes"]))


def _hashes(files: Sequence[str], folder: str) -> npt.NDArray[np.uint64]:
    digests = bytearray()
    for path in files:
        below = os.fsencode(path[len(folder) :].lstrip(os.sep))
        digests += hashlib.blake2b(below, digest_size=8).digest()
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _records(index: Path) -> npt.NDArray[np.void]:
    """All records; what a crash has left of one at the end is passed over."""
    try:
        return np.fromfile(index, RECORD)
    except FileNotFoundError:
        return np.empty(0, RECORD)


def _mapped(descriptor: int, kind: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    length = math.prod(shape) * kind.itemsize
    return np.frombuffer(mmap.mmap(descriptor, length, access=mmap.ACCESS_READ), kind).reshape(shape)


def _distinct(values: npt.NDArray[np.uint64]) -> int:
    """How many different ones there are; on a million, a tenth of the time that np.unique takes."""
    return int(np.count_nonzero(np.diff(np.sort(values)))) + bool(len(values))


def _assign(known: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> tuple[Labels, npt.NDArray[np.uint64]]:
    """The latest row of each path wanted, and the paths that get a new row, in order, behind the known ones."""
    order = np.argsort(known, kind="stable")
    position = np.searchsorted(known[order], wanted, side="right") - 1
    found = position >= 0
    found[found] = known[order[position[found]]] == wanted[found]
    rows = np.empty(len(wanted), np.int64)
    rows[found] = order[position[found]]
    rows[~found] = len(known) + np.arange(np.count_nonzero(~found))
    return rows, wanted[~found]


def _open(path: Path, undo: ExitStack) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    undo.callback(os.close, descriptor)
    return descriptor


def _write(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    """Not through a map, where a full disk is a signal that ends the process."""
    if os.pwrite(descriptor, content, offset) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
