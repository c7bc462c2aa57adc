"""Boxes in XML files as in PASCAL VOC (development kit, section 4.1), one file per image. Torch-free.

labelImg, CVAT, Roboflow and ArcGIS (PASCAL_VOC_rectangles) also write this format. Coordinates are used unchanged, as
distances from the left and the top of the image. PASCAL VOC itself counts pixels from 1, but most later tools don't.
The difference is one pixel at the left and the top of each box.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.etree import ElementTree

from engine.data.decoding.class_tables import read_arcgis_classes
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import HEAD_BYTES, MAX_TABLE_BYTES, Unfit, read_text_lines, read_xml
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.json_files import MAX_FILES_SAMPLED, SAMPLED
from engine.data.formats.shared.shape_collection import ShapeCollection
from engine.data.formats.shared.shapes import (
    Shape,
    ShapedImage,
    make_box_shape,
    parse_number,
    parse_size,
    rename_classes,
)
from engine.data.formats.tree import Tree, split_of_path
from engine.data.splits import printable, sample_evenly, warn_about
from engine.system.format import counted
from engine.system.regular_files import UnusableFile, open_regular

ANNOTATION_FOLDERS = ("annotations", "annotation", "labels", "label", "xmls", "xml")
_LIST_FOLDERS = (os.path.join("ImageSets", "Main"), "ImageSets", "")
_MASK_FOLDERS = frozenset({"segmentationclass", "segmentationobject", "masks", "mask"})
_EDGES = ("xmin", "ymin", "xmax", "ymax")
_TRUE = frozenset({"1", "true", "yes"})
_ROOT = re.compile(rb"<(?:[\w.-]+:)?annotation[\s/>]")
_COORDINATE = re.compile(r"([xy])\d*")
_LISTED = re.compile(r"(.*?)(?:\s+-?[01])?")
"""Pattern for a line in a list of names. In lists for one class, 1, 0 or -1 follows the name."""


class _Parsed(NamedTuple):
    """Content of an annotation file."""

    image_name: str
    size: tuple[int, int] | None  # height and width of the image
    shapes: list[Shape]
    faults: list[tuple[str, str]]
    """Reason and details for each object that can't be used (see `ShapeCollection.skip_object`)."""


@dataclass
class _File:
    """Annotation file of an image.

    Attributes:
        path: Path of the file relative to the dataset folder.
        base: Folder that contains the folders of images and annotations.
        name: Path of the image relative to its folder of images, without the extension.
    """

    path: str
    base: str
    name: str
    splits: list[str] = field(default_factory=list)


class _ListLine(NamedTuple):
    """Line in the list of a split, and the annotation files that it refers to."""

    text: str
    files: list[_File]


FilesByImage = dict[str, list[_File]]
"""Annotation files, keyed by the path and by the name of their images, both without extension."""


def detect(tree: Tree) -> list[Detection]:
    """Detect XML files in VOC's format by reading a sample of the files.

    If the sample contains no objects, a larger one is read.
    """
    paths = _find_files(tree)
    valid, others, boxes, objects = _count_files_and_objects(tree, sample_evenly(paths, SAMPLED))
    if valid and not objects and len(paths) > valid + others:  # there are more files
        valid, others, boxes, objects = _count_files_and_objects(tree, sample_evenly(paths, MAX_FILES_SAMPLED))
    if not valid or (objects and not boxes):
        return []
    confidence = Confidence.CERTAIN if valid >= others and boxes else Confidence.LIKELY
    evidence = (f"{counted(len(paths), 'XML file')} in VOC's format",)
    against = (f"{others} of {valid + others} XML files of another format",) if others > valid else ()
    return [Detection(("boxes",), confidence, evidence, against)]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their boxes from the XML files of all splits."""
    files = [_make_file(path) for path in _find_files(tree)]
    found = ShapeCollection(tree)
    _assign_splits(tree, files, found)
    listed = [file for file in files if file.splits]
    images = {file.path: _find_image(tree, file, found) for file in listed}
    listed.sort(key=lambda file: images[file.path] is None)  # `find_named` needs files with a same-name image first
    for file in listed:
        image = images[file.path]
        try:
            parsed = _parse(tree.path(file.path))
        except (OSError, ValueError) as error:
            found.skip_file(file.path, error, image)
            continue
        image = found.find_named(file.path, image, parsed.image_name, file.base, split_of_path(file.path))
        if image is None or _is_in_mask_folder(tree, image):
            found.note_missing(file.path)
            continue
        for reason, detail in parsed.faults:
            found.skip_object(file.path, reason, detail)
        splits = [split or split_of_path(tree.within(image)) for split in file.splits]
        found.add(ShapedImage(image, parsed.shapes, parsed.size), *splits)
    return found.content(kind, _name_classes(tree, found))


FORMAT = Format(
    id="voc",
    title="PASCAL VOC XML",
    kinds=("boxes",),
    layout="Images and one XML file for each of them under the same name, next to it or in a folder Annotations.",
    detect=detect,
    read=read,
)


def _find_files(tree: Tree) -> list[str]:
    """Return the paths of all XML files, except those written by GDAL, which describe rasters."""
    return [path for path in tree.find(".xml") if not path.lower().endswith(".aux.xml")]


def _count_files_and_objects(tree: Tree, paths: Iterable[str]) -> tuple[int, int, int, int]:
    """Count the files in VOC's format, other XML files, the objects with a box, and all objects.

    Raises UnusableFile if a file is malformed and no other file can be read.
    """
    valid = others = boxes = objects = 0
    unusable: UnusableFile | None = None
    for path in paths:
        try:
            root = read_xml(tree.path(path)) if _ROOT.search(_read_head(tree.path(path))) else None
        except UnusableFile as error:
            unusable = unusable or error
            continue
        except (OSError, ValueError):
            continue
        if root is None or root.tag != "annotation":
            others += 1
            continue
        valid += 1
        for each in root.iterfind("object"):
            objects += 1
            boxes += any(each.find(tag) is not None for tag in ("bndbox", "polygon", "segm/box"))
    if unusable is not None and not valid and not others:
        raise unusable
    return valid, others, boxes, objects


def _make_file(path: str) -> _File:
    """Return an entry for the annotation file at `path`, with the folder and image name that follow from the path."""
    folders = os.path.dirname(path).split(os.sep)
    depths = [depth for depth, name in enumerate(folders) if name.lower() in ANNOTATION_FOLDERS]
    stem = os.path.splitext(os.path.basename(path))[0]
    if not depths:
        return _File(path, os.path.dirname(path), stem)
    depth = depths[-1]  # of the innermost folder of annotations
    return _File(path, os.path.join("", *folders[:depth]), os.path.join("", *folders[depth + 1 :], stem))


def _assign_splits(tree: Tree, files: Sequence[_File], found: ShapeCollection) -> None:
    """Assign the annotation files to splits.

    A file belongs to the splits whose lists in ImageSets contain its name. Without such lists, the names of the folders
    on its path determine the split. Problems with lists are added to `found`.
    """
    by_base: dict[str, list[_File]] = {}
    for file in files:
        by_base.setdefault(file.base, []).append(file)
    missing: list[str] = []
    unlisted: list[str] = []
    for base, files_of_base in by_base.items():
        lists = _read_lists(tree, base, _group_by_name(files_of_base))
        if not lists:
            for file in files_of_base:
                file.splits.append(split_of_path(file.path))
            continue
        for split, lines in lists.items():
            for line in lines:
                if not line.files:
                    missing.append(line.text)
                for file in line.files:
                    if split not in file.splits:
                        file.splits.append(split)
        unlisted += [file.path for file in files_of_base if not file.splits]
    remedy = "Such images are left out; annotate them, or remove them from the list."
    found.problems += warn_about(missing, "image", "named in a list but without an annotation:", remedy)
    remedy = "Such annotations are left out; add them to a list in ImageSets/Main."
    found.problems += warn_about(unlisted, "annotation", "in no list of a split:", remedy)


def _read_lists(tree: Tree, base: str, by_image: FilesByImage) -> dict[str, list[_ListLine]]:
    """Return the lines of the list of each split.

    `by_image` holds the annotation files, keyed by image. The lists are those of the first folder in `base` that has
    any. Outside of ImageSets, half of the lines must refer to files, since a train.txt may have another purpose. If
    train.txt is missing, trainval.txt without the lines of val.txt is used for training.
    """
    for folder in _LIST_FOLDERS:
        list_folder = os.path.join(base, folder)
        if not tree.exists(list_folder):
            continue
        names = {name.lower(): name for name in tree.files(list_folder, ".txt")}
        combines_splits = "train.txt" not in names and "trainval.txt" in names
        if combines_splits:
            names["train.txt"] = names["trainval.txt"]
        found: dict[str, list[_ListLine]] = {}
        for split in ("train", "val", "test"):
            if f"{split}.txt" not in names:
                continue
            texts = read_text_lines(tree.path(list_folder, names[f"{split}.txt"]), MAX_TABLE_BYTES)
            lines = [_ListLine(text, _find_listed_files(text, by_image)) for text in texts]
            if folder or 2 * sum(bool(line.files) for line in lines) > len(lines):
                found[split] = lines
        if combines_splits and {"train", "val"} <= found.keys():
            validation = {line.text for line in found["val"]}
            found["train"] = [line for line in found["train"] if line.text not in validation]
        if any(line.files for lines in found.values() for line in lines):
            return found
    return {}


def _group_by_name(files: Iterable[_File]) -> FilesByImage:
    """Return annotation files, keyed by both the path and the name of their images."""
    by_image: FilesByImage = {}
    for file in files:
        for name in {file.name.replace(os.sep, "/"), os.path.basename(file.name)}:
            by_image.setdefault(name, []).append(file)
    return by_image


def _find_listed_files(line: str, by_image: FilesByImage) -> list[_File]:
    """Return the annotation files that a line in a list refers to, or [] if there are none.

    The line may contain a name with spaces, a path, or a name followed by other words.
    """
    match = _LISTED.fullmatch(line)
    for name in dict.fromkeys((line, match[1] if match else line, line.split(maxsplit=1)[0])):
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        for skipped in range(len(parts)):
            path = "/".join(parts[skipped:])
            if path in by_image:
                return by_image[path]
            has_extension = is_image(path) or path.lower().endswith(".xml")
            without_extension = os.path.splitext(path)[0]
            if has_extension and without_extension in by_image:
                return by_image[without_extension]
    return []


def _find_image(tree: Tree, file: _File, found: ShapeCollection) -> str | None:
    """Return the full path of the image with the same name as an annotation file, or None if there is none."""
    near = os.path.dirname(file.path)
    split = split_of_path(file.path)
    for folder in dict.fromkeys((near, file.base)):
        path = found.find(file.name, folder, split=split, has_extension=False)
        if path is not None and not _is_in_mask_folder(tree, path):
            return path
    return None


def _is_in_mask_folder(tree: Tree, path: str) -> bool:
    """Return True if the image at the full path `path` is in a folder of masks."""
    return not _MASK_FOLDERS.isdisjoint(tree.within(path).lower().split(os.sep)[:-1])


def _parse(path: str) -> _Parsed:
    """Parse an annotation file.

    Raises the exceptions of `read_xml`, and Unfit for an XML file in another format.
    """
    root = read_xml(path)
    if root.tag != "annotation":
        raise Unfit("it is not in VOC's format")
    shapes: list[Shape] = []
    faults: list[tuple[str, str]] = []
    for each in root.iterfind("object"):
        if _read_element(each, "deleted") in _TRUE:  # LabelMe's web tool keeps objects that users have removed
            continue
        name = (each.findtext("name") or "").strip()
        if not name:
            faults.append(("without a name", ""))
            continue
        boxes = list(_iterate_edges(each))
        if not boxes:
            faults.append(("without a box (bndbox)", ""))
        is_difficult = _read_element(each, "difficult") in _TRUE
        for edges in boxes:
            if isinstance(edges, str):  # a message
                faults.append(("without usable coordinates", edges))
            else:
                shapes.append(make_box_shape(name, *edges, ignored=is_difficult))
    image_name = (root.findtext("filename") or "").strip()
    return _Parsed(image_name, _read_size(root), shapes, faults)


def _read_size(root: ElementTree.Element) -> tuple[int, int] | None:
    """Return the height and width of the image according to a file, or None if it doesn't state them.

    LabelMe's web tool names the elements differently.
    """
    size = parse_size(root.findtext("size/height"), root.findtext("size/width"))
    return size or parse_size(root.findtext("imagesize/nrows"), root.findtext("imagesize/ncols"))


def _read_element(element: ElementTree.Element, path: str) -> str:
    """Return the text of the element at `path` inside `element` in lower case, or "" if it is missing."""
    return (element.findtext(path) or "").strip().lower()


def _iterate_edges(element: ElementTree.Element) -> Iterator[tuple[float, float, float, float] | str]:
    """Yield the edges of each box of an object, or of the box around its polygon if it has no box.

    If the numbers are invalid, a message is yielded instead.
    """
    boxes = element.findall("bndbox") or element.findall("segm/box")
    for box in boxes:
        texts = [(box.findtext(edge) or "").strip() for edge in _EDGES]
        left, top, right, bottom = map(parse_number, texts)
        if left is not None and top is not None and right is not None and bottom is not None:
            yield left, top, right, bottom
            continue
        edge, text = next((edge, text) for edge, text in zip(_EDGES, texts, strict=True) if parse_number(text) is None)
        yield f"{edge} is {printable(text)[:40] or 'missing'}"
    polygon = element.find("polygon")
    if not boxes and polygon is not None:
        values: dict[str, list[float | None]] = {"x": [], "y": []}
        for each in polygon.iter():
            if (axis := _COORDINATE.fullmatch(each.tag)) is not None:
                values[axis[1]].append(parse_number(each.text))
        x, y = ([number for number in values[axis] if number is not None] for axis in "xy")
        is_any_invalid = len(x) < len(values["x"]) or len(y) < len(values["y"])
        if is_any_invalid or len(x) < 3 or len(x) != len(y):
            yield "its polygon has no three points"
        else:
            yield min(x), min(y), max(x), max(y)


def _name_classes(tree: Tree, found: ShapeCollection) -> tuple[str, ...]:
    """Rename the classes of all shapes according to ArcGIS's definition file, and return the names in its order.

    Returns () if there is no definition file that lists all classes. Nothing is renamed then.
    """
    definition = read_arcgis_classes(tree.root)
    if definition is None:
        return ()
    values, titles = definition
    titles_by_value = dict(zip(map(str, values), titles, strict=True))
    images = [image for split in found.splits.values() for image in split]
    used_names = {shape.name for image in images for shape in image.shapes}
    if not used_names <= {*titles, *titles_by_value}:
        return ()
    rename_classes(images, titles_by_value)
    return titles


def _read_head(path: str) -> bytes:
    """Return the first bytes of a file without zero bytes, which occur in UTF-16. Raises UnusableFile or OSError."""
    with open_regular(path) as stream:
        return stream.read(HEAD_BYTES).replace(b"\0", b"")
