"""Folders of images, one folder per class, in the spellings in which people keep them. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.image_files import EXTENSIONS, is_image
from engine.data.files import Files, Listing
from engine.data.formats.folders import subfolders, visible, walk
from engine.data.splits import LAYOUT, FileSplit, Recognised, draw_validation, nothing, shown, warn, wrong

SPLIT_NAMES = {
    "train": ("train", "training", "trainset"),
    "val": ("val", "valid", "validation", "valset", "validset"),
    "test": ("test", "testing", "testset"),
}


class _Class(NamedTuple):
    """A class folder: its images, and what is no image by its name, folder by folder."""

    label: int
    images: list[Listing]
    strays: list[Listing]


def _list_class(folder: str, label: int) -> _Class:
    found = _Class(label, [], [])
    for parent, names in walk(folder):
        images: list[str] = []
        strays: list[str] = []
        for name in names:
            (images if is_image(name) else strays).append(name)
        found.images.append(Listing.of(parent, images))
        found.strays.append(Listing.of(parent, strays))
    return found


def _split_folders(folder: str, folders: Sequence[str], problems: list[Problem]) -> dict[str, str]:
    """The folders that are splits. One that holds images but no folders is a class of that name instead."""
    found: dict[str, str] = {}
    for split, names in SPLIT_NAMES.items():
        fitting = [name for name in folders if name.lower() in names and subfolders(os.path.join(folder, name))]
        fitting.sort(key=lambda name: names.index(name.lower()))
        if fitting:
            found[split] = fitting[0]
        if len(fitting) > 1:
            left = ", ".join(map(shown, fitting[1:]))
            problems.append(warn(f"Beside {shown(fitting[0])} there is {left}, which is not used."))
    return found


def recognise_imagefolder(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised:
    problems: list[Problem] = []
    splits = _split_folders(folder, folders, problems)
    if not splits:
        return _without_split(folder, folders, val_fraction, seed)
    if "train" not in splits and val_fraction:
        have = ", ".join(map(shown, splits.values()))
        return nothing(wrong(f"There is {have} but no train folder.", "Add a train folder with one folder per class."))
    if not val_fraction:
        return _as_they_are(folder, splits, problems)
    train_at = os.path.join(folder, splits["train"])
    names = subfolders(train_at)
    listed = _list_classes(train_at, names)
    problems += _judge_classes(names, _without_images(listed, names), splits["train"])
    classes = tuple(map(shown, names))
    if "val" not in splits and "test" not in splits:
        return _divided(listed, classes, folder, problems, val_fraction=val_fraction, seed=seed)
    if "val" not in splits:
        problems.append(
            warn(
                f"There is no validation folder; {shown(splits['test'])} serves as one.",
                "Add a val folder to keep the test images for a final, independent evaluation.",
            )
        )
    name = splits.get("val") or splits["test"]
    val_at = os.path.join(folder, name)
    val_names = subfolders(val_at)
    val_listed = _list_classes(val_at, names, only=val_names)
    problems += _compare_classes(names, val_names, _without_images(val_listed, names), name)
    val = _as_split(val_listed)
    test: FileSplit | None = val
    if "val" in splits:
        test = _test_split(os.path.join(folder, splits["test"]), names) if "test" in splits else None
    return Recognised("imagefolder", classes, _as_split(listed), val, tuple(problems), test=test)


def _test_split(folder: str, names: Sequence[str]) -> FileSplit | None:
    """The images of the classes `names`; None where there are none."""
    split = _as_split(_list_classes(folder, names, only=subfolders(folder)))
    return split if len(split.files) else None


def _as_they_are(folder: str, splits: dict[str, str], problems: list[Problem]) -> Recognised:
    """The splits that are there, whichever classes each of them has."""
    roots = {split: os.path.join(folder, name) for split, name in splits.items()}
    names = sorted({name for root in roots.values() for name in subfolders(root)})
    listed = {split: _list_classes(root, names, only=subfolders(root)) for split, root in roots.items()}
    there = {split: _as_split(each) for split, each in listed.items()}
    if not any(len(split.files) for split in there.values()):
        return nothing(wrong(f"None of the folders in {', '.join(map(shown, splits.values()))} holds an image."))
    empty = _as_split([])
    return Recognised(
        "imagefolder",
        tuple(map(shown, names)),
        there.get("train", empty),
        there.get("val", empty),
        tuple(problems),
        test=there.get("test"),
    )


def _without_split(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised:
    if not folders:
        return nothing(_no_folders(folder))
    listed = _list_classes(folder, folders)
    empty = _without_images(listed, folders)
    if len(empty) == len(folders):
        message = f"None of the {len(folders)} folders in {shown(folder)} holds an image."
        return nothing(wrong(message, f"Images are files ending in {', '.join(sorted(EXTENSIONS))}. {LAYOUT}"))
    # A folder beside the classes that holds no images at all (notes, scripts) is no class.
    names = [name for name in folders if name not in empty]
    problems = [warn(f"Folder {shown(name)} holds no images and is not used as a class.") for name in empty]
    kept = (each for each in listed if _has_images(each))
    listed = [each._replace(label=label) for label, each in enumerate(kept)]
    if len(names) == 1:
        inside = os.path.join(folder, names[0])
        deeper = subfolders(inside)
        if len(deeper) > 1:
            remedy = f"Choose {shown(inside)} instead, which holds {len(deeper)} folders."
            return Recognised("", problems=(wrong("The folder contains only one folder.", remedy),))
    problems += _judge_classes(names, [], "") if val_fraction else []
    classes = tuple(map(shown, names))
    return _divided(listed, classes, folder, problems, val_fraction=val_fraction, seed=seed)


def _no_folders(folder: str) -> Problem:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if visible(entry.name)]
    images = sum(map(is_image, names))
    if not names:
        return wrong(f"{shown(folder)} is empty.")
    if images:
        return wrong(f"{shown(folder)} holds images ({images}) but no folders for their classes.")
    return wrong(f"{shown(folder)} holds neither folders of images nor idx files.")


def _list_classes(folder: str, names: Sequence[str], only: list[str] | None = None) -> list[_Class]:
    """The folders of the classes `names`, in their order."""
    present = set(names if only is None else only)
    return [_list_class(os.path.join(folder, name), label) for label, name in enumerate(names) if name in present]


def _without_images(listed: list[_Class], names: Sequence[str]) -> list[str]:
    return [names[each.label] for each in listed if not _has_images(each)]


def _has_images(each: _Class) -> bool:
    return any(listing.length for listing in each.images)


def _as_split(listed: list[_Class]) -> FileSplit:
    counts = [sum(listing.length for listing in each.images) for each in listed]
    labels = np.repeat(np.array([each.label for each in listed], np.int64), counts)
    files = Files.of(listing for each in listed for listing in each.images)
    return FileSplit(files, labels, Files.of(listing for each in listed for listing in each.strays))


def _judge_classes(names: Sequence[str], empty: list[str], parent: str) -> list[Problem]:
    where = f" in {shown(parent)}" if parent else ""
    if len(empty) == len(names):
        return [wrong(f"None of the {len(names)} folders{where} holds an image.")]
    found = [
        wrong(f"The class folder {shown(name)}{where} holds no images.", "Add images to it, or remove it.")
        for name in empty
    ]
    if len(names) == 1:
        found.append(
            wrong(
                f"There is only one class ({shown(names[0])}){where}.",
                "Classification needs at least two: add a folder.",
            )
        )
    return found


def _compare_classes(names: list[str], val_names: list[str], val_empty: list[str], parent: str) -> list[Problem]:
    known, validated = set(names), set(val_names) - set(val_empty)
    found = []
    for name in val_names:
        if name not in known:
            remedy = "Add training images of it, or remove it."
            found.append(wrong(f"Class {shown(name)} is in {shown(parent)}, but has no training images.", remedy))
    for name in names:
        if name not in validated:
            found.append(warn(f"Class {shown(name)} has no images in {shown(parent)}, so it is never validated."))
    if not known & validated:
        found.append(wrong(f"{shown(parent)} holds no images of any class.", f"Add some, or remove {shown(parent)}."))
    return found


def _divided(
    listed: list[_Class],
    classes: tuple[str, ...],
    folder: str,
    problems: list[Problem],
    *,
    val_fraction: float,
    seed: int,
) -> Recognised:
    """The dataset with validation drawn from its only split."""
    whole = _as_split(listed)
    images = (listing for each in listed for listing in each.images if listing.length)
    keys = (key for listing in images for key in listing.below(folder))
    chosen = draw_validation(keys, whole.labels, val_fraction, seed)
    if val_fraction and len(chosen) and not chosen.any():
        message = "With one image per class, none can be held out for validation."
        problems = [*problems, wrong(message, "Add images, or a val folder.")]
    return Recognised(
        "imagefolder",
        classes,
        FileSplit(whole.files.select(~chosen), whole.labels[~chosen], whole.strays),
        FileSplit(whole.files.select(chosen), whole.labels[chosen], Files.of(), made=True),
        tuple(problems),
    )
