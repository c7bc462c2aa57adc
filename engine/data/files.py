"""Memory-efficient storage for many file paths. Torch-free."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple, Self, overload

import numpy as np
import numpy.typing as npt

CHUNK = 4096
"""Number of file paths that are prepared at once during iteration."""


class Listing(NamedTuple):
    """Names of the `length` files in one folder.

    `names` holds all of them, encoded as the file system stores them and each followed by a zero byte.
    """

    folder: str
    names: bytes
    length: int

    @classmethod
    def of(cls, folder: str, names: Sequence[str]) -> Self:
        """Create a listing of the files called `names` in `folder`."""
        return cls(folder, os.fsencode("\0".join([*names, ""])), len(names))

    def split_names(self) -> list[str]:
        """Return the file names as a list, decoded from `names`."""
        return os.fsdecode(self.names[:-1]).split("\0") if self.length else []


@dataclass(frozen=True, eq=False)
class Files(Sequence[str]):
    """Sequence of file paths that are created on access, to save memory.

    Each file takes the length of its name plus 9 bytes. A selection of files takes 4 more bytes for each. In a list of
    str, a path with 50 letters takes 107 bytes, and every worker would hold a million of them.
    """

    _folders: list[bytes]
    """Paths of the folders, each ending with a path separator."""
    _firsts: list[int]
    """Row of the first file in each folder, followed by the number of all files."""
    _names: bytes
    _bounds: npt.NDArray[np.int64]
    """Positions of the zero bytes in `_names`, preceded by -1.

    The name in row i is between `_bounds[i]` and `_bounds[i + 1]`.
    """
    _rows: npt.NDArray[np.uint32] | None = None
    """Rows, in the complete listing, of the selected files, or None if all files are selected."""

    @classmethod
    def of(cls, listings: Iterable[Listing] = ()) -> Self:
        """Create a sequence of all files in some listings."""
        nonempty = [listing for listing in listings if listing.length]
        folders = [os.fsencode(os.path.join(listing.folder, "")) for listing in nonempty]
        firsts = [0, *accumulate(listing.length for listing in nonempty)]
        names = b"".join(listing.names for listing in nonempty)
        ends = np.flatnonzero(np.frombuffer(names, np.uint8) == 0)
        return cls(folders, firsts, names, np.concatenate([[-1], ends]))

    def __len__(self) -> int:
        return len(self._bounds) - 1 if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Files: ...
    def __getitem__(self, index: int | slice) -> str | Files:
        if isinstance(index, slice):
            return self.select(index)
        position = range(len(self))[index]
        row = position if self._rows is None else int(self._rows[position])
        name = self._names[self._bounds[row] + 1 : self._bounds[row + 1]]
        return os.fsdecode(self._folders[bisect_right(self._firsts, row) - 1] + name)

    def __iter__(self) -> Iterator[str]:
        return map(os.fsdecode, self._iterate_paths(self._folders))

    def iterate_relative_paths(self, root: str) -> Iterator[bytes]:
        """Yield the paths relative to `root`, encoded as the file system stores them."""
        relative_folders = [os.path.relpath(folder, os.fsencode(root)) for folder in self._folders]
        return self._iterate_paths([os.path.join(folder, b"") for folder in relative_folders])

    def _iterate_paths(self, folders: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the paths of the files, with `folders` in place of `_folders`, in the same order.

        Each folder must end with a path separator.
        """
        firsts = np.array(self._firsts)
        for start in range(0, len(self), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(self)))
            if self._rows is not None:
                rows = self._rows[rows].astype(np.int64)
            parents = (np.searchsorted(firsts, rows, side="right") - 1).tolist()
            begins, ends = (self._bounds[rows] + 1).tolist(), self._bounds[rows + 1].tolist()
            for parent, begin, end in zip(parents, begins, ends, strict=True):
                yield folders[parent] + self._names[begin:end]

    def identity(self, root: str) -> Iterator[bytes | memoryview]:
        """Yield bytes for a hash that identifies these paths relative to the folder `root`.

        Two sequences with equal paths give equal bytes only if they were listed and selected in the same way.
        """
        yield b"".join(folder.removeprefix(os.fsencode(root)) for folder in self._folders)
        yield self._names
        yield np.array(self._firsts).data
        if self._rows is not None:
            yield np.ascontiguousarray(self._rows).data

    def select(self, selection: slice | npt.NDArray[np.bool_]) -> Files:
        """Return the files in a slice, or those where the bool array `selection` [n] is True."""
        if self._rows is not None:
            rows = self._rows[selection]
        elif isinstance(selection, slice):
            rows = np.arange(*selection.indices(len(self))).astype(np.uint32)
        else:
            rows = np.flatnonzero(selection).astype(np.uint32)
        return replace(self, _rows=rows)

    def join(self, other: Files) -> Files:
        """Return a selection with these files, followed by those of `other`.

        Both must be selections from the same listing.
        """
        assert self._rows is not None
        assert other._rows is not None
        return replace(self, _rows=np.concatenate([self._rows, other._rows]))


def make_files(paths: Iterable[str]) -> Files:
    """Convert full paths to `Files`. Paths in the same folder should be adjacent, to store each folder only once."""
    listings: list[Listing] = []
    names: list[str] = []
    folder = ""
    for path in paths:
        parent, name = os.path.split(path)
        if parent != folder and names:
            listings.append(Listing.of(folder, names))
            names = []
        folder = parent
        names.append(name)
    return Files.of([*listings, Listing.of(folder, names)] if names else listings)
