"""Categories (classes) in COCO JSON. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from engine.data.formats.shared.json_files import EntryFaults, Fault

Key = int | float | str

_NAMELESS = Fault(
    "category without a name", "categories without a name", "The ids of such categories serve as names; add names."
)
_SAME_NAME = Fault(
    "category with the name of another one",
    "categories with the name of another one",
    "Such categories are read as one class; rename them if they are different classes.",
)
_UNLISTED = Fault("entry of a category that is not listed", "entries of categories that are not listed")


class Category(msgspec.Struct):
    """Entry in the list of categories of a COCO JSON file."""

    id: Key
    name: Key | None = None
    supercategory: Any = None
    isthing: Any = None


_DECODER = msgspec.json.Decoder(Category)


class Categories:
    """Categories in one COCO JSON file. If the file lists none, the ids in annotations serve as names."""

    def __init__(self, entries: Sequence[msgspec.Raw], faults: EntryFaults) -> None:
        """Read the categories in a file. Those without a name get one that contains their id."""
        self._faults = faults
        self._are_listed = bool(entries)
        self._by_id: dict[Key, Category] = {}
        names: set[str] = set()
        for place, each in faults.decode_each(_DECODER, entries, "categories"):
            if each.name is None or each.name == "":
                faults.add(_NAMELESS, f"{place}.name")
                each.name = f"class {each.id}"
            if str(each.name) in names:
                faults.add(_SAME_NAME, f"{place}.name")
            names.add(str(each.name))
            self._by_id[each.id] = each
        self._by_spelling = add_spellings(self._by_id)  # annotations may write the id 1 as "1"

    def find(self, key: Key, place: str) -> Category | None:
        """Return the category with the id `key`, or None if the file lists categories, but not this one.

        A category that is not listed is counted as a fault at `place`, the path of the annotation in the JSON file. If
        the file lists no categories at all, a category is added with a name that contains the id.
        """
        found = self._by_spelling.get(key)
        if found is None and self._are_listed:
            self._faults.add(_UNLISTED, place)
        elif found is None:
            self._faults.add(_NAMELESS, place)
            found = self._by_id[key] = self._by_spelling[key] = Category(key, f"class {key}")
        return found

    def name(self, key: Key, place: str) -> str | None:
        """Return the name of the category with the id `key`, or None if the file lists categories, but not this one.

        A category that is not listed is counted as a fault at `place`, the path of the annotation in the JSON file.
        """
        found = self.find(key, place)
        return None if found is None else str(found.name)

    def in_order(self) -> list[Category]:
        """Return all categories of the file, sorted by their ids."""
        return sorted(self._by_id.values(), key=lambda each: (isinstance(each.id, str), each.id))


def add_spellings(table: Mapping[Key, Any]) -> dict[Key, Any]:
    """Return a copy of `table`, which is keyed by ids, with both "1" and 1 as keys for the id 1.

    A key that belongs to another entry is not added.
    """
    found = dict(table)
    for key, value in table.items():
        if not isinstance(key, str):
            found.setdefault(str(int(key)) if key == int(key) else str(key), value)
        elif re.fullmatch(r"0|-?[1-9][0-9]{0,17}", key):
            found.setdefault(int(key), value)
    return found
