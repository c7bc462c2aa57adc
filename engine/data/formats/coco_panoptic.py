"""Panoptic segmentation in COCO format: JSON with segments_info, and PNG images of segment ids. Torch-free.

The id of a segment is R + 256 G + 65536 B of its pixels (https://cocodataset.org/#format-data). Segments of things
become instances. Segments of stuff, and pixels outside all segments, are background.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from engine.contract.problems import Problem
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.annotation_files import AnnotationReader
from engine.data.formats.shared.coco_categories import Categories, Category, Key, add_spellings
from engine.data.formats.shared.instances import InstanceSplit, PanopticImage, Source
from engine.data.formats.shared.json_files import MAX_FILES, EntryFaults, find_json_files, sample_lists
from engine.data.formats.tree import Tree
from engine.data.splits import dataset_error, first_names, printable, warn_about

REMEDY = "Export the file again in COCO's panoptic format."


class _Pair(NamedTuple):
    """Image and the PNG with its segments.

    `segments` holds the id, the class and the crowd flag of each segment that is a thing.
    """

    path: str
    mask: str
    segments: list[tuple[int, str, bool]]


class _File(msgspec.Struct):
    annotations: list[msgspec.Raw]
    categories: list[msgspec.Raw]
    images: list[msgspec.Raw] = []


class _Image(msgspec.Struct):
    id: Key
    file_name: str


class _Segment(msgspec.Struct):
    id: int
    category_id: Key
    iscrowd: Any = None


class _Annotation(msgspec.Struct):
    file_name: str
    segments_info: list[_Segment]
    image_id: Key | None = None


_FILE = msgspec.json.Decoder(_File)
_IMAGE = msgspec.json.Decoder(_Image)
_ANNOTATION = msgspec.json.Decoder(_Annotation)


def detect(tree: Tree) -> list[Detection]:
    """Detect JSON files whose annotations have segments_info."""
    names = [name for group in find_json_files(tree).values() for name in group[:MAX_FILES]]
    files = [name for name in names if _has_segments(tree.path(name))]
    if not files:
        return []
    evidence = (f"panoptic annotations in COCO's format: {first_names(files)}",)
    return [Detection(("instances",), Confidence.CERTAIN, evidence, source=files)]


def _has_segments(path: str) -> bool:
    """Return True if one of the first annotations in a JSON file has segments_info."""
    annotations = sample_lists(path, ("annotations",), until="annotations").get("annotations", ())
    return any(isinstance(each, dict) and "segments_info" in each for each in annotations)


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with the segments of countable objects ("things") as outlined objects."""
    files: AnnotationReader[_Pair] = AnnotationReader(tree, detection.source)
    things: list[str] = []  # names of the categories
    are_read = False  # True once any file has been read
    for split, name in files.iterate_files():
        content = files.decode(name, _FILE, REMEDY)
        if content is not None:
            reader = _Reader(name, split, files)
            reader.read(content)
            files.problems += reader.problems()
            if files.add(split, reader.images):
                things += [str(each.name) for each in reader.categories if _is_thing(each)]
                are_read = True
    images = files.finish()
    numbers = {name: number for number, name in enumerate(dict.fromkeys(things))}
    if are_read and not numbers:
        message = f"{first_names(detection.source)} have no categories of things, only of stuff."
        remedy = "Choose a folder with outlined objects, or set isthing to 1 for countable classes."
        files.problems.append(dataset_error(message, remedy))
    splits = {split: _make_split(pairs, numbers) for split, pairs in images.items()}
    return Content(tuple(map(printable, numbers)), splits, files.problems)


def _make_split(pairs: Sequence[_Pair], numbers: Mapping[str, int]) -> InstanceSplit:
    """Convert images and PNGs of segment ids to a split. `numbers` are the class numbers by name."""
    sources: list[Source] = [
        PanopticImage(pair.mask, [(key, numbers[name], crowd) for key, name, crowd in pair.segments]) for pair in pairs
    ]
    return InstanceSplit([pair.path for pair in pairs], sources)


@dataclass
class _Reader:
    """Reader for one panoptic JSON file.

    Attributes:
        images: Images, each with the PNG of its segments.
        categories: All categories in the file, in the order of their ids.
    """

    name: str
    split: str
    files: AnnotationReader[_Pair]
    images: list[_Pair] = field(default_factory=list)
    categories: list[Category] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._faults = EntryFaults(self.name)
        self._without_mask: list[str] = []

    def read(self, content: _File) -> None:
        """Read the images, masks, segments and categories of one JSON file.

        Only segments that are things become objects. Annotations whose mask is missing are recorded.
        """
        categories = Categories(content.categories, self._faults)
        decoded = self._faults.decode_each(_IMAGE, content.images, "images")
        images = add_spellings({image.id: image.file_name for _, image in decoded})
        folders = self._find_mask_folders()
        for place, annotation in self._faults.decode_each(_ANNOTATION, content.annotations, "annotations"):
            name = images.get(annotation.image_id) if annotation.image_id is not None else None
            # Without an entry for the image, it has the name of the mask, with another extension.
            path = self.files.find(name or os.path.splitext(annotation.file_name)[0], self.name, self.split)
            mask_name = os.path.basename(annotation.file_name)
            mask = next(filter(os.path.isfile, (self.files.tree.path(folder, mask_name) for folder in folders)), None)
            if path is None:  # `find` has recorded the missing image
                continue
            if mask is None:
                self._without_mask.append(annotation.file_name)
                continue
            things = []
            for number, segment in enumerate(annotation.segments_info):
                category = categories.find(segment.category_id, f"{place}.segments_info[{number}].category_id")
                if category is not None and _is_thing(category):
                    things.append((segment.id, str(category.name), segment.iscrowd not in (None, False, 0)))
            self.images.append(_Pair(path, mask, things))
        self.images.sort()
        self.categories = categories.in_order()

    def problems(self) -> list[Problem]:
        """Return problems with the unusable entries of the panoptic JSON file."""
        stem = os.path.splitext(os.path.basename(self.name))[0]
        remedy = f"Such images are left out; put the PNGs into a folder named {printable(stem)}."
        without_mask = warn_about(self._without_mask, "image", "without the PNG of its segments:", remedy)
        return [*self._faults.problems(), *without_mask]

    def _find_mask_folders(self) -> list[str]:
        """Return the folders that may contain the PNGs of segments, most likely first."""
        near, base = os.path.split(self.name)
        stem = os.path.splitext(base)[0]
        parents = dict.fromkeys((near, os.path.dirname(near), ""))
        exact = [os.path.join(parent, stem) for parent in parents]
        tree = self.files.tree
        others = [folder for folder in tree.walk(depth=2) if "panoptic" in os.path.basename(folder).lower()]
        fitting = [folder for folder in others if not self.split or self.split in folder.lower()]
        return [folder for folder in (*exact, *fitting, near) if tree.exists(folder)]


def _is_thing(category: Category) -> bool:
    """Return True unless a category is marked as stuff."""
    return category.isthing not in (0, False, "0")


FORMAT = Format(
    "coco_panoptic",
    "COCO panoptic",
    ("instances",),
    "panoptic_train.json and panoptic_val.json, folders of the same names with PNGs of segment ids, and the images.",
    detect,
    read,
)
