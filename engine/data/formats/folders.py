"""How the folders of a dataset are listed: links in it may lead anywhere, also back to where they lie. Torch-free."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from engine.data.memory_limit import OF_ENTRY_BYTES, allow

CLUTTER = frozenset({"thumbs.db", "desktop.ini", "__macosx", "lost+found"})
"""What desktops and archives leave in folders; hidden files are passed over as well."""


_LONGEST_CLUTTER = max(map(len, CLUTTER))


def visible(name: str) -> bool:
    """Return True unless a file or folder is hidden or clutter."""
    return name[0] != "." and (len(name) > _LONGEST_CLUTTER or name.lower() not in CLUTTER)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or a link to one; a link that points to itself is none."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def subfolders(folder: str) -> list[str]:
    """The names of the visible folders in a folder, sorted."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if visible(entry.name) and is_folder(entry))


def circles(folder: str) -> list[str]:
    """The links in a folder that lead back to themselves."""
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.is_symlink() and _is_circle(entry.path))


def walk(folder: str) -> Iterator[tuple[str, list[str]]]:
    """The visible files' names in each folder from `folder` down, in torchvision's order. Links are followed, and
    each folder is come to once, however many lead to it."""
    seen: set[tuple[int, int]] = set()
    ahead = [folder]
    while ahead:
        current = ahead.pop()
        info = os.stat(current)
        if (info.st_dev, info.st_ino) in seen:
            continue
        seen.add((info.st_dev, info.st_ino))
        files: list[str] = []
        deeper: list[str] = []
        with os.scandir(current) as entries:
            for entry in entries:
                if visible(entry.name):
                    (deeper if is_folder(entry) else files).append(entry.name)
        allow(OF_ENTRY_BYTES * len(files))
        yield current, sorted(files)
        ahead += [os.path.join(current, name) for name in sorted(deeper, reverse=True)]


def _is_circle(path: str) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False
