"""Lists of images with boxes from WIDER FACE, such as wider_face_split/wider_face_train_bbx_gt.txt. Torch-free.

For each image, a list has its path, the number of faces, and one line for each face: left, top, width, height, and six
flags. The fourth flag is 1 for unusable faces. An image without faces has one line of zeros.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import MAX_TABLE_BYTES, Unfit, read_number, read_text, refuse_unusable
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.annotation_files import AnnotationReader
from engine.data.formats.shared.shapes import Shape, ShapedImage, convert, make_box_shape
from engine.data.formats.tree import Tree, split_in
from engine.data.splits import printable, warn_unreadable

ENDING = "_bbx_gt.txt"
CLASS = "face"
MAX_LEVELS = 3
"""Maximum depth of folders that are searched for the lists of WIDER FACE."""
INVALID = 7
"""Index of the word in a face's line that is 1 for unusable faces."""


def detect(tree: Tree) -> list[Detection]:
    """Detect lists that begin with an image and its number of faces."""
    lists = (path for path in tree.find(".txt", depth=MAX_LEVELS) if path.lower().endswith(ENDING))
    files = [path for path in lists if _is_list(tree.path(path))]
    if not files:
        return []
    return [Detection(("boxes",), Confidence.CERTAIN, tuple(map(printable, files)), source=files)]


def _is_list(path: str) -> bool:
    """Return True if the first two lines of a file are the name of an image and a number."""
    lines = read_text(path, MAX_TABLE_BYTES).split("\n", 2)
    return len(lines) > 1 and is_image(lines[0].strip()) and lines[1].strip().isdecimal()


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with the boxes of their faces from all lists."""
    files: AnnotationReader[ShapedImage] = AnnotationReader(tree, detection.source)
    for split, file in files.iterate_files():
        list_folder = os.path.dirname(file)
        siblings = tree.folders(os.path.dirname(list_folder))
        # The images of a split are in a folder next to the lists, such as WIDER_train.
        image_folder = next((name for name in siblings if split and split_in(name) == split), "")
        faults: list[tuple[str, str]] = []
        images = []
        for name, shapes in _read_list(tree.path(file), faults):
            path = files.find(os.path.join(image_folder, "images", name), list_folder, split)
            if path is not None:
                images.append(ShapedImage(path, shapes))
        files.add(split, images)
        files.problems += warn_unreadable(faults, "line", "Such lines are left out; correct the file.")
    return convert(kind, files.finish(), files.problems, [CLASS])


def _read_list(path: str, faults: list[tuple[str, str]]) -> Iterator[tuple[str, list[Shape]]]:
    """Yield the name and the boxes of each image in a list file. Unusable lines are added to `faults`."""
    text = read_text(path, MAX_TABLE_BYTES)
    name = ""
    shapes: list[Shape] = []
    with refuse_unusable(path):
        for number, line in enumerate(text.splitlines(), 1):
            tokens = line.split()
            if is_image(line.strip()):
                if name:
                    yield name, shapes
                name, shapes = line.strip(), []
            elif len(tokens) >= 4:
                try:
                    left, top, width, height = (read_number(token, number) for token in tokens[:4])
                except Unfit as error:
                    faults.append((path, str(error)))
                    continue
                if any((left, top, width, height)):  # an image without faces has a box of zeros
                    ignored = len(tokens) > INVALID and tokens[INVALID] == "1"  # the flag "invalid"
                    shapes.append(make_box_shape(CLASS, left, top, left + width, top + height, ignored=ignored))
            elif tokens and not line.strip().isdecimal():  # the number of faces is not needed
                faults.append((path, f"line {number} is neither an image, a number of faces nor a box"))
        if name:
            yield name, shapes


FORMAT = Format(
    "wider_face",
    "WIDER FACE lists",
    ("boxes",),
    "A folder wider_face_split with lists such as wider_face_train_bbx_gt.txt, and folders such as WIDER_train/images.",
    detect,
    read,
)
