"""ADE20K scene parsing benchmark (SceneParse150). The full ADE20K is recognized but not supported. Torch-free.

Source: README of CSAILVision/sceneparsing. Mask values 1 to 150 are the classes, and 0 marks all other pixels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice

from engine.data.decoding.reading import read_text
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.mask_sample import detect_masks, sample_masks
from engine.data.formats.shared.name_pairs import Pairs, make_mask_splits, pair_folders
from engine.data.formats.tree import Tree
from engine.data.splits import MaskCode, dataset_warning, printable
from engine.system.format import counted

LAYOUT = "Choose the folder with images, annotations and objectInfo150.txt of ADEChallengeData2016."
COUNT = 150
_NAMES = "objectInfo150.txt"
_SPLITS = {"training": "train", "validation": "val"}
_FULL = "_seg.png"
"""Suffix of mask names in the full ADE20K. Red and green encode the class of a pixel, and blue its object."""
_MAX_FOLDERS = 150
"""Maximum number of folders that are examined for the full ADE20K."""
_REMEDY = "Convert it to the scene parsing benchmark with 150 classes, or download ADEChallengeData2016."


def detect(tree: Tree) -> list[Detection]:
    """Detect the scene parsing benchmark, and the full ADE20K, which is not supported."""
    found = [each for base in tree.walk(depth=2) for each in _detect_benchmark(tree, base)]
    return found or _detect_full(tree)


def _detect_benchmark(tree: Tree, base: str) -> list[Detection]:
    """Return a list with the detection of the scene parsing benchmark in the folder `base`, or [] if it isn't there.

    Either most names of images begin with "ADE_", or the folder holds the benchmark's list of classes.
    """
    if not {"images", "annotations"} <= set(tree.folders(base)):
        return []
    pairs: dict[str, Pairs] = {}
    for folder, split in _SPLITS.items():
        images, masks = os.path.join(base, "images", folder), os.path.join(base, "annotations", folder)
        if tree.exists(images) and tree.exists(masks):
            pairs[split] = pair_folders(tree, [images], masks, endings=(".png",), suffixes=("",))
    matched = Pairs.join(pairs.values()).matched
    named_as_in_ade = sum(os.path.basename(image).startswith("ADE_") for image, _ in matched)
    is_ade = 2 * named_as_in_ade > len(matched) or _NAMES in tree.files(base)
    if not matched or not is_ade:
        return []
    sample = sample_masks(matched)
    largest = max(sample.values, default=0)
    against = f"the value {largest} in masks, although there are {COUNT} classes" if largest > COUNT else ""
    evidence = f"{counted(len(matched), 'image')} of ADE20K with masks"
    return [detect_masks(sample, ("masks",), evidence, against=against, source=(base, pairs))]


def _detect_full(tree: Tree) -> list[Detection]:
    """Return a list with the detection of the full ADE20K, which is not supported, or [] if it isn't there."""
    for folder in islice(tree.walk(depth=6), _MAX_FOLDERS):
        names = tree.files(folder, ".png")
        masks = [name for name in names if name.startswith("ADE_") and name.endswith(_FULL)]
        if masks and any(name.replace(_FULL, ".jpg") in tree.files(folder, ".jpg") for name in masks):
            evidence = (f"{counted(len(masks), 'mask')} such as {printable(masks[0])}",)
            return [Detection((), Confidence.CERTAIN, evidence, remedy=_REMEDY)]
    return []


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their masks. The value 0 in masks means no class."""
    base: str
    pairs: dict[str, Pairs]  # by split
    base, pairs = detection.source
    problems = Pairs.join(pairs.values()).describe_unpaired("a mask", "masks")
    names = _read_names(tree, base)
    if len(names) < COUNT:
        message = f"{_NAMES} does not name all {COUNT} classes, so that some are numbered."
        problems.append(dataset_warning(message, f"Copy {_NAMES} of the dataset next to images and annotations."))
    classes = tuple(names.get(value, f"class {value}") for value in range(1, COUNT + 1))
    return Content(classes, make_mask_splits(pairs), problems, MaskCode(tuple(range(1, COUNT + 1)), ignored=(0,)))


def _read_names(tree: Tree, base: str) -> Mapping[int, str]:
    """Return the first name of each class value in the file objectInfo150.txt of the folder `base`.

    The line "2 0.1072 6046 612 building, edifice" gives the name "building" to the value 2. Values with the same first
    name get names with their value, as in "door (15)". Without the file, the result is {}.
    """
    try:
        lines = read_text(tree.path(base, _NAMES)).splitlines()
    except OSError:
        return {}
    rows = [line.split("\t") for line in lines]
    named = {
        int(row[0]): printable(row[-1].partition(",")[0].strip())
        for row in rows
        if len(row) >= 2 and re.fullmatch(r"\s*\d{1,18}\s*", row[0]) and row[-1].strip()
    }
    names = list(named.values())
    return {  # some classes have the same first name
        value: name if names.count(name) == 1 else f"{name} ({value})"
        for value, name in named.items()
        if 1 <= value <= COUNT
    }


FORMAT = Format("ade20k", "ADE20K", ("masks",), LAYOUT, detect, read)
