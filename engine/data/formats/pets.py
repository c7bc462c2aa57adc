"""Oxford-IIIT Pet: images with trimaps. Torch-free.

Source: README of the dataset. In trimaps, 1 is the pet, 2 the background, and 3 marks unclassified pixels.
"""

from __future__ import annotations

import os

from engine.data.decoding.reading import MAX_TABLE_BYTES, read_text_lines
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.mask_sample import detect_masks, sample_masks
from engine.data.formats.shared.name_pairs import Pairs, make_mask_splits, pair_folders
from engine.data.formats.tree import Tree, stem
from engine.data.splits import MaskCode
from engine.system.format import counted

LAYOUT = "Choose the folder of Oxford-IIIT Pet with images and annotations/trimaps."
CLASSES = ("background", "pet")
CODE = MaskCode((2, 1), ignored=(3,))
_VALUES = frozenset({*CODE.values, *CODE.ignored})
_LISTS = {"train": ("trainval.txt", "train.txt"), "val": ("val.txt",), "test": ("test.txt",)}


def detect(tree: Tree) -> list[Detection]:
    """Detect a folder with images and trimaps of the values 1, 2 and 3."""
    for base in tree.walk(depth=2):
        trimaps, images = os.path.join(base, "annotations", "trimaps"), os.path.join(base, "images")
        if not (tree.exists(trimaps) and tree.exists(images)):
            continue
        pairs = pair_folders(tree, [images], trimaps, endings=(".png",), suffixes=("",))
        sample = sample_masks(pairs.matched)
        if not sample.values or sample.values - _VALUES or sample.has_zero:
            return []
        evidence = f"{counted(len(pairs.matched), 'image')} with trimaps of the values 1, 2 and 3"
        return [detect_masks(sample, ("masks",), evidence, source=(base, pairs))]
    return []


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their trimaps, divided into splits by the lists in the dataset."""
    base: str
    pairs: Pairs
    base, pairs = detection.source
    problems = pairs.describe_unpaired("a trimap", "trimaps")
    splits: dict[str, Pairs] = {}
    listed: set[str] = set()
    for split, files in _LISTS.items():
        lists = (_read_list(tree, base, file) for file in files)
        names = next(filter(None, lists), set[str]())  # in the first list that exists
        new_names = names - listed  # an image belongs to the first split that lists it
        matched = [(image, mask) for image, mask in pairs.matched if stem(image) in new_names]
        listed |= names
        if matched:
            splits[split] = Pairs(matched)
    if "train" not in splits:
        return Content(CLASSES, make_mask_splits({"": pairs}), problems, CODE)
    unlisted = Pairs(unmatched_images=[image for image in pairs.images if stem(image) not in listed])
    problems += unlisted.describe_unpaired("a split in annotations", "names")
    return Content(CLASSES, make_mask_splits(splits), problems, CODE)


def _read_list(tree: Tree, base: str, name: str) -> set[str]:
    """Return the names of images in a list with lines such as "Abyssinian_100 1 1 1".

    Returns an empty set if the list is missing.
    """
    try:
        lines = read_text_lines(tree.path(base, "annotations", name), MAX_TABLE_BYTES)
    except OSError:
        return set()
    return {line.split()[0] for line in lines}


FORMAT = Format("pets", "Oxford-IIIT Pet", ("masks",), LAYOUT, detect, read)
