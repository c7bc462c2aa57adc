"""RCNN masks from ArcGIS: images, and a folder for each class with masks that number its objects. Torch-free."""

from __future__ import annotations

import os

from engine.data.decoding.class_tables import read_arcgis_classes
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.class_numbers import number_classes
from engine.data.formats.shared.instances import InstanceSplit, NumberedMasks
from engine.data.formats.shared.mask_sample import detect_masks, sample_masks
from engine.data.formats.tree import Tree
from engine.data.splits import warn_about
from engine.system.format import counted

LAYOUT = "Choose a folder that ArcGIS exported as RCNN masks, with images, labels and esri_model_definition.emd."


def detect(tree: Tree) -> list[Detection]:
    """Detect a folder of images next to folders of masks, one for each class."""
    if not ({"images", "labels"} <= set(tree.folders())):
        return []
    images, by_class = _index_by_stem(tree, "images"), _find_masks_by_class(tree)
    pairs = [(images[stem], mask) for masks in by_class.values() for stem, mask in masks.items() if stem in images]
    sample = sample_masks(pairs)
    if not pairs or not sample.are_labels:
        return []
    is_defined = read_arcgis_classes(tree.root) is not None
    against = "" if is_defined else "folders of classes in labels, but no esri_model_definition.emd"
    count = len({image for image, _ in pairs})
    evidence = f"{counted(count, 'image')} with masks of {counted(len(by_class), 'class')} in labels"
    return [detect_masks(sample, ("instances",), evidence, against=against)]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with the objects from the masks of each class."""
    images, by_class = _index_by_stem(tree, "images"), _find_masks_by_class(tree)
    classes, numbers = number_classes(tree.root, by_class)
    unused = [path for masks in by_class.values() for stem, path in masks.items() if stem not in images]
    remedy = "Such masks are not used; give image and mask the same name."
    problems = warn_about(unused, "mask", "without an image:", remedy)
    sources = [
        NumberedMasks([(masks[stem], numbers[name]) for name, masks in by_class.items() if stem in masks])
        for stem in images
    ]
    return Content(classes, {"": InstanceSplit(list(images.values()), sources)}, problems)


def _find_masks_by_class(tree: Tree) -> dict[str, dict[str, str]]:
    """Return the paths of the masks of each class, keyed by class name and by file name without extension."""
    found = {name: _index_by_stem(tree, os.path.join("labels", name)) for name in tree.folders("labels")}
    return {name: masks for name, masks in found.items() if masks}


def _index_by_stem(tree: Tree, folder: str) -> dict[str, str]:
    """Return the full paths of the images in a folder, keyed by their names without extensions."""
    return {os.path.splitext(name)[0]: tree.path(folder, name) for name in tree.images(folder)}


FORMAT = Format("arcgis_masks", "ArcGIS RCNN masks", ("instances",), LAYOUT, detect, read)
