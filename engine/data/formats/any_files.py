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
    if next(_files(tree.root), None) is None:
        return []
    return [Detection(("files",), Confidence.WEAK, ("files for a program of your own",))]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return all files in the dataset folder, except hidden ones. Links to folders are not followed."""
    return Content((), {"": AnySplit(list(_files(tree.root)))})


def _files(folder: str) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(where, name) for name in sorted(names) if not name.startswith("."))


FORMAT = Format("files", "Files for your own program", ("files",), LAYOUT, detect, read)
