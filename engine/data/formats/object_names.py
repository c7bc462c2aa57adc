"""Classes that COCO files name for objects that masks number. Torch-free."""

from __future__ import annotations

import msgspec

from engine.data.decoding.reading import MOST_TABLE_BYTES, judged
from engine.data.formats.tree import Tree
from engine.data.memory_limit import allow_for_text
from engine.data.splits import shown
from engine.system.regular_files import UnusableFile, read_regular

_MAX_FILES = 8


class _Category(msgspec.Struct):
    name: str


class _File(msgspec.Struct):
    categories: list[_Category]


def coco_classes(tree: Tree) -> tuple[str, ...]:
    """Return the sorted names of the categories in the COCO files of a dataset."""
    names: set[str] = set()
    for folder in ("", *tree.named(("annotations", "annotation"))):
        for name in tree.files(folder, ".json")[:_MAX_FILES]:
            path = tree.path(folder, name)
            try:
                with judged(path):
                    allow_for_text(path)
                    content = msgspec.json.decode(read_regular(path, MOST_TABLE_BYTES), type=_File)
            except (OSError, UnusableFile, msgspec.MsgspecError, ValueError):
                continue
            names.update(each.name for each in content.categories)
    return tuple(map(shown, sorted(names)))
