"""Reader for tables of points: a line of numbers per point, as in .xyz, .txt, .csv and .asc files. Torch-free.

The first line may name the columns. Otherwise the columns are recognized by their values. Labels may be in a column, or
in a file with the same name and the extension .labels that has one integer per line, as in Semantic3D.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.decoding.reading import Unfit, parse_finite
from engine.data.splits import printable
from engine.system.format import counted
from engine.system.regular_files import open_regular
from engine.tasks.points.decoding.fields import (
    CHUNK_POINTS,
    FEATURES,
    Columns,
    Fields,
    Head,
    convert_labels,
    find_fields,
    require_fields,
    stack_columns,
)

_SAMPLE_BYTES = 1 << 16
_MAX_LABELS = 64
"""Largest number of distinct values in a column that is recognized as labels.

Only the first points are considered, and all values must be integers.
"""
_COLORS = ("red", "green", "blue")
_COMMENTS = ("#", "//")
_MAX_DAMAGED_FRACTION = 0.01
"""Largest fraction of damaged lines in a file that is read without their points. Other files are rejected."""

Numbers = npt.NDArray[np.float64]


class Table(NamedTuple):
    """Layout of a table.

    Attributes:
        columns: Meaning of each column: x, y, z, one of `FEATURES` or "label", or "" if it is not used.
        delimiter: Character between the columns, or None for whitespace.
        skipped_lines: Number of lines before the first point.
        is_guessed: True if the columns have no names and are recognized by their values.
    """

    columns: tuple[str, ...]
    delimiter: str | None
    skipped_lines: int
    is_guessed: bool

    @property
    def fields(self) -> Fields:
        """Fields of the points, excluding labels in another file."""
        return Fields(tuple(name for name in FEATURES if name in self.columns), "label" in self.columns)


def find_labels_file(path: str) -> str | None:
    """Return the path of the file with the points' labels next to a table, or None if it is missing."""
    name = os.path.splitext(path)[0] + ".labels"
    return name if os.path.isfile(name) else None


def read_table(path: str) -> Table:
    """Return the layout of a table, recognized by its first lines.

    Raises Unfit if the file is not a table of points.
    """
    with open_regular(path) as stream:
        sample = stream.read(_SAMPLE_BYTES)
        is_complete = len(sample) < _SAMPLE_BYTES
    if not sample:
        raise Unfit("it is empty")
    if b"\0" in sample:
        raise Unfit("it is not a table of points")
    lines = re.split("\r\n|\r|\n", sample.decode("utf-8-sig", "replace"))
    if not is_complete:  # the last line may be cut off
        lines.pop()
    names: list[str] = []
    for number, line in enumerate(lines):
        cells = _split_cells(line.strip().lstrip("#/ "), _find_delimiter(line))
        if {"x", "y", "z"} <= find_fields(cells).keys():
            names = cells
        elif cells and not line.lstrip().startswith(_COMMENTS):
            if not names and any(_parse_number(cell) is None for cell in cells):
                raise Unfit(f"line {number + 1} holds neither numbers nor the names of columns x, y and z")
            if len(cells) > 1 or _parse_number(cells[0]) is None:  # a single number is the number of points
                has_labels_file = find_labels_file(path) is not None
                return _detect_layout(names, lines[number:], number, has_labels_file=has_labels_file)
    raise Unfit("it holds no points")


def read_fields(path: str) -> Fields:
    """Return the fields of the points in a table without counting the points. Raises Unfit."""
    fields = read_table(path).fields
    return fields._replace(has_labels=fields.has_labels or find_labels_file(path) is not None)


def read_head(path: str) -> Head:
    """Return the number of points in a table and their fields. Raises Unfit."""
    table = read_table(path)
    return Head(count_points(path, table), *read_fields(path))


def count_points(path: str, table: Table) -> int:
    """Return the number of lines in a table that contain points."""
    with _open_text(path) as text:
        return sum(1 for _ in _iterate_data_lines(text, table.skipped_lines))


def read_chunks(path: str, features: Sequence[str], with_labels: bool) -> Iterator[Columns]:
    """Yield the points of a table in chunks: positions [n, 3], features [n, f] and labels [n].

    If `with_labels` is False, the labels are 0. Raises Unfit.
    """
    require_fields(read_fields(path), features, with_labels)
    table, labels_path = read_table(path), find_labels_file(path) if with_labels else None
    if labels_path is None:
        yield from read_chunks_with_layout(path, table, features, with_labels=with_labels)
        return
    with _open_text(labels_path) as text:
        rows = _iterate_data_lines(text, 0)
        for positions, columns, _ in read_chunks_with_layout(path, table, features, with_labels=False):
            yield positions, columns, _parse_labels(list(islice(rows, len(positions))), len(positions), labels_path)
        if next(rows, None) is not None:
            raise Unfit(f"{printable(os.path.basename(labels_path))} has more labels than it has points")


def read_chunks_with_layout(
    path: str, table: Table, features: Sequence[str], *, with_labels: bool
) -> Iterator[Columns]:
    """Yield the points of a table with the layout `table` in the form of `read_chunks`.

    Labels are read only from a column of the table. A damaged line becomes a point without a position.
    """
    used = [*"xyz", *features, *(["label"] if with_labels else [])]
    columns = [table.columns.index(name) for name in used]
    label_column = 3 + len(features)
    with _open_text(path) as text:
        for numbers in read_numbers(_iterate_data_lines(text, table.skipped_lines), columns, table.delimiter):
            labels = convert_labels(numbers[:, label_column]) if with_labels else np.zeros(len(numbers), np.int64)
            yield numbers[:, :3], stack_columns(list(numbers[:, 3:label_column].T), len(numbers)), labels


def read_numbers(lines: Iterator[str], columns: Sequence[int], delimiter: str | None) -> Iterator[Numbers]:
    """Yield the numbers in some columns of the lines in chunks, float64 [n, columns]. `columns` are column indices.

    The numbers of a damaged line are NaN. Raises Unfit if more than one line and more than the fraction
    `_MAX_DAMAGED_FRACTION` of a chunk are damaged.
    """
    quote = None if delimiter is None else '"'
    lines_read = 0
    while chunk := list(islice(lines, CHUNK_POINTS)):
        try:
            numbers = np.loadtxt(
                chunk, delimiter=delimiter, usecols=columns, ndmin=2, comments=None, quotechar=quote, dtype=np.float64
            )
        except ValueError:
            numbers = _read_damaged(chunk, columns, delimiter, lines_read)
        lines_read += len(chunk)
        yield numbers


def _read_damaged(chunk: Sequence[str], columns: Sequence[int], delimiter: str | None, lines_before: int) -> Numbers:
    """Return the numbers in `columns` of a chunk with damaged lines, [lines, columns]. A damaged line becomes NaN.

    `lines_before` is the number of lines before the chunk. Raises Unfit if more than one line and more than the
    fraction `_MAX_DAMAGED_FRACTION` are damaged.
    """
    numbers = np.full((len(chunk), len(columns)), np.nan)
    damaged: list[int] = []
    for index, line in enumerate(chunk):
        cells = _split_cells(line, delimiter)
        cell_numbers = [_parse_number(cells[column]) if column < len(cells) else None for column in columns]
        if None in cell_numbers:
            damaged.append(index)
        else:
            numbers[index] = cell_numbers
    if len(damaged) > max(1, _MAX_DAMAGED_FRACTION * len(chunk)):
        line = printable(chunk[damaged[0]].strip())[:60]
        raise Unfit(f"its row {lines_before + damaged[0] + 1:,} can't be read as numbers: {line}")
    return numbers


def _parse_labels(lines: Sequence[str], count: int, path: str) -> npt.NDArray[np.int64]:
    """Convert `lines` of the labels file at `path` to integers. Raises Unfit if there are fewer than `count` lines."""
    name = printable(os.path.basename(path))
    if len(lines) < count:
        raise Unfit(f"{name} has fewer labels than it has points")
    try:
        return np.array(lines, dtype=np.str_).astype(np.int64)
    except ValueError as error:
        raise Unfit(f"{name} holds something else than whole numbers ({printable(str(error))[:80]})") from None


def _open_text(path: str) -> TextIOWrapper:
    """Open a file as UTF-8 text. A byte order mark is skipped, and invalid bytes are replaced."""
    return TextIOWrapper(open_regular(path), "utf-8-sig", "replace")


def _iterate_data_lines(text: TextIOWrapper, skipped_lines: int) -> Iterator[str]:
    """Yield the lines of a text after the first `skipped_lines` ones, without blank lines and comments."""
    for line in islice(text, skipped_lines, None):
        if not line.isspace() and not line.startswith(_COMMENTS):
            yield line


def _find_delimiter(line: str) -> str | None:
    """Return the character between the cells of a line, or None for whitespace."""
    return next((each for each in (";", ",") if each in line), None)


def _split_cells(line: str, delimiter: str | None) -> list[str]:
    """Split a line into cells, and remove quotes around them. A delimiter at the end of the line adds no cell."""
    cells = [cell.strip().strip('"') for cell in line.split(delimiter)]
    return cells[:-1] if cells and not cells[-1] else cells


def _parse_number(cell: str) -> float | None:
    """Convert a cell to a number. Returns NaN for "nan", and None for other text and infinite numbers."""
    return float("nan") if cell.lower() == "nan" else parse_finite(cell)


def _detect_layout(names: Sequence[str], lines: Sequence[str], skipped_lines: int, *, has_labels_file: bool) -> Table:
    """Determine the layout of a table from its first lines with points, which follow `skipped_lines` other lines.

    `names` is empty if the columns have no names. If there is a file of labels, no column holds them. Raises Unfit if
    the lines are not points.
    """
    delimiter = _find_delimiter(lines[0])
    width = len(_split_cells(lines[0], delimiter))
    if names and len(names) != width:
        raise Unfit(f"it names {counted(len(names), 'column')}, but line {skipped_lines + 1} has {width}")
    if names:
        meaning_of = {name: meaning for meaning, name in find_fields(names).items()}
        columns = tuple(meaning_of.pop(name, "") for name in names)  # only the first of equal names has the meaning
        return Table(columns, delimiter, skipped_lines, is_guessed=False)
    if width < 3:
        raise Unfit(f"line {skipped_lines + 1} has {counted(width, 'column')}; x, y and z are needed")
    rows = [row for row in (_split_cells(line, delimiter) for line in lines) if len(row) == width]
    numbers = [[_parse_number(cell) for cell in row] for row in rows]
    sample = np.array([row for row in numbers if None not in row], np.float64)
    if not len(sample):  # for example if each line begins with a slash
        raise Unfit("its first lines can't be read as numbers")
    columns = _guess_columns(sample, has_labels_file=has_labels_file)
    return Table(columns, delimiter, skipped_lines, is_guessed=width > 3)


def _guess_columns(sample: Numbers, *, has_labels_file: bool) -> tuple[str, ...]:
    """Return the meaning of columns without names, determined from a sample of their values.

    The first columns are x, y and z. Colors and intensity may follow in any order, and then labels.
    """
    width = sample.shape[1]
    color_starts = [first for first in range(3, width - 2) if _are_colors(sample[:, first : first + 3])]
    only_colors = width == 6 and bool(color_starts)  # so that the last column is no label
    has_labels = width > 3 and not has_labels_file and not only_colors and _are_labels(sample[:, -1])
    columns = ["x", "y", "z", *[""] * (width - 3)]
    if has_labels:
        columns[-1] = "label"
    features_end = width - 1 if has_labels else width
    color_starts = [first for first in color_starts if first + 3 <= features_end]
    if color_starts:
        # Of four columns before the labels, the intensity comes first or last: "I R G B" or "R G B I". If both places
        # look like colors, the intensity comes first.
        columns[color_starts[-1] : color_starts[-1] + 3] = _COLORS
    unnamed = [index for index in range(3, width) if not columns[index]]
    # With colors, a single other column is the intensity. Without colors, it must be the only one before the labels.
    if len(unnamed) == 1 and (color_starts or features_end == 4):
        columns[unnamed[0]] = "intensity"
    return tuple(columns)


def _are_colors(values: Numbers) -> bool:
    """Return True if all finite values are integers from 0 to 255."""
    values = values[np.isfinite(values).all(1)]
    return len(values) > 0 and bool((values == np.round(values)).all()) and values.min() >= 0 and values.max() <= 255


def _are_labels(values: Numbers) -> bool:
    """Return True if the finite values are integers of at least -1 with at most `_MAX_LABELS` distinct values."""
    values = values[np.isfinite(values)]
    if not len(values) or (values != np.round(values)).any() or values.min() < -1:
        return False
    return len(np.unique(values)) <= _MAX_LABELS
