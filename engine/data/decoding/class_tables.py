"""Class tables: files in many layouts that list the names of mask classes, with their values or colors. Torch-free."""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.data.decoding.reading import MAX_TEXT_BYTES, read_json, read_text, refuse_unusable
from engine.data.splits import printable
from engine.system.regular_files import UnusableFile

_MAX_LINES = 100_000
_MAX_BYTES = 1 << 20
"""Maximum size of a class table in bytes. Larger files with such a name contain annotations."""
_DEFINITION = "esri_model_definition.emd"
_NAME_LISTS = ("classes.txt", "class_names.txt", "labels.txt", "codes.txt")
_COLOR_LISTS = ("label_colors.txt", "labelmap.txt")
_CSV_TABLES = ("class_dict.csv", "class_dict_seg.csv", "_classes.csv", "classes.csv", "class_names.csv", "labels.csv",
           "label_colors.csv", "colormap.csv", "labelmap.csv")  # fmt: skip
_JSON_TABLES = ("colormap.json", "classes.json", "class_dict.json", "label_colors.json", "labelmap.json", "labels.json",
            "palette.json", "config.json")  # fmt: skip
_NAME_HEADS = ("name", "class_name", "classname", "class", "label_name", "label", "category")
_VALUE_HEADS = ("value", "pixel value", "pixel_value", "pixel", "id", "index", "class_id", "label_id", "code", "label",
                "class", "number")  # fmt: skip
_HEX_HEADS = ("color", "colour", "hex", "rgb")
_OBJECT_VALUES = ("color", "colour", "rgb", "value", "id")
"""Keys of the value or color of a class in a JSON object, the preferred one first."""
_CVAT_LINE = re.compile(r"([^:]+):\s*(\d{1,3})\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})\s*(?::.*)?")
_COLOR_FIRST_LINE = re.compile(r"(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\S.*)")
_COLOR_LAST_LINE = re.compile(r"(\S.*?)[\s,:]+(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})")
_NUMBERED_LINE = re.compile(r"(\d{1,18})\s*[\s:,;=]\s*(\S.*)")
_NUMBER = re.compile(r"\d{1,18}")
"""Pattern for class values in tables. Longer numbers may not fit into 64 bits."""
_HEX = re.compile(r"#?([0-9a-fA-F]{6})")

_Row = tuple[str, int]
"""Name and value of a class."""


class _Entry(NamedTuple):
    """Class in a table. Its value is a color 0xRRGGBB if `is_color` is True, otherwise a number."""

    name: str
    value: int
    is_color: bool


@dataclass(frozen=True)
class ClassTable:
    """Class table: the names of classes, and the value of each class in masks.

    Values are colors 0xRRGGBB if `colors` is True, otherwise numbers. `listed` is True if the file contains names
    without values. The classes are then numbered from 0 in the order of the names.
    """

    path: str
    names: tuple[str, ...]
    values: tuple[int, ...]
    colors: bool = False
    listed: bool = False

    @property
    def file(self) -> str:
        """Name of the file for messages."""
        return printable(os.path.basename(self.path))


def find_tables(folder: str) -> list[ClassTable]:
    """Read all class tables directly in `folder`. Raises UnusableFile.

    CSV and JSON files that are too large for a class table are skipped, since they contain annotations.
    """
    found = [_read_definition(folder)]
    found += [_read_text_file(os.path.join(folder, name)) for name in (*_NAME_LISTS, *_COLOR_LISTS)]
    csv_paths, json_paths = ([os.path.join(folder, name) for name in names] for names in (_CSV_TABLES, _JSON_TABLES))
    found += [_read_csv(path) for path in csv_paths if _is_small(path)]
    found += [_read_json_file(path) for path in json_paths if _is_small(path)]
    return [table for table in found if table is not None]


def read_arcgis_classes(folder: str) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """Return the class values and the class names from ArcGIS's definition file in `folder`.

    ArcGIS writes the file next to exported image chips. Returns None if the file is missing or malformed, or has no
    classes. Raises UnusableFile if the file must not be read.
    """
    try:
        path = os.path.join(folder, _DEFINITION)
        content = read_json(path, MAX_TEXT_BYTES)
        with refuse_unusable(path):
            classes = sorted((int(each["Value"]), str(each["Name"])) for each in content["Classes"])
    except UnusableFile:  # a ValueError, but not one of malformed content
        raise
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    if not classes:
        return None
    values, names = zip(*classes, strict=True)
    return values, tuple(map(printable, names))


def _read_definition(folder: str) -> ClassTable | None:
    """Return the class table in ArcGIS's definition file in `folder`, or None without such a file.

    If no class has the value 0, the class "background" is added for it.
    """
    definition = read_arcgis_classes(folder)
    if definition is None:
        return None
    values, names = definition
    path = os.path.join(folder, _DEFINITION)
    if 0 not in values:
        values, names = (0, *values), ("background", *names)
    return ClassTable(path, names, values)


def _read_text_file(path: str) -> ClassTable | None:
    """Read a text file with lines such as "name", "value name", "r g b name", "name r g b" or CVAT's "name:r,g,b:…".

    Returns None if the file has fewer than two lines, or if its name is that of a list of colors (see `_COLOR_LISTS`)
    but it contains none.
    """
    lines = _read_lines(path)
    if len(lines) < 2:
        return None
    is_color_list = os.path.basename(path) in _COLOR_LISTS
    colors = [row for line in lines if (row := _parse_color_line(line)) is not None]
    # Only a file whose name promises colors may have other lines.
    if len(colors) >= 2 and (is_color_list or len(colors) == len(lines)):
        return _make_table(path, colors, colors=True)
    numbered = [(match[2], int(match[1])) for line in lines if (match := _NUMBERED_LINE.fullmatch(line))]
    if len(numbered) == len(lines) and _are_unique(numbered):
        return _make_table(path, numbered)
    if is_color_list:
        return None
    # Each line is a name. The order of the lines numbers the classes.
    return ClassTable(path, _make_unique(lines), tuple(range(len(lines))), listed=True)


def _parse_color_line(line: str) -> _Row | None:
    """Return the name and the color in a line of a text file, or None if the line does not contain them."""
    if match := _CVAT_LINE.fullmatch(line) or _COLOR_LAST_LINE.fullmatch(line):
        name, *numbers = match.groups()
    elif match := _COLOR_FIRST_LINE.fullmatch(line):
        *numbers, name = match.groups()
    else:
        return None
    color = _parse_color([int(number) for number in numbers])
    return None if color is None else (name, color)


def _read_csv(path: str) -> ClassTable | None:
    """Read a CSV table that lists names with values or colors. A header is optional.

    Returns None if the rows are not classes, and for a file labels.csv without a header, which may list images.
    """
    lines = _read_lines(path)
    if len(lines) < 2:
        return None
    delimiter = max(",;\t", key=lines[0].count)
    with refuse_unusable(path):
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)]
    head = [cell.lower() for cell in rows[0]]
    read_below_head = _make_row_reader(head, rows[1] if len(rows) > 1 else [])
    if read_below_head is not None:
        return _make_valid_table(path, [read_below_head(row) for row in rows[1:]])
    if os.path.basename(path) == "labels.csv":
        return None  # a table without a header may list images
    entries = [entry for row in rows if (entry := _parse_row(row)) is not None]
    has_only_entries = len(entries) >= len(rows) - 1  # one row may be an unknown header
    return _make_valid_table(path, entries) if has_only_entries else None


def _make_row_reader(head: Sequence[str], row: Sequence[str]) -> Callable[[Sequence[str]], _Entry | None] | None:
    """Return a function that reads the rows below the header `head`, or None if `head` isn't a header.

    `row` is the first row below it. A column with a number in this row can't contain the names. The returned function
    converts a row to an entry, or to None if the row is invalid.
    """

    def find_column(names: Sequence[str], excluded: Collection[int] = ()) -> int:
        """Return the index of the first column called one of `names`, or -1. Columns in `excluded` are skipped."""
        columns = (head.index(name) for name in names if name in head)
        return next((column for column in columns if column not in excluded), -1)

    numeric = [column for column, cell in enumerate(row) if cell.isdecimal()]
    band_columns = [find_column(names) for names in (("r", "red"), ("g", "green"), ("b", "blue"))]
    has_bands = min(band_columns) >= 0  # all three color channels
    name_column, hex_column = find_column(_NAME_HEADS, numeric), find_column(_HEX_HEADS)
    value_column = find_column(_VALUE_HEADS, (name_column,))
    if name_column < 0 or not (has_bands or hex_column >= 0 or value_column >= 0):
        return None

    def read_row(row: Sequence[str]) -> _Entry | None:
        """Return the class in a row, or None if the row is invalid."""
        try:
            if has_bands:
                return _make_color_entry(row[name_column], [int(row[column]) for column in band_columns])
            if hex_column >= 0:
                return _make_color_entry(row[name_column], row[hex_column])
            if _NUMBER.fullmatch(row[value_column].removeprefix("-")):
                return _Entry(row[name_column], int(row[value_column]), is_color=False)
            return None
        except (ValueError, IndexError):
            return None

    return read_row


def _parse_row(row: Sequence[str]) -> _Entry | None:
    """Return the class in a row of a table without a header, or None for an invalid row.

    A valid row contains one name, and either one value or three color channels. If there are four numbers, the first
    one is an id.
    """
    names = [cell for cell in row if cell and not _NUMBER.fullmatch(cell)]
    numbers = [int(cell) for cell in row if _NUMBER.fullmatch(cell)]
    if len(names) != 1 or len(numbers) not in (1, 3, 4):
        return None
    if len(numbers) == 1:
        return _Entry(names[0], numbers[0], is_color=False)
    return _make_color_entry(names[0], numbers[-3:])  # without the id, if there is one


def _read_json_file(path: str) -> ClassTable | None:
    """Read a JSON file in one of four layouts.

    These are {"name": color}, {"name": value}, {"value": "name"}, and a list of objects with name and color. Returns
    None for other content and for an unreadable file. Raises UnusableFile for a malicious or oversized file.
    """
    try:
        content = read_json(path, MAX_TEXT_BYTES)
    except UnusableFile:
        raise
    except (OSError, ValueError):
        return None
    if os.path.basename(path) == "config.json" and not (isinstance(content, dict) and "labels" in content):
        return None  # Mapillary's config.json has labels; other files with this name contain settings
    if isinstance(content, dict):
        content = next((content[key] for key in ("labels", "classes", "categories") if key in content), content)
    if isinstance(content, dict):
        entries = [_parse_entry(key, value) for key, value in content.items()]
    elif isinstance(content, list) and all(isinstance(each, dict) for each in content):
        names = [each.get("readable") or each.get("name") for each in content]
        values = [next((each[key] for key in _OBJECT_VALUES if key in each), None) for each in content]
        entries = list(map(_parse_entry, names, values))
    else:
        return None
    return _make_valid_table(path, entries)


def _make_valid_table(path: str, entries: Sequence[_Entry | None]) -> ClassTable | None:
    """Return a class table with the given entries, or None if they can't form a table.

    There must be at least two entries with different values, which must be either all colors or all numbers. None
    stands for an invalid entry.
    """
    valid = [entry for entry in entries if entry is not None]
    rows = [(entry.name, entry.value) for entry in valid]
    are_colors = any(entry.is_color for entry in valid)
    are_of_one_kind = all(entry.is_color == are_colors for entry in valid)
    is_table = len(valid) == len(entries) >= 2 and are_of_one_kind and _are_unique(rows)
    return _make_table(path, rows, colors=are_colors) if is_table else None


def _parse_entry(name: Any, value: Any) -> _Entry | None:
    """Return the class entry for a key and a value of a JSON object, or None if they are invalid.

    The key is a class name and the value its number or color, or the key is a number and the value its class name.
    """
    # A hexadecimal value is a color, and the number then the name of its class.
    if isinstance(value, str) and _NUMBER.fullmatch(str(name)) and not _HEX.fullmatch(value):
        return _Entry(value, int(name), is_color=False)
    if not isinstance(name, str):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        fits = abs(value) < 1 << 63  # as int64, the type of mask values
        return _Entry(name, value, is_color=False) if fits else None
    return _make_color_entry(name, value)


def _make_color_entry(name: str, value: Any) -> _Entry | None:
    """Return the class called `name` with the color `value`, or None if that is not a color (see `_parse_color`)."""
    color = _parse_color(value)
    return None if color is None else _Entry(name, color, is_color=True)


def _parse_color(value: Any) -> int | None:
    """Convert [r, g, b], [r, g, b, a] or "#rrggbb" to 0xRRGGBB. Returns None for anything else."""
    if isinstance(value, str):
        match = _HEX.fullmatch(value.strip())
        return int(match[1], 16) if match else None
    if not isinstance(value, list) or len(value) not in (3, 4):
        return None
    if not all(isinstance(band, int) and 0 <= band <= 255 for band in value):
        return None
    red, green, blue = value[:3]
    return (red << 16) | (green << 8) | blue


def _are_unique(rows: Sequence[_Row]) -> bool:
    """Return True if no two classes in the rows have the same value."""
    return len({value for _, value in rows}) == len(rows)


def _make_table(path: str, rows: Sequence[_Row], *, colors: bool = False) -> ClassTable:
    """Create a class table from names and values. Of several names with one value, the first one is used."""
    by_value: dict[int, str] = {}
    for name, value in rows:
        by_value.setdefault(value, printable(name.strip()) or f"value {value}")
    return ClassTable(path, _make_unique(list(by_value.values())), tuple(by_value), colors)


def _make_unique(names: Sequence[str]) -> tuple[str, ...]:
    """Make all names different: repeated names become "name (1)", "name (2)" and so on."""
    counts = Counter(names)
    new_names = {name: _iterate_numbered(name, taken=counts) for name in counts if counts[name] > 1}
    return tuple(next(new_names[name]) if name in new_names else name for name in names)


def _iterate_numbered(name: str, taken: Container[str]) -> Iterator[str]:
    """Yield `name` with a number, "name (1)", "name (2)" and so on, leaving out names that are in `taken`."""
    return (numbered for number in itertools.count(1) if (numbered := f"{name} ({number})") not in taken)


def _is_small(path: str) -> bool:
    """Return True if the file at `path` exists and is small enough for a class table."""
    try:
        return os.path.getsize(path) <= _MAX_BYTES
    except OSError:
        return False


def _read_lines(path: str) -> list[str]:
    """Return the lines of a file without empty lines and comments, or an empty list if the file is missing.

    Raises UnusableFile if the file has too many lines.
    """
    try:
        text = read_text(path)
    except OSError:
        return []
    if (count := text.count("\n")) > _MAX_LINES:
        raise UnusableFile(path, f"has {count:,} lines, too many for class names", "Keep one line per class.")
    return [printable(line.strip()) for line in text.splitlines() if line.strip() and not line.startswith("#")]
