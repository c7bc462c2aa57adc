"""Mapillary Vistas 1.1, 1.2 and 2.0. Torch-free.

Sources: README and demo.py in the dataset. Values in masks of classes are positions in the list of labels in
config.json. Values in masks of objects are 256 times the label plus the number of the object.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from engine.data.decoding.reading import read_json
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.instances import NumberedLabels, Numbering
from engine.data.formats.shared.mask_sample import detect_masks, sample_masks
from engine.data.formats.shared.name_pairs import Pairs, make_instance_splits, make_mask_splits, pair_folders
from engine.data.formats.tree import Tree
from engine.data.splits import MaskCode, printable
from engine.system.format import counted

LAYOUT = "Choose the folder with config.json (or config_v2.0.json), training and validation of Mapillary Vistas."
_SPLITS = {"training": "train", "validation": "val", "testing": "test"}
_NUMBERING = Numbering(256)


@dataclass(frozen=True)
class _Label:
    """Label in a configuration file. Its value in masks is its position in the list of labels."""

    name: str
    has_instances: bool
    is_evaluated: bool


@dataclass(frozen=True)
class _Version:
    """Version of the annotations in a Mapillary Vistas folder.

    `base` is the folder with its configuration file `config`, and `folder` the folder of masks inside the folder of
    each split, or "" if the masks are directly in it.
    """

    base: str
    config: str
    labels: tuple[_Label, ...]
    folder: str


def detect(tree: Tree) -> list[Detection]:
    """Detect Mapillary Vistas. Each version of the annotations is a separate detection."""
    bases = [base for base in tree.walk(depth=1) if "training" in tree.folders(base)]
    found = [_read_version(tree, base, name) for base in bases for name in tree.files(base, ".json")]
    versions = [version for version in found if version is not None]
    detections = [_detect_version(tree, version, several=len(versions) > 1) for version in versions]
    return [detection for detection in detections if detection is not None]


def _read_version(tree: Tree, base: str, name: str) -> _Version | None:
    """Return the version of the annotations that a configuration file declares, or None for other files.

    `base` is the folder of the file, and `name` its name.
    """
    match = re.fullmatch(r"config(?:_(v[\d.]+))?\.json", name)
    labels = _read_labels(tree.path(base, name)) if match else None
    if match is None or not labels:
        return None
    folder = match[1] if match[1] and match[1] in tree.folders(os.path.join(base, "training")) else ""
    return _Version(base, name, labels, folder)


def _read_labels(path: str) -> tuple[_Label, ...] | None:
    """Return the labels in a config file, or None if it can't be read or is not from Mapillary."""
    try:
        content = read_json(path)
        return tuple(
            _Label(
                printable(str(each.get("readable") or each["name"])), bool(each["instances"]), bool(each["evaluate"])
            )
            for each in content["labels"]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _detect_version(tree: Tree, version: _Version, *, several: bool) -> Detection | None:
    """Return the detection of a version of the annotations, or None if no image has a mask.

    `several` is True if the folder contains several versions.
    """
    pairs = {folder: _find_pairs(tree, version, folder) for folder in ("labels", "instances")}
    matched_labels, matched_instances = (Pairs.join(each.values()).matched for each in pairs.values())
    kinds = (*(["masks"] if matched_labels else []), *(["instances"] if matched_instances else []))
    matched = matched_labels or matched_instances
    if not matched:
        return None
    sample = sample_masks(matched)
    largest = max(sample.values, default=0)
    against = ""
    if matched_labels and largest >= len(version.labels):
        against = f"the value {largest} in masks, although {version.config} has {counted(len(version.labels), 'label')}"
    evidence = (
        f"{version.config} with {counted(len(version.labels), 'label')}",
        f"{counted(len(matched), 'image')} with masks",
    )
    variant = (version.folder or version.config) if several else ""
    return detect_masks(sample, kinds, *evidence, against=against, variant=variant, source=(version, pairs))


def _find_pairs(tree: Tree, version: _Version, mask_folder: str) -> dict[str, Pairs]:
    """Return the pairs of images and masks by split. `mask_folder` is "labels" or "instances"."""
    found = {}
    for split_folder, split in _SPLITS.items():
        images = os.path.join(version.base, split_folder, "images")
        masks = os.path.join(version.base, split_folder, version.folder, mask_folder)
        if tree.exists(images) and tree.exists(masks):
            found[split] = pair_folders(tree, [images], masks, endings=(".png",), suffixes=("",))
    return found


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their annotations.

    For the kind "instances", these are the objects of the labels that have objects, and for the kind "masks", the masks
    of the evaluated labels.
    """
    version, pairs = detection.source
    labels: tuple[_Label, ...] = version.labels
    pairs_by_split = pairs["labels" if kind == "masks" else "instances"]
    problems = Pairs.join(pairs_by_split.values()).describe_unpaired("a mask", "masks")
    if kind == "instances":
        things = [value for value, label in enumerate(labels) if label.has_instances and label.is_evaluated]
        classes = {value: number for number, value in enumerate(things)}
        splits = make_instance_splits(pairs_by_split, lambda mask: NumberedLabels(mask, _NUMBERING, classes))
        return Content(tuple(labels[value].name for value in things), splits, problems)
    values = tuple(value for value, label in enumerate(labels) if label.is_evaluated)
    ignored = tuple(value for value, label in enumerate(labels) if not label.is_evaluated)
    names = tuple(labels[value].name for value in values)
    return Content(names, make_mask_splits(pairs_by_split), problems, MaskCode(values, ignored=ignored))


FORMAT = Format("mapillary", "Mapillary Vistas", ("masks", "instances"), LAYOUT, detect, read)
