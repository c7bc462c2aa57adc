"""Listing of a dataset folder that all formats share, so that each folder is read only once. Torch-free."""

from __future__ import annotations

import errno
import os
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter, methodcaller
from typing import NamedTuple

from engine.data.decoding.image_files import EXTENSIONS
from engine.data.files import Listing
from engine.data.memory_limit import BYTES_PER_FILE, allow

CLUTTER = frozenset({"thumbs.db", "desktop.ini", "__macosx", "lost+found"})
"""Names of files and folders that desktops and archivers create. They are skipped like hidden files."""
_LONGEST_CLUTTER = max(map(len, CLUTTER))
SPLIT_NAMES = {
    "train": ("train", "training", "trainset"),
    "val": ("val", "valid", "validation", "valset", "validset", "dev"),
    "test": ("test", "testing", "testset"),
}
_DIVIDE_AT_LAST_DOT, _GET_DOT_AND_ENDING = methodcaller("rpartition", "."), itemgetter(1, 2)
_SPLIT_OF = {name: split for split, names in SPLIT_NAMES.items() for name in names}


def split_named(name: str) -> str:
    """Return "train", "val" or "test" if `name` is a name for this split, otherwise "".

    Upper or lower case doesn't matter, and the name may contain a year.
    """
    return _SPLIT_OF.get(name.lower().rstrip(string.digits + "_-"), "")


def split_in(name: str) -> str:
    """Return the split that a name contains as a full word, or "" if it contains none or several.

    For example, "instances_val2017.json" contains "val".
    """
    letters = [character if character.isalpha() else " " for character in os.path.splitext(name)[0].lower()]
    found = set(map(split_named, "".join(letters).split())) - {""}
    return found.pop() if len(found) == 1 else ""


def split_of_folder(folder: str) -> str:
    """Return the split that a name on the path of a folder denotes, or "" if none does.

    For example, "images/train/a" and "train_images" both give "train".
    """
    names = folder.split(os.sep)
    splits = (*map(split_named, names), *map(split_in, names))
    return next(filter(None, splits), "")


def split_of_file(name: str) -> str:
    """Return the split that the name of an annotation file contains as a full word.

    `name` is the path of the file relative to the dataset folder. If the name itself contains no split, the nearest
    folder whose name contains one decides. Returns "" if there is none.
    """
    return next(filter(None, map(split_in, reversed(name.split(os.sep)))), "")


def split_of_table(folder: str, name: str) -> str:
    """Return the split that the name of a table contains as a full word.

    If the name contains none, the nearest folder on the path `folder` that is named for a split decides. Returns "" if
    there is none.
    """
    return split_in(name) or next(filter(None, map(split_named, reversed(folder.split(os.sep)))), "")


def split_of_path(path: str, *, by_name: bool = False) -> str:
    """Return the split that a folder on a path in the dataset denotes, or "" if none does.

    If `by_name` is True, the file name is searched for a split, too, as in "instances_train.xml".
    """
    *folders, name = path.replace("\\", "/").split("/")
    split = next(filter(None, map(split_named, folders)), "")
    return split or (split_in(name) if by_name else "")


class _Entries(NamedTuple):
    """Visible content of a folder: the sorted names of its folders, and its files."""

    folders: tuple[str, ...]
    files: Listing
    identity: tuple[int, int]
    """Device and inode of the folder, to recognize it if several links lead to it."""


class Tree:
    """Folders and files of a dataset, which are listed on demand and cached.

    Folders are given relative to the dataset folder, which is "". Hidden files and `CLUTTER` are skipped. Links to
    folders are followed, but each folder is visited only once. All methods may raise OSError.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._entries: dict[str, _Entries] = {}  # by folder
        self._suffixes: dict[str, Counter[str]] = {}  # results of `suffixes`, by folder

    def path(self, *parts: str) -> str:
        """Join `parts` to a full path inside the dataset folder."""
        return os.path.join(self.root, *filter(None, parts))

    def within(self, path: str) -> str:
        """Convert a full path to a path relative to the dataset folder."""
        relative = os.path.relpath(path, self.root)
        return "" if relative == "." else relative

    def exists(self, folder: str) -> bool:
        """Return True if a folder, relative to the dataset folder, exists."""
        return os.path.isdir(self.path(folder))

    def folders(self, folder: str = "") -> tuple[str, ...]:
        """Return the sorted names of the folders in `folder`."""
        return self._read(folder).folders

    def files(self, folder: str = "", endings: str | Sequence[str] = "") -> list[str]:
        """Return the sorted names of the files in `folder` that have one of the extensions, such as ".json".

        If `endings` is "", all files are returned.
        """
        requested = {endings} if isinstance(endings, str) else set(endings)
        if "" not in requested and requested.isdisjoint(self.suffixes(folder)):
            return []
        names = self.listing(folder).split_names()
        return names if "" in requested else [name for name in names if suffix(name) in requested]

    def images(self, folder: str = "") -> list[str]:
        """Return the sorted names of the images in `folder`."""
        return self.files(folder, tuple(EXTENSIONS))

    def find(self, endings: str | Sequence[str], *, depth: int | None = None) -> Iterator[str]:
        """Yield the paths of all files with one of the extensions, relative to the dataset folder.

        Folders are searched up to `depth` levels deep, or all of them if it is None.
        """
        for folder in self.walk(depth=depth):
            yield from (os.path.join(folder, name) for name in self.files(folder, endings))

    def listing(self, folder: str = "") -> Listing:
        """Return the files in `folder` as a `Listing`, which takes little memory."""
        return self._read(folder).files

    def suffixes(self, folder: str = "") -> Counter[str]:
        """Count the files in `folder` by extension.

        The extensions are in lower case and begin with a dot. Files without an extension are counted under "".
        """
        if folder not in self._suffixes:
            names = self.listing(folder).split_names()
            parts = Counter(map(_GET_DOT_AND_ENDING, map(_DIVIDE_AT_LAST_DOT, names)))  # fast, for a million files
            counts: Counter[str] = Counter()
            for (dot, ending), count in parts.items():
                counts[f".{ending.lower()}" if dot else ""] += count
            self._suffixes[folder] = counts
        return self._suffixes[folder]

    def has(self, ending: str | Iterable[str], folder: str = "") -> bool:
        """Return True if a file in `folder` has one of the extensions."""
        return not self.suffixes(folder).keys().isdisjoint([ending] if isinstance(ending, str) else ending)

    def has_images(self, folder: str = "") -> bool:
        return self.has(EXTENSIONS, folder)

    def named(self, names: Sequence[str], folder: str = "") -> list[str]:
        """Return the names of the folders in `folder` that are in `names`, in the order of `names`.

        `names` are in lower case, while the case of the folders does not matter.
        """
        by_name: dict[str, list[str]] = {}
        for name in self.folders(folder):
            by_name.setdefault(name.lower(), []).append(name)
        return [name for requested in names for name in by_name.get(requested, ())]

    def splits(self, folder: str = "") -> dict[str, str]:
        """Return the names of the folders for "train", "val" and "test" in `folder`, keyed by these splits.

        A split without a folder has no entry.
        """
        found: dict[str, str] = {}
        for split, names in SPLIT_NAMES.items():
            fitting = [name for name in self.folders(folder) if split_named(name) == split]
            if fitting:  # an exact name is preferred to a name with a year
                found[split] = min(fitting, key=lambda name: (name.lower() not in names, name.lower()))
        return found

    def walk(self, folder: str = "", *, depth: int | None = None) -> Iterator[str]:
        """Yield `folder` and the folders below it, at most `depth` levels deep, or all of them if `depth` is None.

        A folder comes before the folders in it, and no folder is visited twice, even if several links lead to it.
        """
        visited: set[tuple[int, int]] = set()
        pending = [(folder, 0)]
        while pending:
            current, level = pending.pop()
            entries = self._read(current)
            if entries.identity in visited:
                continue
            visited.add(entries.identity)
            yield current
            if depth is None or level < depth:
                pending += [(os.path.join(current, name), level + 1) for name in reversed(entries.folders)]

    def _read(self, folder: str) -> _Entries:
        """Return the visible files and folders in `folder`. Each folder is read only once. Raises OSError."""
        if folder not in self._entries:
            folders: list[str] = []
            files: list[str] = []
            path = self.path(folder)
            with os.scandir(path) as entries:
                for entry in entries:
                    if _is_visible(entry.name):
                        (folders if _is_folder(entry) else files).append(entry.name)
            info = os.stat(path)
            allow(BYTES_PER_FILE * len(files))  # raises the memory limit
            listing = Listing.of(path, sorted(files))
            identity = (info.st_dev, info.st_ino)
            self._entries[folder] = _Entries(tuple(sorted(folders)), listing, identity)
        return self._entries[folder]


def stem(path: str) -> str:
    """Return the name of a file without its folders and its extension."""
    return os.path.splitext(os.path.basename(path))[0]


def suffix(name: str) -> str:
    """Return the extension of a file name in lower case with the dot, or "" if there is none."""
    dot = name.rfind(".")
    return name[dot:].lower() if dot > 0 else ""


def unicode_key(name: str) -> str:
    """Convert a name to one Unicode form, since macOS separates letters from their accents."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def find_link_loops(folder: str) -> list[str]:
    """Return the full paths of links in a folder that lead to themselves."""
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.is_symlink() and _is_loop(entry.path))


def walk_files(folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yield `folder` and each folder below it, together with the sorted names of its visible files.

    The order is that of torchvision. Links are followed, but a folder that is the target of several links is visited
    only once.
    """
    tree = Tree(folder)
    return ((tree.path(each), tree.files(each)) for each in tree.walk())


def _is_visible(name: str) -> bool:
    """Return True unless a file or folder is hidden or in `CLUTTER`."""
    return name[0] != "." and (len(name) > _LONGEST_CLUTTER or name.lower() not in CLUTTER)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return True for a folder or a link to a folder, but False for a link that leads to itself."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def _is_loop(path: str) -> bool:
    """Return True if a link leads to itself, directly or through other links."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False
