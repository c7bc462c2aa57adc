"""Dataset format of images that two text files list.

`train.list` and `val.list` have a line "PATH CLASS" for each image, with the path from the folder that they are in. Nothing
here imports torch, so that folders are inspected at once.
"""

from __future__ import annotations

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import Unfit, read_text
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.shapes import ShapedImage, convert
from engine.data.formats.tree import Tree
from engine.data.splits import dataset_error

LAYOUT = 'Choose a folder with a train.list, and better a val.list, too, of lines "PATH CLASS".'


def detect(tree: Tree) -> list[Detection]:
    """Return the reading as classes if train.list begins with a line of that kind."""
    if "train.list" not in tree.files(endings=".list"):
        return []
    with open(tree.path("train.list"), encoding="utf-8", errors="replace") as stream:
        path, _, name = stream.readline(4096).strip().rpartition(" ")
    if not name or not is_image(path):
        return []
    return [Detection(("classes",), Confidence.CERTAIN, ("train.list with paths of images and their classes",))]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images in the lists. Validation is drawn from the first list if it is the only one."""
    problems: list[Problem] = []
    splits: dict[str, list[ShapedImage]] = {}
    for split in ("train", "val"):
        if f"{split}.list" in tree.files(endings=".list"):
            try:
                splits[split] = _images(tree, f"{split}.list")
            except Unfit as error:
                problems.append(dataset_error(f"{split}.list can't be read: {error}.", LAYOUT))
    return convert(kind, splits, problems)


def _images(tree: Tree, name: str) -> list[ShapedImage]:
    """Return path and class of each line. Raises Unfit for a line without a class."""
    images = []
    for number, line in enumerate(read_text(tree.path(name)).splitlines(), 1):
        path, _, label = line.strip().rpartition(" ")
        if line.strip() and not path:
            raise Unfit(f"line {number} has no class")
        if path:
            images.append(ShapedImage(tree.path(path), tags=(label,)))
    return images


LISTS = Format("lists", "lists of images", ("classes",), LAYOUT, detect, read)
