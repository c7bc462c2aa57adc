"""Find the columns of a table that contain images, labels and splits. Torch-free."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import parse_finite
from engine.data.formats.shared.tables import (
    FILE_COLUMNS,
    INDEX_COLUMNS,
    ITEM_PREFIX,
    NO,
    SPLIT_COLUMNS,
    TESTING_COLUMNS,
    TRAINING_COLUMNS,
    VALIDATION_COLUMNS,
    YES,
    Table,
    remove_fraction,
)
from engine.data.formats.tree import split_named

LABEL_COLUMNS = (
    "label", "labels", "class", "classes", "class_name", "classname", "label_name", "category", "categories",
    "category_name", "tag", "tags", "attributes", "finding_labels", "target", "targets", "diagnosis", "dx", "breed",
    "species", "disease", "class_id", "classid", "class_label", "classes_names", "label_id", "class_index", "category_id",
    "attribute_ids", "label_names", "ground_truth", "expected", "level",
    "choice",
)  # fmt: skip
LIST_NAMES = frozenset(
    {"labels", "tags", "classes", "categories", "attributes", "targets", "label_names", "finding_labels"}
)
"""Names of columns whose cells may list several labels, separated by spaces."""
OTHER_COLUMNS = frozenset({
    "width", "height", "image_width", "image_height", "w", "h", "size", "depth", "channels", "sex", "gender", "age",
    "patient_id", "patient", "patientid", "lesion_id", "is_validated", "license", "author", "photographer", "date",
    "time", "timestamp", "source", "camera", "copyright", "md5", "sha1", "sha256", "latitude", "longitude", "lat", "lon",
})  # fmt: skip
"""Names of columns that usually describe an image. They are read as labels only if there are no other candidates."""
TEXT_COLUMNS = frozenset(
    {"text", "caption", "captions", "description", "prompt", "question", "answer", "comment", "comments"}
)
BOX_COLUMNS = frozenset(
    {
        *("xmin", "x_min", "x1", "bbox", "bbox_x", "x_center", "bndbox", "left", "encoded_pixels", "rle_mask"),
        *("prediction_string", "region_shape_attributes"),
    }
)
UNCERTAIN = "-1"
_COORDINATE = re.compile(r"(^|_)[xy]_?\d*$")
"""Pattern for the names of columns with positions in an image, such as left_eye_x."""
CONFIDENCE = "confidence"
"""Name of a column in tables from Open Images. The value 0 means that the image does not have the label of the row."""
_LABEL_WORDS = frozenset({"label", "labels", "class", "classes", "category", "tag", "tags", "id", "ids"})
_FEW_NUMBERS = 10
"""Number of distinct numbers in a column above which they may be measured values, unless its name suggests labels."""
_SAMPLED_CELLS = 20
"""Maximum number of distinct cells of a column that are examined for images or JSON objects."""
_SAMPLED_LISTS = 200
"""Maximum number of table cells that are examined to find out if they list labels or other values."""
_FEW_ROWS = 20
"""Minimum number of rows in tables whose labels must occur twice on average.

This does not apply to columns whose names suggest labels.
"""
MAX_DISTINCT = 100_000
"""Maximum number of distinct cells that are counted in a column. A column with as many does not contain labels."""


@dataclass
class Profile:
    """Statistics about the cells in one column of a table.

    Attributes:
        cells: Number of occurrences of each cell that is not blank. Only the first `MAX_DISTINCT` distinct cells are
            counted.
        blank: Number of blank cells.
        rows: Number of all cells.
    """

    cells: Counter[str] = field(default_factory=Counter)
    blank: int = 0
    rows: int = 0

    @property
    def is_flags(self) -> bool:
        """True if all cells of the column are yes/no flags, or -1 for unknown."""
        if len(self.cells) >= 20:  # more than there are ways to write flags
            return False
        values = {remove_fraction(cell.lower()) for cell in self.cells}
        return values <= YES | NO | {UNCERTAIN} and bool(values - {UNCERTAIN})

    @property
    def is_numbers(self) -> bool:
        """True if all cells of the column are integers."""
        return bool(self.cells) and all(re.fullmatch(r"[+-]?\d+", remove_fraction(cell)) for cell in self.cells)

    @property
    def has_fractions(self) -> bool:
        """True if all cells of the column are numbers and some of them are fractions."""
        return bool(self.cells) and not self.is_numbers and all(parse_finite(cell) is not None for cell in self.cells)


@dataclass(frozen=True)
class Labeling:
    """One way to read the labels of images from a table. Columns are given by their indices.

    Attributes:
        file: Column with the images.
        split: Column with the splits, or None if there is none.
        flag_columns: Columns that hold yes/no flags for one label each.
        listed: Column with one or several labels, or None if there are flags.
        mark: Separator between labels in a cell, or "" if each cell contains one label.
        signed: True if -1 means "no", because 0 does not occur.
        is_unambiguous: False if the names of the columns do not show which column contains labels, and several could.
    """

    file: int
    split: int | None
    flag_columns: tuple[int, ...] = ()
    listed: int | None = None
    mark: str = ""
    signed: bool = False
    is_unambiguous: bool = True


def profile_columns(table: Table) -> list[Profile]:
    """Return statistics about each column, using a single pass over the rows. Raises UnusableFile."""
    found = [Profile() for _ in table.head]
    counters = [each.cells for each in found]
    rows = 0
    for row in table.rows():
        rows += 1
        for counter, cell in zip(counters, row, strict=True):
            # The limit, which is for the memory, is for cells that are not blank.
            if cell in counter or not cell or len(counter) - ("" in counter) < MAX_DISTINCT:
                counter[cell] += 1
    for each in found:
        each.blank = each.cells.pop("", 0)
        each.rows = rows
    return found


def find_file_column(table: Table) -> int | None:
    """Return the index of the column with the images, or None if there is no such column or there are several.

    This is the only column with image files, or else a column with a suitable name.
    """
    sample = table.sample()
    of_images = [
        column
        for column in range(len(table.head))
        if any(row[column] for row in sample) and all(is_image(row[column]) for row in sample if row[column])
    ]
    if len(of_images) > 1:
        # If all columns have the same file names, one of them has paths. Otherwise, one may hold images, another masks.
        names = [{row[column].replace("\\", "/").rsplit("/", 1)[-1] for row in sample} for column in of_images]
        if any(each != names[0] for each in names):
            return None
        return max(of_images, key=lambda column: sum(len(row[column]) for row in sample))  # the column with the paths
    by_name = (table.normalized_names.index(name) for name in FILE_COLUMNS if name in table.normalized_names)
    return of_images[0] if of_images else next(by_name, None)


def find_label_columns(table: Table, profiles: Sequence[Profile]) -> list[Labeling]:
    """Return the possible ways to read labels from a table, most likely first, or [] if it has no labels."""
    file = find_file_column(table)
    names = table.normalized_names
    if file is None or not BOX_COLUMNS.isdisjoint(names) or _has_masks(names, profiles):
        return []
    split = _find_split_column(names, profiles, file)
    candidates = [
        column
        for column in range(len(names))
        if column not in (file, split) and not _is_unrelated(names[column], profiles[column], table.headless)
    ]
    named = [column for column in candidates if names[column] in LABEL_COLUMNS and _may_be_labels(profiles[column])]
    named.sort(key=lambda column: LABEL_COLUMNS.index(names[column]))
    flags = [column for column in candidates if profiles[column].is_flags]
    are_unnamed = table.headless or all(names[column].isdigit() for column in candidates)
    if are_unnamed and len(candidates) > 1 and flags != candidates:
        return []  # columns without names are only read if all of them are flags
    if named:
        chosen = _drop_doubles(table, named, profiles)
        are_certain = True
    else:
        # If only one column follows the image, it may have any name.
        without_indices = [name for column, name in enumerate(names) if column != split and name not in INDEX_COLUMNS]
        is_sole = len(without_indices) == 2
        candidates = [column for column in candidates if is_sole or names[column] not in OTHER_COLUMNS]
        flags = [column for column in flags if column in candidates]
        if len(flags) > 1:
            of_flags = [profiles[column] for column in flags]
            # If no cell means "no", -1 does.
            has_no = any(each.blank or not NO.isdisjoint(map(remove_fraction, each.cells)) for each in of_flags)
            return [Labeling(file, split, flag_columns=tuple(flags), signed=not has_no)]
        chosen = _select_likely_columns(candidates, names, profiles)
        are_certain = len(candidates) == 1
    marks = [_find_separator(names[column], profiles[column]) for column in chosen]
    return [
        Labeling(file, split, listed=column, mark=mark, is_unambiguous=are_certain)
        for column, mark in zip(chosen, marks, strict=True)
    ]


def _select_likely_columns(columns: Sequence[int], names: Sequence[str], profiles: Sequence[Profile]) -> list[int]:
    """Return those of `columns` that may contain labels according to their values."""
    likely = [each for each in columns if _may_be_labels(profiles[each]) and names[each] not in TEXT_COLUMNS]
    # A column of classes repeats its values, unlike a column of texts or numbers.
    if len(likely) > 1 or any(profiles[column].cells.total() >= _FEW_ROWS for column in likely):
        likely = [column for column in likely if profiles[column].cells.total() >= 2 * len(profiles[column].cells)]
    return likely


def _has_masks(names: Sequence[str], profiles: Sequence[Profile]) -> bool:
    """Return True if a column lists mask files, so that the table is not about labels of images."""
    return any(
        "mask" in name.split("_") and all(is_image(cell) for cell in islice(profile.cells, _SAMPLED_CELLS))
        for name, profile in zip(names, profiles, strict=True)
        if profile.cells
    )


def may_be_measured(name: str, profile: Profile) -> bool:
    """Return True if a column has so many different numbers that they may be measured values, not labels.

    Returns False for a column whose `name` suggests labels.
    """
    is_named = not _LABEL_WORDS.isdisjoint([*name.split("_"), name]) or name in LABEL_COLUMNS
    is_number = profile.is_numbers or profile.has_fractions
    return is_number and not is_named and len(profile.cells) > _FEW_NUMBERS


def has_only_measures(table: Table, profiles: Sequence[Profile]) -> bool:
    """Return True if the table contains only fractional numbers in addition to the names of images."""
    file = find_file_column(table)
    others = [each for column, each in enumerate(profiles) if column != file and each.cells]
    return file is not None and bool(others) and all(each.has_fractions for each in others)


def _is_unrelated(name: str, profile: Profile, headless: bool) -> bool:
    """Return True if the column `name` can't contain labels.

    Such a column is blank, or contains row numbers, other files, splits or coordinates. `headless` is True if the table
    has no column names, so that they are invented.
    """
    if not profile.cells:
        return True
    if (name in INDEX_COLUMNS and not headless) or name in (*SPLIT_COLUMNS, "kfold", "folds"):
        return True
    if _COORDINATE.search(name):
        return True
    return name in FILE_COLUMNS or all(is_image(cell) for cell in islice(profile.cells, _SAMPLED_CELLS))


def _may_be_labels(profile: Profile) -> bool:
    """Return True if the cells of a column can be labels.

    They can't if all of them are blank, if too many of them are distinct, or if they are fractions, JSON objects, or
    lists of values.
    """
    if not profile.cells or len(profile.cells) >= MAX_DISTINCT or profile.has_fractions:
        return False
    has_objects = any(cell.startswith(("{", "[{")) for cell in islice(profile.cells, _SAMPLED_CELLS))
    return not has_objects and not _lists_values(profile)


def _lists_values(profile: Profile) -> bool:
    """Return True if the cells are lists of numbers that are probably boxes, scores or flags, not labels.

    All lists must have the same length.
    """
    sampled = list(profile.cells)[:_SAMPLED_LISTS]
    if len(sampled) < 2 or not all(cell.startswith(ITEM_PREFIX) for cell in sampled):
        return False
    lists = [[parse_finite(number) for number in cell.split(ITEM_PREFIX)[1:]] for cell in sampled]
    numbers = {number for each in lists for number in each}
    if None in numbers or len({len(each) for each in lists}) > 1:
        return False
    if 2 * sum(len(set(each)) < len(each) for each in lists) > len(lists):  # repeated numbers, such as flags 0 and 1
        return True
    are_integers = all(number is not None and number.is_integer() for number in numbers)
    # Boxes, scores, or pairs of measured numbers.
    return len(lists[0]) == 4 or not are_integers or (len(lists[0]) == 2 and len(numbers) > _FEW_NUMBERS)


def _find_split_column(names: Sequence[str], profiles: Sequence[Profile], file: int) -> int | None:
    """Return the index of the column with the splits, found by its name and its cells, or None if there is none.

    `file` is the index of the column with the images.
    """
    for column, (name, profile) in enumerate(zip(names, profiles, strict=True)):
        if column == file or not profile.cells:
            continue
        if name in SPLIT_COLUMNS and all(map(split_named, profile.cells)):
            return column
        if name in (*VALIDATION_COLUMNS, *TRAINING_COLUMNS, *TESTING_COLUMNS) and profile.is_flags:
            return column
    return None


def find_split_column_by_name(names: Sequence[str], file: int) -> int | None:
    """Return the index of the column with the splits, found by its name alone, or None if there is none.

    `file` is the index of the column with the images.
    """
    flags = (*VALIDATION_COLUMNS, *TRAINING_COLUMNS, *TESTING_COLUMNS)
    possible_names = ("split", "set", "subset", "partition", "data_set", *flags)
    return next((names.index(name) for name in possible_names if name in names and names.index(name) != file), None)


def parse_split(name: str, cell: str) -> str:
    """Return the split that a cell in the column `name` denotes, or "" if it denotes none."""
    if name in SPLIT_COLUMNS:
        return split_named(cell)
    is_yes = remove_fraction(cell.lower()) in YES
    if name in TRAINING_COLUMNS:
        return "train" if is_yes else "val"
    if name in TESTING_COLUMNS:
        return "test" if is_yes else "train"
    return "val" if is_yes else "train"


def _drop_doubles(table: Table, columns: Sequence[int], profiles: Sequence[Profile]) -> list[int]:
    """Return `columns` without those that repeat another one in other words, such as class numbers next to class names.

    Of two such columns, the one with names remains.
    """

    def is_same(first: int, second: int) -> bool:
        """Return True if each cell of the column `first` always occurs together with the same cell of `second`."""
        cells = profiles[first].cells  # distinct cells that aren't blank
        if len(cells) != len(profiles[second].cells):
            return False
        pairs = {(row[first], row[second]) for row in table.rows()}
        return len(pairs) == len(cells) + bool(profiles[first].blank)  # blank cells form one more pair

    different: list[int] = []  # columns with names come first, so that they remain
    for column in sorted(columns, key=lambda column: profiles[column].is_numbers):
        if not any(is_same(each, column) for each in different):
            different.append(column)
    return [column for column in columns if column in different]


def _find_separator(name: str, profile: Profile) -> str:
    """Return the separator between labels in the cells of the column `name`, or "" if each cell contains one label.

    The separator "[" means that the cells are lists in brackets.
    """
    texts = list(profile.cells)
    if profile.is_numbers:
        return ""
    if any(ITEM_PREFIX in text for text in texts):
        return ITEM_PREFIX
    if all(text.startswith("[") and text.endswith("]") for text in texts):
        return "["
    for mark in ("|", ";"):
        if any(mark in text for text in texts):
            return mark
    return next((mark for mark in (",", " ") if _is_separator(mark, name, profile)), "")


def _is_separator(mark: str, name: str, profile: Profile) -> bool:
    """Return True if the comma or space `mark` separates labels and is not a part of their names.

    It separates labels if they are combined in more ways than there are labels, or if all of them are numbers. The
    words in names such as "golden retriever" occur in fewer combinations.
    """
    divided_cells = [cell.split(mark) for cell in profile.cells if mark in cell]  # the possible labels in each cell
    if not divided_cells or (mark == " " and not _can_be_label_list(name, divided_cells)):
        return False
    labels = {label.strip() for cell in profile.cells for label in cell.split(mark)}
    occurs_alone = any(label.strip() in profile.cells for cell in divided_cells for label in cell)
    if name == "tags" and mark == " ":  # a word in most cells is a separate tag, unlike the words in "golden retriever"
        counts = Counter(label for cell in divided_cells for label in set(cell))
        if len(divided_cells) > 1 and 2 * max(counts.values()) > len(profile.cells):
            return True
    if len(labels) < len(profile.cells) or (len(labels) == len(profile.cells) and occurs_alone):
        return True
    return all(label.isdigit() for label in labels)  # numbers are never words of one name


def _can_be_label_list(name: str, cells: Iterable[Sequence[str]]) -> bool:
    """Return True if spaces in the column `name` may separate labels instead of the words of one label.

    This is the case if the column has a usual name for lists of labels, such as "tags", or if all words are numbers.
    `cells` holds the words of each cell.
    """
    return name in LIST_NAMES or all(word.isdigit() for words in cells for word in words)


def split_labels(cell: str, mark: str) -> tuple[str, ...]:
    """Return the distinct labels in a table cell, which are separated by `mark` (see `Labeling`)."""
    if not mark:
        return (cell,) if cell else ()
    if mark == "[":
        try:
            listed = json.loads(cell.replace("'", '"'))
        except ValueError:
            listed = cell.strip("[]").split(",")
        labels = [str(label).strip().strip("'\"") for label in listed]
    else:
        labels = [label.strip() for label in cell.split(None if mark == " " else mark)]
    return tuple(dict.fromkeys(label for label in labels if label))
