"""Boxes in tables: CSV files from Roboflow, TensorFlow, Open Images, VoTT, RetinaNet and others. Torch-free."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from engine.contract.problems import Problem
from engine.data.decoding.reading import parse_finite
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.boxes import read_upright_size
from engine.data.formats.shared.class_numbers import MAX_NAMES_BYTES, name_numbers
from engine.data.formats.shared.label_columns import (
    LABEL_COLUMNS,
    find_file_column,
    find_split_column_by_name,
    parse_split,
)
from engine.data.formats.shared.shapes import Shape, ShapedImage, convert, parse_size, rename_classes
from engine.data.formats.shared.table_images import TableFile, TableImages
from engine.data.formats.shared.tables import (
    YES,
    Table,
    find_tables,
    format_table_path,
    open_table,
    remove_fraction,
    warn_about_cut_lines,
)
from engine.data.formats.tree import Tree, split_of_table
from engine.data.splits import dataset_error, dataset_warning, first_names, warn_about
from engine.system.regular_files import UnusableFile

LAYOUT = (
    "Choose a folder of images with a CSV file of boxes: a column of file names, xmin, ymin, xmax and ymax in pixels, and "
    "class; with one such file each for train and val, or a column split."
)
ENDINGS = (".csv", ".tsv", ".txt")
_CORNERS = (
    ("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"), ("x1", "y1", "x2", "y2"),
    ("x0", "y0", "x1", "y1"), ("left", "top", "right", "bottom"), ("xtl", "ytl", "xbr", "ybr"),
    ("bbox_xmin", "bbox_ymin", "bbox_xmax", "bbox_ymax"), ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2"),
    ("x_1", "y_1", "x_2", "y_2"),
)  # fmt: skip
_SIZES = (
    ("bbox_x", "bbox_y", "bbox_width", "bbox_height"), ("bbox_x", "bbox_y", "bbox_w", "bbox_h"),
    ("xmin", "ymin", "width", "height"), ("x_min", "y_min", "width", "height"), ("x", "y", "w", "h"),
    ("x", "y", "width", "height"), ("x_1", "y_1", "width", "height"), ("left", "top", "width", "height"),
)  # fmt: skip
_CENTERS = (("x_center", "y_center", "width", "height"), ("cx", "cy", "w", "h"), ("xc", "yc", "w", "h"))
_LISTS = ("bbox", "box", "bounding_box", "boundingbox", "bboxes", "boxes")
_STRINGS = ("boxes_string", "boxesstring")
_WIDTHS = ("image_width", "img_width", "width")
_HEIGHTS = ("image_height", "img_height", "height")
_IGNORED = ("is_group_of", "isgroupof", "iscrowd", "is_crowd", "difficult")
_NAMELESS = "object"
"""Class name for tables without a class column."""
_PEEKED_ROWS = 2000  # rows of a table that detection reads
_MEASURED = 50
"""Maximum number of images that are opened for their size, to find out the order of numbers in boxes."""


@dataclass(frozen=True)
class Columns:
    """Meaning of the columns in a table of boxes. Columns are given by their indices.

    Attributes:
        file: Column with the images.
        box: Columns with the four numbers of a box, or a single column with all four.
        form: Order of the numbers: "xyxy" (left, top, right, bottom), "xywh" (left, top, width, height) or "centers"
            (center, width, height). It is "list" if all numbers are in one column, so that the order is unknown.
        classes: Columns that may contain the class, or () if the table has no classes.
        size: Columns with the width and height of the image, or None if there are none.
        ignored: Column that marks crowds and difficult objects, or None if there is none.
        split: Column with the splits, or None if there is none.
    """

    file: int
    box: tuple[int, ...]
    form: str
    classes: tuple[int, ...] = ()
    size: tuple[int, int] | None = None
    ignored: int | None = None
    split: int | None = None


class _BoxTable(NamedTuple):
    """Table of boxes with the meaning of its columns."""

    file: TableFile
    columns: Columns


class _Source(NamedTuple):
    """Tables to read, which `detect` passes on to `read`."""

    files: tuple[TableFile, ...]
    form: str  # see `Columns.form`
    unused: tuple[str, ...]  # paths of other tables of boxes


# Detection


def _detect(tree: Tree) -> list[Detection]:
    """Detect tables of boxes. Returns one detection for each possible order of the four numbers.

    If any tables are named after splits, only these are used, otherwise those with the same columns as the first one.
    The detections are weak if most of the images are missing.
    """
    found: list[_BoxTable] = []
    images = TableImages(tree)
    best_fraction = 0.0  # of a table's images that exist
    for folder, name in find_tables(tree, ENDINGS):
        table = open_table(tree.path(folder, name), head=True)
        columns = None if table is None else find_columns(table)
        if table is None or columns is None:
            continue
        file = TableFile(folder, split_of_table(folder, name), table)
        rows = list(itertools.islice(table.rows(), _PEEKED_ROWS))
        sampled_rows = rows[:: max(len(rows) // 20, 1)]  # about 20
        found_fraction = images.measure_found_fraction(file, {row[columns.file] for row in sampled_rows})
        if found_fraction and any(read_numbers(table, columns, row) for row in rows):
            best_fraction = max(best_fraction, found_fraction)
            found.append(_BoxTable(file, columns))
    if not found:
        return []
    # Use the tables of splits, or else those with the same columns as the first one.
    with_split = [each for each in found if each.file.split]
    used = with_split or [
        each for each in found if each.file.table.normalized_names == found[0].file.table.normalized_names
    ]
    unused = tuple(each.file.table.path for each in found if each not in used)
    files = tuple(each.file for each in used)
    evidence = (f"{' and '.join(format_table_path(each.table, tree) for each in files[:3])} with boxes",)
    against = () if best_fraction >= 0.5 else ("most of the images are not in the folder",)
    confidence = Confidence.CERTAIN if best_fraction >= 0.5 else Confidence.WEAK
    forms = _find_forms(used, images)  # possible orders of the numbers
    return [
        Detection(
            ("boxes",), confidence, evidence, against,
            variant=form if len(forms) > 1 else "", source=_Source(files, form, unused),
        )
        for form in forms
    ]  # fmt: skip


def find_columns(table: Table) -> Columns | None:
    """Return the meaning of the columns in a table, or None if it isn't a table of boxes.

    Without a header, the table must be in RetinaNet's format.
    """
    names = table.normalized_names
    file = find_file_column(table)
    if file is None:
        return None
    if table.headless:
        return _guess_columns(table)
    box, form = _find_box_columns(names)
    if not box or file in box:
        return None
    classes = tuple(names.index(name) for name in LABEL_COLUMNS if name in names and names.index(name) != file)
    if not classes and "name" in names and names.index("name") != file:
        classes = (names.index("name"),)
    width, height = _find_column(names, _WIDTHS, box), _find_column(names, _HEIGHTS, box)
    size = None if width is None or height is None else (width, height)
    ignored = _find_column(names, _IGNORED, box)
    return Columns(file, box, form, classes, size, ignored, find_split_column_by_name(names, file))


def _find_box_columns(names: Sequence[str]) -> tuple[tuple[int, ...], str]:
    """Return the indices of the columns with the numbers of a box, and their order (see `Columns.form`).

    A box is in four columns, or in a single column with all four numbers. Returns () and "" if the column `names` have
    neither.
    """
    for form, quadruples in (("xyxy", _CORNERS), ("centers", _CENTERS), ("xywh", _SIZES)):
        for columns in quadruples:
            if set(columns) <= set(names):
                return tuple(map(names.index, columns)), form
    for form, single_names in (("xyxy", _STRINGS), ("list", _LISTS)):
        for name in single_names:
            if name in names:
                return (names.index(name),), form
    return (), ""


def _find_column(names: Sequence[str], candidates: Sequence[str], box: Sequence[int]) -> int | None:
    """Return the index in `names` of the first of the `candidates` that occurs there, or None if none does.

    Indices in `box`, which are those of the box, are not returned.
    """
    indices = (names.index(name) for name in candidates if name in names)
    return next((index for index in indices if index not in box), None)


def _guess_columns(table: Table) -> Columns | None:
    """Return the meaning of the columns in a table without a header, or None if it isn't in RetinaNet's format.

    In this format, a row has the path of the image, left, top, right and bottom, and the class.
    """
    if len(table.head) != 6:
        return None
    rows = table.sample()
    without_objects = [row for row in rows if not any(row[1:])]
    with_box = [row for row in rows if all(parse_finite(cell) is not None for cell in row[1:5]) and row[5]]
    if 2 * (len(without_objects) + len(with_box)) <= len(rows):
        return None
    return Columns(file=0, box=(1, 2, 3, 4), form="xyxy", classes=(5,))


def _find_forms(used: Sequence[_BoxTable], images: TableImages) -> list[str]:
    """Return the possible orders of the four numbers in boxes (see `Columns.form`).

    If the columns determine the order, only this order is returned. Otherwise, all orders are returned that fit the
    boxes in the first rows and the sizes of their images.
    """
    if used[0].columns.form != "list":
        return [used[0].columns.form]
    measured_sizes: dict[str, tuple[int, int] | None] = {}  # by the name of the image
    boxes: list[tuple[Sequence[float], tuple[int, int] | None]] = []
    for file, columns in used:
        for row in itertools.islice(file.table.rows(), _PEEKED_ROWS):
            size = _read_size(row, columns)
            name = row[columns.file]
            if size is None and len(measured_sizes) < _MEASURED:
                path = images.find(file, name)
                measured_sizes.setdefault(name, read_upright_size(path) if path else None)
            boxes += [(box, size or measured_sizes.get(name)) for box in read_numbers(file.table, columns, row) or ()]
    return find_fitting_forms(boxes)


def find_fitting_forms(boxes: Iterable[tuple[Sequence[float], tuple[int, int] | None]]) -> list[str]:
    """Return the possible orders of the four numbers in boxes, "xywh" and "xyxy".

    With such an order, all boxes have a positive size and are inside their images. `boxes` holds the numbers of each
    box, and the height and width of its image, or None if unknown. If neither order fits, both are returned.
    """
    are_corners = are_sizes = True
    for (left, top, third, fourth), size in boxes:
        are_corners &= third > left and fourth > top
        if size is not None:
            height, width = size
            # One pixel of tolerance.
            are_corners &= third <= width + 1 and fourth <= height + 1
            are_sizes &= left + third <= width + 1 and top + fourth <= height + 1
    fitting = [form for form, fits in (("xywh", are_sizes), ("xyxy", are_corners)) if fits]
    return fitting or ["xywh", "xyxy"]


# Reading


def read_numbers(table: Table, columns: Columns, row: Sequence[str]) -> list[tuple[float, ...]] | None:
    """Return the four numbers of each box in a row of a table, or None if a number can't be read.

    The numbers are in the same order as in the row. For an image without objects, the result is [].
    """
    cells = [row[column] for column in columns.box]
    if len(cells) == 1:
        if not re.search(r"\d", cells[0]):
            return [] if cells[0] in ("", "[]", "no_box") else None
        cells = re.sub(r"[\[\](),;]", " ", cells[0]).split()
    elif not any(cells):
        return []
    if table.delimiter == ";":  # then commas are decimal separators
        cells = [cell.replace(",", ".") for cell in cells]
    values = [value for cell in cells if (value := parse_finite(cell)) is not None]
    if len(values) != len(cells) or len(values) % 4:
        return None
    return [tuple(values[start : start + 4]) for start in range(0, len(values), 4)]


def _read_size(row: Sequence[str], columns: Columns) -> tuple[int, int] | None:
    """Return the height and width of the image that a row of a table states, or None if it doesn't."""
    if columns.size is None:
        return None
    width_column, height_column = columns.size
    return parse_size(height=row[height_column], width=row[width_column])


@dataclass
class _BoxCollection:
    """Images and faults collected while tables of boxes are read.

    Attributes:
        search: Search for images, and collector of those that were not found.
        images: Images with boxes by split and path.
        faults: Rows that can't be read.
    """

    search: TableImages
    images: dict[str, dict[str, ShapedImage]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def _read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their boxes from all tables.

    Unreadable tables are left out, and so is the last image of a truncated table.
    """
    source: _Source = detection.source
    collected = _BoxCollection(TableImages(tree))
    problems: list[Problem] = []
    if source.unused:
        problems.append(dataset_warning(f"These tables of boxes are not used: {first_names(source.unused)}."))
    for file in source.files:
        table = _open_completely(tree, file, problems)
        columns = None if table is None else find_columns(table)
        if table is None or columns is None:
            continue
        # If the last line has no line break, the last number may be truncated.
        is_last_number_open = table.open_end and columns.box[-1] == len(table.head) - 1
        if is_last_number_open:
            table = replace(table, text=table.text[: table.text.rfind("\n") + 1], cut=",".join(table.open_end))
        problems += warn_about_cut_lines(tree, [table])
        last_path = _read_table(replace(file, table=table), columns, source.form, collected)
        if table.cut:
            for images in collected.images.values():
                images.pop(last_path, None)  # some of its boxes may be missing
    splits = {split: list(images.values()) for split, images in collected.images.items()}
    problems += _report_problems(collected)
    all_images = [image for images in splits.values() for image in images]
    edges = [edge for image in all_images for shape in image.shapes for edge in shape.box]
    are_fractions = any(edge % 1 for edge in edges) and max(edges) <= 1.01  # of the image size, with some tolerance
    if are_fractions:
        for image in all_images:
            image.fractions = True
    folders = list(dict.fromkeys([*(file.folder for file in source.files), "", *tree.folders()]))
    return convert("boxes", splits, problems, _name_classes(all_images, tree, folders))


def _open_completely(tree: Tree, file: TableFile, problems: list[Problem]) -> Table | None:
    """Open a table with all of its lines. If it can't be read, append an error to `problems` and return None."""
    try:
        return open_table(file.table.path)
    except (OSError, UnusableFile) as error:
        reason = error.reason if isinstance(error, UnusableFile) else "can't be read"
        problems.append(dataset_error(f"{format_table_path(file.table, tree)} {reason}.", "Repair it, or remove it."))
        return None


def _read_table(file: TableFile, columns: Columns, form: str, collected: _BoxCollection) -> str:
    """Add the boxes in a table to `collected`, and return the path of the image in the last row.

    The path is "" if there is no such image. If the table is truncated, this image may lack boxes. `form` is the order of the numbers in a list, which the column
    of a list does not show.
    """
    table = file.table
    path = ""
    if columns.form != "list":
        form = columns.form
    class_column = _find_class_column(table, columns)
    split_name = "" if columns.split is None else table.normalized_names[columns.split]
    for row_number, row in enumerate(table.rows(), 1 if table.headless else 2):
        row_split = "" if columns.split is None else parse_split(split_name, row[columns.split])
        path = collected.search.find(file, row[columns.file], row_split) or ""
        if not path:
            continue
        image = collected.images.setdefault(row_split or file.split, {}).setdefault(path, ShapedImage(path))
        image.size = image.size or _read_size(row, columns)
        boxes = read_numbers(table, columns, row)
        label = _NAMELESS if class_column is None else remove_fraction(row[class_column])
        if boxes is None or (boxes and not label):
            collected.faults.append(f"{os.path.basename(table.path)}, row {row_number}")
            continue
        is_ignored = columns.ignored is not None and remove_fraction(row[columns.ignored].lower()) in YES
        image.shapes += [Shape(label, to_edges(box, form), ignored=is_ignored) for box in boxes]
    return path


def to_edges(box: Sequence[float], form: str) -> tuple[float, float, float, float]:
    """Convert four numbers in the order `form` (see `Columns`) to left, top, right and bottom."""
    x, y, third, fourth = box
    if form == "xywh":
        return x, y, x + third, y + fourth
    if form == "centers":
        return x - third / 2, y - fourth / 2, x + third / 2, y + fourth / 2
    return x, y, third, fourth


def _find_class_column(table: Table, columns: Columns) -> int | None:
    """Return the index of the class column, or None if there is none.

    A column of names is preferred to a column of numbers.
    """
    rows = table.sample()
    with_names = [
        column for column in columns.classes if not all(re.fullmatch(r"-?[\d.]*", row[column]) for row in rows)
    ]
    return next(iter([*with_names, *columns.classes]), None)


def _name_classes(images: Sequence[ShapedImage], tree: Tree, folders: Sequence[str]) -> list[str]:
    """Rename the classes of all boxes, and return the class names, ordered by class number.

    If a table in `folders` lists a title for each class, the titles become the class names. If it lists a number for
    each class, the numbers determine the order.
    """
    names = list(dict.fromkeys(shape.name for image in images for shape in image.shapes))
    titles = name_numbers(tree, folders, names)
    if titles is None:
        listed = _find_listed_names(tree, folders, names)
        if listed and all(re.fullmatch(r"\d{1,18}", value) for value in listed.values()):
            return sorted(names, key=lambda name: int(listed[name]))
        titles = {name: listed[name] for name in sorted(listed, key=listed.__getitem__) if name in names}
    rename_classes(images, titles)
    return list(titles.values())


def _find_listed_names(tree: Tree, folders: Sequence[str], names: Sequence[str]) -> Mapping[str, str]:
    """Return the second column of a table with two columns, keyed by the first column, which must contain all `names`.

    In the tables of Open Images, the second column has the titles of classes, and in those of RetinaNet, their numbers.
    Returns {} if no table in `folders` contains all names.
    """
    for folder in folders:
        for file_name in tree.files(folder, ".csv"):
            path = tree.path(folder, file_name)
            if "class" not in file_name.lower() or os.stat(path).st_size > MAX_NAMES_BYTES:
                continue
            table = open_table(path)
            if table is not None and len(table.head) == 2:
                # Without column names, the head is the first pair.
                listed = dict([table.head, *((row[0], row[1]) for row in table.rows())])
                if all(listed.get(name) for name in names):
                    return listed
    return {}


def _report_problems(collected: _BoxCollection) -> Iterator[Problem]:
    """Yield problems with missing images and unusable boxes in the tables, and with images that no table names."""
    used = set().union(*collected.images.values())
    remedy = "Such images are left out; add a row with an empty box for each image without objects."
    yield from collected.search.problems(used, (), remedy)
    remedy = "Such boxes are left out; correct these rows of the table."
    yield from warn_about(collected.faults, "box", "without four numbers and a class:", remedy)
    if not used:
        yield dataset_error("No image that the tables of boxes name is in the folder.", LAYOUT)


FORMAT = Format("csv_boxes", "CSV table of boxes", ("boxes",), LAYOUT, _detect, _read)
