"""Images in one folder per class, like torchvision's ImageFolder, possibly inside folders for splits. Torch-free.

Nearly every dataset is a tree of images. A tree is only interpreted as classes if there is no evidence against it. Such
evidence consists of names of roles or splits in place of classes, annotations next to the images, one image per folder,
or masks with the same names as images.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.image_files import EXTENSIONS, is_image
from engine.data.files import Files, Listing
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.class_evidence import find_annotation_folder, find_evidence_against
from engine.data.formats.tree import Tree, split_named
from engine.data.splits import (
    LAYOUT,
    FileSplit,
    abbreviate_names,
    dataset_error,
    dataset_warning,
    printable,
    warn_about,
)
from engine.system.format import counted

_NESTED = 6
"""Maximum depth of nested folders, each with only one folder in it, that are searched to give advice."""


class _ClassFolder(NamedTuple):
    """Files in the folder of a class.

    `images` has one list of the images in each folder: the class folder itself and the folders below it. `strays` has
    such lists of the files without an image extension.
    """

    images: list[Listing]
    strays: list[Listing]

    @property
    def total(self) -> int:
        """Number of images."""
        return sum(listing.length for listing in self.images)


def detect(tree: Tree) -> list[Detection]:
    """Detect folders of images that are named by class, with the evidence for and against this interpretation."""
    splits = _find_split_folders(tree)
    roots = list(splits.values()) or [""]
    names = list(dict.fromkeys(name for root in roots for name in tree.folders(root)))
    with_images = [name for name in names if any(_has_images(tree, os.path.join(root, name)) for root in roots)]
    if not with_images:
        return []
    against = tuple(dict.fromkeys(find_evidence_against(tree, roots, with_images)))
    evidence = [f"{counted(len(with_images), 'folder')} of images ({abbreviate_names(with_images, 4)})"]
    if splits:
        evidence.append(f"split folders ({abbreviate_names(list(splits.values()), 4)})")
    is_only_folder = not splits and len(with_images) == 1
    inner = ""
    # The user may have chosen the folder above that of the dataset. Annotations next to the images show otherwise.
    if against and is_only_folder and not find_annotation_folder(tree, [""], with_images):
        inner = _describe_inner_classes(tree, with_images[0])
    return [
        Detection(
            ("classes",),
            Confidence.WEAK if against else Confidence.LIKELY,
            tuple(evidence),
            against,
            remedy=f"Choose {inner}." if inner else "",
            obvious=not against and len(with_images) > 1,
        )
    ]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images of all splits. The names of their folders are the classes, which is the only `kind`."""
    problems: list[Problem] = []
    roots = _find_split_folders(tree, problems)
    if not roots:
        return _read_without_splits(tree, problems)
    names = sorted({name for root in roots.values() for name in tree.folders(root)})
    numbers = {name: number for number, name in enumerate(names)}
    splits = {}
    for split, root in roots.items():
        listed = {name: _list_class(tree, os.path.join(root, name)) for name in tree.folders(root)}
        empty = [printable(name) for name, each in listed.items() if not each.total]
        if split == "train":  # other splits may lack classes
            message = "Folder {} in {} has no images, so it is not a class there."
            problems += [dataset_warning(message.format(name, printable(root))) for name in empty]
        splits[split] = _make_split(listed, numbers)
    problems += _warn_about_unused(tree, list(roots.values()))
    return Content(tuple(map(printable, names)), splits, problems)


def _read_without_splits(tree: Tree, problems: list[Problem]) -> Content:
    """Return the images of a folder whose subfolders are the classes. Problems are appended to `problems`."""
    listed = {name: _list_class(tree, name) for name in tree.folders()}
    present = {name: each for name, each in listed.items() if each.total}
    problems += [
        dataset_warning(f"Folder {printable(name)} has no images and is not used as a class.")
        for name in listed
        if name not in present
    ]
    if len(present) == 1 and (inner := _describe_inner_classes(tree, next(iter(present)))):
        problems.append(dataset_error("The folder contains only one folder.", f"Choose {inner}."))
    problems += _warn_about_unused(tree, [""])
    numbers = {name: number for number, name in enumerate(present)}
    return Content(tuple(map(printable, present)), {"": _make_split(present, numbers)}, problems)


def _describe_inner_classes(tree: Tree, folder: str) -> str:
    """Describe the first folder inside `folder` that contains folders of classes or splits.

    The text completes the advice "Choose …". Returns "" if there is no such folder.
    """
    for _ in range(_NESTED):
        inside = tree.folders(folder)
        found = detect(Tree(tree.path(folder))) if len(inside) > 1 else []
        if found and found[0].confidence > Confidence.WEAK:
            return f"{printable(tree.path(folder))} instead, which has {len(inside)} folders"
        if len(inside) != 1:
            return ""
        folder = os.path.join(folder, inside[0])
    return ""


def _warn_about_unused(tree: Tree, roots: Sequence[str]) -> list[Problem]:
    """Return warnings about images outside the class folders. `roots` are the folders that contain class folders."""
    problems: list[Problem] = []
    for root in roots:
        remedy = "Such images are not used; move them into the folders of their classes."
        text = f"in {printable(root or tree.root)} itself, in no folder of a class:"
        problems += warn_about(tree.images(root), "image", text, remedy)
    if "" not in roots:
        used = {root.split(os.sep)[0] for root in roots}
        unused = [name for name in tree.folders() if name not in used and _has_images(tree, name)]
        # `_find_split_folders` has reported superfluous folders of a split.
        others = [name for name in unused if not (split_named(name) and tree.folders(name))]
        remedy = "Such folders are not used; training, validation and test have folders of classes."
        problems += warn_about(others, "folder", "of images next to the splits:", remedy)
    return problems


def _find_split_folders(tree: Tree, problems: list[Problem] | None = None) -> dict[str, str]:
    """Return the folders of splits, keyed by split.

    A folder without subfolders is left out, since it may be a class named like a split. If several folders are named
    like the same split, the first one is returned, and warnings about the others are appended to `problems`.
    """
    found: dict[str, str] = {}
    for name in tree.folders():
        split = split_named(name)
        if not split or not tree.folders(name):
            continue
        if split not in found:
            found[split] = _find_innermost(tree, name)
        elif problems is not None:
            message = f"In addition to {printable(found[split])} there is {printable(name)}, which is not used."
            problems.append(dataset_warning(message))
    return found


def _find_innermost(tree: Tree, folder: str) -> str:
    """Return the innermost folder of a split that is nested in itself, as in train/train, otherwise `folder`."""
    inner = tree.folders(folder)
    while len(inner) == 1 and split_named(inner[0]) == split_named(os.path.basename(folder)):
        if not tree.folders(os.path.join(folder, inner[0])):
            break
        folder = os.path.join(folder, inner[0])
        inner = tree.folders(folder)
    return folder


def _has_images(tree: Tree, folder: str) -> bool:
    """Return True if `folder` exists and it or a folder inside it contains images."""
    return tree.exists(folder) and any(map(tree.has_images, tree.walk(folder)))


def _list_class(tree: Tree, folder: str) -> _ClassFolder:
    """List the files in a class folder and all folders inside it."""
    found = _ClassFolder([], [])
    for parent in tree.walk(folder):
        listing = tree.listing(parent)
        if EXTENSIONS.issuperset(tree.suffixes(parent)):  # avoids handling each name
            found.images.append(listing)
            continue
        images: list[str] = []
        strays: list[str] = []
        for name in tree.files(parent):
            (images if is_image(name) else strays).append(name)
        found.images.append(Listing.of(listing.folder, images))
        found.strays.append(Listing.of(listing.folder, strays))
    return found


def _make_split(listed: Mapping[str, _ClassFolder], numbers: Mapping[str, int]) -> FileSplit:
    """Convert the files of some classes, sorted by name, to a split. `numbers` maps the name of each class to its number."""
    totals = [each.total for each in listed.values()]
    labels = np.repeat(np.array([numbers[name] for name in listed], np.int64), totals)
    files = Files.of(listing for each in listed.values() for listing in each.images)
    return FileSplit(files, labels, Files.of(listing for each in listed.values() for listing in each.strays))


FORMAT = Format("imagefolder", "class folders", ("classes",), LAYOUT, detect, read)
