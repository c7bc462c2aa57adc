"""Boxes and outlines in JSON files as COCO keeps them (cocodataset.org, "Data format"), and Roboflow, CVAT, Label
Studio and FiftyOne after it. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from engine.contract.problems import Problem
from engine.data.decoding.outlines import OutlineError, read_outline
from engine.data.decoding.reading import MAX_PIXELS, describe_failure, judged
from engine.data.formats.boxes import Annotations, Box, Marked
from engine.data.formats.folders import subfolders
from engine.data.formats.pairing import endings, named
from engine.data.formats.tree import SPLIT_NAMES
from engine.data.memory_limit import allow_for_text
from engine.data.splits import counted, first, shown, warn, wrong
from engine.system.regular_files import UnusableFile, open_regular, read_regular

PLACES = ("annotations", "annotation", "labels")
LOOKED_AT = 20
"""JSON files of a folder that are opened to see whether they are of this kind, the largest; labelme has one an "
"image."""
_FOLDERS = ("images", "data", "jpegimages", "imgs", "img")
_KEYS = (b'"images"', b'"annotations"', b'"categories"')
_OVERLAP = max(map(len, _KEYS))
_PIECE_BYTES = 1 << 22
MOST_BYTES = 4 << 30
"""Of a file with all annotations; that of LVIS, one of the largest, has 1.1 GB."""
REMEDY = "Export the file again in COCO's data format."

Key = int | str


class _Image(msgspec.Struct):
    id: Key
    file_name: str
    width: float | None = None
    height: float | None = None


class _Category(msgspec.Struct):
    id: Key
    name: str
    supercategory: str | None = None


class _Annotation(msgspec.Struct):
    image_id: Key
    category_id: Key
    bbox: list[float] | None = None
    segmentation: msgspec.Raw = msgspec.Raw(b"null")
    iscrowd: int | bool | None = 0


class _Content(msgspec.Struct):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category]


_DECODER = msgspec.json.Decoder(_Content)


@dataclass(frozen=True, eq=False)
class Outlined:
    """One image and the outlines in it: each a class, COCO's `segmentation` as JSON, and whether it is a crowd."""

    path: str
    size: tuple[int, int] | None
    outlines: tuple[tuple[int, msgspec.Raw, bool], ...]


@dataclass(frozen=True, eq=False)
class _Opened:
    path: str
    content: _Content


@dataclass
class CocoFiles:
    """The files of a folder by split, with the classes of all of them."""

    folder: str
    opened: dict[str, _Opened]
    problems: list[Problem]
    categories: dict[Key, int]
    classes: tuple[str, ...]

    def boxes(self) -> Annotations:
        """The boxes, from the outlines where no boxes are given."""
        problems = list(self.problems)
        splits: dict[str, list[Marked]] = {}
        boxless: list[str] = []
        for split, path, image, marks in self._images(problems):
            found = []
            for each in marks:
                edges = _edges(each)
                if edges is None:
                    boxless.append(path)
                    continue
                found.append(Box(*edges, self.categories[each.category_id], bool(each.iscrowd)))
            splits.setdefault(split, []).append(Marked(path, found, _size(image)))
        if boxless:
            message = f"{counted(boxless, 'object')} with neither a box nor an outline, in {first(boxless)}."
            problems.append(warn(message, "They are left out; draw them, or remove them from the annotations."))
        return Annotations(self.classes, splits, problems)

    def outlines(self) -> tuple[dict[str, list[Outlined]], list[Problem]]:
        """The outlines by split, and problems; none if no annotation has an outline."""
        problems = list(self.problems)
        splits: dict[str, list[Outlined]] = {}
        boxed: list[str] = []
        some = False
        for split, path, image, marks in self._images(problems):
            found = []
            for each in marks:
                if _is_outline(each.segmentation):
                    found.append((self.categories[each.category_id], each.segmentation, bool(each.iscrowd)))
                else:
                    boxed.append(path)
            some |= bool(found)
            splits.setdefault(split, []).append(Outlined(path, _size(image), tuple(found)))
        if boxed:
            message = f"{counted(boxed, 'object')} without an outline, in {first(boxed)}."
            problems.append(warn(message, "They are left out; draw outlines, or choose the task Object detection."))
        return (splits if some else {}), problems

    def _images(self, problems: list[Problem]) -> Iterator[tuple[str, str, _Image, list[_Annotation]]]:
        """Split, path, image and annotations of each existing image; reports missing images, and annotations that
        belong to none."""
        missing: list[str] = []
        lost: list[str] = []
        for split, file in self.opened.items():
            by_image: dict[Key, list[_Annotation]] = {image.id: [] for image in file.content.images}
            for each in file.content.annotations:
                if each.image_id in by_image and each.category_id in self.categories:
                    by_image[each.image_id].append(each)
                else:
                    lost.append(file.path)
            find = _Finder(self.folder, file.path, split)
            for image in sorted(file.content.images, key=lambda image: image.file_name):
                path = find(image.file_name)
                if path is None:
                    missing.append(image.file_name)
                else:
                    yield split, path, image, by_image[image.id]
        if missing:
            message = f"{counted(missing, 'image')} named in the annotations but not in the folder: {first(missing)}."
            problems.append(warn(message, "They are left out; put them beside the annotations, or into images."))
        if lost:
            message = f"{counted(lost, 'annotation')} with an image or a category that is not listed, in {first(lost)}."
            problems.append(warn(message, "They are left out; export the file again."))


def find_coco(folder: str, folders: Sequence[str]) -> CocoFiles | None:
    """The files of this kind in `folder`, whose folders are `folders`, read; None where there are none."""
    paths, problems = _by_split(_candidates(folder, folders))
    if not paths:
        return None
    opened = {}
    for split, path in paths.items():
        try:
            with judged(path):
                allow_for_text(path)
                opened[split] = _Opened(path, _DECODER.decode(read_regular(path, MOST_BYTES)))
        except (OSError, UnusableFile, msgspec.DecodeError) as error:
            name = shown(os.path.relpath(path, folder))
            problems.append(wrong(f"{name} can't be read: {_why(error)}.", REMEDY))
    used = {each.category_id for file in opened.values() for each in file.content.annotations}
    found = {each.id: each for file in opened.values() for each in file.content.categories}
    above = {each.supercategory for each in found.values() if each.supercategory != each.name}
    # Roboflow lists what its categories belong to as one of them.
    kept = [each for key, each in found.items() if key in used or each.name not in above]
    kept.sort(key=lambda each: (isinstance(each.id, str), each.id))
    names = {name: index for index, name in enumerate(dict.fromkeys(shown(each.name) for each in kept))}
    indices = {each.id: names[shown(each.name)] for each in kept}
    return CocoFiles(folder, opened, problems, indices, tuple(names))


def _why(error: Exception) -> str:
    """Why a file is not of this kind, in msgspec's words or in ours."""
    return shown(str(error)) if isinstance(error, msgspec.DecodeError) else describe_failure(error)


def _candidates(folder: str, folders: Sequence[str]) -> Iterator[str]:
    """The JSON files in a folder of annotations, or else beside the images."""
    names = {*PLACES, *_FOLDERS, *(each for names in SPLIT_NAMES.values() for each in names)}
    for parent in (folder, *(os.path.join(folder, name) for name in folders if name.lower() in names)):
        paths = [os.path.join(parent, name) for name in endings(parent, ".json")]
        yield from sorted(sorted(paths, key=_bytes_of, reverse=True)[:LOOKED_AT])


def _bytes_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _by_split(paths: Iterator[str]) -> tuple[dict[str, str], list[Problem]]:
    """One COCO file for each split, COCO's own instances before others; further files are reported."""
    fitting = sorted(filter(_is_coco, paths), key=lambda path: "instances" not in os.path.basename(path).lower())
    found: dict[str, str] = {}
    left = []
    for path in fitting:
        split = _split_of(path)
        if split in found:
            left.append(path)
        else:
            found[split] = path
    if "" in found and "train" in found:
        left.append(found.pop(""))
    if len(found) == 1:
        found = dict.fromkeys([""], *found.values())
    problems = [warn(f"Beside {first([*found.values()])} there is {first(left)}, which is not used.")] if left else []
    return found, problems


def _is_coco(path: str) -> bool:
    try:
        with open_regular(path) as stream:
            length = os.fstat(stream.fileno()).st_size
            if length > MOST_BYTES:
                raise UnusableFile(path, f"has {length:,} bytes; at most {MOST_BYTES:,} are supported", "Divide it.")
            missing, end = set(_KEYS), b""
            while missing and (piece := stream.read(_PIECE_BYTES)):
                piece = end + piece
                missing -= {key for key in missing if key in piece}
                end = piece[-_OVERLAP:]
            return not missing
    except UnusableFile:
        raise
    except OSError:
        return False


def _split_of(path: str) -> str:
    """The split whose name is in that of the file, else in its folder's."""
    parent, name = os.path.split(path.lower())
    for text in (os.path.splitext(name)[0], os.path.basename(parent)):
        for split in ("train", "val", "test"):
            if split in text:
                return split
    return ""


class _Finder:
    """Finds images by the names in a file: from its folder, from the dataset's, or from where images of its "
    "split are."""

    def __init__(self, folder: str, file: str, split: str) -> None:
        beside = os.path.dirname(file)
        roots = list(dict.fromkeys([beside, folder]))
        roots += [os.path.join(root, name) for root in roots if (name := named(subfolders(root), _FOLDERS))]
        # Of a file for all splits the images may lie in any folder, as CVAT's do in images/default.
        inner = [os.path.join(root, name) for root in roots for name in subfolders(root) if split in name.lower()]
        deeper = [os.path.join(root, name) for root in inner if (name := named(subfolders(root), _FOLDERS))]
        self._roots = list(dict.fromkeys([*inner, *deeper, *roots]))
        self._there: dict[str, frozenset[str]] = {}

    def __call__(self, name: str) -> str | None:
        name = name.replace("\\", "/").removeprefix("file://").lstrip("/")
        folder, base = os.path.split(name)
        for within in dict.fromkeys((folder, "")):
            for root in self._roots:
                parent = os.path.join(root, within)
                if base in self._listed(parent):
                    return os.path.normpath(os.path.join(parent, base))
        return None

    def _listed(self, folder: str) -> frozenset[str]:
        if folder not in self._there:
            try:
                self._there[folder] = frozenset(os.listdir(folder))
            except (OSError, ValueError):  # a name in a file may hold characters that no path has
                self._there[folder] = frozenset()
        return self._there[folder]


def _size(image: _Image) -> tuple[int, int] | None:
    height, width = image.height or 0, image.width or 0
    return (int(height), int(width)) if 1 <= min(height, width) <= max(height, width) <= MAX_PIXELS else None


def _is_outline(segmentation: msgspec.Raw) -> bool:
    return bytes(memoryview(segmentation)[:4]).strip() not in (b"null", b"[]", b"[[]]", b"")


def _edges(annotation: _Annotation) -> tuple[float, float, float, float] | None:
    if annotation.bbox:
        left, top, width, height = (*annotation.bbox, *[float("nan")] * 4)[:4]
        return left, top, left + width, top + height
    if not _is_outline(annotation.segmentation):
        return None
    try:
        return read_outline(annotation.segmentation).edges()
    except OutlineError:
        return None
