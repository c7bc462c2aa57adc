"""Images in a folder for each class, with or without folders of splits, as torchvision's ImageFolder reads them.

Nearly every dataset is a tree of images. A tree is one of classes only if nothing says otherwise: names of roles or
splits where classes should be, annotations next to the images, one image per folder, masks of the same names. Torch-free.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.files import Files, Listing
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.mask_sample import are_label_images
from engine.data.formats.tree import Tree, split_named, subfolders, suffix
from engine.data.splits import FileSplit, dataset_error, dataset_warning, printable, spread_evenly

LAYOUT = "Choose a folder with one folder of images per class, or with train and val folders divided in the same way."
_ROLES = frozenset(
    {
        "images", "image", "imgs", "img", "jpegimages", "pngimages", "photos", "rgb", "original", "originals",
        "masks", "labels", "label", "annotations", "annotation", "annots", "gt", "groundtruth", "ground truth", "truth",
        "segmentations", "segmentation", "segmentationclass", "segmentationobject", "semantic", "instances", "trimaps",
        "depth", "depths", "disparity", "flow", "leftimg8bit", "gtfine", "gtcoarse", "xmls", "json", "labeltxt", "edges",
    }
)  # fmt: skip
"""Names that say what files are for, not what is in the images."""
_PAIRED_ROLES = frozenset({"left", "right", "mask", "input", "output", "target", "before", "after", "ir", "visible"})
"""Names of classes as well, but of roles where all these folders have the same file names."""
_ANNOTATIONS = frozenset({".xml", ".json", ".txt", ".csv"})
_SAMPLED = 40
"""Class folders, and files of each, that evidence is looked for in."""
_MASK_ENDING = re.compile(r"[-_ ]?(mask|masks|label|labels|gt|seg|segmentation|l)$")
_COMPARED = 1000
"""Names of images in a class that are compared with those of other classes, the first in sorted order."""
_MIN_FOR_SINGLE = 8
"""Folders of one image each, from so many on, are of images rather than of classes."""


class _Class(NamedTuple):
    """Folder of a class: its images, and its files without an image's ending, folder by folder."""

    images: list[Listing]
    strays: list[Listing]

    @property
    def total(self) -> int:
        return sum(listing.length for listing in self.images)


def detect(tree: Tree) -> list[Detection]:
    """Return the reading as classes, with what speaks for and against it."""
    splits = _class_splits(tree)
    roots = list(splits.values()) or [""]
    names = list(dict.fromkeys(name for root in roots for name in tree.folders(root)))
    with_images = [name for name in names if any(_has_images(tree, os.path.join(root, name)) for root in roots)]
    if not with_images:
        return []
    against = list(dict.fromkeys(_against(tree, roots, with_images)))
    plural = "folder" if len(with_images) == 1 else "folders"
    evidence = [f"{len(with_images):,} {plural} of images ({_some(with_images)})"]
    if splits:
        evidence.append(f"split folders ({_some(splits.values())})")
    confidence = Confidence.WEAK if against else Confidence.LIKELY
    obvious = not against and len(with_images) > 1
    return [Detection(("classes",), confidence, tuple(evidence), tuple(against), obvious=obvious)]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images of all splits with the classes of their folders."""
    problems: list[Problem] = []
    roots = _class_splits(tree, problems)
    if not roots:
        return _without_splits(tree, problems)
    names = sorted({name for root in roots.values() for name in tree.folders(root)})
    numbers = {name: number for number, name in enumerate(names)}
    splits = {}
    for split, root in roots.items():
        listed = {name: _list_class(tree, os.path.join(root, name)) for name in tree.folders(root)}
        problems += [
            dataset_warning(f"Folder {printable(name)} in {printable(root)} has no images, so it is not a class there.")
            for name, each in listed.items()
            if not each.total and split == "train"
        ]
        splits[split] = _split_of(listed, numbers)
    return Content(tuple(map(printable, names)), splits, problems)


def _without_splits(tree: Tree, problems: list[Problem]) -> Content:
    listed = {name: _list_class(tree, name) for name in tree.folders()}
    there = {name: each for name, each in listed.items() if each.total}
    problems += [
        dataset_warning(f"Folder {printable(name)} has no images and is not used as a class.")
        for name in listed
        if name not in there
    ]
    if len(there) == 1:
        (name,) = there
        inside = subfolders(tree.path(name))
        inner = detect(Tree(tree.path(name))) if len(inside) > 1 else []
        if inner and inner[0].confidence > Confidence.WEAK:
            remedy = f"Choose {printable(tree.path(name))} instead, which has {len(inside)} folders."
            problems.append(dataset_error("The folder contains only one folder.", remedy))
    numbers = {name: number for number, name in enumerate(there)}
    return Content(tuple(map(printable, there)), {"": _split_of(there, numbers)}, problems)


def _class_splits(tree: Tree, problems: list[Problem] | None = None) -> dict[str, str]:
    """Return the folders of splits; one that holds images but no folders may be a class of that name instead."""
    found: dict[str, str] = {}
    for name in tree.folders():
        split = split_named(name)
        if not split or not tree.folders(name):
            continue
        if split not in found:
            found[split] = name
        elif problems is not None:
            problems.append(
                dataset_warning(
                    f"In addition to {printable(found[split])} there is {printable(name)}, which is not used."
                )
            )
    return found


def _has_images(tree: Tree, folder: str) -> bool:
    if not tree.exists(folder):
        return False
    return any(is_image(name) for each in tree.walk(folder) for name in tree.files(each))


def _list_class(tree: Tree, folder: str) -> _Class:
    found = _Class([], [])
    for parent in tree.walk(folder):
        listing = tree.listing(parent)
        if all(is_image(f"x{ending}") for ending in tree.suffixes(parent)):
            found.images.append(listing)
            continue
        images: list[str] = []
        strays: list[str] = []
        for name in tree.files(parent):
            (images if is_image(name) else strays).append(name)
        found.images.append(Listing.of(listing.folder, images))
        found.strays.append(Listing.of(listing.folder, strays))
    return found


def _split_of(listed: Mapping[str, _Class], numbers: Mapping[str, int]) -> FileSplit:
    classes = sorted((name for name in listed), key=numbers.__getitem__)
    labels = np.repeat(
        np.array([numbers[name] for name in classes], np.int64), [listed[name].total for name in classes]
    )
    files = Files.of(listing for name in classes for listing in listed[name].images)
    return FileSplit(files, labels, Files.of(listing for name in classes for listing in listed[name].strays))


# Evidence against classes


def _against(tree: Tree, roots: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Yield what speaks against the folders `names` being classes."""
    sampled = [names[index] for index in spread_evenly(len(names), _SAMPLED)]
    yield from _role_names(tree, names)
    inner = {child for name in sampled for root in roots for child in _children(tree, root, name)}
    if inside := sorted(name for name in inner if _plain(name) in _ROLES):
        yield f"folders named by their role inside those of the classes ({_some(inside)})"
    stems = {name: found for name in sampled if (found := _stems(tree, roots, name))}
    yield from _adjacent_annotations(tree, roots, sampled, stems)
    counts = [len(found) for found in stems.values()]
    if len(names) >= _MIN_FOR_SINGLE and counts and float(np.median(counts)) <= 1:
        yield f"{len(names):,} folders with one image each, as if a folder were an image"
    yield from _same_stems(tree, roots, stems)


def _role_names(tree: Tree, names: Sequence[str]) -> Iterator[str]:
    splits = [name for name in names if split_named(name)]
    if len(splits) > 1 or (splits and 2 * len(splits) >= len(names)):
        yield f"folders named like splits, without folders of classes in them ({_some(splits)})"
    if paired := _split_pairs(names):
        yield f"folders named alike but for the split ({_some(paired)})"
    roles = [name for name in names if _plain(name) in _ROLES]
    if roles:
        yield f"folders named by their role ({_some(roles)})"
    words = [name for name in names if name not in roles and _words(name)[-1:] and _words(name)[-1] in _ROLES]
    if len(words) > 1 or (words and 2 * len(words) >= len(names)):
        yield f"folders named by their role ({_some(words)})"
    root_name = os.path.basename(os.path.normpath(tree.root))
    if _plain(root_name) in _ROLES:
        siblings = [name for name in _siblings(tree.root) if name != root_name and _plain(name) in _ROLES]
        if siblings:
            yield f"the folder {printable(root_name)} next to {_some(siblings)}, which may hold its annotations"


def _split_pairs(names: Sequence[str]) -> list[str]:
    """Return the names that differ in the word of a split alone, such as bounding_box_train and bounding_box_test."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for name in names:
        words = _words(name)
        splits = [split for word in words if (split := split_named(word))]
        rest = tuple(word for word in words if not split_named(word))
        if len(splits) == 1 and rest:
            found.setdefault(rest, {})[splits[0]] = name
    return [name for by_split in found.values() if len(by_split) > 1 for name in by_split.values()]


def _children(tree: Tree, root: str, name: str) -> Sequence[str]:
    folder = os.path.join(root, name)
    return tree.folders(folder) if tree.exists(folder) else ()


def _adjacent_annotations(
    tree: Tree, roots: Sequence[str], names: Sequence[str], stems: Mapping[str, set[str]]
) -> Iterator[str]:
    found_next: list[str] = []
    for name in names:
        for folder in _folders_of(tree, roots, name):
            for file in tree.files(folder, tuple(_ANNOTATIONS))[:_SAMPLED]:
                if os.path.splitext(file)[0] in stems.get(name, ()) or suffix(file) in (".xml", ".csv"):
                    found_next.append(os.path.join(folder, file))
                    break
    if found_next:
        yield f"annotation files among the images ({_some(found_next)})"


def _same_stems(tree: Tree, roots: Sequence[str], stems: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield that folders have files of the same names, if their names or images say that they belong together."""
    names = list(stems)
    plain = {name: {_MASK_ENDING.sub("", stem.lower()) for stem in found} for name, found in stems.items()}
    for index, one in enumerate(names[:-1]):
        for other in names[index + 1 :]:
            shared = len(plain[one] & plain[other])
            if shared < 0.9 * min(len(stems[one]), len(stems[other])) or shared < 2:
                continue
            paired = {_plain(one), _plain(other)} <= _PAIRED_ROLES | _ROLES
            labels = [are_label_images(_sample_files(tree, roots, name)) for name in (one, other)]
            if paired or labels[0] != labels[1]:
                what = (
                    f", and {printable(one if labels[0] else other)} looks like masks" if labels[0] != labels[1] else ""
                )
                yield f"the same file names in {printable(one)} and {printable(other)}{what}"
                return


def _folders_of(tree: Tree, roots: Sequence[str], name: str) -> Iterator[str]:
    for root in roots:
        if tree.exists(os.path.join(root, name)):
            yield from tree.walk(os.path.join(root, name))


def _stems(tree: Tree, roots: Sequence[str], name: str) -> set[str]:
    """Return the names without endings of the first images of a class."""
    files = (file for folder in _folders_of(tree, roots, name) for file in tree.files(folder) if is_image(file))
    return {os.path.splitext(file)[0] for file in islice(files, _COMPARED)}


def _sample_files(tree: Tree, roots: Sequence[str], name: str) -> list[str]:
    for folder in _folders_of(tree, roots, name):
        files = [file for file in tree.files(folder) if is_image(file)]
        if files:
            return [tree.path(folder, files[index]) for index in spread_evenly(len(files), 4)]
    return []


def _siblings(folder: str) -> list[str]:
    try:
        return subfolders(os.path.dirname(os.path.normpath(folder)) or os.curdir)
    except OSError:
        return []


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()


def _words(name: str) -> list[str]:
    """Return the words of a name: "PedMasks" and "ped_masks" have "ped" and "masks"."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def _some(names: object) -> str:
    listed = [printable(str(name)) for name in names]  # type: ignore[attr-defined]
    return ", ".join(listed[:4]) + (", …" if len(listed) > 4 else "")


FORMAT = Format("imagefolder", "class folders", ("classes",), LAYOUT, detect, read)
