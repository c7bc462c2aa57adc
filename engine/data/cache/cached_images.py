"""Disk cache for the decoded images of a dataset at one size, shared between runs and between the workers of a run.

`pixels` is a memory-mapped file of rows, each uint8 [channels, size, size]. `index` has one record for each row: the
image's path, the size and modification time of its file, and a checksum. Rows are assigned under a lock. The first
process that decodes an image writes its row once: first the pixels, then the record. A crash, a concurrent run or a
changed image file can make a record invalid. The image is then decoded again and stored in another row. Torch-free.
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
    lock_cache_folder,
    lock_range,
    make_room,
    mark_in_use,
    remove,
)
from engine.data.cache.store import Store
from engine.data.decoding.idx import Bytes
from engine.data.splits import Labels, printable

RECORD = np.dtype([("path", "<u8"), ("file_bytes", "<i8"), ("mtime_ns", "<i8"), ("checksum", "<u4"), ("aspect", "<f4")])
"""Record for one row in the index.

`path` is a hash of the image's path relative to the dataset folder. `file_bytes` is 0 until the row is written.
`aspect` is the original image's aspect ratio (width / height).
"""

_MAX_INT64 = (1 << 63) - 1

FileVersion = tuple[int, int]
"""Size in bytes and modification time in nanoseconds of an image file, which change if the file changes."""


class CachedImages(Store):
    """Disk cache for the images `files`, all below `folder`. All methods except `close` are thread-safe.

    `companions` are additional files that the cached images depend on, such as masks. `cache_key` separates caches that
    use the same files in different ways. If writing fails, for example on a full disk, the cache calls `on_failure(reason)`
    once and stores no more images. Images that are already cached stay readable.

    Each image is stored in one row: its pixels in the pixel file, and a record in the index file. The record has the
    hash of the path, the size and modification time of the image file, a checksum and the aspect ratio.

    Raises CacheRefused if there is not enough space or no folder to write to.
    """

    def __init__(
        self,
        folder: str,
        files: Sequence[str],
        *,
        companions: Sequence[str] = (),
        cache_key: str = "",
        size: int,
        channels: int,
        version: int,
        on_failure: Callable[[str], None],
    ) -> None:
        self._files = files
        self._companions = companions
        self._shape = (channels, size, size)
        self._row_bytes = channels * size * size
        self._on_failure = on_failure
        self._has_failed = False
        self._extending = threading.Lock()  # held while rows are added
        self._prepared: dict[int, FileVersion] = {}  # versions of the images that `put` may store, by index
        self._path_hashes = _hash_paths(files, folder)
        folder = os.path.realpath(folder)
        identity = b"%s\0%d %d %d%s" % (os.fsencode(folder), size, channels, version, cache_key.encode())
        folder_hash = hashlib.blake2b(identity, digest_size=12)
        with lock_cache_folder() as root, ExitStack() as undo:
            self.folder = root / folder_hash.hexdigest()
            existing_rows = _read_records(self.folder / INDEX)["path"]
            # Rows of the same path belong to older versions of the file.
            are_most_outdated = len(existing_rows) > 2 * _count_distinct(existing_rows)
            if are_most_outdated and remove(self.folder):
                existing_rows = existing_rows[:0]
            # The row of each image, and the paths that need new rows.
            self._rows, new_paths = _assign_rows(existing_rows, self._path_hashes)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            # If one of the following steps fails, a new folder is removed and open files are closed.
            if not len(existing_rows):
                undo.callback(remove, self.folder)
            (self.folder / ABOUT).write_bytes(msgspec.json.encode(CacheInfo(printable(folder), size, channels)))
            self._index_file = _open(self.folder / INDEX, undo)
            self._pixels_file = _open(self.folder / PIXELS, undo)
            mark_in_use(self._index_file)
            os.utime(self._index_file)  # record the use, because the least recently used cache is evicted first
            if len(new_paths):
                make_room(len(new_paths) * (self._row_bytes + RECORD.itemsize))
            self._extend(len(existing_rows), new_paths)
            undo.pop_all()

    def close(self) -> None:
        """Close the cache's files, so that other processes can remove them."""
        del self._index, self._pixels  # the memory maps keep the files open, and thus the lock
        for descriptor in (self._index_file, self._pixels_file):
            os.close(descriptor)

    def prepare(self, sample: int) -> bool:
        """Return True if the image of a sample is cached and its file has not changed since it was decoded.

        Otherwise, prepare to store it: the size and modification time of the file are remembered for `put`. A sample
        whose file has changed gets another row. If the file is missing, or there is no space for another row, `put`
        will not store the image.
        """
        try:
            version = self._read_version(sample)
        except OSError:
            return False
        if self._is_valid(sample, version):
            return True
        if self._index[self._rows[sample]]["file_bytes"]:  # of another version of the file, or damaged
            if not self._assign_another_row(sample):
                return False
            if self._is_valid(sample, version):  # another process has stored the image
                return True
        self._prepared[sample] = version  # read before the image is, so that `prepare` detects a later change
        return False

    def put(self, sample: int, pixels: Bytes, aspect: float) -> bool:
        """Store an image, uint8 [C, s, s], and its aspect ratio after `prepare` returned False for it.

        Returns False if it could not be stored, or if another worker has stored an image from another version of the
        file.
        """
        version = self._prepared.pop(sample, None)
        if version is None or self._has_failed:
            return False
        row = int(self._rows[sample])
        existing = self._index[row]
        pixels = np.ascontiguousarray(pixels)
        checksum = self._compute_checksum(sample, version, pixels, np.float32(aspect))
        record = np.array((self._path_hashes[sample], *version, checksum, aspect), RECORD)
        try:
            with lock_range(self._pixels_file, row * self._row_bytes, self._row_bytes):
                if existing["file_bytes"]:  # another worker was faster
                    return bool((existing["file_bytes"], existing["mtime_ns"]) == version)
                _write(self._pixels_file, pixels.data.cast("B"), row * self._row_bytes)
                _write(self._index_file, record.tobytes(), row * RECORD.itemsize)
        except OSError as error:
            self._fail(error.strerror or str(error))
            return False
        return True

    def aspect(self, sample: int) -> float:
        return float(self._index[self._rows[sample]]["aspect"])

    def gather(self, samples: Labels, out: Bytes) -> None:
        """Copy the images of `samples` [n] to `out`, uint8 [n, C, s, s].

        For each of them, `prepare` or `put` must have returned True before.
        """
        rows = self._rows[samples]
        np.take(self._pixels, rows, axis=0, out=out, mode="clip")

    def _read_version(self, sample: int) -> FileVersion:
        """Return the size and modification time of a sample's image file. Raises OSError.

        If the image has a companion file, both values are combined with those of the companion.
        """
        image = os.stat(self._files[sample])
        if not self._companions:
            return image.st_size, image.st_mtime_ns
        companion = os.stat(self._companions[sample])
        # Without the shift, equal times would cancel out.
        return image.st_size + companion.st_size, image.st_mtime_ns ^ (companion.st_mtime_ns << 1) & _MAX_INT64

    def _is_valid(self, sample: int, version: FileVersion) -> bool:
        """Return True if a sample's row holds the intact image, decoded from this version of its file."""
        row = int(self._rows[sample])
        record = self._index[row]
        if (record["file_bytes"], record["mtime_ns"]) != version:
            return False
        return bool(record["checksum"] == self._compute_checksum(sample, version, self._pixels[row], record["aspect"]))

    def _compute_checksum(self, sample: int, version: FileVersion, pixels: Bytes, aspect: np.float32) -> int:
        """Return a checksum over the pixels of a sample, the hash of its path, its aspect ratio and its version."""
        facts = b"%d %d %d %a" % (self._path_hashes[sample], *version, float(aspect))
        return zlib.crc32(pixels.data, zlib.crc32(facts))

    def _assign_another_row(self, sample: int) -> bool:
        """Assign another row to a sample whose row is invalid. Returns False if there is no space for it.

        If another process has added a row for the sample in the meantime, that row is assigned, otherwise a new one.
        """
        with self._extending:
            try:
                with lock_cache_folder():
                    mapped_rows = len(self._index)
                    rows_in_file = os.fstat(self._index_file).st_size // RECORD.itemsize
                    # Paths in the rows that other processes have added.
                    added_paths = _map_file(self._index_file, RECORD, (rows_in_file,))[mapped_rows:]["path"]
                    matching = np.flatnonzero(added_paths == self._path_hashes[sample])
                    if len(matching):
                        row = mapped_rows + int(matching[-1])
                        self._map(rows_in_file)
                    else:
                        row = rows_in_file
                        make_room(self._row_bytes + RECORD.itemsize)
                        self._extend(row, self._path_hashes[sample : sample + 1])
            except CacheRefused as refused:
                self._fail(str(refused))
                return False
            self._rows[sample] = row
            return True

    def _extend(self, row_count: int, new_paths: npt.NDArray[np.uint64]) -> None:
        """Append empty rows for `new_paths`, the hashes of images' paths, to a set that has `row_count` rows.

        Maps all rows into memory. The caller holds the cache folder's lock.
        """
        records = np.zeros(len(new_paths), RECORD)
        records["path"] = new_paths
        # Pixels first: no record may refer to a missing row.
        os.ftruncate(self._pixels_file, (row_count + len(new_paths)) * self._row_bytes)
        _write(self._index_file, records.tobytes(), row_count * RECORD.itemsize)
        self._map(row_count + len(new_paths))

    def _map(self, rows: int) -> None:
        """Map the first `rows` rows of the index file and the pixel file into memory."""
        # Map by descriptor: the folder may have been deleted and recreated meanwhile.
        self._index = _map_file(self._index_file, RECORD, (rows,))
        self._pixels = _map_file(self._pixels_file, np.dtype(np.uint8), (rows, *self._shape))

    def _fail(self, reason: str) -> None:
        """Report the first write failure to `on_failure`. After that, no more images are stored."""
        if not self._has_failed:
            self._has_failed = True
            self._on_failure(reason)


def count_filled_rows(folder: Path) -> int:
    """Return the number of images that the disk cache in `folder` contains."""
    return int(np.count_nonzero(_read_records(folder / INDEX)["file_bytes"]))


def _hash_paths(files: Sequence[str], folder: str) -> npt.NDArray[np.uint64]:
    """Return a hash of each path relative to `folder`, [n]."""
    digests = bytearray()
    for path in files:
        below = os.fsencode(path[len(folder) :].lstrip(os.sep))
        digests += hashlib.blake2b(below, digest_size=8).digest()
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _read_records(index: Path) -> npt.NDArray[np.void]:
    """Return all complete records of an index file. A crash can leave an incomplete record at the end.

    Returns an empty array if the file does not exist.
    """
    try:
        return np.fromfile(index, RECORD)
    except FileNotFoundError:
        return np.empty(0, RECORD)


def _map_file(descriptor: int, item_type: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Map the beginning of the open file `descriptor` into memory as a read-only array with this type and shape."""
    length = math.prod(shape) * item_type.itemsize
    return np.frombuffer(mmap.mmap(descriptor, length, access=mmap.ACCESS_READ), item_type).reshape(shape)


def _count_distinct(values: npt.NDArray[np.uint64]) -> int:
    """Return the number of distinct values. For a million values, this takes a tenth of the time of `np.unique`."""
    return int(np.count_nonzero(np.diff(np.sort(values)))) + bool(len(values))


def _assign_rows(
    existing: npt.NDArray[np.uint64], requested: npt.NDArray[np.uint64]
) -> tuple[Labels, npt.NDArray[np.uint64]]:
    """Assign a row to each path in `requested`. All paths are given as hashes.

    `existing` holds the path of each existing row. If a path has several rows, the last one is assigned. Returns the
    rows, and the paths that have no row yet, which get new rows at the end in this order.
    """
    order = np.argsort(existing, kind="stable")
    # Position of the last path that is not greater than the requested one, or -1.
    positions = np.searchsorted(existing[order], requested, side="right") - 1
    has_row = positions >= 0
    has_row[has_row] = existing[order[positions[has_row]]] == requested[has_row]
    rows = np.empty(len(requested), np.int64)
    rows[has_row] = order[positions[has_row]]
    rows[~has_row] = len(existing) + np.arange(np.count_nonzero(~has_row))
    return rows, requested[~has_row]


def _open(path: Path, undo: ExitStack) -> int:
    """Open or create a file that only this user can access, and make `undo` close it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    undo.callback(os.close, descriptor)
    return descriptor


def _write(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    """Write `content` to the open file `descriptor` at `offset`.

    On a full disk this raises OSError, whereas writing to a memory map would kill the process with a signal.
    """
    if os.pwrite(descriptor, content, offset) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
