"""Find the names of numbered classes in files of the dataset, and number named classes. Torch-free."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from engine.data.decoding.class_tables import read_arcgis_classes
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import read_json, read_text_lines
from engine.data.formats.shared.tables import open_table
from engine.data.formats.tree import Tree, suffix
from engine.data.splits import printable
from engine.system.regular_files import UnusableFile

_LISTS = (
    "classes.txt", "class_names.txt", "classnames.txt", "labels.txt", "label_names.txt", "names.txt", "synsets.txt",
    "categories.txt",
)  # fmt: skip
_HINTS = re.compile(r"class|label|name|categor|map|sign", re.IGNORECASE)
MAX_NAMES_BYTES = 4 << 20


def find_names(tree: Tree, folders: Collection[str], numbers: Collection[int]) -> dict[int, str]:
    """Return the class names, keyed by number, from the first file in `folders` that names all of the `numbers`.

    The folders are relative to the dataset folder. Returns {} if there is no such file.
    """
    for names in _iterate_candidates(tree, folders):
        by_number = _number_lines(names, numbers) if isinstance(names, list) else names
        if by_number and all(number in by_number for number in numbers):
            return by_number
    return {}


def name_numbers(tree: Tree, folders: Collection[str], names: Collection[str]) -> dict[str, str] | None:
    """Return a title for each of the classes `names`, which are numbers. The titles are in the order of the numbers.

    A title is the name that a file in one of `folders` gives to the number, or else the number itself. Returns None if
    a class is not a number.
    """
    if not names or not all(re.fullmatch(r"[0-9]{1,18}", name) for name in names):
        return None
    found = find_names(tree, folders, [int(name) for name in names])
    return {name: found.get(int(name), name) for name in sorted(names, key=int)}


def _number_lines(names: list[str], numbers: Collection[int]) -> dict[int, str]:
    """Number the names, which are the lines of a file, from 0 or from 1, and return them by number.

    `numbers` are the class numbers in the annotations, which determine the first number. Returns {} if they fit neither
    or both.
    """
    lowest, highest = min(numbers), max(numbers)
    if lowest == 0 and highest < len(names):  # only a numbering from 0 contains 0
        return dict(enumerate(names))
    if lowest >= 1 and highest == len(names):  # only a numbering from 1 contains the number of names
        return dict(enumerate(names, 1))
    return {}


def _iterate_candidates(tree: Tree, folders: Collection[str]) -> Iterator[list[str] | dict[int, str]]:
    """Yield the class names in each file whose name suggests them (see `_read_names`), most likely first."""
    for folder in folders:
        files = {name.lower(): name for name in tree.files(folder, (".txt", ".names", ".csv", ".json"))}
        usual = [name for name in _LISTS if name in files]
        usual += [name for name in files if name.endswith(".names")]
        possible = [name for name in files if suffix(name) in (".csv", ".json") and _HINTS.search(name)]
        for name in (*usual, *possible):
            path = tree.path(folder, files[name])
            with suppress(OSError, UnusableFile, ValueError):
                if os.stat(path).st_size <= MAX_NAMES_BYTES and (names := _read_names(path)):
                    yield names


def _read_names(path: str) -> list[str] | dict[int, str]:
    """Return the class names in a file: as a list of its lines or, if the file contains numbers, keyed by number.

    Raises ValueError, UnusableFile or OSError.
    """
    match suffix(path):
        case ".csv":
            return _read_table(path)
        case ".json":
            return _parse_mapping(read_json(path, MAX_NAMES_BYTES))
    lines = read_text_lines(path, MAX_NAMES_BYTES)
    if any(is_image(re.split(r"[\s,;]", line, maxsplit=1)[0]) for line in lines):
        return []  # the lines label images
    matches = [match for line in lines if (match := re.fullmatch(r"(\d+)\s*[:,;\t ]\s*(.+)", line))]
    if lines and len({match[1] for match in matches}) == len(lines):  # each line begins with another number
        return {int(match[1]): match[2].strip("\"' ") for match in matches}
    return lines


def _parse_mapping(content: object) -> list[str] | dict[int, str]:
    """Return the class names in the content of a JSON file: a list of names, or a mapping between numbers and names.

    Returns [] for other content.
    """
    if isinstance(content, list) and all(isinstance(each, str) for each in content):
        return content
    if not isinstance(content, dict):
        return []
    if all(re.fullmatch(r"\d+", str(key)) and isinstance(value, str) for key, value in content.items()):
        return {int(key): value for key, value in content.items()}
    if all(isinstance(value, int) for value in content.values()) and len(set(content.values())) == len(content):
        return {value: str(key) for key, value in content.items()}
    return []


def _read_table(path: str) -> dict[int, str]:
    """Return the names, keyed by number, from a table that has one column of unique numbers and one of unique names.

    Returns {} for other tables.
    """
    table = open_table(path)
    rows = list(table.rows()) if table is not None else []
    if not rows:
        return {}
    unique_columns = [cells for cells in zip(*rows, strict=True) if len(set(cells)) == len(cells)]
    number_columns = [cells for cells in unique_columns if all(map(str.isdigit, cells))]
    name_columns = [cells for cells in unique_columns if all(cells) and not any(map(str.isdigit, cells))]
    if len(number_columns) != 1 or not name_columns:
        return {}
    return dict(zip(map(int, number_columns[0]), name_columns[0], strict=True))


def number_classes(folder: str, names: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Number the classes called `names` in the annotations.

    Returns the printable class names in the order of their numbers, and the number of each of `names`. ArcGIS's
    definition file in the dataset folder `folder` lists the value and the name of each class. If each of `names` is
    such a value or name, the names and the order in this file are used. Otherwise, the classes are sorted.
    """
    ordered = sorted(set(names))
    definition = read_arcgis_classes(folder)
    if definition is not None:
        values, titles = definition
        numbers = {title: number for number, title in enumerate(titles)}
        numbers |= {str(value): number for number, value in enumerate(values)}
        if all(name in numbers for name in ordered):
            return titles, numbers
    return tuple(map(printable, ordered)), {name: number for number, name in enumerate(ordered)}
