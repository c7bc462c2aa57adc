"""JSON files from BDD100K that list images with boxes, such as labels/det_20/det_train.json. Torch-free."""

from __future__ import annotations

import msgspec

from engine.data.decoding.reading import read_head
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.annotation_files import AnnotationReader
from engine.data.formats.shared.json_files import MAX_FILES, EntryFaults, find_json_files
from engine.data.formats.shared.shapes import ShapedImage, convert, make_box_shape
from engine.data.formats.tree import Tree
from engine.data.splits import printable

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
    groups = find_json_files(tree).values()
    files = [name for names in groups for name in names[:MAX_FILES] if _is_list(tree.path(name))]
    if not files:
        return []
    return [Detection(("boxes",), Confidence.CERTAIN, tuple(map(printable, files)), source=files)]


def _is_list(path: str) -> bool:
    """Return True if a file begins like a JSON list and soon contains all keys of BDD100K."""
    head = read_head(path)
    return head.lstrip().startswith(b"[") and all(key in head for key in _KEYS)


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their boxes from all files. Lanes and areas are left out, since they have no boxes."""
    files: AnnotationReader[ShapedImage] = AnnotationReader(tree, detection.source)
    for split, file in files.iterate_files():
        faults = EntryFaults(file)
        images: list[ShapedImage] = []
        for each in files.decode(file, _IMAGES, "Download or export the file again.") or ():
            path = files.find(each.name, file, split)
            if path is not None:
                image = ShapedImage(path)
                for _, label in faults.decode_each(_LABEL, each.labels or (), f"{each.name} labels"):
                    if (box := label.box2d) is not None:
                        image.shapes.append(make_box_shape(label.category, box.x1, box.y1, box.x2, box.y2))
                images.append(image)
        files.add(split, images)
        files.problems += faults.problems()
    return convert(kind, files.finish(), files.problems)


FORMAT = Format(
    "bdd100k",
    "BDD100K JSON",
    ("boxes",),
    "A folder of images and JSON lists of their boxes, such as labels/det_20/det_train.json.",
    detect,
    read,
)
