"""Lists of images with boxes from WIDER FACE, such as wider_face_split/wider_face_train_bbx_gt.txt. Torch-free.

For each image, a list has its path, the number of faces, and one line for each face: left, top, width, height, and six
flags. The fourth flag is 1 for unusable faces. An image without faces has one line of zeros.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import MAX_TABLE_BYTES, Unfit, read_number, read_text, refuse_unusable
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.shapes import Shape, ShapedImage, box_shape, convert
from engine.data.formats.tree import Tree, split_in
from engine.data.splits import count_sentence, dataset_warning, printable, warn_about

ENDING = "_bbx_gt.txt"
CLASS = "face"
MAX_LEVELS = 3
"""Maximum depth of folders that are searched for lists."""
INVALID = 7
"""Index of the word in a face's line that is 1 for unusable faces."""


def detect(tree: Tree) -> list[Detection]:
    """Detect lists that begin with an image and its number of faces."""
    files = [path for path in _lists(tree) if _is_list(tree.path(path))]
    if not files:
        return []
    return [Detection(("boxes",), Confidence.CERTAIN, tuple(map(printable, files)), source=files)]


def _lists(tree: Tree) -> Iterator[str]:
    for folder in tree.walk(depth=MAX_LEVELS):
        for name in tree.files(folder, ".txt"):
            if name.lower().endswith(ENDING):
                yield os.path.join(folder, name)


def _is_list(path: str) -> bool:
    lines = read_text(path, MAX_TABLE_BYTES).split("\n", 2)
    return len(lines) > 1 and is_image(lines[0].strip()) and lines[1].strip().isdecimal()


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    problems: list[Problem] = []
    lookup = ImageLookup(tree)
    splits: dict[str, list[ShapedImage]] = {}
    for path in detection.source:
        split = split_in(os.path.basename(path))
        splits.setdefault(split, []).extend(_images(tree, path, split, lookup, problems))
    return convert(kind, splits, problems, [CLASS])


def _images(tree: Tree, path: str, split: str, lookup: ImageLookup, problems: list[Problem]) -> Iterator[ShapedImage]:
    """Yield the images in the list `path` with their boxes, and append problems to `problems`."""
    missing: list[str] = []
    faults: list[str] = []
    above = os.path.dirname(os.path.dirname(path))
    of_split = [name for name in tree.folders(above) if split and split_in(name) == split]
    images = os.path.join(of_split[0], "images") if of_split else "images"
    for name, shapes in _read_list(tree.path(path), faults):
        image = lookup.find(os.path.join(images, name), above, split=split)
        if image is None:
            missing.append(name)
        else:
            yield ShapedImage(image, shapes)
    remedy = "Such images are left out; add them to the folder."
    problems += warn_about(missing, "image", f"named in {printable(path)} but not in the folder:", remedy)
    if faults:
        message = f"{count_sentence(faults, 'line')} that can't be read in {printable(path)}: {faults[0]}."
        problems.append(dataset_warning(message, "Such lines are left out; correct the file."))


def _read_list(path: str, faults: list[str]) -> Iterator[tuple[str, list[Shape]]]:
    """Yield the name and the boxes of each image in a list file. Unusable lines are described in `faults`."""
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
                    faults.append(str(error))
                    continue
                if any((left, top, width, height)):  # an image without faces has a box of zeros
                    ignored = len(tokens) > INVALID and tokens[INVALID] == "1"
                    shapes.append(box_shape(CLASS, left, top, left + width, top + height, ignored=ignored))
            elif tokens and not line.strip().isdecimal():  # the number of faces is not needed
                faults.append(f"line {number} is neither an image, a number of faces nor a box")
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
