"""Map the classes of a folder to the classes of a model by name. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.inference.evaluation import ClassMapping
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.formats.shared.instances import Instance, InstanceSplit, Source
from engine.data.splits import FileSplit, IdxSplit, Labels, LabelSplit, MaskCode, RecognizedDataset, Split

UNKNOWN = -1
"""Index of a class that the model does not know."""
_NO_VALUE = -(1 << 62)
"""Mask value for a class of the model that does not exist in the folder. It never occurs in masks."""
_DERIVED_NAME = re.compile(r"(?:class|value) (\d+)")
"""Pattern for names of mask or point classes that are derived from their values."""
_TWO_VALUE_NAMES = ("background", "foreground")
"""Class names for masks that have only two values: 0 and one other value."""


class _RenumberedSplit(NamedTuple):
    """Split with the model's class numbers, and the number of its labels or objects that were dropped as unknown."""

    split: Any
    ignored: int


def map_classes(dataset: RecognizedDataset, classes: Sequence[str]) -> tuple[RecognizedDataset, ClassMapping]:
    """Return a copy of the dataset that uses the model's `classes`, and a report on the mapping.

    Images, labels, boxes and outlines of classes that the model doesn't know are left out. Pixels and points of these
    classes get no class.
    """
    if dataset.classes == tuple(classes):
        return dataset, ClassMapping()
    if dataset.code is not None:
        dataset = replace(dataset, classes=_match_derived_names(dataset.classes, dataset.code, classes))
    model_numbers = {name: index for index, name in enumerate(classes)}
    numbers = np.array([model_numbers.get(name, UNKNOWN) for name in dataset.classes], np.int64)
    unknown = tuple(name for name in dataset.classes if name not in model_numbers)
    ignored = 0

    def renumber(split: Split | None) -> Split | None:
        """Return a split with the model's class numbers, or None without a split.

        Count the labels or objects that are dropped.
        """
        nonlocal ignored
        if split is None:
            return None
        renumbered = _RENUMBER_BY_TYPE[type(split)](split, numbers, len(classes))
        ignored += renumbered.ignored
        return renumbered.split

    if dataset.code is not None:  # masks and points keep their values, whose meaning changes
        mapped = replace(dataset, code=_renumber_code(dataset.code, numbers, len(classes)))
    else:
        train, val = renumber(dataset.train), renumber(dataset.val)
        test = val if dataset.test is dataset.val else renumber(dataset.test)
        mapped = replace(dataset, train=train, val=val, test=test)
    # Pixels, points and outlines of unknown classes are not counted.
    can_count = dataset.code is None and not isinstance(dataset.train, InstanceSplit)
    missing = tuple(name for name in classes if name not in dataset.classes)
    mapping = ClassMapping(missing=missing, unknown=unknown, ignored=ignored if can_count or not unknown else None)
    return replace(mapped, classes=tuple(classes)), mapping


def _match_derived_names(names: tuple[str, ...], code: MaskCode, classes: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a folder's classes to compare with those of the model.

    These are `names`, unless they and the model's names are derived from mask values, such as "class 7", or
    "background" and "foreground" for two values. Derived names depend on the values that occur in a folder. They are
    therefore replaced with the model's names for the same values, which are in `code`.
    """
    model_names = {int(match[1]): name for name in classes if (match := _DERIVED_NAME.fullmatch(name))}  # by mask value
    are_model_names_derived = len(model_names) == len(classes)
    are_names_derived = names == _TWO_VALUE_NAMES or all(map(_DERIVED_NAME.fullmatch, names))
    if not are_model_names_derived or not are_names_derived:
        return names
    return tuple(model_names.get(value, f"class {value}") for value in code.values)


def _renumber_code(code: MaskCode, numbers: Labels, classes: int) -> MaskCode:
    """Return a code that maps mask values to the model's class numbers. Values of unknown classes are ignored.

    `numbers` holds the model's number of each class in `code`, or `UNKNOWN`.
    """
    values, palette = [_NO_VALUE] * classes, [-1] * classes  # by class number of the model
    ignored = list(code.ignored)
    colors = code.palette or (-1,) * len(code.values)
    for value, color, number in zip(code.values, colors, numbers.tolist(), strict=True):
        if number == UNKNOWN:
            ignored.append(value)
        else:
            values[number], palette[number] = value, color
    return replace(code, values=tuple(values), ignored=tuple(ignored), palette=tuple(palette) if code.palette else ())


def _renumber_files(split: FileSplit, numbers: Labels, classes: int) -> _RenumberedSplit:
    """Replace each file's class c by `numbers[c]`, and leave out files of unknown classes."""
    labels = numbers[split.labels]
    is_known = labels != UNKNOWN
    return _RenumberedSplit(
        replace(split, files=split.files.select(is_known), labels=labels[is_known]), int((~is_known).sum())
    )


def _renumber_idx(split: IdxSplit, numbers: Labels, classes: int) -> _RenumberedSplit:
    """Replace each image's class c by `numbers[c]`, and leave out images of unknown classes."""
    labels = numbers[split.labels]
    is_known = labels != UNKNOWN
    rows = np.arange(len(labels)) if split.rows is None else split.rows
    return _RenumberedSplit(replace(split, labels=labels[is_known], rows=rows[is_known]), int((~is_known).sum()))


def _renumber_labels(split: LabelSplit, numbers: Labels, classes: int) -> _RenumberedSplit:
    """Replace each label c by `numbers[c]`, and leave out unknown labels.

    `classes` is the number of the model's labels.
    """
    labels = np.zeros((len(split.files), classes), np.bool_)
    is_known = numbers != UNKNOWN
    labels[:, numbers[is_known]] = split.labels[:, is_known]
    return _RenumberedSplit(replace(split, labels=labels), int(split.labels[:, ~is_known].sum()))


def _renumber_boxes(split: BoxSplit, numbers: Labels, classes: int) -> _RenumberedSplit:
    """Replace each box's class c by `numbers[c]`, and leave out boxes of unknown classes.

    The number of an unknown class is `UNKNOWN`. The number of the model's `classes` isn't needed.
    """
    labels = numbers[split.labels]
    is_known = labels != UNKNOWN
    images = np.repeat(np.arange(len(split.files)), np.diff(split.bounds))
    counts = np.bincount(images[is_known], minlength=len(split.files))
    remaining = replace(
        split,
        bounds=np.concatenate([[0], np.cumsum(counts)]),
        boxes=split.boxes[is_known],
        labels=labels[is_known],
        ignored=split.ignored[is_known],
    )
    return _RenumberedSplit(remaining, int((~is_known & ~split.ignored).sum()))


def _renumber_instances(split: InstanceSplit, numbers: Labels, classes: int) -> _RenumberedSplit:
    """Return a split that replaces the class c of an object by `numbers[c]` when the object is read.

    Objects of unknown classes are dropped then, so they are not counted here.
    """
    return _RenumberedSplit(replace(split, sources=[_RenumberedSource(source, numbers) for source in split.sources]), 0)


@dataclass(frozen=True, eq=False)
class _RenumberedSource:
    """Source of instances that replaces each class number c by `numbers[c]`."""

    source: Source
    numbers: npt.NDArray[np.int64]

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return the renumbered objects of known classes in an image, followed by the ignored objects with class 0."""
        instances = self.source.instances(height, width)
        renumbered = [each._replace(label=int(self.numbers[each.label])) for each in instances if not each.ignored]
        return [
            *(each for each in renumbered if each.label != UNKNOWN),
            *(each._replace(label=0) for each in instances if each.ignored),
        ]

    def labels(self) -> list[int]:
        """Return the new class numbers of the objects, without objects of unknown classes."""
        renumbered: list[int] = self.numbers[self.source.labels()].tolist()
        return [label for label in renumbered if label != UNKNOWN]

    def sizes(self) -> list[tuple[int, int]]:
        return self.source.sizes()

    def state(self) -> bytes:
        return self.source.state() + self.numbers.tobytes()


_RENUMBER_BY_TYPE: dict[type, Callable[[Any, Labels, int], _RenumberedSplit]] = {
    FileSplit: _renumber_files,
    IdxSplit: _renumber_idx,
    LabelSplit: _renumber_labels,
    BoxSplit: _renumber_boxes,
    InstanceSplit: _renumber_instances,
}
