"""Hugging Face datasets: Parquet files with images, and image folders with a metadata file. Torch-free."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.contract.problems import Problem
from engine.data.decoding.reading import MAX_IMAGE_BYTES, MAX_TABLE_BYTES, Unfit, read_text, refuse_unusable
from engine.data.formats.csv_boxes import find_fitting_forms, to_edges
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.labels_table import read
from engine.data.formats.shared import parquet
from engine.data.formats.shared.boxes import read_upright_size
from engine.data.formats.shared.class_numbers import name_numbers
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.label_columns import LABEL_COLUMNS
from engine.data.formats.shared.label_detection import detect_in
from engine.data.formats.shared.shapes import Shape, ShapedImage, convert, make_box_shape, parse_number
from engine.data.formats.shared.tables import is_metadata, normalize_name
from engine.data.formats.shared.unpacking import PackedSample, unpack_images
from engine.data.formats.tree import Tree, split_of_table, suffix
from engine.data.formats.yolo.definition import parse_yaml
from engine.data.splits import printable, warn_about
from engine.system.format import counted
from engine.system.plugins import install_command
from engine.system.regular_files import UnusableFile

LAYOUT = (
    "Choose a downloaded repository of the Hugging Face Hub: Parquet files with the columns image and label, or images with "
    "a metadata.csv, metadata.jsonl or metadata.parquet that has the column file_name."
)
_BOXES = ("bbox", "bboxes", "boxes", "box")
_BOX_CLASSES = ("category", "categories", "label", "labels", "class", "classes", "category_id")
_OBJECTS = ("objects", "annotations", "faces", "instances")
_SAMPLED = 200  # number of rows that are read to infer the order of the numbers in boxes


@dataclass(frozen=True)
class _Shards:
    """Parquet files with images.

    `image` is the column with the images, and `label` the column with the labels or objects. `form` is the order of the
    numbers in boxes (see `csv_boxes.Columns`), or "" if there are no boxes.
    """

    files: tuple[str, ...]
    image: str
    label: str
    form: str = ""


@dataclass(frozen=True)
class _Metadata:
    """Metadata files with boxes.

    `files` holds the folder, relative to the dataset folder, and the name of each file. `column` is the column with the
    objects, and `form` the order of the numbers in boxes (see `csv_boxes.Columns`).
    """

    files: tuple[tuple[str, str], ...]
    column: str
    form: str


def _detect(tree: Tree) -> list[Detection]:
    """Detect metadata files with boxes, classes or labels, and Parquet shards with images.

    If there are Parquet files but pyarrow is missing, the only detection explains how to install it.
    """
    metadata, shards = _find_files(tree)
    readable = [(folder, name) for folder, name in metadata if not name.endswith(".parquet") or parquet.is_installed()]
    if (shards or len(readable) < len(metadata)) and not parquet.is_installed():
        paths = shards or [os.path.join(*file) for file in metadata if file not in readable]
        evidence = (f"{printable(paths[0])} and {len(paths) - 1:,} more Parquet files",)
        remedy = f"Reading Parquet files takes the package pyarrow. Install it: {install_command('huggingface')}"
        return [Detection((), Confidence.LIKELY, evidence, remedy=remedy)]
    detections = [*_detect_metadata(tree, readable), *detect_in(tree, readable)]
    by_folder: dict[str, list[str]] = {}  # each is a dataset of its own
    for path in shards:
        folder = os.path.dirname(path)
        parent, name = os.path.split(folder)
        dataset = parent if split_of_table(name, "") else folder  # without the folder of a split, such as train
        by_folder.setdefault(dataset, []).append(path)
    for folder, paths in by_folder.items():
        detections += _detect_shards(tree, paths, folder if len(by_folder) > 1 else "")
    return detections


def _find_files(tree: Tree) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the metadata files, each given by folder and name, and all other Parquet files.

    All paths are relative to the dataset folder.
    """
    paths = list(tree.find((".csv", ".jsonl", ".parquet"), depth=2))
    metadata = [path for path in paths if is_metadata(tree, *os.path.split(path))]
    shards = [path for path in paths if path not in metadata and suffix(path) == ".parquet"]
    return list(map(os.path.split, metadata)), shards


# Parquet files with images


def _detect_shards(tree: Tree, shards: Sequence[str], variant: str) -> Iterator[Detection]:
    """Detect images in the Parquet files `shards`, with a column of boxes or a column of labels.

    Yields one detection for each order of the numbers in boxes and for each column of labels. Their variants begin with
    `variant`. Yields none if the first file can't be read or does not have exactly one column of images.
    """
    paths = tuple(map(tree.path, shards))
    try:
        types, features = parquet.read_features(paths[0])
    except (OSError, UnusableFile):
        return
    # Hugging Face stores the bytes and the path of an image. Other programs store only the bytes.
    image_columns = [column for column, kind in types.items() if kind.startswith("struct<") and "bytes: " in kind]
    image_columns = image_columns or [column for column, kind in types.items() if kind in ("binary", "large_binary")]
    if len(image_columns) != 1:
        return
    evidence = f"{counted(len(paths), 'Parquet file')} with images, such as {printable(shards[0])}"
    box_column = next((column for column in _OBJECTS if column in types and "bbox" in types[column]), None)
    if box_column is not None:
        rows = _read_first_rows(parquet.iterate_rows(paths[0], [box_column]))
        forms = _find_forms((row.get(box_column), None) for row in rows)  # the sizes of the images are unknown
        for form in forms:
            source = _Shards(paths, image_columns[0], box_column, form)
            full_variant = "/".join(filter(None, (variant, form if len(forms) > 1 else "")))
            with_boxes = f"{evidence} and boxes in {box_column}"
            yield Detection(("boxes",), Confidence.CERTAIN, (with_boxes,), variant=full_variant, source=source)
    label_columns = _find_label_columns(types, features, _read_readme_classes(tree))
    for column in label_columns:
        kinds = ("labels",) if "list" in types[column] else ("classes", "labels")
        full_variant = "/".join(filter(None, (variant, column if len(label_columns) > 1 else "")))
        source = _Shards(paths, image_columns[0], column)
        with_column = f"{evidence}, and the column {printable(column)}"
        yield Detection(kinds, Confidence.CERTAIN, (with_column,), variant=full_variant, source=source)


def _find_label_columns(
    types: Mapping[str, str], features: Mapping[str, Any], readme_classes: Mapping[str, Any]
) -> list[str]:
    """Return the columns that may contain classes.

    These are the columns for which the file (`features`) or the README declares class names, or else the column with
    the most likely name. `types` holds the type of each column.
    """
    declared = [name for name, feature in features.items() if _read_class_names(feature) is not None]
    without_struct = {name for name, kind in types.items() if "struct" not in kind}
    found = [name for name in dict.fromkeys([*declared, *readme_classes]) if name in without_struct]
    if found:
        return found
    ranks = {name: LABEL_COLUMNS.index(plain) for name in types if (plain := normalize_name(name)) in LABEL_COLUMNS}
    likely = [name for name in ranks if name in without_struct]
    return [min(likely, key=ranks.__getitem__)] if likely else []


def _read_class_names(feature: Any) -> list[str] | None:
    """Return the class names that the description of a column declares, or None if it isn't a column of classes."""
    if isinstance(feature, list) and len(feature) == 1:
        return _read_class_names(feature[0])
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel":
        names = feature.get("names")
        return [str(name) for name in names] if isinstance(names, list) else None
    return _read_class_names(feature.get("feature"))


def _read_shards(tree: Tree, source: _Shards, kind: str) -> Content:
    """Unpack the images in Parquet files, and return them with their annotations."""
    names = _read_names(tree, source)
    splits: dict[str, list[ShapedImage]] = {}
    rows_without_image: list[str] = []
    unusable_boxes: list[str] = []
    samples_by_file = unpack_images(source.files, partial(_iterate_images, source))
    for path, samples in zip(source.files, samples_by_file, strict=True):
        split = split_of_table(tree.within(os.path.dirname(path)), os.path.basename(path))
        rows = parquet.iterate_rows(path, [source.label])
        for number, (sample, row) in enumerate(zip(samples, rows, strict=True), 1):
            place = f"{os.path.basename(path)}, row {number}"
            if not sample.path:
                rows_without_image.append(place)
                continue
            image = ShapedImage(sample.path)
            if kind == "boxes":
                image.shapes = _make_shapes(row[source.label], names, source.form, place, unusable_boxes)
            else:
                image.tags = _read_tags(row[source.label], names)
            splits.setdefault(split, []).append(image)
    # Without names, the classes are sorted by number if all of them are numbers.
    return convert(
        kind, splits, _report_rows(rows_without_image, unusable_boxes), names or _list_names_by_number(tree, splits)
    )


def _report_rows(rows_without_image: Sequence[str], unusable_boxes: Sequence[str]) -> list[Problem]:
    """Return warnings about rows without an image and about unusable boxes, each given by the name of its file."""
    remedy = "Such boxes are left out; correct them."
    return [
        *warn_about(rows_without_image, "row", "without an image:", "Such rows are left out."),
        *warn_about(unusable_boxes, "box", "without four numbers and a class, in", remedy),
    ]


def _iterate_images(source: _Shards, path: str) -> Iterator[PackedSample]:
    """Yield the image in each row of a Parquet file, without labels. A missing or too large image has no content."""
    for row in parquet.iterate_rows(path, [source.image]):
        image = row[source.image]
        if isinstance(image, dict):
            name, content = image.get("path") or "", image.get("bytes")
        else:
            name, content = "", image
        if not isinstance(content, bytes) or len(content) > MAX_IMAGE_BYTES:
            content = b""
        yield PackedSample(name, content, labels=[])


def _read_names(tree: Tree, source: _Shards) -> list[str]:
    """Return the class names, ordered by number, from the Parquet file or else from dataset_info in the README."""
    _, features = parquet.read_features(source.files[0])
    feature = features.get(source.label)
    # Objects with boxes are described by [{"category": …}], {"feature": {"category": …}} or {"category": …}.
    box_features = feature[0] if isinstance(feature, list) and feature else feature
    if isinstance(box_features, dict):
        box_features = box_features.get("feature", box_features)
    candidates = [feature]
    if isinstance(box_features, dict):
        candidates += [box_features.get(key) for key in _BOX_CLASSES]
    for candidate in candidates:
        names = _read_class_names(candidate)
        if names is not None:
            return names
    return _read_readme_classes(tree).get(source.label, [])


def _read_readme_classes(tree: Tree) -> dict[str, list[str]]:
    """Return the class names for each column that dataset_info in the header of the README declares."""
    name = next((name for name in tree.files("", ".md") if name.lower() == "readme.md"), None)
    if name is None:
        return {}
    try:
        header = re.match(r"---[ \t\r]*\n(.*?)\n---", read_text(tree.path(name)), re.DOTALL)
        content = parse_yaml(header[1], tree.path(name)) if header else {}
    except (OSError, UnusableFile, Unfit):
        return {}
    info = content.get("dataset_info")
    found: dict[str, list[str]] = {}
    for config in info if isinstance(info, list) else [info]:
        features = config.get("features") if isinstance(config, dict) else None
        for feature in features if isinstance(features, list) else ():
            if isinstance(feature, dict) and (names := _find_names(feature)):
                found.setdefault(str(feature.get("name")), names)
    return found


def _find_names(feature: Any) -> list[str]:
    """Return the class names that are nested anywhere in the description of a column in the README, or []."""
    if isinstance(feature, dict):
        names = feature.get("names")
        if isinstance(names, dict):  # by number
            numbers = {key: int(key) if re.fullmatch(r"\d{1,18}", str(key)) else 0 for key in names}
            return [str(names[key]) for key in sorted(names, key=numbers.__getitem__)]
        if isinstance(names, list) and all(isinstance(each, str) for each in names):
            return names
        return next((found for each in feature.values() if (found := _find_names(each))), [])
    if isinstance(feature, list):
        return next((found for each in feature if (found := _find_names(each))), [])
    return []


def _read_tags(value: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the class names in a table cell, given the names of all classes. -1 and null mean no class."""
    values = value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(tag for each in values if (tag := _read_name(each, names))))


def _read_name(value: Any, names: Sequence[str]) -> str:
    """Return the name of a class that is given by its number or name, or "" for -1 and null."""
    if value is None or value == -1:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return str(value).strip()


def _list_names_by_number(tree: Tree, splits: Mapping[str, Sequence[ShapedImage]]) -> list[str] | None:
    """Return the class names, sorted by number, if all classes in the annotations are numbers, otherwise None."""
    images = [image for split in splits.values() for image in split]
    names = {name for image in images for name in (*image.tags, *(shape.name for shape in image.shapes))}
    titles = name_numbers(tree, (), names)
    return None if titles is None else list(titles)


# Boxes


def _detect_metadata(tree: Tree, metadata: Sequence[tuple[str, str]]) -> Iterator[Detection]:
    """Detect metadata files, given as pairs (folder, name), that list boxes in one of their columns."""
    files = [(folder, name) for folder, name in metadata if not name.endswith(".csv")]
    rows = [
        (folder, row) for folder, name in files for row in _read_first_rows(_iterate_records(tree.path(folder, name)))
    ]
    column = next((key for _, row in rows for key in _OBJECTS if _pair_boxes(row.get(key)) is not None), None)
    if column is None:
        return
    lookup = ImageLookup(tree)
    cells: list[tuple[Any, tuple[int, int] | None]] = []  # with the size of the image
    for folder, row in rows:
        path = lookup.find(str(row.get("file_name", "")), folder)
        cells.append((row.get(column), read_upright_size(path) if path else None))
    forms = _find_forms(cells)
    for form in forms:
        evidence = (f"{' and '.join(printable(os.path.join(*file)) for file in files[:3])} with boxes in {column}",)
        source = _Metadata(tuple(files), column, form)
        yield Detection(("boxes",), Confidence.CERTAIN, evidence, variant=form if len(forms) > 1 else "", source=source)


def _find_forms(cells: Iterable[tuple[Any, tuple[int, int] | None]]) -> list[str]:
    """Return the possible orders of the numbers in boxes, such as "xywh" (see `csv_boxes.find_fitting_forms`).

    Each of the `cells` with boxes comes with the height and width of its image, or None if unknown.
    """
    boxes = [(box, size) for objects, size in cells for box, _ in _pair_boxes(objects) or ()]
    return find_fitting_forms((box, size) for box, size in boxes if _is_box(box))


def _pair_boxes(objects: Any) -> list[tuple[Any, Any]] | None:
    """Return each box in a table cell with its class, or None if the cell contains no boxes.

    The cell holds a list of objects, or one object with a list of boxes and a list of classes.
    """
    if isinstance(objects, list):
        # Each object is treated like an object with lists of one item.
        found = [
            _pair_boxes({key: [value] for key, value in each.items()}) for each in objects if isinstance(each, dict)
        ]
        with_box = [pairs for pairs in found if pairs is not None]
        return [pair for pairs in with_box for pair in pairs] if with_box else None
    if not isinstance(objects, dict):
        return None
    boxes = next((objects[key] for key in _BOXES if isinstance(objects.get(key), list)), None)
    if boxes is None:
        return None
    classes = next((objects[key] for key in _BOX_CLASSES if isinstance(objects.get(key), list)), None)
    if classes is None:
        classes = ["object"] * len(boxes)
    # A box without a class gets None. Superfluous classes are dropped.
    return list(zip(boxes, [*classes, *[None] * (len(boxes) - len(classes))], strict=False))


def _is_box(box: Any) -> bool:
    """Return True for a list of four numbers that can be coordinates."""
    if not isinstance(box, list) or len(box) != 4:
        return False
    return all(isinstance(each, int | float) and parse_number(each) is not None for each in box)


def _make_shapes(objects: Any, names: Sequence[str], form: str, place: str, faults: list[str]) -> list[Shape]:
    """Convert the boxes in a table cell, if there are any, to shapes. For each unusable one, `place` is added to `faults`.

    `names` are the class names by number, and `form` is the order of the numbers in a box (see `csv_boxes.Columns`).
    """
    found = []
    for box, label in _pair_boxes(objects) or ():
        name = _read_name(label, names)
        if not _is_box(box) or not name:
            faults.append(place)
        else:
            found.append(make_box_shape(name, *to_edges(box, form)))
    return found


def _read_metadata(tree: Tree, source: _Metadata) -> Content:
    """Return the images of an image folder with their boxes from its metadata files."""
    lookup = ImageLookup(tree)
    names = _read_readme_classes(tree).get(source.column, [])
    splits: dict[str, list[ShapedImage]] = {}
    missing: list[str] = []
    faults: list[str] = []
    for folder, name in source.files:
        split = split_of_table(folder, "")
        for row in _iterate_records(tree.path(folder, name)):
            file = str(row.get("file_name", ""))
            path = lookup.find(file, folder, split=split)
            if path is None:
                missing.append(file)
                continue
            shapes = _make_shapes(row.get(source.column), names, source.form, file, faults)
            splits.setdefault(split, []).append(ShapedImage(path, shapes))
    problems = _report_rows((), faults)
    problems += warn_about(missing, "image", "that a metadata file names can't be found:", "Such images are left out.")
    return convert("boxes", splits, problems, names or _list_names_by_number(tree, splits))


def _iterate_records(path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a JSON Lines or Parquet file as mappings. Blank and invalid lines are skipped."""
    if suffix(path) == ".parquet":
        yield from parquet.iterate_rows(path)
        return
    with refuse_unusable(path):
        for line in read_text(path, MAX_TABLE_BYTES).splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row


def _read_first_rows(rows: Iterator[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return some of the first rows of a metadata file, or [] if the file can't be read."""
    try:
        return list(itertools.islice(rows, _SAMPLED))
    except (OSError, UnusableFile):
        return []


def _read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their annotations.

    The detection determines if they are read from Parquet files with images, from metadata files with boxes, or from
    tables of labels.
    """
    if isinstance(detection.source, _Shards):
        return _read_shards(tree, detection.source, kind)
    if isinstance(detection.source, _Metadata):
        return _read_metadata(tree, detection.source)
    return read(tree, detection, kind)


FORMAT = Format("huggingface", "Hugging Face dataset", ("classes", "labels", "boxes"), LAYOUT, _detect, _read)
