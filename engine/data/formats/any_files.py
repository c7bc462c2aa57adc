"""Files in an unknown format that only a user-written program can read. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterator

from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.tree import Tree
from engine.data.splits import AnySplit

LAYOUT = "Give the folder that your own program reads."


def detect(tree: Tree) -> list[Detection]:
    """Detect any folder that is not empty, since a user-written program may be able to read it."""
    is_empty = next(_iterate_files(tree.root), None) is None
    if is_empty:
        return []
    return [Detection(("files",), Confidence.WEAK, ("files for a program of your own",))]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return all files in the dataset folder, except hidden ones. Links to folders are not followed."""
    return Content((), {"": AnySplit(list(_iterate_files(tree.root)))})


def _iterate_files(root: str) -> Iterator[str]:
    """Yield the full paths of all files that are neither hidden nor in a hidden folder, in sorted order."""
    for folder, inner_folders, names in os.walk(root):
        inner_folders[:] = sorted(name for name in inner_folders if not name.startswith("."))  # the next to be visited
        yield from (os.path.join(folder, name) for name in sorted(names) if not name.startswith("."))


FORMAT = Format("files", "Files for your own program", ("files",), LAYOUT, detect, read)
