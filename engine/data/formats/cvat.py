"""Shapes and tags in XML files from CVAT ("CVAT for images 1.1"), one file per task or project. Torch-free.

Source: documentation of CVAT, "CVAT for image" and "XML annotation format".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from xml.etree import ElementTree

from engine.data.decoding.limits import Size
from engine.data.decoding.reading import MAX_TABLE_BYTES, Unfit, read_head, refuse_unusable
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.bitmaps import decode_runs, make_patch_shape
from engine.data.formats.shared.json_files import create_read_error, find_words, select_likely
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
from engine.data.formats.tree import Tree, split_named, split_of_path
from engine.data.memory_limit import allow_for_text
from engine.data.splits import printable
from engine.system.format import counted
from engine.system.regular_files import UnusableFile, open_regular

_IMAGES_SAMPLED = 1000
_OUTLINES = (b"<polygon", b"<mask", b"<ellipse")
_WORDS = (*_OUTLINES, b"<image", b"<track", b"<box", b"<tag", b"<version>")
_WITHOUT_AREA = frozenset({"polyline", "points", "cuboid", "skeleton"})


@dataclass
class _Meta:
    """Declarations in XML files.

    `labels` are the labels of all files, in order. `subsets` holds the subset, such as "Train", of each task in the
    current file, keyed by task id.
    """

    labels: dict[str, None] = field(default_factory=dict)
    subsets: dict[str, str] = field(default_factory=dict)

    def subset(self, image: ElementTree.Element) -> str:
        """Return the subset that an image belongs to, or "" if it is unknown."""
        if found := image.get("subset"):
            return found
        if (task := image.get("task_id")) is not None:
            return self.subsets.get(task, "")
        return next(iter(self.subsets.values())) if len(self.subsets) == 1 else ""


def detect(tree: Tree) -> list[Detection]:
    """Detect XML files of CVAT with annotated images. Files that only have tracks in videos are not supported."""
    words: set[bytes] = set()
    of_images: list[str] = []
    max_tags = 0
    for path in _find_files(tree, sample_others=True):
        found = find_words(tree.path(path), _WORDS)
        words |= found
        if b"<image" in found:
            of_images.append(path)
            max_tags = max(max_tags, _count_max_tags(tree, path))
    if not of_images:
        if b"<track" not in words:
            return []
        remedy = 'Export the annotations from CVAT as "CVAT for images 1.1", with the images.'
        return [Detection((), Confidence.CERTAIN, ("tracks of CVAT for video 1.1",), remedy=remedy)]
    kinds = list_kinds(
        has_outlines=bool(words.intersection(_OUTLINES)),
        has_boxes=b"<box" in words,
        max_tags=max(max_tags, 1) if b"<tag" in words else 0,  # a tag may occur only behind the sampled images
    )
    evidence = f"{counted(len(of_images), 'XML file')} of CVAT for images"
    return [Detection(tuple(kinds or ["boxes"]), Confidence.CERTAIN if kinds else Confidence.WEAK, (evidence,))]


def _count_max_tags(tree: Tree, path: str) -> int:
    """Return the largest number of tags on any of the first images in a file."""
    images = _iterate_images(tree.path(path), _Meta(), path, ShapeCollection(tree))
    try:
        return max((len(image.findall("tag")) for image in islice(images, _IMAGES_SAMPLED)), default=0)
    except (OSError, ValueError):
        return 0


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images from all XML files with their annotations of the given kind.

    For "boxes" and "instances", the shapes are read, and for "classes" and "labels", the tags. A file that can't be
    read becomes a problem.
    """
    found = ShapeCollection(tree)
    meta = _Meta()
    for path in _find_files(tree):
        meta.subsets = {}
        try:
            for image in _iterate_images(tree.path(path), meta, path, found):
                _add_image(found, path, image, meta, kind)
        except (OSError, ValueError) as error:
            found.problems.append(create_read_error(path, error, "Export the annotations from CVAT again."))
    return found.content(kind, meta.labels)


FORMAT = Format(
    id="cvat",
    title="CVAT XML",
    kinds=("instances", "boxes", "classes", "labels"),
    layout='An export of CVAT as "CVAT for images 1.1": annotations.xml and the images, in a folder images or next to it.',
    detect=detect,
    read=read,
)


def _find_files(tree: Tree, *, sample_others: bool = False) -> list[str]:
    """Return the XML files that CVAT has written. Files with its default name come first.

    If `sample_others` is True, only a sample of the files with other names is examined.
    """
    paths = list(tree.find(".xml"))
    named = [path for path in paths if os.path.basename(path).lower().startswith("annotations")]
    others = [path for path in paths if not os.path.basename(path).lower().startswith("annotations")]
    return [
        path for path in [*named, *(select_likely(others) if sample_others else others)] if _is_cvat(tree.path(path))
    ]


def _is_cvat(path: str) -> bool:
    """Return True if a file begins like an XML file from CVAT."""
    parser: Any = ElementTree.XMLPullParser(("start",))
    tags: list[str] = []  # of the elements at the beginning, up to the first fault
    with suppress(ValueError, LookupError, ElementTree.ParseError):  # reading the file reports the fault
        parser.feed(read_head(path))
        tags += (element.tag for _, element in parser.read_events())
    if tags[:1] != ["annotations"]:
        return False
    return len(tags) == 1 or tags[1] in ("version", "meta", "image", "track")


def _iterate_images(path: str, meta: _Meta, name: str, found: ShapeCollection) -> Iterator[ElementTree.Element]:
    """Yield the image elements in the XML file `path`, and add the labels and subsets that it lists to `meta`.

    An element is cleared when the next one is requested. Tracks are counted in `found` as skipped objects. `name` is
    the name of the file in messages. Raises UnusableFile, OSError, or Unfit if the file is not valid XML.
    """
    with open_regular(path) as stream, refuse_unusable(path):
        length = os.fstat(stream.fileno()).st_size
        if length > MAX_TABLE_BYTES:
            raise UnusableFile(path, f"has {length:,} bytes; the maximum is {MAX_TABLE_BYTES:,}", "Divide it.")
        allow_for_text(path)  # raises the memory limit
        try:
            for _, element in ElementTree.iterparse(stream):
                if element.tag == "meta":
                    _add_declarations(element, meta)
                elif element.tag == "track":
                    found.skip_object(name, "in tracks of videos")
                elif element.tag == "image":
                    yield element
                else:
                    continue
                element.clear()  # frees the memory
        except (ElementTree.ParseError, LookupError) as error:
            raise Unfit(f"it is not valid XML ({printable(str(error))[:200]})") from None


def _add_declarations(element: ElementTree.Element, meta: _Meta) -> None:
    """Add the labels and the subsets that a "meta" element of a CVAT file declares to `meta`."""
    for label in element.iter("label"):
        meta.labels[(label.findtext("name") or "").strip()] = None
    for number, task in enumerate(element.iter("task")):
        if subset := (task.findtext("subset") or "").strip():
            meta.subsets[(task.findtext("id") or str(number)).strip()] = subset


def _add_image(found: ShapeCollection, path: str, element: ElementTree.Element, meta: _Meta, kind: str) -> None:
    """Add the image that an XML element of the file `path` describes, with its shapes and tags, to `found`.

    Shapes are only read if `kind` is "boxes" or "instances". Missing images and unusable shapes are recorded instead.
    """
    name = element.get("name") or ""
    subset = meta.subset(element)
    split = split_named(subset) or split_of_path(path, by_name=True) or split_of_path(name)
    image = found.find(f"{subset}/{name}", os.path.dirname(path), split=split)  # CVAT exports a folder for each subset
    if image is None:
        found.note_missing(name)
        return
    size = parse_size(element.get("height"), element.get("width"))
    shapes: list[Shape] = []
    tags: dict[str, None] = {}
    for each in element:
        label = (each.get("label") or "").strip()
        if not label:
            found.skip_object(image, "without a label")
        elif each.tag == "tag":
            tags[label] = None
        elif each.tag not in _READERS:
            reason = f"drawn as {each.tag}" if each.tag in _WITHOUT_AREA else "of an unknown shape"
            found.skip_object(image, reason)
        elif kind in ("boxes", "instances"):
            try:
                shapes.append(_READERS[each.tag](label, each, size))
            except Unfit as error:
                found.skip_object(image, "that can't be used", f"{each.tag} {label}: {error}")
    found.add(ShapedImage(image, shapes, size, tuple(tags)), split or split_of_path(found.tree.within(image)))


def _read_numbers(element: ElementTree.Element, *names: str) -> list[float]:
    """Return the values of the attributes `names` as numbers. Raises Unfit if any is missing or not a number."""
    found = []
    for name in names:
        number = parse_number(element.get(name))
        if number is None:
            raise Unfit(f"{name} is {printable(element.get(name) or 'missing')[:40]}")
        found.append(number)
    return found


def _read_rotation(element: ElementTree.Element) -> float:
    """Return the clockwise rotation of a shape in degrees, or 0 without one. Raises Unfit if it is not a number."""
    return _read_numbers(element, "rotation")[0] if element.get("rotation") else 0.0


# Readers of shapes. They get the label, the element and the size of the image, and raise Unfit for invalid elements.


def _read_box(label: str, element: ElementTree.Element, size: Size | None) -> Shape:
    """Convert a box, which may be rotated around its center, to a shape."""
    left, top, right, bottom = _read_numbers(element, "xtl", "ytl", "xbr", "ybr")
    center = (left + right) / 2, (top + bottom) / 2
    return make_rotated_box(label, (left, top, right, bottom), _read_rotation(element), center)


def _read_polygon(label: str, element: ElementTree.Element, size: Size | None) -> Shape:
    """Convert a polygon with points such as "1,2;5,2;3,4" to a shape."""
    pairs = [each.split(",") for each in (element.get("points") or "").split(";") if each.strip()]
    return make_required_polygon(label, parse_points(pairs))


def _read_ellipse(label: str, element: ElementTree.Element, size: Size | None) -> Shape:
    """Convert an ellipse, which may be rotated around its center, to a polygon."""
    x, y, radius_x, radius_y = _read_numbers(element, "cx", "cy", "rx", "ry")
    points = make_ellipse_points(x, y, radius_x, radius_y)
    return make_required_polygon(label, rotate_points(points, _read_rotation(element), (x, y)))


def _read_mask(label: str, element: ElementTree.Element, size: Size | None) -> Shape:
    """Convert a run-length encoded mask of a rectangle to a shape. The size of the image must be known."""
    left, top, width, height = map(int, _read_numbers(element, "left", "top", "width", "height"))
    if size is None:
        raise Unfit("the size of its image is unknown")
    if width > size[1] or height > size[0]:
        raise Unfit(f"it has {width} x {height} pixels, the image {size[1]} x {size[0]}")
    try:
        runs = [int(each) for each in (element.get("rle") or "").split(",")]
    except ValueError:
        raise Unfit("its rle is not a list of numbers") from None
    return make_patch_shape(label, decode_runs(runs, height, width), left, top, size)


_READERS: dict[str, Callable[[str, ElementTree.Element, Size | None], Shape]] = {
    "box": _read_box,
    "polygon": _read_polygon,
    "ellipse": _read_ellipse,
    "mask": _read_mask,
}
