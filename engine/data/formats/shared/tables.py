"""Tables that describe images: CSV, TSV, JSON Lines, Parquet and JSON records, read row by row. Torch-free."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import HEAD_BYTES, MAX_TABLE_BYTES, decode_text, read_text, refuse_unusable
from engine.data.formats.shared import parquet
from engine.data.formats.tree import Tree, split_named, suffix
from engine.data.splits import dataset_warning, printable, sample_evenly
from engine.system.regular_files import UnusableFile, open_regular

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".txt")
ITEM_PREFIX = "\x1f"
"""Separator before each list item in a cell. It is a control character that does not occur in text."""
FILE_COLUMNS = (
    "file", "filename", "file_name", "fname", "image", "image_name", "imagename", "image_file", "image_filename", "img",
    "img_name", "img_path", "picture", "path", "paths", "image_path", "imagepath", "filepath", "filepaths", "file_path",
    "filenames", "images", "image_url", "url", "name", "id", "image_id", "imageid", "img_id", "image_index", "id_code",
)  # fmt: skip
SPLIT_COLUMNS = ("split", "set", "subset", "data_set", "dataset", "partition", "phase", "usage", "fold")
VALIDATION_COLUMNS = ("is_valid", "is_val", "is_validation", "valid", "validation")
TRAINING_COLUMNS = ("is_train", "is_training")
TESTING_COLUMNS = ("is_test", "is_testing")
INDEX_COLUMNS = ("", "unnamed_0", "unnamed_0_1", "index", "row", "idx")
SUBMISSIONS = ("submission", "sample_sub")
_SHAPES = frozenset({"annotations", "coordinates", "regions", "shapes", "objects", "bbox", "segmentation", "points"})
"""Keys in JSON files that describe objects in images. Such files are not tables."""
_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Names of the metadata files of image folders for Hugging Face `datasets`."""
YES = frozenset({"1", "true", "yes"})
NO = frozenset({"0", "false", "no"})
_MAX_INNER_FOLDERS = 200
"""Maximum number of folders on the second level that are searched for tables."""
_MAX_TABLES = 200  # with the same extension in one folder
_SAMPLED = 200  # rows from the beginning of a table
_FEW_WORDS = 20
"""Maximum number of distinct words in a last column that counts as categories even if words rarely recur."""
_OF_BOX = 6
"""Number of cells in a row with a box (image, four edges and class), in tables without column names."""
_NUMBER = re.compile(r"[+-]?\d+[.,]0*")


@dataclass(frozen=True)
class Table:
    """Table in a file.

    Attributes:
        path: Full path of the file.
        head: Names of the columns as written.
        text: Text of a table that consists of lines, otherwise "".
        delimiter: Character between the cells of a line.
        headless: True if the first line is an ordinary row. The names in `head` are then invented.
        records: Rows of a table that does not consist of lines.
        open_end: Cells of the last line if it has no line break, otherwise ().
        cut: Last line if it was removed because it seems truncated, otherwise "".
    """

    path: str
    head: tuple[str, ...]
    text: str = ""
    delimiter: str = ","
    headless: bool = False
    records: Sequence[Sequence[str]] = ()
    open_end: tuple[str, ...] = ()
    cut: str = ""

    @property
    def normalized_names(self) -> tuple[str, ...]:
        """Column names in lower case with "_" between words."""
        return tuple(normalize_name(name) for name in self.head)

    def rows(self) -> Iterator[Sequence[str]]:
        """Yield the rows, each with one cell per column. Blank rows are skipped. Raises UnusableFile."""
        if not self.text:
            yield from self.records
            return
        width = len(self.head)
        with refuse_unusable(self.path):
            lines = _iterate_lines(self.text, self.delimiter)
            separator = "," if self.delimiter == "\t" else self.delimiter
            for line in itertools.islice(lines, 0 if self.headless else 1, None):
                cells = [cell.strip() for cell in line[:width]]
                if len(line) > width and any(map(str.strip, line[width:])):  # a list without quotes in the last column
                    cells[-1] = separator.join([cells[-1], *map(str.strip, line[width:])])
                yield cells if len(cells) == width else cells + [""] * (width - len(cells))

    def sample(self, count: int = _SAMPLED) -> list[Sequence[str]]:
        """Return at most `count` rows, evenly spaced over the first part of the table."""
        return sample_evenly(list(itertools.islice(self.rows(), 50 * count)), count)


def normalize_name(name: str) -> str:
    """Convert a column name to lower case with "_" between words."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def remove_fraction(cell: str) -> str:
    """Convert "1.0" and "1,0" to "1". Other text is returned unchanged."""
    return re.split("[.,]", cell)[0] if _NUMBER.fullmatch(cell) else cell


def find_tables(tree: Tree, endings: Sequence[str] = ENDINGS) -> Iterator[tuple[str, str]]:
    """Yield the folder and name of each file that may be a table, in folders up to two levels deep.

    `endings` are the extensions of tables. On the second level, at most `_MAX_INNER_FOLDERS` folders are searched. If a
    folder has many files with the same extension, these are skipped, since each probably describes one image. Files
    whose names contain one of the words `SUBMISSIONS` are skipped, too.
    """
    # All folders of the first level, and then some of the second.
    second_level = (folder for folder in tree.walk(depth=2) if folder.count(os.sep) == 1)
    for folder in itertools.chain(tree.walk(depth=1), itertools.islice(second_level, _MAX_INNER_FOLDERS)):
        used_endings = [ending for ending in endings if 0 < tree.suffixes(folder)[ending] <= _MAX_TABLES]
        for name in tree.files(folder, used_endings) if used_endings else ():
            if not any(word in name.lower() for word in SUBMISSIONS):
                yield folder, name


def is_metadata(tree: Tree, folder: str, name: str) -> bool:
    """Return True if the file `name` is a metadata file of Hugging Face `datasets` with the names of images.

    A Parquet file is recognized by its name alone, because pyarrow, which reads it, may be missing.
    """
    if name.lower() not in _METADATA:
        return False
    if suffix(name) == ".parquet":
        return True
    table = open_table(tree.path(folder, name), head=True)
    return table is not None and "file_name" in table.normalized_names


def open_table(path: str, *, head: bool = False) -> Table | None:
    """Open the table in a file. Returns None if the file does not contain a table.

    If `head` is True, only the first lines are read, and None is returned if the file can't be read. A JSON file is
    then read completely if its beginning shows that it contains records. Raises UnusableFile if the file is too large
    or not a regular file, and OSError if it can't be read.
    """
    ending = suffix(path)
    try:
        if ending == ".parquet":
            return make_table(path, parquet.iterate_rows(path))
        if head or ending == ".json":
            text = _read_head(path)
            if ending == ".json" and not _begins_records(text):
                return None
        if not head or ending == ".json":
            text = read_text(path, MAX_TABLE_BYTES)
        with refuse_unusable(path):
            if ending == ".json":
                return _parse_json(path, text)
            if ending in (".jsonl", ".ndjson"):
                return _parse_json_lines(path, text)
            table = _parse_listing(path, text) if ending == ".txt" else _parse_lines(path, text)
            return table if head or table is None else _drop_cut_line(table)
    except (UnusableFile, OSError):
        if head:
            return None
        raise


def _read_head(path: str) -> str:
    """Return the complete lines at the beginning of a text file."""
    with open_regular(path) as stream:
        content = stream.read(HEAD_BYTES + 1)
    text = decode_text(content)
    return text[: text.rfind("\n") + 1] if len(content) > HEAD_BYTES and "\n" in text else text


def _iterate_lines(text: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the lines of a table, each divided into cells. Blank lines are skipped. Raises csv.Error."""
    lines = csv.reader(io.StringIO(text, newline=None), delimiter=delimiter, skipinitialspace=True)
    return (line for line in lines if any(map(str.strip, line)))


def _parse_lines(path: str, text: str) -> Table | None:
    """Create a table from text like that of a CSV file, with or without column names. Returns None if it is blank."""
    first_line = text.lstrip().partition("\n")[0]
    delimiter = "\t" if suffix(path) == ".tsv" else max(",;\t|", key=first_line.count)
    head = [cell.strip() for cell in next(_iterate_lines(text, delimiter), [])]
    if not any(head):
        return None
    headless = any(map(is_image, head))
    if headless:
        head = _invent_names(head, text, delimiter)
    return Table(path, tuple(head), text, delimiter, headless)


def _is_ragged(text: str, delimiter: str) -> bool:
    """Return True if lines of a table have different numbers of cells, as in lists of labels.

    Only the first complete lines are compared.
    """
    full = text if text.endswith(("\n", "\r")) else text[: text.rfind("\n") + 1]
    return len({len(line) for line in itertools.islice(_iterate_lines(full, delimiter), _SAMPLED)}) > 1


def _invent_names(row: Sequence[str], text: str, delimiter: str) -> list[str]:
    """Return invented column names for a table without a header, given its first row.

    `text` is the text of the table, and `delimiter` separates its cells.
    """
    file_column = next(column for column, cell in enumerate(row) if is_image(cell))
    if file_column == 0 and len(row) < _OF_BOX and _is_ragged(text, delimiter):
        return ["file", "labels"]  # a list of labels follows each image
    names = [f"column {column}" for column in range(len(row))]
    names[file_column] = "file"
    split_columns = [column for column, cell in enumerate(row) if split_named(cell)]
    if len(split_columns) == 1 and file_column > 0:  # tables from Google begin with the split
        names[split_columns[0]] = "split"
    others = [column for column, name in enumerate(names) if name.startswith("column")]
    if len(others) == 1:
        names[others[0]] = "labels"
    return names


def _drop_cut_line(table: Table) -> Table:
    """Return a copy of a table without its last line if this line has no line break and seems truncated.

    A truncated line has fewer cells than the header. If the last column contains categories, a line is also truncated
    if its last word occurs in no other line, or is the beginning of a longer word in that column. If the last line is
    complete, only a copy of its cells in `open_end` is added.
    """
    start = table.text.rfind("\n") + 1  # of the last line
    if not start or table.text.endswith(("\n", "\r")):  # it has only one line, or ends with a line break
        return table
    line = table.text[start:]
    cells = tuple(cell.strip() for cell in next(_iterate_lines(line, table.delimiter), []))
    shortened = replace(table, text=table.text[:start], cut=line)
    if len(cells) < len(table.head):
        return shortened
    words = Counter(row[-1] for row in shortened.rows())  # in the last column of all other lines
    is_category = len(words) <= max(_FEW_WORDS, words.total() / 2)
    last_word = remove_fraction(cells[-1])
    begins_another = any(remove_fraction(word) != last_word and word.startswith(cells[-1]) for word in words)
    is_known = cells[-1] in words or last_word.lower() in YES | NO
    if last_word and is_category and (begins_another or not is_known):
        return shortened
    return replace(table, open_end=cells)


def _parse_listing(path: str, text: str) -> Table | None:
    """Read the table in a .txt file, or return None if there is none.

    Each line contains a path, followed by one class, several labels or several flags, or has cells as in a CSV file.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if any(separator in line for line in lines[:1] for separator in ",;\t"):
        return _parse_lines(path, text)
    rows = [_split_path_and_words(line) for line in lines]
    names: list[str] = []  # of the columns after the path
    if rows[:2] == [None, None]:  # CelebA: the number of rows, then the column names
        names = lines[1].split() if len(rows) > 2 and lines[0].split()[0].isdigit() else []
        rows = rows[2:]
    elif rows[:1] == [None]:
        names = lines[0].split()[1:]
        rows = rows[1:]
    if not rows or None in rows[:_SAMPLED]:
        return None
    complete = [row for row in rows if row is not None]
    lengths = {len(row) for row in complete}
    width = max(lengths)
    if width < 2:
        return None
    if not names and len(lengths) > 1:  # a list of labels after each image
        complete = [[row[0], " ".join(row[1:])] for row in complete]
        width = 2
    if len(names) != width - 1:
        names = ["labels"] if width == 2 else [str(number) for number in range(width - 1)]
    return Table(path, ("file", *names), records=[[*row, *[""] * (width - len(row))] for row in complete])


def _split_path_and_words(line: str) -> list[str] | None:
    """Return the path at the beginning of a line and the words after it.

    Returns None if the line does not begin with the name of an image.
    """
    found = re.match(r"\s*(.+?\.[A-Za-z]{3,4})(?:\s+(.*))?$", line)
    if found is None or not is_image(found[1]):
        return None
    return [found[1], *(found[2] or "").split()]


# JSON


def _begins_records(text: str) -> bool:
    """Return True if a JSON file may be a list of objects with one image each, or a mapping from images to labels.

    `text` is the beginning of the file.
    """
    start = text.lstrip()
    return _begins_list_of_images(start) if start.startswith("[") else _begins_mapping_of_images(start)


def _begins_list_of_images(text: str) -> bool:
    """Return True if a JSON list may contain an object for each image. `text` is its beginning.

    Objects with the keys in `_SHAPES` are not rows of a table.
    """
    end = text.find("}")  # of the first object
    first_object = text[: end + 1] if end >= 0 else text[:4096]
    names = {normalize_name(key) for key in re.findall(r'"([^"\\]{1,40})"\s*:', first_object)}
    # Records with only these keys list something else, such as classes or licenses, although all are FILE_COLUMNS.
    may_name_images = not names.isdisjoint(FILE_COLUMNS) and not names <= {"id", "name", "url"}
    return may_name_images and names.isdisjoint(_SHAPES)


def _begins_mapping_of_images(text: str) -> bool:
    """Return True if a JSON object may map images to labels, or has StyleGAN's list of them. `text` is its beginning."""
    if re.match(r'\{\s*"labels"\s*:\s*\[\s*\[', text):  # StyleGAN: {"labels": [["a.png", 3], …]}
        return True
    first_key = re.match(r'\{\s*"((?:[^"\\]|\\.)*)"\s*:', text)
    return first_key is not None and is_image(first_key[1])


def _parse_json(path: str, text: str) -> Table | None:
    """Return the table in a JSON file: records in a list, or labels by file. Returns None for other content."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    if isinstance(content, dict):
        pairs = content.get("labels") if len(content) == 1 else None
        if isinstance(pairs, list):  # StyleGAN: {"labels": [["a.png", 3], …]}
            pairs = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2]
        else:
            pairs = [[file, labels] for file, labels in content.items() if is_image(file)]
        content = [{"file": file, "labels": labels} for file, labels in pairs]
    if not isinstance(content, list):
        return None
    return make_table(path, content)


def _parse_json_lines(path: str, text: str) -> Table | None:
    """Create a table from the JSON objects in the lines of a text, or return None if its first line is not JSON.

    Other invalid lines become rows of blank cells.
    """
    records = []
    for line in text.splitlines():
        if line.strip():
            try:
                records.append(json.loads(line))
            except ValueError:
                if not records:
                    return None
                records.append({})
    return make_table(path, records)


def make_table(path: str, records: Iterable[Any]) -> Table | None:
    """Create a table from JSON objects, one for each row, or return None if they are empty.

    A nested object with flags becomes one column for each flag.
    """
    rows = [_make_cells(record) for record in records if isinstance(record, dict)]
    head = tuple(dict.fromkeys(key for row in rows for key in row))
    if not head:
        return None
    return Table(path, head, records=[[row.get(key, "") for key in head] for row in rows])


def _make_cells(record: Mapping[str, Any]) -> dict[str, str]:
    """Convert a JSON object to cells by column. An object in it that holds only numbers gives one cell per number."""
    found = {}
    for key, value in record.items():
        if isinstance(value, dict) and all(isinstance(each, bool | int | float) for each in value.values()):
            found.update({name: _make_cell(each) for name, each in value.items()})
        else:
            found[key] = _make_cell(value)
    return found


def _make_cell(value: Any) -> str:
    """Convert a JSON value to the text of a cell.

    A list becomes its items, each preceded by the separator `ITEM_PREFIX`, which marks the cell as a list. Objects and
    nested lists become "".
    """
    match value:
        case None:
            return ""
        case bool():
            return str(int(value))
        case list() if not any(isinstance(each, dict | list) for each in value):
            return ITEM_PREFIX.join(["", *map(_make_cell, value)])
        case list() | dict():
            return ""
    return str(value).strip()


def warn_about_cut_lines(tree: Tree, tables: Iterable[Table]) -> Iterator[Problem]:
    """Yield a warning about each table whose last line was removed because it is truncated."""
    for table in tables:
        if table.cut:
            message = (
                f"The last line of {format_table_path(table, tree)} seems to be cut off: {printable(table.cut)[:80]}."
            )
            yield dataset_warning(message, "It is left out; complete it, and end it with a line break.")


def format_table_path(table: Table, tree: Tree) -> str:
    """Return the printable path of a table relative to the dataset folder."""
    return printable(tree.within(table.path))
