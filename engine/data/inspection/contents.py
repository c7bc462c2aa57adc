"""Find files with identical content. Torch-free.

Files are first compared by size, then by their first and last bytes, and only then by all of their bytes. Therefore,
only few files in a folder of a hundred thousand photographs have to be read. Images that were saved again, or cropped
from the same photograph, are not identical.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from engine.data.splits import Labels
from engine.system.regular_files import UnusableFile, open_descriptor

END_BYTES = 4096
"""Number of bytes at the beginning and end of a file that are compared first.

Most files differ there, and a disk reads this many bytes at once.
"""
BLOCK_BYTES = 1 << 20
MAX_BYTES = 1 << 30
"""Maximum size in bytes of files that are compared, since larger files would take seconds."""


class Contents:
    """Search for identical files that reads each file at most once, and most files not at all."""

    def __init__(self) -> None:
        self._digests: dict[tuple[Callable[[str], bytes], str], bytes] = {}  # by hash function and path
        self._sizes: list[tuple[Sequence[str], Labels]] = []  # listings, and the sizes of their files in bytes

    def find_equal(self, listings: Sequence[Sequence[str]], groups: Labels) -> list[list[int]]:
        """Return lists of indices of identical files. Each list contains files from at least two `groups`, int64 [n].

        The files are numbered from 0 across all `listings` of paths. Empty, too large or unreadable files are left out.
        """
        sizes = np.concatenate([np.zeros(0, np.int64), *map(self._read_sizes, listings)])
        candidates = np.flatnonzero(_occurs_in_several(sizes, groups)).tolist()
        equal_files = _group_by_key({index: int(sizes[index]) for index in candidates}, groups)
        for hash_file in (hash_ends, hash_content):  # reads all of a file only if its ends are equal
            digests: dict[int, Hashable] = {}
            for index in sorted(index for indices in equal_files for index in indices):
                listing, row = locate_file(listings, index)
                digest = self._compute_hash(hash_file, listings[listing][row])
                if digest is not None:
                    digests[index] = digest
            equal_files = _group_by_key(digests, groups)
        return equal_files

    def _read_sizes(self, listing: Sequence[str]) -> Labels:
        """Return the size in bytes of each file in a listing, int64 [n], from the cache if possible.

        The size is 0 for files that can't be compared.
        """
        for read_listing, sizes in self._sizes:
            if read_listing is listing:
                return sizes
        sizes = np.fromiter(map(_read_size, listing), np.int64, len(listing))
        self._sizes.append((listing, sizes))
        return sizes

    def _compute_hash(self, hash_file: Callable[[str], bytes], path: str) -> bytes | None:
        """Return `hash_file(path)`, from the cache if possible, or None if the file can't be read."""
        if (hash_file, path) not in self._digests:
            try:
                self._digests[hash_file, path] = hash_file(path)
            except (OSError, UnusableFile):
                return None  # the inspection of the files reports this error
        return self._digests[hash_file, path]


def _occurs_in_several(sizes: Labels, groups: Labels) -> npt.NDArray[np.bool_]:
    """Return a mask, bool [n], of the files that have the same size as a file in another group."""
    values, positions = np.unique(sizes, return_inverse=True)
    # The lowest and the highest group of the files with each size.
    lowest = np.full(len(values), np.iinfo(np.int64).max)
    highest = np.full(len(values), np.iinfo(np.int64).min)
    np.minimum.at(lowest, positions, groups)
    np.maximum.at(highest, positions, groups)
    return (lowest < highest)[positions] & (sizes > 0)


def _group_by_key(keys: Mapping[int, Hashable], groups: Labels) -> list[list[int]]:
    """Return lists of files with the same key, as indices. Each list contains files from at least two groups.

    `keys` maps the index of a file to its key, and `groups` holds the group of each file.
    """
    by_key: dict[Hashable, list[int]] = {}
    for index, key in keys.items():
        by_key.setdefault(key, []).append(index)
    return [indices for indices in by_key.values() if len(np.unique(groups[indices])) > 1]


def locate_file(listings: Sequence[Sequence[str]], index: int) -> tuple[int, int]:
    """Convert an index in the concatenated listings to the index of a listing and the index within that listing."""
    for number, listing in enumerate(listings):
        if index < len(listing):
            return number, index
        index -= len(listing)
    raise IndexError(index)


def _read_size(path: str) -> int:
    """Return the size of a file, or 0 if the file is too large or unreadable."""
    try:
        size = os.stat(path).st_size
    except OSError:
        return 0
    return size if size <= MAX_BYTES else 0


def hash_ends(path: str) -> bytes:
    """Return a hash of the size, the first bytes and the last bytes of a file."""
    descriptor = open_descriptor(path)
    try:
        beginning = os.read(descriptor, END_BYTES)
        size = os.fstat(descriptor).st_size
        os.lseek(descriptor, max(size - END_BYTES, 0), os.SEEK_SET)
        return digest(beginning, os.read(descriptor, END_BYTES), size.to_bytes(8, "little"))
    finally:
        os.close(descriptor)


def hash_content(path: str) -> bytes:
    """Return a hash of all bytes in a file."""
    content_hash = hashlib.blake2b(digest_size=16)
    descriptor = open_descriptor(path)
    try:
        while block := os.read(descriptor, BLOCK_BYTES):
            content_hash.update(block)
    finally:
        os.close(descriptor)
    return content_hash.digest()


def digest(*parts: bytes) -> bytes:
    """Return a hash of the concatenation of `parts`."""
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()
