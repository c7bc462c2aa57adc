"""Remove the class whose value in masks or point labels the user wants to ignore. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from engine.contract.problems import Problem, errors
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.masks import learn_meaning
from engine.data.decoding.unnamed_values import Meaning
from engine.data.splits import MaskCode, MaskSplit, RecognizedDataset


def drop_mask_value(folder: str, train: Sequence[str], val: Sequence[str], value: int) -> Meaning | Problem:
    """Return the meaning of the values in masks, leaving out the class that has the value `value`.

    `train` and `val` are the paths of the masks. Returns a problem if fewer than two classes remain.
    """
    # Class tables may be in the folders of the first masks, or in their parent folders.
    folders = {os.path.dirname(mask): None for masks in (train, val) for mask in masks[:1]}
    parents = [parent for folder in folders for parent in (os.path.dirname(folder), folder)]
    meaning = learn_meaning(folder, train, parents, ignored=value)
    if meaning.code is not None and len(meaning.classes) >= 2:
        return meaning
    may_be_color = value > NO_CLASS and (meaning.code is None or meaning.code.colors)
    value_text = f"#{value:06x}" if may_be_color else str(value)
    reason = meaning.failure.rstrip(".").lower() or f"the only class is {meaning.classes[0]}"
    return _make_problem(
        f"Without the mask value {value_text}, there are no two classes left to distinguish: {reason}."
    )


def drop_point_label(classes: Sequence[str], code: MaskCode, value: int) -> Meaning | Problem:
    """Return the class names, and the mapping of point labels to them, without the class that has the label `value`.

    Points with this label are ignored. `classes` are the names of all classes, and `code` has the label of each.
    Returns a problem if fewer than two classes remain.
    """
    remaining_classes = [number for number, class_value in enumerate(code.values) if class_value != value]
    if len(remaining_classes) < 2:
        return _make_problem(f"Without the label {value}, there are no two classes left to distinguish.")
    values = tuple(code.values[number] for number in remaining_classes)
    ignored = (*code.ignored, value) if value in code.values else code.ignored
    names = tuple(classes[number] for number in remaining_classes)
    return Meaning(names, replace(code, values=values, ignored=ignored))


def drop_ignored_class(found: RecognizedDataset, folder: str, value: int | None) -> RecognizedDataset:
    """Return a copy of a dataset without the class that has the value `value` in masks or point labels.

    The dataset is returned unchanged if `value` is None or it has neither masks nor point labels.
    """
    if value is None or found.code is None or errors(found.problems):
        return found
    train, val = found.train, found.val
    if isinstance(train, MaskSplit) and isinstance(val, MaskSplit):
        meaning = drop_mask_value(folder, train.masks, val.masks, value)
    else:
        meaning = drop_point_label(found.classes, found.code, value)
    if isinstance(meaning, Problem):
        return replace(found, problems=(*found.problems, meaning))
    return replace(found, classes=meaning.classes, code=meaning.code)


def _make_problem(message: str) -> Problem:
    """Return an error about the value that the user wants to ignore."""
    return Problem("ignore_value", message, "Choose another value, or leave it empty.")
