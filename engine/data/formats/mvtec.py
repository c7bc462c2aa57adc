"""Folders for anomaly detection, such as MVTec AD. Recognized but not supported. Torch-free."""

from __future__ import annotations

import os

from engine.data.formats.format import Confidence, Detection, Format
from engine.data.formats.shared.mask_sample import sample_masks
from engine.data.formats.shared.name_pairs import pair_folders
from engine.data.formats.tree import Tree
from engine.system.format import counted

LAYOUT = "MVTec AD has train/good, test with a folder for each defect, and ground_truth with their masks."
REMEDY = (
    "Footplate has no task for anomalies. To segment defects, choose a folder with the images of test as images and "
    "those of ground_truth as masks; to classify them, one with the folders of test."
)
_NORMAL = ("good", "normal", "ok")


def detect(tree: Tree) -> list[Detection]:
    """Detect training images without defects, together with test images of defects and their masks.

    Footplate can't read them, so that the detection has no kinds of annotations, but a remedy.
    """
    for base in tree.walk(depth=1):
        train, test = os.path.join(base, "train"), os.path.join(base, "test")
        if not (tree.exists(train) and tree.exists(test)):
            continue
        training_folders = set(tree.folders(train))
        if not training_folders or not training_folders <= set(_NORMAL):
            continue
        for truth in tree.named(("ground_truth",), base):
            defects = sorted(set(tree.folders(os.path.join(base, truth))) & set(tree.folders(test)))
            pairs = [pair for name in defects for pair in _pair_with_masks(tree, base, truth, name)]
            if sample_masks(pairs).are_labels:
                evidence = (
                    f"images without a defect to train on, and {counted(len(defects), 'kind')} of defects to test with"
                )
                return [Detection((), Confidence.CERTAIN, (evidence,), remedy=REMEDY)]
    return []


def _pair_with_masks(tree: Tree, base: str, truth: str, defect: str) -> list[tuple[str, str]]:
    """Return the test images of a defect with their masks, which are in the folder `truth` inside `base`."""
    images, masks = os.path.join(base, "test", defect), os.path.join(base, truth, defect)
    return pair_folders(tree, [images], masks, endings=(".png",), suffixes=("_mask", "")).matched


FORMAT = Format("mvtec", "anomaly detection (MVTec AD)", (), LAYOUT, detect)
