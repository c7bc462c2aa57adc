"""Assemble the splits for training from the annotations that a format has read. Torch-free.

This compares the classes of the splits, draws validation samples, collects boxes, and determines the meaning of mask
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.contract.problems import Problem, errors
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.masks import learn_meaning
from engine.data.decoding.unnamed_values import Meaning
from engine.data.formats.format import Content, Format
from engine.data.formats.shared.boxes import BoxFaults, gather
from engine.data.formats.shared.exif_rotation import RotationReport, rotate_boxes, rotate_instances
from engine.data.formats.shared.splitting import Divided, count_samples, divide, select_samples
from engine.data.splits import (
    FileSplit,
    IdxSplit,
    Labels,
    RecognizedDataset,
    dataset_error,
    dataset_warning,
    first_names,
    printable,
)

MAX_CLASSES = 100_000
"""Maximum number of classes. The full ImageNet has 22 thousand."""
MAX_LETTERS = 255
"""Maximum length of a class name, in characters. Folder names have the same limit in bytes."""
MAX_LABELS = 1 << 29
"""Maximum number of images times the number of labels. Training takes 4 bytes for each in every worker."""


def assemble(
    content: Content, kind: str, folder: str, format: Format, *, val_fraction: float, seed: int
) -> RecognizedDataset:
    """Convert the annotations that a format has read from a folder to a dataset with splits for training.

    `val_fraction` is the fraction of the training samples to hold out, selected randomly with `seed`, if there is no
    validation split. If it is 0, the splits are not for training: no validation split is drawn, and the classes of the
    splits are not compared.
    """
    problems = list(content.problems)
    classes = content.classes
    problems += _check_classes(classes)
    if errors(problems):
        return RecognizedDataset(format.id, classes, problems=tuple(problems), kind=kind, title=format.title)
    if kind == "files":  # the user-written program creates the splits
        return RecognizedDataset(
            format.id, classes, content.splits[""], problems=tuple(problems), kind=kind, title=format.title
        )  # fmt: skip
    splits = {
        name: split
        for name, split in content.splits.items()
        if (len(split) if isinstance(split, list) else count_samples(split))
    }
    if kind == "classes" and val_fraction:  # otherwise the splits are not for training
        classes, splits = _compare_classes(classes, splits, problems)
    elif kind in _PREPARE:
        classes, splits = _PREPARE[kind](classes, splits, problems)
    others = " and ".join(title for name, title in (("val", "validation"), ("test", "test")) if name in splits)
    nothing = f"There are samples for {others}, but none for training." if others else "No sample has an annotation."
    divided = divide(
        splits, folder, problems, val_fraction=val_fraction, seed=seed, layout=format.layout, nothing=nothing
    )
    if divided is None:
        return RecognizedDataset(format.id, classes, problems=tuple(problems), kind=kind, title=format.title)
    code = content.code  # class of each mask value, or None to infer it from the masks
    if kind == "masks" and code is None:
        meaning = _learn_mask_values(divided, folder, content.table_folders, problems)
        classes, code = meaning.classes, meaning.code
        if unusable := _check_classes(classes):
            return RecognizedDataset(format.id, problems=(*problems, *unusable), kind=kind, title=format.title)
    if kind == "labels":
        problems += _warn_about_missing_labels(divided, classes)
    train, val, test = divided
    return RecognizedDataset(
        format.id, classes, train, val, tuple(problems), code, test=test, kind=kind, title=format.title
    )  # fmt: skip


def _check_classes(classes: Sequence[str]) -> list[Problem]:
    """Return an error if there are too many classes, or if the name of one is too long."""
    if len(classes) > MAX_CLASSES:
        message = f"There are {len(classes):,} classes; at most {MAX_CLASSES:,} are supported."
        return [dataset_error(message, "Check that these are the names of classes, not of images.")]
    if long := [name for name in classes if len(name) > MAX_LETTERS]:
        message = f"A class name has {len(long[0]):,} characters ({long[0][:40]}…)."
        return [dataset_error(message, f"Shorten the class names to at most {MAX_LETTERS} characters.")]
    return []


# Functions that prepare the splits of each kind. They return the classes and the splits.

Prepared = tuple[tuple[str, ...], dict[str, Any]]


def _compare_classes(classes: tuple[str, ...], splits: dict[str, Any], problems: list[Problem]) -> Prepared:
    """Compare the classes of the splits and return only the classes that have training images.

    Problems are appended to `problems`. Without training images, classes and splits are returned unchanged.
    """
    counts = {name: np.bincount(split.labels, minlength=len(classes)) for name, split in splits.items()}
    trained = counts.get("train", counts.get(""))
    if trained is None:
        return classes, splits
    validated = counts.get("val", counts.get("test"))
    problems += _report_classes_in_one_split(classes, counts, trained, validated)
    used = np.flatnonzero(trained)
    if len(used) < 2:
        only = f" ({printable(classes[used[0]])})" if len(used) else ""
        message = f"There is only one class{only}." if len(used) else "No class has training images."
        remedy = "Classification needs at least two classes: add images of another one, or choose the folder that their folders are in."
        problems.append(dataset_error(message, remedy))
    if validated is not None and not validated[used].any():
        message = "The validation images are of none of the training classes."
        problems.append(dataset_error(message, "Add some that are."))
    return _select_classes(classes, splits, used)


def _report_classes_in_one_split(
    classes: tuple[str, ...], counts: Mapping[str, Labels], trained: Labels, validated: Labels | None
) -> Iterator[Problem]:
    """Yield problems with classes that are missing from the training split or from the validation split.

    `counts` holds the number of images of each class by split of the folder. `trained` and `validated` are the numbers
    of images of each class that are used for training and for validation. `validated` is None without such images.
    """
    # Names of classes with training images, keyed without regard to case. Of equal ones, the first one is used.
    trained_names = {name.casefold(): name for number, name in reversed(list(enumerate(classes))) if trained[number]}
    for number, name in enumerate(classes):
        if trained[number]:
            if validated is not None and not validated[number]:
                message = f"Class {printable(name)} has no images for validation, so it is never validated."
                yield dataset_warning(message)
        elif "val" in counts and counts["val"][number]:
            message = f"Class {printable(name)} is in the validation split, but has no training images."
            same = trained_names.get(name.casefold())
            remedy = (
                f"Name it {printable(same)} as in training." if same else "Add training images of it, or remove it."
            )
            yield dataset_error(message, remedy)
        elif "test" in counts and counts["test"][number]:
            message = f"Class {printable(name)} is in the test split, but has no training images."
            yield dataset_warning(message, "Add some; until then its test images are not used.")


def _select_classes(classes: tuple[str, ...], splits: dict[str, Any], used: np.ndarray) -> Prepared:
    """Return only the `used` classes, given by their numbers, and only the images of these classes.

    The remaining classes are renumbered in the splits.
    """
    if len(used) == len(classes):
        return classes, splits
    numbers = np.full(len(classes), -1)
    numbers[used] = np.arange(len(used))
    selected: dict[str, Any] = {}
    for name, split in splits.items():
        chosen: FileSplit | IdxSplit = select_samples(split, numbers[split.labels] >= 0)
        selected[name] = replace(chosen, labels=numbers[chosen.labels])
    return tuple(classes[number] for number in used.tolist()), selected


def _prepare_labels(classes: tuple[str, ...], splits: dict[str, Any], problems: list[Problem]) -> Prepared:
    """Check the number of labels, and return `classes` and `splits` unchanged.

    An error is appended to `problems` if there are no labels, or too many for the number of images.
    """
    largest = max((count_samples(split) for split in splits.values()), default=0)
    if largest * len(classes) > MAX_LABELS:
        message = f"There are {len(classes):,} labels for {largest:,} images, which is too many."
        problems.append(dataset_error(message, "Merge labels that few images have."))
    if not classes:
        problems.append(dataset_error("No image has a label.", "Add labels to the table."))
    return classes, splits


def _prepare_boxes(classes: tuple[str, ...], splits: dict[str, Any], problems: list[Problem]) -> Prepared:
    """Convert the images of each split to a `BoxSplit` with boxes on the upright images.

    Problems with boxes and rotations, and an error if there are no boxes, are appended to `problems`.
    """
    faults, rotations = BoxFaults(), RotationReport()
    upright = {name: rotate_boxes(images, rotations) for name, images in splits.items()}
    gathered = {name: gather(images, len(classes), faults) for name, images in upright.items()}
    problems += [*rotations.problems("boxes"), *faults.problems()]
    if not classes and any(splits.values()):
        problems.append(
            dataset_error("There are annotations, but none of them has a box.", "Draw boxes around the objects.")
        )
    return classes, gathered


def _prepare_instances(classes: tuple[str, ...], splits: dict[str, Any], problems: list[Problem]) -> Prepared:
    """Return `classes`, and `splits` with the objects of rotated images turned upright.

    Problems with rotations and with too many classes are added to `problems`.
    """
    if len(classes) >= NO_CLASS:
        message = f"There are {len(classes):,} classes; instance segmentation supports at most {NO_CLASS - 1}."
        problems.append(dataset_error(message, "Merge classes that few objects have."))
    rotations = RotationReport()
    upright = {name: rotate_instances(split, rotations) for name, split in splits.items()}
    problems += rotations.problems("outlines")
    return classes, upright


_PREPARE: Mapping[str, Callable[[tuple[str, ...], dict[str, Any], list[Problem]], Prepared]] = {
    "labels": _prepare_labels,
    "boxes": _prepare_boxes,
    "instances": _prepare_instances,
}


def _learn_mask_values(divided: Divided, folder: str, folders: Sequence[str], problems: list[Problem]) -> Meaning:
    """Determine the meaning of the values in the training masks, or append an error to `problems` if this fails.

    `folders` are folders, in addition to the dataset folder `folder`, that may contain class tables.
    """
    # A folder to evaluate may have no training masks.
    masks = divided.train.masks or [*divided.val.masks, *(divided.test.masks if divided.test else ())]
    meaning = learn_meaning(folder, masks, folders)
    if meaning.failure:
        problems.append(dataset_error(meaning.failure, "Save masks as PNG with a number, or a color, for each class."))
    return meaning


def _warn_about_missing_labels(divided: Divided, classes: Sequence[str]) -> list[Problem]:
    """Return warnings about labels that don't occur in the training or the validation split."""
    found = []
    for split, title, verb in ((divided.train, "training", "learned"), (divided.val, "validation", "validated")):
        missing = [name for name, count in zip(classes, split.labels.sum(0), strict=True) if not count]
        if missing and count_samples(split):
            are = "is" if len(missing) == 1 else "are"
            message = f"No {title} image has the label {first_names(missing)}, which {are} never {verb}."
            found.append(dataset_warning(message, "Add some, or remove it."))
    return found
