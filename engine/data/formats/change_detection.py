"""Pairs of images before and after a change, as in LEVIR-CD, which are recognized but not supported. Torch-free."""

from __future__ import annotations

import os

from engine.data.formats.format import Confidence, Detection, Format
from engine.data.formats.shared.mask_sample import sample_masks
from engine.data.formats.shared.name_pairs import pair_folders
from engine.data.formats.tree import Tree
from engine.data.splits import printable
from engine.system.format import counted

LAYOUT = "Change detection has folders A, B and label (or t1, t2 and change)."
REMEDY = (
    "Footplate has no task for changes. To segment single images, choose a folder with one of A and B and its masks."
)
_TIMES = (("a", "b"), ("t1", "t2"), ("time1", "time2"), ("before", "after"), ("pre", "post"), ("im1", "im2"))
_MASKS = ("label", "labels", "out", "change", "changes", "mask", "masks", "gt", "label1")
_ENDINGS = (".png", ".tif", ".tiff", ".jpg", ".bmp")


def detect(tree: Tree) -> list[Detection]:
    """Detect folders of images from two dates, and a folder with a mask for each pair of images.

    Footplate can't read them, so that the detection has no kinds of annotations, but a remedy.
    """
    for base in tree.walk(depth=2):
        for times in _TIMES:
            folders = [os.path.join(base, name) for name in tree.named(times, base)]
            if len(folders) != 2:
                continue
            before, after = folders
            for masks in (os.path.join(base, name) for name in tree.named(_MASKS, base)):
                pairs_before, pairs_after = (
                    pair_folders(tree, [folder], masks, endings=_ENDINGS, suffixes=("",)).matched for folder in folders
                )
                if pairs_before and pairs_after and sample_masks(pairs_before).are_labels:
                    names = f"both {printable(before)} and {printable(after)}"
                    evidence = (f"{counted(len(pairs_before), 'image')} in {names} with one mask",)
                    return [Detection((), Confidence.CERTAIN, evidence, remedy=REMEDY)]
    return []


FORMAT = Format("change_detection", "change detection", (), LAYOUT, detect)
