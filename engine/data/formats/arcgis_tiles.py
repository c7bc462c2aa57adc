"""Labeled tiles from ArcGIS: images, each with an XML file that lists the classes in the tile. Torch-free."""

from __future__ import annotations

import os
from xml.etree import ElementTree

from engine.data.decoding.class_tables import read_arcgis_classes
from engine.data.decoding.reading import Unfit, describe_failure, read_xml
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.shapes import ShapedImage, convert
from engine.data.formats.tree import Tree
from engine.data.splits import count_sentence, dataset_warning, first_names, printable, sample_evenly, warn_about
from engine.system.regular_files import UnusableFile

LAYOUT = (
    "Choose a folder that ArcGIS exported as Labeled_Tiles or MultiLabeled_Tiles, with the folders images and labels."
)
_SAMPLED = 20  # XML files that detection reads


def _detect(tree: Tree) -> list[Detection]:
    """Detect folders named images and labels, where XML files hold the classes of the images but no boxes."""
    if not {"images", "labels"} <= set(tree.folders()) or not tree.has(".xml", "labels"):
        return []
    names = tree.files("labels", ".xml")
    has_tile, has_several_classes = False, False
    for name in sample_evenly(names, _SAMPLED):
        try:
            root = read_xml(tree.path("labels", name))
        except (OSError, Unfit, UnusableFile):
            continue
        if root.find(".//object//bndbox") is not None:
            return []
        classes = _read_classes(root)
        has_tile |= bool(classes)
        has_several_classes |= len(classes) > 1
    if not has_tile:
        return []
    evidence = f"images and {len(names):,} XML files with classes and no boxes in labels"
    kinds = ("labels",) if has_several_classes else ("classes", "labels")
    return [Detection(kinds, Confidence.CERTAIN, (evidence,))]


def _read_classes(root: ElementTree.Element) -> list[str]:
    """Return the classes of a tile, given the root element of its XML file from ArcGIS."""
    return [name for each in root.iterfind(".//object/name") if (name := (each.text or "").strip())]


def _read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with the classes in their XML files.

    If there is a definition file of ArcGIS with the names of the classes, these names are used.
    """
    titles: dict[str, str] = {}  # by class value
    definition = read_arcgis_classes(tree.root)
    if definition is not None:
        values, names = definition
        titles = dict(zip(map(str, values), names, strict=True))
    lookup = ImageLookup(tree)
    images: list[ShapedImage] = []
    unreadable: list[str] = []
    missing: list[str] = []
    reason = ""
    for name in tree.files("labels", ".xml"):
        try:
            classes = _read_classes(read_xml(tree.path("labels", name)))
        except (OSError, Unfit, UnusableFile) as error:
            unreadable.append(name)
            reason = reason or describe_failure(error)
            continue
        path = lookup.find(os.path.splitext(name)[0], "labels", has_extension=False)
        if path is None:
            missing.append(name)
        else:
            tags = dict.fromkeys(titles.get(each, each) for each in classes)
            images.append(ShapedImage(path, tags=tuple(tags)))
    problems = []
    if unreadable:
        message = f"{count_sentence(unreadable, 'file')} of labels that can't be read: {first_names(unreadable)} ({printable(reason)})."
        problems.append(dataset_warning(message, "Images with such files are left out; export the files again."))
    remedy = "Such labels are left out; put the images into the folder images."
    problems += warn_about(missing, "file", "of labels without an image:", remedy)
    return convert(kind, {"": images}, problems, list(titles.values()) or None)


FORMAT = Format("arcgis_tiles", "ArcGIS labeled tiles", ("classes", "labels"), LAYOUT, _detect, _read)
