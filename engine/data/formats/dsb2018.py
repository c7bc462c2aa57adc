"""Data Science Bowl 2018 and similar datasets: one folder per image, with one mask per object. Torch-free."""

from __future__ import annotations

import os

from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.instances import InstanceSplit, NumberedMasks
from engine.data.formats.shared.mask_sample import detect_masks, sample_masks
from engine.data.formats.tree import Tree, split_in
from engine.data.splits import sample_evenly, warn_about
from engine.system.format import counted

LAYOUT = "Choose a folder with one folder per image, with the image in images and a mask for each object in masks."
_SAMPLE = 20
"""Maximum number of image folders that are listed to recognize the layout."""
_MIN_IMAGES = 2


def detect(tree: Tree) -> list[Detection]:
    """Detect folders that each contain one image and the masks of its objects."""
    parents = _find_parents(tree)
    if not parents:
        return []
    folders = [os.path.join(parent, name) for parent in parents for name in tree.folders(parent)]
    pairs: list[tuple[str, str]] = []
    for folder in sample_evenly(folders, _SAMPLE):
        image = _find_image(tree, folder)
        if image is not None:
            pairs += [(image, mask) for mask in _find_masks(tree, folder)[:2]]
    sample = sample_masks(pairs)
    if not sample.are_labels:
        return []
    return [
        detect_masks(sample, ("instances",), f"{counted(len(folders), 'folder')} with images and masks", source=parents)
    ]


def _find_parents(tree: Tree) -> list[str]:
    """Return the folders that contain the folders of images.

    These are the dataset folder, or the folders for stages and splits inside it.
    """
    inner = tree.folders()
    return [folder for folder in ("", *inner[:_SAMPLE]) if _has_image_folders(tree, folder)]


def _has_image_folders(tree: Tree, parent: str) -> bool:
    """Return True if most folders in `parent` hold one image and masks, and some of them hold several masks."""
    names = tree.folders(parent)
    if len(names) < _MIN_IMAGES:
        return False
    sampled = [os.path.join(parent, name) for name in sample_evenly(names, _SAMPLE)]
    fitting = [folder for folder in sampled if "masks" in tree.folders(folder) and _find_image(tree, folder)]
    has_several_masks = any(len(_find_masks(tree, folder)) > 1 for folder in fitting)
    return 2 * len(fitting) > len(sampled) and has_several_masks


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their objects, each from a separate mask."""
    images: dict[str, dict[str, NumberedMasks]] = {}  # sources by split and image
    without: list[str] = []
    for parent in detection.source:
        found = images.setdefault(split_in(parent), {})
        for name in tree.folders(parent):
            folder = os.path.join(parent, name)
            image = _find_image(tree, folder)
            if image is None or not tree.exists(os.path.join(folder, "masks")):
                without.append(folder)
            else:
                found[image] = NumberedMasks([(mask, 0) for mask in _find_masks(tree, folder)])  # all are of class 0
    remedy = "Such folders are left out; add the missing folders."
    problems = warn_about(without, "folder", "without an image or masks:", remedy)
    splits = {split: InstanceSplit(list(found), list(found.values())) for split, found in images.items()}
    return Content(("object",), splits, problems)


def _find_image(tree: Tree, folder: str) -> str | None:
    """Return the full path of the only file in the subfolder "images" of `folder`, or None unless there is exactly one."""
    paths = _list_images(tree, os.path.join(folder, "images"))
    return paths[0] if len(paths) == 1 else None


def _find_masks(tree: Tree, folder: str) -> list[str]:
    """Return the full paths of the masks in the folder of an image."""
    return _list_images(tree, os.path.join(folder, "masks"))


def _list_images(tree: Tree, folder: str) -> list[str]:
    """Return the full paths of the images in a folder, or [] if the folder does not exist."""
    return [tree.path(folder, name) for name in tree.images(folder)] if tree.exists(folder) else []


FORMAT = Format("dsb2018", "Data Science Bowl 2018", ("instances",), LAYOUT, detect, read)
