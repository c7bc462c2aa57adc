"""YOLO text files, one per image: boxes, outlines, rotated boxes and poses. Torch-free.

Supports the layouts of Ultralytics (data.yaml, images and labels), darknet (obj.data with lists of images) and CVAT
(obj_train_data), with or without folders for splits, in folders of any depth.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.reading import Unfit
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.boxes import Box, BoxedImage
from engine.data.formats.shared.instances import InstanceSplit, Polygons
from engine.data.formats.shared.text_files import (
    Parsed,
    check_pairs,
    check_unused_files,
    describe_folders,
    drop_unannotated_splits,
    find_text_folders,
    measure_usable_fraction,
    parse_sample,
    read_texts,
)
from engine.data.formats.tree import Tree
from engine.data.formats.yolo.definition import NAME_FILES, Definition, find_class_names, find_definition
from engine.data.formats.yolo.images import ImageSearch
from engine.data.formats.yolo.labels import (
    BOX_VALUES,
    MARGIN,
    QUAD_VALUES,
    Columns,
    Points,
    Row,
    infer_columns,
    read_lines,
)
from engine.data.splits import count_sentence, dataset_error, dataset_warning, first_names, printable, warn_about
from engine.system.format import counted

NOT_ANNOTATIONS = frozenset(
    {*NAME_FILES, "labels.txt", "notes.txt", "map.txt", "train.txt", "val.txt", "valid.txt", "test.txt", "readme.txt"}
)
"""Names of text files that contain lists or notes, not annotations."""
ROUNDING = 0.01
"""Maximum distance of an outline beyond the image's edges without a warning, as a fraction of the image size."""


class Source(NamedTuple):
    """Data that `detect` passes on to `read`.

    `definition` is the description of the dataset, and `columns` the meaning of the columns in text files.
    """

    definition: Definition
    columns: Columns


def detect(tree: Tree) -> list[Detection]:
    """Detect text files in YOLO format.

    If most lines are invalid, the detection explains why the dataset can't be read.
    """
    folders = find_text_folders(tree, NOT_ANNOTATIONS)
    if not any(map(tree.has_images, tree.walk())):
        return _detect_missing_images(tree)
    if not folders:
        return []
    definition = find_definition(tree)
    paths = [tree.path(folder, name) for folder, names in folders.items() for name in names]
    parsed_files = parse_sample(paths, _read_fractions)
    evidence = _describe_evidence(definition, folders)
    if not parsed_files:
        against = ("no annotated objects in the text files that were opened",)
        source = Source(definition, Columns())
        without_objects = Detection(("boxes",), Confidence.LIKELY, evidence, against, source=source)
        return [without_objects] if definition.file else []
    fraction = measure_usable_fraction(parsed_files)
    if fraction < 0.5:
        return [_make_refusal(evidence, parsed_files)] if definition.file or _has_boxes(paths) else []
    confidence = Confidence.CERTAIN if fraction >= 0.9 else Confidence.LIKELY
    rows = [row for _, parsed in parsed_files for row in parsed.rows]
    return _make_detections(definition, rows, evidence, confidence)


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their objects: as boxes for the kind "boxes", otherwise as outlines."""
    definition, columns = detection.source
    search = ImageSearch(tree, definition)
    splits = search.find_splits()
    used = search.texts_of_images | {pair.text for pairs in splits.values() for pair in pairs if pair.text}
    problems = [*definition.problems, *search.problems, *check_pairs(tree, splits)]
    splits, unannotated = drop_unannotated_splits(splits)
    folders = find_text_folders(tree, NOT_ANNOTATIONS)
    by_image, unreadable = read_texts(splits, lambda path: _read_shapes(path, columns))
    names, name_problems = find_class_names(tree, definition, folders)
    without_text = [pair.image for pairs in splits.values() for pair in pairs if pair.text is None]
    remedy = "Such images are kept as background; if they show objects, add their files."
    problems += warn_about(without_text, "image", "without a text file:", remedy)
    problems += [*unannotated, *check_unused_files(tree, folders, used), *name_problems, *unreadable]
    highest = max((label for images in by_image.values() for _, shapes in images for label, _ in shapes), default=-1)
    if names is None:
        names = [f"class {number}" for number in range(highest + 1)]
        message = "No file names the classes, so they are called by their numbers."
        problems.append(
            dataset_warning(message, "Add classes.txt with a name in each line, starting with that of class 0.")
        )
    elif highest >= len(names):
        message = (
            f"The annotations contain class {highest}, but names are given for only {counted(len(names), 'class')}."
        )
        problems.append(dataset_error(message, "Name every class in data.yaml or classes.txt, starting with class 0."))
    make = _convert_to_boxes if kind == "boxes" else _convert_to_instances
    return Content(tuple(map(printable, names)), make(by_image, problems), problems)


# Detection


def _read_fractions(path: str) -> Parsed[Row]:
    """Parse a YOLO text file and return its lines.

    Lines with numbers that aren't fractions of the image size are faults.
    """
    lines = read_lines(path)
    found: Parsed[Row] = Parsed([], lines.faults, lines.repeated)
    for row in lines.rows:
        if _fits(row):
            found.rows.append(row)
        else:
            beyond = next(value for value in row.values if not _is_fraction(value))
            found.faults.append(f"line {row.number} contains {beyond:g}, which is not a fraction of the image")
    return found


def _has_boxes(paths: Sequence[str]) -> bool:
    """Return True if most lines of the text files consist of a class number and four numbers for a box.

    The numbers may also be in pixels, and a confidence may follow them.
    """
    lengths = [len(row.values) for _, lines in parse_sample(paths, read_lines) for row in lines.rows]
    box_lines = sum(length in (BOX_VALUES, BOX_VALUES + 1) for length in lengths)
    return bool(lengths) and 2 * box_lines >= len(lengths)


def _fits(row: Row) -> bool:
    """Return True if the numbers in a line of a YOLO file are fractions of the image size.

    The first four numbers must be fractions. If there are more than five (a box and its confidence), the majority of
    all numbers must be fractions as well.
    """
    fractions = [_is_fraction(value) for value in row.values]
    return all(fractions[:BOX_VALUES]) and (len(fractions) <= BOX_VALUES + 1 or 2 * sum(fractions) > len(fractions))


def _is_fraction(value: float) -> bool:
    """Return True if a number may be a fraction of the image size. A margin allows for objects beyond the edges."""
    return -MARGIN <= value <= 1 + MARGIN


def _make_detections(
    definition: Definition, rows: Sequence[Row], evidence: tuple[str, ...], confidence: Confidence
) -> list[Detection]:
    """Return one detection for each possible meaning of the columns, given lines from several files."""
    possible_columns = infer_columns(rows, definition.keypoint_shape)
    against: list[str] = []
    if definition.keypoint_shape is not None and not possible_columns[0].keypoint_values:
        against.append(f"lines without the key points of kpt_shape in {printable(definition.file)}")
    if any(len(row.values) == BOX_VALUES + 1 and not 0 <= row.values[BOX_VALUES] <= 1 for row in rows):
        against.append("lines whose sixth number is not a confidence; boxes with an angle are not read")
    if len(possible_columns) > 1:
        confidence = Confidence.LIKELY
        against.append("lines that may be outlines or boxes with key points; kpt_shape in data.yaml tells which")
    detections = []
    for columns in possible_columns:
        kinds, description = _find_kinds(rows, columns)
        variant = "key points" if columns.keypoint_values else "outlines"
        variant = variant if len(possible_columns) > 1 else ""
        source = Source(definition, columns)
        detections.append(
            Detection(kinds, confidence, (*evidence, description), tuple(against), variant, source=source)
        )
    return detections


def _describe_evidence(definition: Definition, folders: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return phrases that name the file with the dataset's description, if any, and the folders of text files."""
    texts = describe_folders(folders)
    if not definition.file:
        return (texts,)
    count = len(definition.names or ())
    classes = f" with {counted(count, 'class')}" if count else ""
    return f"{printable(definition.file)}{classes}", texts


def _make_refusal(evidence: tuple[str, ...], parsed_files: Sequence[tuple[str, Parsed[Row]]]) -> Detection:
    """Return a detection of YOLO text files that can't be read because most of their lines are invalid.

    It has no kinds of annotations, and names the first fault in addition to the `evidence`.
    """
    path, parsed = next((path, parsed) for path, parsed in parsed_files if parsed.faults)
    remedy = (
        "Write each line as a class number, then the box's center, width and height divided by the width and "
        "height of the image; or as a class number and the points of an outline."
    )
    fault = f"{printable(os.path.basename(path))}: {parsed.faults[0]}"
    return Detection((), Confidence.LIKELY, (*evidence, fault), remedy=remedy)


def _detect_missing_images(tree: Tree) -> list[Detection]:
    """Return a detection of a dataset that can't be read because it was exported without its images.

    Returns [] for other folders.
    """
    if not any(tree.has(".txt", folder) for folder in tree.walk()):
        return []
    definition = find_definition(tree)
    if not definition.file or not definition.splits:
        return []
    remedy = "Export it with its images (in CVAT, turn on Save images), or copy them next to their text files."
    return [Detection((), Confidence.LIKELY, (printable(definition.file), "no images"), remedy=remedy)]


def _find_kinds(rows: Sequence[Row], columns: Columns) -> tuple[tuple[str, ...], str]:
    """Return the kinds of annotations that can be read, the best choice first.

    Also returns a description of the lines, as evidence for the user.
    """
    lengths = Counter(len(row.values) for row in rows)
    long_lines = sum(count for length, count in lengths.items() if length > 5)
    if columns.keypoint_values:
        return ("boxes",), "boxes followed by key points, which are not read"
    if not long_lines:
        return ("boxes",), "lines of 5 numbers"
    if lengths[QUAD_VALUES] == long_lines:
        return ("boxes", "instances"), "lines of four corners"
    # A stray outline doesn't turn a dataset of boxes into a dataset of instances.
    return (("instances", "boxes") if 2 * long_lines > len(rows) else ("boxes", "instances")), "outlines"


# Lines


Shape = tuple[int, tuple[float, float, float, float] | Points]
"""Object: its class, and either the center, width and height of its box or the points of its outline."""


def _read_shapes(path: str, columns: Columns) -> Parsed[Shape]:
    """Parse a text file in YOLO format and return its objects. Raises UnusableFile or OSError."""
    lines = read_lines(path)
    found: Parsed[Shape] = Parsed([], lines.faults, lines.repeated)
    for row in lines.rows:
        try:
            box = columns.box(row)
            found.rows.append((row.label, columns.outline(row) if box is None else box))
        except Unfit as error:
            found.faults.append(str(error))
    return found


ByImage = dict[str, list[tuple[str, list[Shape]]]]


def _convert_to_boxes(splits: ByImage, problems: list[Problem]) -> dict[str, list[BoxedImage]]:
    """Convert the shapes of all images to boxes, grouped by split. Outlines are replaced with the boxes around them.

    A mixture of outlines and boxes is added to `problems`.
    """
    shapes = [(path, shape) for images in splits.values() for path, shapes in images for _, shape in shapes]
    outlined = [path for path, shape in shapes if isinstance(shape, np.ndarray)]
    boxed = [path for path, shape in shapes if not isinstance(shape, np.ndarray)]
    if outlined and boxed:
        are_outlines_rarer = len(outlined) < len(boxed)
        rarer = outlined if are_outlines_rarer else boxed
        words = "an outline among boxes" if are_outlines_rarer else "a box among outlines"
        message = f"{count_sentence(rarer, 'object')} with {words}, in {first_names(rarer)}."
        problems.append(dataset_warning(message, "Of outlines, the boxes around them are used; check these lines."))
    return {
        split: [BoxedImage(path, [_make_box(*shape) for shape in shapes], fractions=True) for path, shapes in images]
        for split, images in splits.items()
    }


def _make_box(label: int, shape: tuple[float, float, float, float] | Points) -> Box:
    """Return the box of an object, or the box around its outline, in fractions of the image size."""
    if isinstance(shape, np.ndarray):
        (left, top), (right, bottom) = shape.min(0).tolist(), shape.max(0).tolist()
        return Box(left, top, right, bottom, label)
    x, y, width, height = shape
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2, label)


def _convert_to_instances(splits: ByImage, problems: list[Problem]) -> dict[str, InstanceSplit]:
    """Convert the shapes of all images to outlined objects, grouped by split.

    Boxes become rectangles. Warnings about boxes, and about outlines beyond the image, are appended to `problems`.
    """
    boxed: list[str] = []
    outside: list[str] = []
    converted: dict[str, InstanceSplit] = {}
    for split, images in splits.items():
        sources: list[Polygons] = []
        for path, shapes in images:
            polygons = []
            for label, shape in shapes:
                points = shape if isinstance(shape, np.ndarray) else _find_corners(_make_box(label, shape))
                polygons.append((label, points))
                if points is not shape:
                    boxed.append(path)
                if points.min() < -ROUNDING or points.max() > 1 + ROUNDING:
                    outside.append(path)
            sources.append(Polygons(polygons))
        converted[split] = InstanceSplit([path for path, _ in images], sources)
    remedy = "Such outlines are rectangles; draw outlines, or choose the task Object detection."
    problems += warn_about(boxed, "object", "with a box instead of an outline, in", remedy)
    remedy = "Such outlines are clipped at the edges of the image; check that the annotations belong to these images."
    problems += warn_about(outside, "outline", "extending beyond the image, in", remedy)
    return converted


def _find_corners(box: Box) -> Points:
    """Return the four corners (x, y) of a box, float64 [4, 2]."""
    left, top, right, bottom = box[:4]
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)])


FORMAT = Format(
    "yolo",
    "YOLO text files",
    ("instances", "boxes"),
    "A folder images and a folder labels with a text file for each image, and data.yaml or classes.txt with the names "
    "of the classes.",
    detect,
    read,
)
