"""Regions and choices in Label Studio's JSON and JSON-MIN exports. Torch-free.

Source: documentation of Label Studio, "Label Studio JSON format of annotated tasks". Coordinates are percentages of the
image size.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import Unfit, read_json
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.bitmaps import decode_brush, make_patch_shape
from engine.data.formats.shared.boxes import read_upright_size
from engine.data.formats.shared.json_files import create_read_error, find_words, read_first_items, select_likely
from engine.data.formats.shared.shape_collection import ShapeCollection, list_kinds
from engine.data.formats.shared.shapes import (
    Shape,
    ShapedImage,
    make_ellipse_points,
    make_required_polygon,
    make_rotated_box,
    parse_number,
    parse_points,
    parse_size,
    rotate_points,
)
from engine.data.formats.tree import Tree, split_of_path
from engine.data.splits import printable, warn_about
from engine.system.format import counted

_OUTLINES = ("polygonlabels", "brushlabels", "ellipselabels")
_LABELS = (*_OUTLINES, "rectanglelabels", "labels")
_OTHERS = ("keypointlabels", "vectorlabels", "videorectangle", "paragraphlabels", "timeserieslabels", "hypertextlabels")
_TASK_KEYS = ("annotations", "completions")
_MIN_KEYS = frozenset({"annotation_id", "annotator", "lead_time", "created_at", "updated_at"})
_CHOICE_KEYS = ("choice", "choices", "class", "category", "label")
"""Names of controls whose texts in JSON-MIN are choices. The texts of other controls are input data of the task."""
_IMAGE_KEYS = ("image", "img", "image_url", "url")
_TASKS_SAMPLED = 1000
"""Maximum number of tasks in an export that are read to detect the kinds of annotations."""
_DECIMALS = 6
"""Number of decimals of pixel coordinates. Rounding restores integers that were exported as percentages."""
_UPLOADED = re.compile(r"[0-9a-f]{8}-")
"""Pattern for the prefix that Label Studio adds to the names of uploaded files."""


@dataclass
class _Task:
    """Task in an export: an image with its annotations.

    Attributes:
        image: Path or URL of the image.
        name: Name of the uploaded file, or "" if the image was not uploaded.
        results: Regions and choices in the first annotation, or None if the image is not annotated.
        further: Number of other annotations, which are not used.
    """

    image: str
    name: str = ""
    results: list[Any] | None = None
    further: int = 0


@dataclass
class _TaskContent:
    """Content of a task: the size of its image, its shapes, and its choices (`tags`)."""

    size: tuple[int, int] | None = None
    shapes: list[Shape] = field(default_factory=list)
    tags: dict[str, None] = field(default_factory=dict)


def detect(tree: Tree) -> list[Detection]:
    """Detect exports of Label Studio.

    The kinds of annotations are those of the first tasks. If none of these tasks is annotated, they are inferred from
    words in the files.
    """
    paths = _find_files(tree, is_sample_enough=True)
    if not paths:
        return []
    kinds = _detect_kinds([item for path in paths for item in read_first_items(tree.path(path), _TASKS_SAMPLED)])
    if not kinds:  # no task at the beginning of the files is annotated
        by_pattern = {f'"{word}"'.encode(): word for word in (*_LABELS, "choices")}
        words = {by_pattern[pattern] for path in paths for pattern in find_words(tree.path(path), by_pattern)}
        max_tags = 1 if "choices" in words else 0
        kinds = _list_kinds(words - {"choices"}, max_tags)
    evidence = f"{counted(len(paths), 'JSON export')} of Label Studio"
    return [Detection(tuple(kinds or ["boxes"]), Confidence.CERTAIN if kinds else Confidence.WEAK, (evidence,))]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their annotations of the given kind.

    For "boxes" and "instances", the regions are read, and for "classes" and "labels", the choices about entire images.
    """
    found = ShapeCollection(tree)
    with_further: list[str] = []
    for path in _find_files(tree):
        try:
            content = read_json(tree.path(path))
        except (OSError, ValueError) as error:
            found.problems.append(create_read_error(path, error, "Export the annotations from Label Studio again."))
            continue
        for task in _iterate_tasks(content):
            if task.further:
                with_further.append(task.image)
            _add_task(found, path, task, kind)
    remedy = "The first that is not canceled is used; remove the others."
    found.problems += warn_about(with_further, "image", "with several annotations:", remedy)
    return found.content(kind)


FORMAT = Format(
    id="label_studio",
    title="Label Studio JSON",
    kinds=("instances", "boxes", "classes", "labels"),
    layout="An export of Label Studio as JSON or JSON-MIN, and the images next to it or in a folder images.",
    detect=detect,
    read=read,
)


def _find_files(tree: Tree, *, is_sample_enough: bool = False) -> list[str]:
    """Return the JSON files whose first entries are tasks in an export.

    If `is_sample_enough` is True, only a sample of the JSON files is examined.
    """
    paths = list(tree.find(".json"))
    examined = select_likely(paths) if is_sample_enough else paths
    return [path for path in examined if _is_export(tree.path(path))]


def _detect_kinds(items: list[Any]) -> list[str]:
    """Return the kinds of annotations in `items`, the entries of a Label Studio export, the most detailed first."""
    shapes: set[str] = set()
    max_tags = 0
    for task in _iterate_tasks(items):
        results = [each for each in task.results or () if isinstance(each, dict)]
        values: list[dict[str, Any]] = [each["value"] for each in results if isinstance(each.get("value"), dict)]
        shapes.update(name for value in values for name in _LABELS if isinstance(value.get(name), list))
        choices = [value["choices"] for value in values if _has_choices(value)]
        max_tags = max(max_tags, sum(map(len, choices)))
    return _list_kinds(shapes, max_tags)


def _list_kinds(shapes: set[str], max_tags: int) -> list[str]:
    """Return the kinds of annotations, the most detailed first, given the types of the shapes.

    `max_tags` is the largest number of tags on one image.
    """
    return list_kinds(has_outlines=bool(shapes.intersection(_OUTLINES)), has_boxes=bool(shapes), max_tags=max_tags)


def _has_choices(value: dict[str, Any]) -> bool:
    """Return True if the value of an annotation result holds choices about the entire image, not about a region."""
    return isinstance(value.get("choices"), list) and not _has_geometry(value)


def _is_export(path: str) -> bool:
    """Return True if most of the first entries in a JSON file are tasks of Label Studio."""
    try:
        items = read_first_items(path)
    except (OSError, ValueError):
        return False
    tasks = [item for item in items if _is_task(item) or _is_small_task(item)]
    return bool(items) and 2 * len(tasks) >= len(items)


def _is_task(item: Any) -> bool:
    """Return True if `item` is an annotated image, called a task, in a JSON export of Label Studio."""
    return (
        isinstance(item, dict)
        and isinstance(item.get("data"), dict)
        and any(isinstance(item.get(key), list) for key in _TASK_KEYS)
    )


def _is_small_task(item: Any) -> bool:
    """Return True if `item` is an annotated image in a JSON-MIN export of Label Studio."""
    return isinstance(item, dict) and len(_MIN_KEYS & item.keys()) >= 2 and _find_image_name(item) != ""


def _iterate_tasks(items: list[Any]) -> Iterator[_Task]:
    """Yield the tasks in an export, given its entries.

    JSON-MIN has a separate entry for each annotation of an image. Only the first annotation is used.
    """
    small_tasks: dict[str, _Task] = {}  # of JSON-MIN, by image
    for item in items:
        if _is_task(item):
            yield _make_task(item)
        elif _is_small_task(item):
            image = _find_image_name(item)
            if image in small_tasks:
                small_tasks[image].further += 1
            else:
                small_tasks[image] = _Task(image, results=list(_convert_small_results(item)))
    yield from small_tasks.values()


def _make_task(item: dict[str, Any]) -> _Task:
    """Convert an item of a JSON file to a task.

    Canceled annotations are dropped, and the first of the others is used.
    """
    annotations = next(item[key] for key in _TASK_KEYS if isinstance(item.get(key), list))
    used = [
        each
        for each in annotations
        if isinstance(each, dict) and isinstance(each.get("result"), list) and not each.get("was_cancelled")
    ]
    name = item.get("file_upload")
    task = _Task(_find_image_name(item["data"]), name if isinstance(name, str) else "")
    if used:
        task.results, task.further = used[0]["result"], len(used) - 1
    return task


def _find_image_name(data: dict[str, Any]) -> str:
    """Return the path or URL of the image in the data of a task, or "" if there is none."""
    paths = {key: value for key, value in data.items() if isinstance(value, str)}
    for key in _IMAGE_KEYS:
        if paths.get(key):
            return paths[key]
    return next((value for value in paths.values() if _names_image(value)), "")


def _names_image(value: str) -> bool:
    """Return True if a text is the path or URL of an image."""
    try:
        return is_image(value) or is_image(urlsplit(value).path)
    except ValueError:
        return False


def _convert_small_results(item: dict[str, Any]) -> Iterator[Any]:
    """Yield the regions and choices of an entry in a JSON-MIN export, converted to the form of JSON exports."""
    for key, value in item.items():
        if isinstance(value, list):
            # JSON exports have the size of the image next to the value, JSON-MIN exports inside it.
            yield from ({"value": each, **each} for each in value if isinstance(each, dict))
        elif isinstance(value, dict) and isinstance(value.get("choices"), list):
            yield {"value": value}
        elif isinstance(value, str) and key in _CHOICE_KEYS:
            yield {"value": {"choices": [value]}}


def _add_task(found: ShapeCollection, path: str, task: _Task, kind: str) -> None:
    """Add the image of a task to `found` with its annotations. A missing or unannotated image is recorded instead.

    `path` is the JSON file with the task.
    """
    near = os.path.dirname(path)
    split = split_of_path(path, by_name=True)
    image = _find_image(task, near, split, found)
    if image is None:
        found.note_missing(task.image or task.name)
        return
    if task.results is None:
        found.note_unannotated(image)
        return
    content = _read_results(task.results, image, kind, found)
    split = split or split_of_path(found.tree.within(image))
    found.add(ShapedImage(image, content.shapes, content.size, tuple(content.tags)), split)


def _find_image(task: _Task, near: str, split: str, found: ShapeCollection) -> str | None:
    """Return the full path of a task's image, or None if it is not in the dataset.

    Label Studio adds a prefix to the names of uploaded images. Names are tried with and without the prefix. `near` is
    the folder of the export.
    """
    if task.image.startswith("data:"):  # the export contains the image itself
        return None
    names = [name for name in (task.image, unquote(task.image), task.name) if name]
    names += [_UPLOADED.sub("", os.path.basename(name), count=1) for name in names]
    for name in dict.fromkeys(names):
        image = found.find(name, near, split=split)
        if image is not None:
            return image
    return None


def _read_results(results: list[Any], image: str, kind: str, found: ShapeCollection) -> _TaskContent:
    """Convert the results of an annotation to shapes and choices.

    `image` is the path of the image. Unusable results are recorded in `found`. Shapes are only read if `kind` is about
    objects.
    """
    content = _TaskContent()
    # A region has one result with its geometry and another one, with the same id, with its label.
    labeled = {str(each.get("id")) for each in results if isinstance(each, dict) and _read_labels(each)}
    for each in results:
        value = each.get("value") if isinstance(each, dict) else None
        if not isinstance(value, dict):
            # A relation between regions has no area.
            is_relation = isinstance(each, dict) and each.get("type") == "relation"
            if not is_relation:
                found.skip_object(image, "of an unknown kind")
            continue
        if _has_choices(value):
            content.tags.update(dict.fromkeys(choice for choice in value["choices"] if isinstance(choice, str)))
            continue
        content.size = content.size or parse_size(each.get("original_height"), each.get("original_width"))
        if kind not in ("boxes", "instances"):
            continue
        if _read_labels(each):
            _read_region(each, image, content, found)
        elif _has_geometry(value) and str(each.get("id")) not in labeled:
            found.skip_object(image, "without a label")
    return content


def _read_labels(entry: dict[str, Any]) -> list[str]:
    """Return the labels of a region, or [] if it has none."""
    value = entry.get("value")
    lists = (value.get(key) for key in (*_LABELS, *_OTHERS)) if isinstance(value, dict) else ()
    labels = next((each for each in lists if isinstance(each, list)), [])
    return [label for label in labels if isinstance(label, str) and label.strip()]


def _read_region(entry: dict[str, Any], image: str, content: _TaskContent, found: ShapeCollection) -> None:
    """Add the shape in a region of an image to `content`. An unusable region is recorded in `found`."""
    labels = _read_labels(entry)
    if len(labels) > 1:
        found.skip_object(image, "with several labels", ", ".join(labels))
        return
    size = content.size or read_upright_size(image)
    try:
        if size is None:
            raise Unfit("the size of its image is unknown")
        if parse_number(entry.get("image_rotation")) not in (None, 0.0):
            raise Unfit("its image was turned in Label Studio")
        content.shapes.append(_make_shape(labels[0].strip(), entry["value"], size))
    except Unfit as error:
        found.skip_object(image, "that can't be used", f"{labels[0]}: {error}")


def _has_geometry(value: dict[str, Any]) -> bool:
    """Return True if the value of an annotation result describes a region of the image."""
    return not value.keys().isdisjoint({"x", "points", "rle"})


def _make_shape(label: str, value: dict[str, Any], size: tuple[int, int]) -> Shape:
    """Convert a region to a shape, given its label and the height and width of the image.

    The coordinates in `value` are percentages of the image's width and height. Raises Unfit if the region is invalid or
    has no area.
    """
    height, width = size
    if value.get("format") == "rle" or "rle" in value:
        return make_patch_shape(label, decode_brush(value.get("rle"), height, width), left=0, top=0, size=size)
    if "points" in value:
        points = parse_points(value["points"])
        in_pixels = [(round(x * width / 100, _DECIMALS), round(y * height / 100, _DECIMALS)) for x, y in points]
        return make_required_polygon(label, in_pixels)
    x, y = (_to_pixels(value, key, side) for key, side in (("x", width), ("y", height)))
    degrees = parse_number(value.get("rotation")) or 0.0
    if "radiusX" in value:
        radius_x, radius_y = (_to_pixels(value, key, side) for key, side in (("radiusX", width), ("radiusY", height)))
        ellipse = make_ellipse_points(x, y, radius_x, radius_y)
        return make_required_polygon(label, rotate_points(ellipse, degrees, (x, y)))
    if "width" not in value:
        raise Unfit("it has no area")
    box_width, box_height = (_to_pixels(value, key, side) for key, side in (("width", width), ("height", height)))
    # Label Studio rotates boxes around their upper left corner.
    return make_rotated_box(label, (x, y, x + box_width, y + box_height), degrees, (x, y))


def _to_pixels(value: dict[str, Any], key: str, side: int) -> float:
    """Convert the percentage `value[key]` of a side of the image to pixels. Raises Unfit if it is not a number."""
    number = parse_number(value.get(key))
    if number is None:
        raise Unfit(f"{key} is {printable(str(value.get(key, 'missing')))[:40]}")
    return round(number * side / 100, _DECIMALS)
