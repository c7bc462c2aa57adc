"""Pixel maps of COCO-Stuff: PNGs whose values are class numbers. Torch-free.

There are two published layouts (https://github.com/nightrome/cocostuff). In stuffthingmaps, a value is the class number
minus 1, and 255 means unlabeled. In stuff_train2017_pixelmaps, a value is the class number, and 0 means unlabeled.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import NamedTuple

from engine.data.decoding.reading import read_text_lines
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.name_pairs import Pairs, make_mask_splits
from engine.data.formats.tree import Tree, split_of_file, stem
from engine.data.splits import MaskCode, first_names, printable, warn_about

_THINGS = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light", "fire hydrant",
    "", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra",
    "giraffe", "", "backpack", "umbrella", "", "", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard",
    "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle", "",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli", "carrot",
    "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed", "", "dining table", "", "", "toilet", "",
    "tv", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "",
    "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush", "",
)  # fmt: skip
"""Names of classes 1 to 91 (things). The name "" marks numbers that are not used."""
_STUFF = (
    "banner", "blanket", "branch", "bridge", "building-other", "bush", "cabinet", "cage", "cardboard", "carpet",
    "ceiling-other", "ceiling-tile", "cloth", "clothes", "clouds", "counter", "cupboard", "curtain", "desk-stuff", "dirt",
    "door-stuff", "fence", "floor-marble", "floor-other", "floor-stone", "floor-tile", "floor-wood", "flower", "fog",
    "food-other", "fruit", "furniture-other", "grass", "gravel", "ground-other", "hill", "house", "leaves", "light", "mat",
    "metal", "mirror-stuff", "moss", "mountain", "mud", "napkin", "net", "paper", "pavement", "pillow", "plant-other",
    "plastic", "platform", "playingfield", "railing", "railroad", "river", "road", "rock", "roof", "rug", "salad", "sand",
    "sea", "shelf", "sky-other", "skyscraper", "snow", "solid-other", "stairs", "stone", "straw", "structural-other",
    "table", "tent", "textile-other", "towel", "tree", "vegetable", "wall-brick", "wall-concrete", "wall-other",
    "wall-panel", "wall-stone", "wall-tile", "wall-wood", "water-other", "waterdrops", "window-blind", "window-other",
    "wood",
)  # fmt: skip
"""Names of COCO-Stuff's classes 92 to 182, which are materials and backgrounds."""
_OTHER = 183
"""Class number of all countable objects ("things") in stuff_*_pixelmaps."""
_UNLABELED = 255
_LINE = re.compile(r"\s*(\d{1,18})\s*[:\t ]\s*(\S.*?)\s*$")


class _Layout(NamedTuple):
    folders: tuple[str, ...]
    """Folders with masks, relative to the dataset folder."""
    offset: int
    """Class number minus the value of the class in masks."""


def detect(tree: Tree) -> list[Detection]:
    """Detect COCO-Stuff by the names of its folders of PNGs."""
    stuffthingmaps: list[str] = []
    pixelmaps: list[str] = []
    for folder in tree.walk(depth=3):
        words = folder.lower().split(os.sep)
        if tree.has(".png", folder):
            if any(word.startswith("stuffthingmaps") for word in words):
                stuffthingmaps.append(folder)
            elif re.fullmatch(r"stuff_\w+_pixelmaps", words[-1]):
                pixelmaps.append(folder)
    variant = "stuff only" if stuffthingmaps else ""  # of the pixel maps, if they are an alternative
    # In the maps of stuff and things, the value 0 is class 1.
    layouts = [(_Layout(tuple(stuffthingmaps), offset=1), ""), (_Layout(tuple(pixelmaps), offset=0), variant)]
    return [
        Detection(
            ("masks",),
            Confidence.LIKELY,
            (f"pixel maps of COCO-Stuff: {first_names(layout.folders)}",),
            variant=variant,
            source=layout,
        )
        for layout, variant in layouts
        if layout.folders
    ]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their masks, and warnings about masks without an image.

    The class names come from labels.txt, or else from COCO-Stuff.
    """
    layout: _Layout = detection.source
    lookup = ImageLookup(tree)
    splits: dict[str, Pairs] = {}
    missing: list[str] = []
    for folder in layout.folders:
        split = split_of_file(folder)
        pairs = splits.setdefault(split, Pairs())
        for name in tree.files(folder, ".png"):
            path = lookup.find(f"{stem(name)}.jpg", split=split) or lookup.find(
                stem(name), split=split, has_extension=False
            )
            if path is None or path == tree.path(folder, name):  # the lookup may find the mask itself
                missing.append(name)
            else:
                pairs.matched.append((path, tree.path(folder, name)))
    remedy = "Such masks are not used; give image and mask the same name."
    problems = warn_about(missing, "mask", "without an image:", remedy)
    names = _read_names(tree, layout)
    # The value 0 is a class if values are class numbers minus 1. Otherwise, it means unlabeled.
    ignored = (_UNLABELED,) if layout.offset else (0, _UNLABELED)
    code = MaskCode(tuple(number - layout.offset for number in names), ignored=ignored)
    return Content(tuple(map(printable, names.values())), make_mask_splits(splits), problems, code)


def _read_names(tree: Tree, layout: _Layout) -> dict[int, str]:
    """Return the class names, keyed by class number and sorted by it.

    They come from the first labels.txt in a folder of masks or above it, or else from COCO-Stuff.
    """
    paths = [PurePath(folder) for folder in layout.folders]
    searched = [parent for path in paths for parent in (path, *path.parents)]
    for folder in dict.fromkeys("" if parent == PurePath() else str(parent) for parent in searched):
        if "labels.txt" in tree.files(folder, ".txt"):
            lines = map(_LINE.match, read_text_lines(tree.path(folder, "labels.txt")))
            found = {int(line[1]): line[2] for line in lines if line}
            found.pop(0, None)  # "unlabeled"
            if found:
                return dict(sorted(found.items()))
    numbered = {number: name for number, name in enumerate((*_THINGS, *_STUFF), 1) if name}
    if layout.offset:
        return numbered
    return {number: name for number, name in numbered.items() if number > len(_THINGS)} | {_OTHER: "other"}


FORMAT = Format(
    "coco_stuff",
    "COCO-Stuff",
    ("masks",),
    "A folder stuffthingmaps with PNGs in folders train2017 and val2017, and images in folders of the same names.",
    detect,
    read,
)
