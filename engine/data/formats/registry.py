"""Which kind of dataset a folder is. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.data import splits
from engine.data.decoding.idx import find_idx
from engine.data.formats import any_files, boxfolder, edges, instancefolder, labels_table, maskfolder, points
from engine.data.formats.any_files import recognise_any
from engine.data.formats.boxfolder import recognise_boxes
from engine.data.formats.edges import recognise_edges
from engine.data.formats.folders import circles, subfolders
from engine.data.formats.idx import recognise_idx
from engine.data.formats.imagefolder import SPLIT_NAMES, recognise_imagefolder
from engine.data.formats.instancefolder import recognise_instances
from engine.data.formats.labels_table import recognise_labels
from engine.data.formats.maskfolder import recognise_masks
from engine.data.formats.points import recognise_points
from engine.data.splits import Recognised, nothing, shown, warn, wrong
from engine.system.plugins import Registry, Unusable
from engine.system.regular_files import UnusableFile

MOST_CLASSES = 100_000
"""ImageNet in full has 22 thousand."""
MOST_LETTERS = 255
"""As many as a folder's name may have bytes."""
IMAGES_BY_CLASS = ("imagefolder", "idx")


class Format(NamedTuple):
    """A kind of dataset. `recognise(folder, folders, val_fraction, seed)` gives None where the folder, whose folders
    are `folders`, is not of that kind, judged by names alone; a `val_fraction` of 0 leaves a folder without splits
    whole. `holds` and `layout` say what such a folder holds and how it is laid out, `task` what is learnt of it; where
    it `claims` a folder, that is none of images by class besides.

    Of a plug-in's format, `tasks` are the ids of the tasks that take it. Where its splits are of a type of its own,
    `open` opens a folder of it (see `open_splits.OPENERS`), and `look` looks one through (`inspector.LOOKS`).
    """

    recognise: Callable[[str, Sequence[str], float, int], Recognised | None]
    holds: str
    layout: str
    task: str
    claims: bool = True
    tasks: tuple[str, ...] = ()
    open: Callable[..., Any] | None = None
    look: Callable[..., Any] | None = None


def _recognise_idx(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    files = find_idx(folder)
    return None if files is None else recognise_idx(files, val_fraction, seed)


def _accept(name: str, loaded: object) -> Format:
    if not isinstance(loaded, Format):
        raise Unusable(f"it is a {type(loaded).__name__}, not a Format of engine.data.formats.registry")
    return loaded


_OWN = {
    "edges": Format(recognise_edges, "images with edges", edges.LAYOUT, "Edge detection"),
    "masks": Format(recognise_masks, "images with masks", maskfolder.LAYOUT, "Semantic segmentation"),
    "boxes": Format(recognise_boxes, "images with boxes", boxfolder.LAYOUT, "Object detection"),
    "instances": Format(
        recognise_instances, "images with outlined objects", instancefolder.LAYOUT, "Instance segmentation"
    ),
    "points": Format(recognise_points, "point clouds", points.LAYOUT, "Point cloud segmentation"),
    "labels": Format(
        recognise_labels,
        "images with a table of their labels",
        labels_table.LAYOUT,
        "Multi-label classification",
        claims=False,
    ),
    "files": Format(recognise_any, "files for a program of your own", any_files.LAYOUT, "Your own task", claims=False),
    "idx": Format(_recognise_idx, "MNIST's idx files", splits.LAYOUT, "Image classification", claims=False),
    "imagefolder": Format(
        recognise_imagefolder,
        "a folder of images for each class",
        splits.LAYOUT,
        "Image classification",
        claims=False,
    ),
}
FORMATS: Registry[Format] = Registry("footplate.formats", _OWN, _accept)
"""By their ids, in the order in which they are tried; “imagefolder” takes whatever there is for folders of classes."""


def formats_for(task: str, own: Sequence[str]) -> tuple[str, ...]:
    """The formats that a task takes: its `own`, and those of plug-ins."""
    return (*own, *(name for name, added in FORMATS.added().items() if task in added.tasks))


def recognise(folder: str, *, val_fraction: float, seed: int, formats: Sequence[str] = IMAGES_BY_CLASS) -> Recognised:
    """Says what `folder` is among `formats`, from names alone (and idx labels, and what masks hold): images are not
    opened."""
    try:
        found = _recognised(folder, val_fraction, seed, formats)
        return _with_circles(_judged(found), folder)
    except (OSError, UnusableFile, MemoryError) as error:
        return nothing(why_not(error, folder))


def why_not(error: OSError | UnusableFile | MemoryError, folder: str) -> Problem:
    """Why a folder cannot be looked through."""
    match error:
        case UnusableFile():
            return wrong(f"{shown(os.path.relpath(error.path, folder))} {error.words}.", error.remedy)
        case MemoryError():
            return wrong(
                f"Inspecting {shown(folder)} takes more memory than is available.",
                "Remove files that are much larger than the others, or split the dataset.",
            )
        case FileNotFoundError():
            return wrong(f"There is no folder {shown(folder)}.", "Check the spelling, or browse for it.")
        case NotADirectoryError():
            return wrong(f"{shown(folder)} is a file, not a folder.", "Choose the folder that holds the images.")
        case PermissionError():
            where = shown(os.fsdecode(error.filename or folder))
            return wrong(
                f"You have no permission to read {where}.", "Give yourself permission to read it, or choose another."
            )
    return wrong(f"{shown(folder)} can't be read: {error.strerror}.", "Check the disk, or choose another.")


def _judged(found: Recognised) -> Recognised:
    """`found` where its classes can be shown and learnt, else what is wrong with them."""
    if len(found.classes) > MOST_CLASSES:
        message = f"There are {len(found.classes):,} classes; at most {MOST_CLASSES:,} are supported."
        return nothing(wrong(message, "Check that these are the names of classes, not of images."))
    if long := [name for name in found.classes if len(name) > MOST_LETTERS]:
        message = f"A class name has {len(long[0]):,} characters ({long[0][:40]}…)."
        return nothing(wrong(message, f"Shorten the class names to at most {MOST_LETTERS} characters."))
    return found


def _with_circles(found: Recognised, folder: str) -> Recognised:
    """`found`, and which links to nowhere lie where folders of classes or of splits may."""
    splits = {name for names in SPLIT_NAMES.values() for name in names}
    roots = [folder, *(os.path.join(folder, name) for name in subfolders(folder) if name.lower() in splits)]
    links = [os.path.relpath(link, folder) for root in roots for link in circles(root)]
    if not links:
        return found
    are = f"{shown(links[0])} is a link" if len(links) == 1 else f"{', '.join(map(shown, links[:3]))} are links"
    told = warn(f"{are} leading back to {'itself' if len(links) == 1 else 'themselves'}.", "Remove such links.")
    return replace(found, problems=(*found.problems, told))


def claimed_by(folder: str) -> str | None:
    """The id of the kind of dataset that `folder` is; None where it may be images by class, or cannot be read.

    Of several it is the first. Boxes whose things are outlined, too, are taken for instances, of which masks are a
    drawing.
    """
    job = Job()
    try:
        kinds = _claims(folder, subfolders(folder), job.val_fraction, job.seed)
    except (OSError, UnusableFile, MemoryError):
        return None
    return _first(kinds)


def _first(kinds: Sequence[str]) -> str | None:
    """Which of the kinds that claim a folder it is taken for."""
    return "instances" if {"boxes", "instances"} <= set(kinds) else next(iter(kinds), None)


def _claims(
    folder: str, folders: Sequence[str], val_fraction: float, seed: int, *, besides: Sequence[str] = ()
) -> list[str]:
    """The ids of the kinds that claim `folder`, in the order of `FORMATS`, without those of `besides`."""
    return [
        name
        for name, known in list(FORMATS.items())
        if name not in besides and known.claims and _by(name, folder, folders, val_fraction, seed) is not None
    ]


def _by(name: str, folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """The dataset that the format of that id recognises in a folder. A plug-in's format that fails is left out."""
    try:
        return FORMATS[name].recognise(folder, folders, val_fraction, seed)
    except Exception as error:
        if name not in FORMATS.packages or isinstance(error, (OSError, UnusableFile, MemoryError)):
            raise
        FORMATS.leave_out(name, f"recognising {shown(folder)}, it failed: {type(error).__name__}: {error}")
        return None


def _recognised(folder: str, val_fraction: float, seed: int, formats: Sequence[str]) -> Recognised:
    folders = subfolders(folder)
    for name in list(FORMATS):
        if name in formats and name != "imagefolder":
            recognised = _by(name, folder, folders, val_fraction, seed)
            if recognised is not None:
                return recognised
    kinds = _claims(folder, folders, val_fraction, seed, besides=formats)
    wanted = FORMATS[formats[0]]
    if kinds:
        message = f"{shown(folder)} holds {FORMATS[kinds[0]].holds}, not {wanted.holds}."
        tasks = " or ".join(dict.fromkeys(FORMATS[kind].task for kind in kinds))
        renamed = "; or rename the folders, if they are classes" if "imagefolder" in formats else ""
        return nothing(wrong(message, f"Choose the task {tasks}{renamed}."), _first(kinds) or "")
    if "imagefolder" in formats:
        return recognise_imagefolder(folder, folders, val_fraction, seed)
    return nothing(wrong(f"{shown(folder)} does not hold {wanted.holds}.", wanted.layout))
