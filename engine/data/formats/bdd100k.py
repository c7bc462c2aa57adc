"""JSON files from BDD100K that list images with boxes, such as labels/det_20/det_train.json. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from engine.contract.problems import Problem
from engine.data.decoding.reading import refuse_unusable
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.shapes import Shape, ShapedImage, box_shape, convert
from engine.data.formats.tree import Tree, split_in
from engine.data.memory_limit import allow_for_text
from engine.data.splits import count_sentence, dataset_error, dataset_warning, printable, warn_about
from engine.system.regular_files import UnusableFile, open_regular, read_regular

HEAD_BYTES = 1 << 16
MAX_BYTES = 2 << 30
MAX_FILES = 20
"""Maximum number of JSON files per folder whose beginning is read."""
_KEYS = (b'"name"', b'"labels"', b'"category"', b'"box2d"')


class _Box(msgspec.Struct):
    x1: float
    y1: float
    x2: float
    y2: float


class _Label(msgspec.Struct):
    category: str
    box2d: _Box | None = None


class _Image(msgspec.Struct):
    name: str
    labels: list[msgspec.Raw] | None = None


_IMAGES = msgspec.json.Decoder(list[_Image])
_LABEL = msgspec.json.Decoder(_Label)


def detect(tree: Tree) -> list[Detection]:
    """Detect JSON files that list images with boxes in the form of BDD100K."""
    files = [
        os.path.join(folder, name)
        for folder in tree.walk(depth=3)
        for name in tree.files(folder, ".json")[:MAX_FILES]
        if _is_list(tree.path(folder, name))
    ]
    if not files:
        return []
    return [Detection(("boxes",), Confidence.CERTAIN, tuple(map(printable, files)), source=files)]


def _is_list(path: str) -> bool:
    try:
        with open_regular(path) as stream:
            head = stream.read(HEAD_BYTES)
    except (OSError, UnusableFile):
        return False
    return head.lstrip().startswith(b"[") and all(key in head for key in _KEYS)


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their boxes from all files. Lanes and areas are left out, since they have no boxes."""
    problems: list[Problem] = []
    lookup = ImageLookup(tree)
    splits: dict[str, list[ShapedImage]] = {}
    for path in detection.source:
        split = split_in(os.path.basename(path)) or split_in(os.path.basename(os.path.dirname(path)))
        splits.setdefault(split, []).extend(_images(tree, path, split, lookup, problems))
    return convert(kind, splits, problems)


def _images(tree: Tree, path: str, split: str, lookup: ImageLookup, problems: list[Problem]) -> Iterator[ShapedImage]:
    """Yield the images in the JSON file `path` with their boxes, and append faults to `problems`."""
    full = tree.path(path)
    try:
        with refuse_unusable(full):
            allow_for_text(full)
            images = _IMAGES.decode(read_regular(full, MAX_BYTES))
    except msgspec.DecodeError as error:
        problems.append(
            dataset_error(f"{printable(path)} can't be read: {error}.", "Download or export the file again.")
        )
        return
    missing: list[str] = []
    faults: list[str] = []
    for each in images:
        image = lookup.find(each.name, os.path.dirname(path), split=split)
        if image is None:
            missing.append(each.name)
        else:
            yield ShapedImage(image, list(_shapes(each, faults)))
    remedy = "Such images are left out; add them to the folder."
    problems += warn_about(missing, "image", f"named in {printable(path)} but not in the folder:", remedy)
    if faults:
        message = f"{count_sentence(faults, 'object')} that can't be read in {printable(path)}: {faults[0]}."
        problems.append(dataset_warning(message, "Such objects are left out; correct the file."))


def _shapes(image: _Image, faults: list[str]) -> Iterator[Shape]:
    for number, content in enumerate(image.labels or (), 1):
        try:
            label = _LABEL.decode(content)
        except msgspec.DecodeError as error:
            faults.append(f"object {number} of {printable(image.name)} ({error})")
            continue
        if label.box2d is not None:
            box = label.box2d
            yield box_shape(label.category, box.x1, box.y1, box.x2, box.y2)


FORMAT = Format(
    "bdd100k",
    "BDD100K JSON",
    ("boxes",),
    "A folder of images and JSON lists of their boxes, such as labels/det_20/det_train.json.",
    detect,
    read,
)
