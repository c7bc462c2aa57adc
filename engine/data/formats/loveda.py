"""LoveDA: aerial images of urban and rural areas with masks. Torch-free.

Source: README of the dataset. Values 1 to 7 are the classes, and 0 marks missing data.
"""

from __future__ import annotations

import os

from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.mask_sample import detect_masks, sample_masks
from engine.data.formats.shared.name_pairs import Pairs, make_mask_splits, pair_folders
from engine.data.formats.tree import Tree, split_named
from engine.data.splits import MaskCode
from engine.system.format import counted

LAYOUT = "Choose the folder of LoveDA with Train and Val, each with Urban and Rural."
CLASSES = ("background", "building", "road", "water", "barren", "forest", "agriculture")
CODE = MaskCode(tuple(range(1, len(CLASSES) + 1)), ignored=(0,))
_AREAS = ("urban", "rural")


def detect(tree: Tree) -> list[Detection]:
    """Detect folders images_png and masks_png below Urban and Rural in the folder of a split."""
    splits: dict[str, Pairs] = {}
    for folder in tree.walk(depth=2):
        split = split_named(os.path.basename(folder))
        for area in tree.named(_AREAS, folder) if split else ():
            images, masks = os.path.join(folder, area, "images_png"), os.path.join(folder, area, "masks_png")
            if tree.exists(images) and tree.exists(masks):
                pairs = pair_folders(tree, [images], masks, endings=(".png",), suffixes=("",))
                splits.setdefault(split, Pairs()).add(pairs)
    matched = Pairs.join(splits.values()).matched
    sample = sample_masks(matched)
    has_other_values = max(sample.values, default=0) > len(CLASSES)
    if not sample.readable or has_other_values:
        return []
    evidence = f"{counted(len(matched), 'image')} with masks in images_png and masks_png of Urban and Rural"
    return [detect_masks(sample, ("masks",), evidence, source=splits)]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their masks, and warnings about those without a counterpart."""
    problems = Pairs.join(detection.source.values()).describe_unpaired("a mask", "masks")
    return Content(CLASSES, make_mask_splits(detection.source), problems, CODE)


FORMAT = Format("loveda", "LoveDA", ("masks",), LAYOUT, detect, read)
