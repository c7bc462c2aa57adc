"""LoveDA: aerial images of urban and rural areas with masks. Torch-free.

After the README of the dataset: 1 to 7 are the classes, 0 is where there is no data.
"""

from __future__ import annotations

import os

from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.mask_sample import sample_masks
from engine.data.formats.shared.name_pairs import Pairs, pair_folders
from engine.data.formats.tree import Tree, split_named
from engine.data.splits import MaskCode, MaskSplit

LAYOUT = "Choose the folder of LoveDA with Train and Val, each with Urban and Rural."
CLASSES = ("background", "building", "road", "water", "barren", "forest", "agriculture")
CODE = MaskCode(tuple(range(1, len(CLASSES) + 1)), ignored=(0,))
_AREAS = ("urban", "rural")


def detect(tree: Tree) -> list[Detection]:
    """Return the reading of images_png and masks_png in the areas of each split."""
    splits: dict[str, Pairs] = {}
    for name in tree.walk(depth=2):
        for area in tree.named(_AREAS, name):
            images, masks = os.path.join(name, area, "images_png"), os.path.join(name, area, "masks_png")
            if tree.exists(images) and tree.exists(masks) and (split := split_named(os.path.basename(name))):
                pairs = pair_folders(tree, [images], masks, (".png",), ("",))
                splits.setdefault(split, Pairs()).add(pairs)
    both = [pair for pairs in splits.values() for pair in pairs.both]
    sample = sample_masks(both)
    largest = max((value for values in sample.numbers for value in values), default=0)
    if not sample.readable or largest > len(CLASSES):
        return []
    against = () if sample.fit else ("masks of other sizes than their images",)
    confidence = Confidence.WEAK if against else Confidence.CERTAIN
    evidence = (f"{len(both):,} images with masks in images_png and masks_png of Urban and Rural",)
    return [Detection(("masks",), confidence, evidence, against, source=splits)]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their masks."""
    every = Pairs()
    for pairs in detection.source.values():
        every.add(pairs)
    splits = {
        split: MaskSplit([image for image, _ in pairs.both], [mask for _, mask in pairs.both])
        for split, pairs in detection.source.items()
        if pairs.both
    }
    return Content(CLASSES, splits, every.problems("a mask", "masks"), CODE)


FORMAT = Format("loveda", "LoveDA", ("masks",), LAYOUT, detect, read)
