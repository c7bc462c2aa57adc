"""Regions from the VGG Image Annotator (VIA 1 and 2): JSON files, projects and CSV files. Torch-free.

See https://www.robots.ox.ac.uk/~vgg/software/via/. Each region has a shape and attributes. One of the attributes is its
class.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from engine.contract.problems import Problem
from engine.data.decoding.reading import MAX_TABLE_BYTES, read_text, refuse_unusable
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.annotation_files import AnnotationReader
from engine.data.formats.shared.box_units import check_units
from engine.data.formats.shared.json_files import (
    MAX_FILES,
    EntryFaults,
    Fault,
    create_read_error,
    decode_file,
    find_json_files,
    read_head,
)
from engine.data.formats.shared.shapes import (
    Shape,
    ShapedImage,
    convert,
    make_box_shape,
    make_ellipse_points,
    make_polygon_shape,
    rotate_points,
)
from engine.data.formats.tree import Tree, suffix
from engine.data.splits import dataset_warning, first_names, printable
from engine.system.regular_files import UnusableFile

_OUTLINED = ("polygon", "polyline", "circle", "ellipse")
"""Types of shapes that have an outline. A polyline is treated as closed."""
REMEDY = "Export the annotations again from VIA as JSON or CSV."
ONLY_CLASS = "object"
"""Class for all regions if no region has attributes."""
_USUAL = ("class", "label", "name", "category", "type", "object", "species", "class_name", "object_name")
"""Names of attributes that probably contain the class, in lower case, most likely first."""
_SAMPLED = 3
"""Maximum number of files that are read to find the attributes and the types of shapes."""
_VERSION_3 = ("vid_list", "data_format_version", "metadata")
_REMEDY_3 = "VIA 3 projects are not read; annotate with VIA 2, or export COCO JSON from VIA 3."
_IMAGES = "_via_img_metadata"
_COLUMNS = ("filename", "region_shape_attributes", "region_attributes")
_NO_CLASS = Fault(
    "region without a class", "regions without a class", "Such regions are left out; fill in the attribute."
)
_SEVERAL = Fault(
    "region of several classes", "regions of several classes", "Such regions are left out; choose one class each."
)
_NO_SHAPE = Fault(
    "region whose shape can't be used",
    "regions whose shapes can't be used",
    "Such regions are left out; points and shapes without numbers mark no area.",
)
_NOT_JSON = Fault("line with attributes that are not JSON", "lines with attributes that are not JSON")
_NO_FILE = Fault("entry without filename", "entries without filename")
_DECODER = msgspec.json.Decoder(dict[str, Any])


class _Region(NamedTuple):
    """Region of an image, as it is in the file."""

    place: str  # position in the file, for messages
    shape: Mapping[str, Any]  # shape_attributes: type and coordinates
    attributes: Mapping[str, Any]  # region_attributes, such as the class


class _Entry(NamedTuple):
    """Name of an image, and the regions in it. An image may have several entries."""

    file: str
    regions: list[_Region]


@dataclass(frozen=True)
class _Source:
    """Data that `detect` passes on to `read`.

    `attribute` is the attribute of regions that contains their class, or "" if regions have no attributes.
    """

    files: tuple[str, ...]
    attribute: str


def detect(tree: Tree) -> list[Detection]:
    """Detect files from the VGG Image Annotator.

    Returns one detection for each attribute that may contain the class, most likely first.
    """
    groups = [*find_json_files(tree).values(), *find_json_files(tree, ".csv").values()]
    names = [name for group in groups for name in group[:MAX_FILES]]
    heads = {name: read_head(tree.path(name)) for name in names}
    files = [name for name, text in heads.items() if _is_via(text, suffix(name))]
    if not files:
        version_3 = [name for name, text in heads.items() if all(f'"{key}"' in text for key in _VERSION_3)]
        evidence = f"project of VIA 3: {first_names(version_3)}"
        return [Detection((), Confidence.CERTAIN, (evidence,), remedy=_REMEDY_3)] if version_3 else []
    regions: list[_Region] = []
    for name in files[:_SAMPLED]:
        for entry in _iterate_entries(tree, name, EntryFaults(name), []):  # reading the files reports the problems
            regions += entry.regions
    has_outlines = any(region.shape.get("name") in _OUTLINED for region in regions)
    kinds = ("instances", "boxes") if has_outlines else ("boxes",)
    evidence = f"regions of the VGG Image Annotator: {first_names(files)}"
    attributes = _find_class_attributes(regions)
    is_usual = bool(attributes) and attributes[0].lower() in _USUAL
    best = Confidence.CERTAIN if is_usual or len(attributes) <= 1 else Confidence.LIKELY
    return [
        Detection(
            kinds,
            best if number == 0 or not is_usual else Confidence.WEAK,  # a usual name makes the others unlikely
            (evidence, f"classes by the attribute {printable(attribute)}") if attribute else (evidence,),
            variant=attribute if len(attributes) > 1 else "",
            source=_Source(tuple(files), attribute),
        )
        for number, attribute in enumerate(attributes or [""])
    ]


def _is_via(text: str, ending: str) -> bool:
    """Return True if a JSON or CSV file, given by its beginning and its extension, is from VIA 1 or 2."""
    if ending == ".csv":
        line = text.partition("\n")[0].lower()
        return all(column in line for column in _COLUMNS)
    return f'"{_IMAGES}"' in text or ('"regions"' in text and '"shape_attributes"' in text and '"filename"' in text)


def _find_class_attributes(regions: Sequence[_Region]) -> list[str]:
    """Return the names of attributes that may contain the class: usual names first, then the most frequent ones."""
    counts = Counter(
        name for region in regions for name, value in region.attributes.items() if value not in ("", None, {})
    )
    ranks = {name: rank for rank, name in enumerate(_USUAL)}
    return sorted(counts, key=lambda name: (ranks.get(name.lower(), len(_USUAL)), -counts[name], name))


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with the regions from all files. The values of one attribute are the classes.

    Without an attribute, all regions are of the class `ONLY_CLASS`.
    """
    source: _Source = detection.source
    files: AnnotationReader[ShapedImage] = AnnotationReader(tree, source.files)
    problems = files.problems
    if not source.attribute:
        problems.append(dataset_warning(f"The regions have no attributes, so all are of one class, {ONLY_CLASS}."))
    for split, name in files.iterate_files():
        faults = EntryFaults(name)
        found: dict[str, ShapedImage] = {}
        for entry in _iterate_entries(tree, name, faults, problems):
            if (path := files.find(entry.file, name, split)) is not None:
                _add_shapes(found.setdefault(path, ShapedImage(path)), entry.regions, source.attribute, faults)
        files.add(split, [found[path] for path in sorted(found)])
        problems += faults.problems()
    images = files.finish()
    check_units(images, problems, anchor="corner")
    return convert(kind, images, problems)


def _add_shapes(image: ShapedImage, regions: Sequence[_Region], attribute: str, faults: EntryFaults) -> None:
    """Add the shapes of regions to an image. Their classes are in `attribute`. Unusable regions become `faults`."""
    for region in regions:
        names = _read_names(region.attributes.get(attribute)) if attribute else [ONLY_CLASS]
        if len(names) != 1:
            faults.add(_SEVERAL if names else _NO_CLASS, region.place)
            continue
        shape = read_shape(names[0], region.shape)
        if shape is None:
            faults.add(_NO_SHAPE, region.place)
        else:
            image.shapes.append(shape)


def _read_names(value: Any) -> list[str]:
    """Return the classes in the value of a region's attribute, which is a text or options such as {"cat": true}."""
    if isinstance(value, dict):
        return [str(name) for name, checked in value.items() if checked]
    return [str(value).strip()] if isinstance(value, str | int | float) and str(value).strip() else []


def _iterate_entries(tree: Tree, name: str, faults: EntryFaults, problems: list[Problem]) -> Iterator[_Entry]:
    """Yield the images in the file `name` with their regions.

    Invalid entries are added to `faults`, and an error to `problems` if the file can't be read.
    """
    if suffix(name) == ".csv":
        yield from _iterate_csv_entries(tree.path(name), name, faults, problems)
        return
    content = decode_file(tree.path(name), name, _DECODER, problems, REMEDY) or {}
    images = content.get(_IMAGES, content)  # a project also has settings, a file of annotations only images
    for key, entry in images.items() if isinstance(images, dict) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("filename"), str):
            if not key.startswith("_via"):  # these are settings
                faults.add(_NO_FILE, key)
            continue
        regions = entry.get("regions")
        if isinstance(regions, list):
            regions = dict(enumerate(regions))  # VIA 1 writes an object with numbers as keys instead
        found = []
        for number, region in _as_object(regions).items():
            if isinstance(region, dict):
                shape = _as_object(region.get("shape_attributes"))
                attributes = _as_object(region.get("region_attributes"))
                found.append(_Region(f"{entry['filename']} regions[{number}]", shape, attributes))
        yield _Entry(entry["filename"], found)


def _iterate_csv_entries(path: str, name: str, faults: EntryFaults, problems: list[Problem]) -> Iterator[_Entry]:
    """Yield the entries in a CSV file of VIA. Invalid rows are added to `faults`, an unreadable file to `problems`."""
    try:
        with refuse_unusable(path):
            text = read_text(path, MAX_TABLE_BYTES)
            header = text.partition("\n")[0]
            delimiter = max(",;\t", key=header.count)
            rows = csv.DictReader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
            for row in rows:
                cells = {(column or "").strip("# ").lower(): cell for column, cell in row.items()}
                entry = _parse_row(cells)
                if not cells.get("filename"):
                    faults.add(_NO_FILE, f"line {rows.line_num}")
                elif entry is None:
                    faults.add(_NOT_JSON, cells["filename"])
                else:
                    yield entry
    except (OSError, UnusableFile) as error:
        problems.append(create_read_error(name, error, REMEDY))


def _parse_row(row: Mapping[str, Any]) -> _Entry | None:
    """Return the image and the region in a row of a CSV file, given by its columns, or None if they can't be read.

    An image without regions has a row without a region.
    """
    file, number = row.get("filename"), row.get("region_id")
    try:
        shape = json.loads(row["region_shape_attributes"] or "{}")
        attributes = json.loads(row["region_attributes"] or "{}")
    except (TypeError, ValueError, RecursionError):
        return None
    if not file or not isinstance(shape, dict) or not isinstance(attributes, dict):
        return None
    return _Entry(file, [_Region(f"{file} region {number}", shape, attributes)] if shape else [])


def _as_object(value: Any) -> dict[Any, Any]:
    """Return a JSON object unchanged, and {} for any other value."""
    return value if isinstance(value, dict) else {}


FORMAT = Format(
    "via",
    "VGG Image Annotator",
    ("instances", "boxes"),
    "Annotations exported from VIA as JSON or CSV, or a saved project, next to the images, for each split or for all.",
    detect,
    read,
)


def read_shape(name: str, shape: Mapping[str, Any]) -> Shape | None:
    """Convert `shape`, the shape_attributes of a region in VIA, to a shape of the class `name`.

    Returns None for points and for incomplete shapes.
    """
    try:
        match shape.get("name"):
            case "rect":
                x, y, width, height = (float(shape[key]) for key in ("x", "y", "width", "height"))
                return make_box_shape(name, x, y, x + width, y + height)
            case "polygon" | "polyline":
                xs, ys = ([float(value) for value in shape[key]] for key in ("all_points_x", "all_points_y"))
                return make_polygon_shape(name, zip(xs, ys, strict=True))
            case "circle":
                x, y, radius = (float(shape[key]) for key in ("cx", "cy", "r"))
                return make_polygon_shape(name, make_ellipse_points(x, y, radius, radius))
            case "ellipse":
                x, y, radius_x, radius_y = (float(shape[key]) for key in ("cx", "cy", "rx", "ry"))
                degrees = math.degrees(float(shape.get("theta", 0)))
                points = rotate_points(make_ellipse_points(x, y, radius_x, radius_y), degrees, (x, y))
                return make_polygon_shape(name, points)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return None
