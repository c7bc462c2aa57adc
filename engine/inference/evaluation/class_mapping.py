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
_BY_VALUE = re.compile(r"(?:class|value) (\d+)")
"""Pattern for names of mask or point classes that are derived from their values."""
_TWO_VALUE_NAMES = ("background", "foreground")
"""Class names for masks that have only two values: 0 and one other value."""


class _Renumbered(NamedTuple):
    split: Any
    ignored: int


def map_classes(found: RecognizedDataset, classes: Sequence[str]) -> tuple[RecognizedDataset, ClassMapping]:
    """Return a copy of the dataset that uses the model's `classes`, and a report on the mapping.

    Images, labels, boxes and outlines of classes that the model doesn't know are left out. Pixels and points of these
    classes get no class.
    """
    if found.classes == tuple(classes):
        return found, ClassMapping()
    if found.code is not None:
        found = replace(found, classes=_by_value(found.classes, found.code, classes))
    known = {name: index for index, name in enumerate(classes)}
    numbers = np.array([known.get(name, UNKNOWN) for name in found.classes], np.int64)
    unknown = tuple(name for name in found.classes if name not in known)
    ignored = 0

    def renumber(split: Split | None) -> Split | None:
        nonlocal ignored
        if split is None:
            return None
        renumbered = _RENUMBER[type(split)](split, numbers, len(classes))
        ignored += renumbered.ignored
        return renumbered.split

    if found.code is not None:
        mapped = replace(found, code=_recode(found.code, numbers, len(classes)))
    else:
        train, val = renumber(found.train), renumber(found.val)
        test = val if found.test is found.val else renumber(found.test)
        mapped = replace(found, train=train, val=val, test=test)
    counted = not unknown or not (found.code is not None or isinstance(found.train, InstanceSplit))
    missing = tuple(name for name in classes if name not in found.classes)
    mapping = ClassMapping(missing=missing, unknown=unknown, ignored=ignored if counted else None)
    return replace(mapped, classes=tuple(classes)), mapping


def _by_value(names: tuple[str, ...], code: MaskCode, classes: Sequence[str]) -> tuple[str, ...]:
    """Return the class names of a folder, replaced by the model's names if both are only derived from mask values.

    The replacement is needed because derived names also depend on which values occur in a folder. The names for a
    folder with only two values, background and foreground, are derived, too.
    """
    model_names = {int(match[1]): name for name in classes if (match := _BY_VALUE.fullmatch(name))}
    if len(model_names) < len(classes) or not (names == _TWO_VALUE_NAMES or all(map(_BY_VALUE.fullmatch, names))):
        return names
    return tuple(model_names.get(value, f"class {value}") for value in code.values)


def _recode(code: MaskCode, numbers: Labels, classes: int) -> MaskCode:
    values, palette = [_NO_VALUE] * classes, [-1] * classes
    ignored = list(code.ignored)
    colors = code.palette or (-1,) * len(code.values)
    for value, color, number in zip(code.values, colors, numbers.tolist(), strict=True):
        if number == UNKNOWN:
            ignored.append(value)
        else:
            values[number], palette[number] = value, color
    return replace(code, values=tuple(values), ignored=tuple(ignored), palette=tuple(palette) if code.palette else ())


def _files(split: FileSplit, numbers: Labels, classes: int) -> _Renumbered:
    labels = numbers[split.labels]
    is_known = labels != UNKNOWN
    return _Renumbered(
        replace(split, files=split.files.select(is_known), labels=labels[is_known]), int((~is_known).sum())
    )


def _idx(split: IdxSplit, numbers: Labels, classes: int) -> _Renumbered:
    labels = numbers[split.labels]
    is_known = labels != UNKNOWN
    rows = np.arange(len(labels)) if split.rows is None else split.rows
    return _Renumbered(replace(split, labels=labels[is_known], rows=rows[is_known]), int((~is_known).sum()))


def _labels(split: LabelSplit, numbers: Labels, classes: int) -> _Renumbered:
    labels = np.zeros((len(split.files), classes), np.bool_)
    known = numbers != UNKNOWN
    labels[:, numbers[known]] = split.labels[:, known]
    return _Renumbered(replace(split, labels=labels), int(split.labels[:, ~known].sum()))


def _boxes(split: BoxSplit, numbers: Labels, classes: int) -> _Renumbered:
    """Renumber the classes of boxes by `numbers`, and drop boxes of unknown classes, which are counted."""
    labels = numbers[split.labels]
    is_known = labels != UNKNOWN
    images = np.repeat(np.arange(len(split.files)), np.diff(split.bounds))
    counts = np.bincount(images[is_known], minlength=len(split.files))
    fewer = replace(
        split,
        bounds=np.concatenate([[0], np.cumsum(counts)]),
        boxes=split.boxes[is_known],
        labels=labels[is_known],
        ignored=split.ignored[is_known],
    )
    return _Renumbered(fewer, int((~is_known & ~split.ignored).sum()))


def _instances(split: InstanceSplit, numbers: Labels, classes: int) -> _Renumbered:
    return _Renumbered(replace(split, sources=[_Relabeled(source, numbers) for source in split.sources]), 0)


@dataclass(frozen=True, eq=False)
class _Relabeled:
    """Source of instances that replaces each class number c by `numbers[c]`."""

    source: Source
    numbers: npt.NDArray[np.int64]

    def instances(self, height: int, width: int) -> list[Instance]:
        found = self.source.instances(height, width)
        renumber = [each._replace(label=int(self.numbers[each.label])) for each in found if not each.ignored]
        return [
            *(each for each in renumber if each.label != UNKNOWN),
            *(each._replace(label=0) for each in found if each.ignored),
        ]

    def labels(self) -> list[int]:
        renumber: list[int] = self.numbers[self.source.labels()].tolist()
        return [label for label in renumber if label != UNKNOWN]

    def sizes(self) -> list[tuple[int, int]]:
        return self.source.sizes()

    def state(self) -> bytes:
        return self.source.state() + self.numbers.tobytes()


_RENUMBER: dict[type, Callable[[Any, Labels, int], _Renumbered]] = {
    FileSplit: _files,
    IdxSplit: _idx,
    LabelSplit: _labels,
    BoxSplit: _boxes,
    InstanceSplit: _instances,
}
