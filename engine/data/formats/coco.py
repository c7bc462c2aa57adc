"""Boxes and outlines in COCO JSON, as written by Roboflow, CVAT, Label Studio, FiftyOne and LVIS. Torch-free.

The format is defined at https://cocodataset.org/#format-data. Unusable entries are left out and counted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.contract.problems import Problem
from engine.data.decoding.outlines import OutlineError, read_outline
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.annotation_files import AnnotationReader
from engine.data.formats.shared.box_units import check_units
from engine.data.formats.shared.coco_categories import Categories, Category, Key, add_spellings
from engine.data.formats.shared.json_files import (
    MAX_FILES,
    UNUSABLE,
    EntryFaults,
    Fault,
    find_json_files,
    iterate_text_windows,
    sample_lists,
)
from engine.data.formats.shared.shapes import (
    Edges,
    Shape,
    ShapedImage,
    convert,
    make_rotated_box,
    parse_number,
    parse_size,
)
from engine.data.formats.tree import Tree
from engine.data.splits import dataset_error, dataset_warning, first_names, printable

REMEDY = "Export the file again in COCO's data format."
_LISTS = ("images", "annotations", "categories")
_OUTLINE = re.compile(r'"segmentation"\s*:\s*(?:\{\s*"|\[\s*(?:\[\s*)?(?:[-\d][^,\]]*,\s*){5})')
"""Pattern for an outline that has run lengths or at least three points."""
_MIN_VALUES = 6
"""Minimum number of coordinates of an outline with an area: three points."""
_ROTATED = 5
"""Number of values of a rotated box: the center, width, height and angle."""

_UNLISTED_IMAGE = Fault("annotation of an image that is not listed", "annotations of images that are not listed")
_NOTHING = Fault(
    "object with neither a box nor an outline",
    "objects with neither a box nor an outline",
    "Such objects are left out; draw them, or remove them from the annotations.",
)
_NO_OUTLINE = Fault(
    "object without an outline",
    "objects without an outline",
    "Such objects are left out; draw outlines, or choose the task Object detection.",
)
_FEW_POINTS = Fault(
    "outline of fewer than three points",
    "outlines of fewer than three points",
    "Such outlines are left out; draw outlines, or choose the task Object detection.",
)
_BAD_OUTLINE = Fault(
    "outline that is neither polygons nor run lengths of the image",
    "outlines that are neither polygons nor run lengths of the image",
)
_BAD_BOX = Fault(
    "box that is not a list of four numbers",
    "boxes that are not lists of four numbers",
    "Such boxes are left out; write left, top, width and height in pixels.",
)
_ROTATED_BOX = Fault(
    "rotated box",
    "rotated boxes",
    "The upright boxes around them are used. Five numbers are read as center, width, height and angle in degrees.",
)
_SHARED_ID = Fault(
    "image with the id of another image",
    "images with the ids of other images",
    "Such images are left out, as it can't be told whose annotations are whose; give each image an id of its own.",
)
_LISTED_TWICE = Fault(
    "image that is listed again",
    "images that are listed again",
    "The annotations of all its entries are used; check that objects are not annotated twice.",
)


class _File(msgspec.Struct):
    images: list[msgspec.Raw]
    annotations: list[msgspec.Raw]
    categories: list[msgspec.Raw] = []


class _Image(msgspec.Struct):
    id: Key
    file_name: Key | None = None
    coco_url: Any = None
    width: Any = None
    height: Any = None
    neg_category_ids: Any = None


class _Annotation(msgspec.Struct):
    image_id: Key
    category_id: Key
    bbox: msgspec.Raw = msgspec.Raw(b"null")
    segmentation: msgspec.Raw = msgspec.Raw(b"null")
    iscrowd: Any = None
    attributes: Any = None


_FILE = msgspec.json.Decoder(_File)
_IMAGE = msgspec.json.Decoder(_Image)
_ANNOTATION = msgspec.json.Decoder(_Annotation)
_NUMBERS = msgspec.json.Decoder(list[float] | None, strict=False)
_RINGS = msgspec.json.Decoder(list[list[float]] | None)
_RING = msgspec.json.Decoder(list[float])


def detect(tree: Tree) -> list[Detection]:
    """Detect JSON files whose annotations have image ids and category ids.

    Usually, only the beginning of each file is read.
    """
    files: list[str] = []
    annotations: list[tuple[str, Any]] = []  # with the name of its file
    for names in find_json_files(tree).values():
        sampled = names[:MAX_FILES]
        samples = {name: found for name in sampled if (found := _read_sample(tree.path(name))) is not None}
        # If all sampled files fit, the files beyond the sample are assumed to fit, too.
        files += names if len(samples) == len(sampled) else samples
        annotations += [(name, each) for name, found in samples.items() for each in found]
    if not files:
        return []
    if annotations and not any(_has_shape(each) for _, each in annotations):
        kinds = _find_label_kinds(annotations)
    else:
        texts = (text for name in files[:MAX_FILES] for text in iterate_text_windows(tree.path(name)))
        kinds = ("instances", "boxes") if any(map(_OUTLINE.search, texts)) else ("boxes",)
    return [
        Detection(kinds, Confidence.CERTAIN, (f"annotations in COCO's format: {first_names(files)}",), source=files)
    ]


def _find_label_kinds(annotations: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    """Return the kinds of annotations in COCO files whose annotations have no shapes and label entire images.

    These are "classes" and "labels", or only "labels" if an image has several labels. `annotations` are pairs of a file
    name and an annotation.
    """
    image_counts = Counter((name, str(each["image_id"])) for name, each in annotations)
    return ("labels",) if max(image_counts.values()) > 1 else ("classes", "labels")


def _read_sample(path: str) -> list[Any] | None:
    """Return the first annotations in a JSON file, [] if it has none, or None if it doesn't have this format.

    If the file ends within an annotation, the list has the beginning of its text instead, provided that
    `_is_annotation` accepts it.
    """
    lists = sample_lists(path, _LISTS, until="annotations")
    if lists.get("annotations") == []:  # then only the other lists show the format
        return [] if "categories" in lists and "images" in lists else None
    annotations = [each for each in lists.get("annotations", ()) if _is_annotation(each)]
    return annotations or None


def _is_annotation(entry: Any) -> bool:
    """Return True for an annotation with an image and a category, given as an object or as the beginning of its text.

    Annotations of other formats with segments or captions are excluded.
    """
    if isinstance(entry, str):
        return '"image_id"' in entry and '"category_id"' in entry and '"segments_info"' not in entry
    if not isinstance(entry, dict) or "segments_info" in entry or "caption" in entry:
        return False
    return {"image_id", "category_id"} <= entry.keys()


def _has_shape(entry: Any) -> bool:
    """Return True if an annotation has a box, an outline or keypoints, or False if it describes the entire image.

    An annotation that is only the beginning of its text is assumed to have a shape.
    """
    return isinstance(entry, str) or any(key in entry for key in ("bbox", "segmentation", "keypoints"))


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their annotations from all files. Categories of different files are matched by name."""
    files: AnnotationReader[ShapedImage] = AnnotationReader(tree, detection.source, preferred="instances")
    problems = files.problems
    categories: list[Category] = []
    used: dict[str, set[str]] = {}  # names of the categories that have annotations, by split
    for split, name in files.iterate_files():
        content = files.decode(name, _FILE, REMEDY)
        if content is None:
            continue
        reader = _Reader(name, split, files, kind)
        reader.read(content)
        has_new_images = files.add(split, reader.images, is_annotated=bool(content.annotations))
        used_before = used.setdefault(split, set())
        # Only the first file about an image is used, which would lose the classes of a file about other ones.
        has_other_classes = bool(reader.used) and used_before.isdisjoint(reader.used)
        if reader.images and not has_new_images and has_other_classes:
            message = f"{printable(name)} annotates other classes ({first_names(sorted(reader.used))}) in images of another file."
            problems.append(dataset_error(message, "Merge the files, or keep only one of them in the folder."))
        used_before |= reader.used
        categories += reader.categories
        problems += reader.problems()
    images = files.finish()
    # Roboflow also lists supercategories as categories, which have no annotations.
    supercategories = {str(each.supercategory) for each in categories if each.supercategory != each.name}
    unused = supercategories - set().union(*used.values())
    classes = [name for name in dict.fromkeys(str(each.name) for each in categories) if name not in unused]
    check_units(images, problems, anchor="corner")
    return convert(kind, images, problems, classes)


@dataclass
class _Reader:
    """Reader for one COCO file.

    Attributes:
        images: Usable images that the file lists, sorted by path.
        categories: All categories in the file, in the order of their ids.
        used: Names of the categories that have annotations.
    """

    name: str
    split: str
    files: AnnotationReader[ShapedImage]
    kind: str
    images: list[ShapedImage] = field(default_factory=list)
    categories: list[Category] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    _unexhaustive: bool = False  # True if some classes are not annotated in every image

    def __post_init__(self) -> None:
        self._faults = EntryFaults(self.name)

    def read(self, content: _File) -> None:
        """Read the images, annotations and categories of one JSON file.

        For the kinds "classes" and "labels", the category of an annotation is added to the tags of its image. For other
        kinds, the annotation is added to the shapes of its image.
        """
        names = Categories(content.categories, self._faults)
        images = self._read_images(content.images)
        for place, each in self._faults.decode_each(_ANNOTATION, content.annotations, "annotations"):
            if each.image_id not in images:
                self._faults.add(_UNLISTED_IMAGE, f"{place}.image_id")
                continue
            name = names.name(each.category_id, f"{place}.category_id")
            if name is None:
                continue
            self.used.add(name)
            image = images[each.image_id]
            if image is None:  # it is left out, but its class exists
                continue
            if self.kind in ("classes", "labels"):
                image.tags = tuple(dict.fromkeys((*image.tags, name)))
            elif (shape := self._make_shape(place, each, name, image)) is not None:
                image.shapes.append(shape)
        self.categories = names.in_order()

    def problems(self) -> Iterable[Problem]:
        """Yield problems with the unusable entries of the COCO file."""
        yield from self._faults.problems()
        if self._unexhaustive:
            message = f"{printable(self.name)} annotates only some of the classes in each image, as LVIS does."
            yield dataset_warning(message, "Objects of other classes are learned as background.")

    def _read_images(self, entries: list[msgspec.Raw]) -> dict[Key, ShapedImage | None]:
        """Return the images, keyed by their ids, with None for images that are left out.

        Also sets `images`, and records the faults of unusable entries.
        """
        by_id: dict[Key, ShapedImage | None] = {}
        by_path: dict[str, ShapedImage] = {}
        first_entries: dict[Key, tuple[str, str]] = {}  # name and path in the file of the first image with each id
        shared_ids: set[Key] = set()
        for place, each in self._faults.decode_each(_IMAGE, entries, "images"):
            name = each.coco_url if each.file_name in (None, "") else str(each.file_name)
            self._unexhaustive |= each.neg_category_ids is not None  # as in LVIS: not every class is annotated
            if not isinstance(name, str) or not name:
                self._faults.add(UNUSABLE, f"{place}.file_name")
                by_id[each.id] = None
                continue
            first_name, first_place = first_entries.setdefault(each.id, (name, place))
            if first_name != name:
                # The first image with the id is only reported together with the second one.
                for shared_place in (place,) if each.id in shared_ids else (first_place, place):
                    self._faults.add(_SHARED_ID, f"{shared_place}.id")
                shared_ids.add(each.id)
                by_id[each.id] = None
                continue
            path = self.files.find(name, self.name, self.split)
            if path is None:
                by_id[each.id] = None
                continue
            if path in by_path:
                self._faults.add(_LISTED_TWICE, place)
            by_id[each.id] = by_path.setdefault(path, ShapedImage(path, size=parse_size(each.height, each.width)))
        used_paths = {image.path for image in by_id.values() if image is not None}  # without those of ambiguous ids
        self.images = [by_path[path] for path in sorted(by_path) if path in used_paths]
        return add_spellings(by_id)  # annotations may write the id 1 as "1"

    def _make_shape(self, place: str, annotation: _Annotation, name: str, image: ShapedImage) -> Shape | None:
        """Convert an annotation to a shape, or record a fault and return None if it can't be used.

        `place` is the path of the annotation in the file, and `name` the name of its category. For the kind
        "instances", the shape has an outline. For "boxes", the outline only helps if the box is missing or rotated.
        """
        is_ignored = annotation.iscrowd not in (None, False, 0, "0", "", "false")  # as programs write "no"
        needs_outline = self.kind == "instances"
        box, is_rotated = _read_box(annotation.bbox, annotation.attributes)
        outline = None  # content and edges, or a fault
        if needs_outline or is_rotated or box is None:
            outline = _read_outline(annotation.segmentation, image.size)
        if outline is not None and not isinstance(outline, Fault):
            content, edges = outline
            # The edges of run lengths are only known after decoding them, which is slow, or from the box.
            edges = edges or box or read_outline(content).edges()
            return Shape(name, edges, content if needs_outline else None, is_ignored)
        if box is not None and not needs_outline:
            if is_rotated:
                self._faults.add(_ROTATED_BOX, f"{place}.bbox")
            return Shape(name, box, None, is_ignored)
        # No shape is usable. Record the fault that explains why.
        if outline is not None:
            self._faults.add(outline, f"{place}.segmentation")
        elif needs_outline or _is_empty(annotation.bbox):
            self._faults.add(_NO_OUTLINE if needs_outline else _NOTHING, place)
        else:
            self._faults.add(_BAD_BOX, f"{place}.bbox")
        return None


def _read_box(content: msgspec.Raw, attributes: Any) -> tuple[Edges | None, bool]:
    """Parse a box. Returns its edges, or None if it is unusable, and True if it is rotated.

    For a rotated box, the edges of the upright box around it are returned. Detectron2 writes rotated boxes as five
    numbers: center, width, height and angle. CVAT writes the box before the rotation, and the angle as an attribute.
    """
    try:
        numbers = _NUMBERS.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return None, False
    if numbers is None or len(numbers) not in (4, _ROTATED) or not all(map(math.isfinite, numbers)):
        return None, False
    if len(numbers) == _ROTATED:
        x, y, width, height, angle = numbers
        left, top = x - width / 2, y - height / 2
    else:
        left, top, width, height = numbers
        angle = parse_number(attributes.get("rotation") if isinstance(attributes, dict) else None) or 0.0
    edges = (left, top, left + width, top + height)
    if not angle and len(numbers) != _ROTATED:
        return edges, False
    return make_rotated_box("", edges, angle, (left + width / 2, top + height / 2)).box, True


def _read_outline(
    content: msgspec.Raw, size: tuple[int, int] | None
) -> tuple[msgspec.Raw, Edges | None] | Fault | None:
    """Check an outline and return it with its edges. The edges are None for run lengths.

    `size` is the height and width of the image, or None if unknown. Returns a fault if the outline can't be used, and
    None if it is empty.
    """
    try:
        if bytes(memoryview(content)[:1]) == b"{":  # run lengths
            outline = read_outline(content)
            return (content, None) if size in (None, outline.size) else _BAD_OUTLINE
        try:
            rings = _RINGS.decode(content)
        except msgspec.ValidationError:  # a single ring without the list around it
            rings = [_RING.decode(content)]
            content = msgspec.Raw(msgspec.json.encode(rings))
    except (msgspec.DecodeError, OutlineError, RecursionError):
        return _BAD_OUTLINE
    if not rings or not any(rings):
        return None
    with_area = [ring[: len(ring) // 2 * 2] for ring in rings if len(ring) >= _MIN_VALUES]  # pairs of x and y
    if not with_area:
        return _FEW_POINTS
    x = [value for ring in with_area for value in ring[::2]]
    y = [value for ring in with_area for value in ring[1::2]]
    edges = min(x), min(y), max(x), max(y)
    return content, edges


def _is_empty(content: msgspec.Raw) -> bool:
    """Return True if JSON text is null or a list without values, such as [] or [[], []]."""
    return bytes(content) == b"null" or not bytes(content).strip(b"[] \t\r\n")


FORMAT = Format(
    "coco",
    "COCO JSON",
    ("instances", "boxes", "classes", "labels"),
    "JSON files with images, annotations and categories, one for each split or one for all, next to the images or in a "
    "folder named annotations.",
    detect,
    read,
)
