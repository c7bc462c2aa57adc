"""Determine the classes of point clouds from the labels of their points. Torch-free.

Class names come from lists in the folder or from public datasets. Without such a source, classes are numbered.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.masks import read_names_by_value
from engine.data.decoding.reading import Unfit
from engine.data.splits import Labels, MaskCode, dataset_error, dataset_warning
from engine.system.format import listed
from engine.tasks.points.decoding import rooms
from engine.tasks.points.decoding.clouds import is_las
from engine.tasks.points.semantic_kitti import KittiClasses, find_kitti_classes

_REMEDY = "Save a whole number per point as its label, and list the names in classes.txt, one per line."
_NAME_LABELS_REMEDY = "If they are a class, list the names of all labels in classes.txt, one per line, label 0 first."
_ASPRS = (
    "never classified", "unclassified", "ground", "low vegetation", "medium vegetation", "high vegetation", "building",
    "low point (noise)", "model key-point", "water", "rail", "road surface", "overlap", "wire guard", "wire conductor",
    "transmission tower", "wire connector", "bridge deck", "high noise",
)  # fmt: skip
"""Names of the standard LAS classes, indexed by label (ASPRS LAS Specification 1.4, tables 9 and 17)."""
_FIRST_USER_DEFINED = 64
"""Smallest label of a user-defined LAS class. Smaller labels without a standard name are reserved."""
_SEMANTIC3D = (
    "man-made terrain", "natural terrain", "high vegetation", "low vegetation", "buildings", "hard scape",
    "scanning artifacts", "cars",
)  # fmt: skip
"""Names of the classes in Semantic3D (Hackel et al. 2017), ordered by label from 1 on."""
_SEMANTIC3D_NAME = "_xyz_intensity_rgb"


@dataclass(frozen=True)
class PointCode(MaskCode):
    """Mapping from point labels to classes, in which several labels may belong to one class.

    Attributes:
        merged: Pairs of an additional label and the main label of the same class.
    """

    merged: tuple[tuple[int, int], ...] = ()


@dataclass
class PointClassMapping:
    """Classes of the points in a folder, and the mapping from point labels to these classes.

    Attributes:
        classes: Names of the classes.
        code: Mapping from labels to classes, or None if there are no classes to learn.
        problems: Errors and warnings for the user. If `code` is None, an error explains the reason.
    """

    classes: tuple[str, ...] = ()
    code: MaskCode | None = None
    problems: list[Problem] = field(default_factory=list)


def label_classes(labels: Labels, code: MaskCode) -> Bytes:
    """Convert labels to classes, uint8 [n]. Ignored labels and labels below 0 become `NO_CLASS`.

    Raises Unfit for any other label that belongs to no class.
    """
    class_of_main_label = {value: number for number, value in enumerate(code.values) if value >= 0}
    class_of_label = dict.fromkeys(code.ignored, NO_CLASS) | class_of_main_label
    if isinstance(code, PointCode):
        for label, main_label in code.merged:
            class_of_label.setdefault(label, class_of_main_label.get(main_label, NO_CLASS))
    known_labels = np.array(sorted(class_of_label), np.int64)
    positions = np.minimum(np.searchsorted(known_labels, labels), len(known_labels) - 1)
    is_unknown = (known_labels[positions] != labels) & (labels >= 0)
    if is_unknown.any():
        raise Unfit(f"it holds the label {labels[is_unknown][0]}, which belongs to no class")
    known_classes = np.array([class_of_label[label] for label in known_labels.tolist()], np.uint8)
    classes: Bytes = np.where(labels < 0, NO_CLASS, known_classes[positions]).astype(np.uint8)
    return classes


def learn_classes(folder: str, files: Sequence[str], counts: Mapping[int, int]) -> PointClassMapping:
    """Determine the classes of the labels in `files`.

    Labels that belong to no class are reported with their fraction of the points. Names are used only if there is
    evidence for them: a list in the folder, or the layout of a public dataset. `counts` contains the number of points
    with each label in a sample of the files.
    """
    counts = Counter(counts)
    named = read_names_by_value(folder)
    if named is not None:
        if named.code is None:
            return PointClassMapping(problems=[dataset_error(named.failure, _REMEDY)])
        return _use_listed_classes(named.classes, named.code, counts)
    if all(map(rooms.is_room, files)):
        names = rooms.CLASSES
        return PointClassMapping(names, MaskCode(tuple(range(len(names)))))
    kitti = find_kitti_classes(folder, files, counts)
    if kitti is not None:
        return _use_kitti_classes(kitti, counts)
    if _are_semantic3d(files) and counts.keys() <= set(range(len(_SEMANTIC3D) + 1)):
        return _use_semantic3d_classes(counts)
    return _make_class_per_label(counts, is_survey=all(map(is_las, files)))


def _use_listed_classes(names: tuple[str, ...], code: MaskCode, counts: Counter[int]) -> PointClassMapping:
    """Return the classes that a list in the folder names, with a warning about points whose labels are not listed.

    `counts` contains the number of points with each label.
    """
    unnamed = [value for value in sorted(counts) if value not in code.values]
    code = MaskCode(code.values, ignored=tuple(dict.fromkeys((*code.ignored, *unnamed))))
    problems = []
    if unnamed:
        message = f"{_format_labels(unnamed, counts)} not in the list of classes, so these points are of no class."
        problems.append(dataset_warning(message, "Add the names to the list if they are classes."))
    return PointClassMapping(names, code, problems)


def _use_kitti_classes(kitti: KittiClasses, counts: Counter[int]) -> PointClassMapping:
    """Return the classes of SemanticKITTI, with a warning about points whose labels belong to no class.

    `counts` contains the number of points with each label.
    """
    code = PointCode(kitti.values, ignored=kitti.ignored, merged=kitti.merged)
    left_out = [value for value in sorted(counts) if value in kitti.ignored]
    problems = []
    if left_out:
        message = f"{_format_labels(left_out, counts)} of no class in SemanticKITTI, so these points are left out."
        problems.append(
            dataset_warning(
                message, "This is the custom of the benchmark; semantic-kitti.yaml in the folder changes it."
            )
        )
    return PointClassMapping(kitti.names, code, problems)


def _use_semantic3d_classes(counts: Counter[int]) -> PointClassMapping:
    """Return the classes of Semantic3D, with a warning about points with the label 0, which belongs to no class.

    `counts` contains the number of points with each label.
    """
    problems = []
    if counts[0]:
        message = f"{_format_labels([0], counts)} of no class in Semantic3D, so these points are left out."
        problems.append(dataset_warning(message, _NAME_LABELS_REMEDY))
    return PointClassMapping(_SEMANTIC3D, MaskCode(tuple(range(1, len(_SEMANTIC3D) + 1)), ignored=(0,)), problems)


def _make_class_per_label(counts: Counter[int], *, is_survey: bool) -> PointClassMapping:
    """Make a class of each label, except labels below 0 and the label 255.

    `counts` contains the number of points with each label. If `is_survey` is True, the files are LAS files. Their
    classes get the standard names if `_are_standard` accepts the labels.
    """
    problems = []
    ignored = [value for value in sorted(counts) if value < 0 or value == NO_CLASS]
    values = [value for value in sorted(counts) if value not in ignored]
    if ignored:
        message = f"{_format_labels(ignored, counts)} below 0 or 255, so these points are of no class."
        problems.append(dataset_warning(message, _NAME_LABELS_REMEDY))
    names = {value: f"class {value}" for value in values}
    if is_survey and _are_standard(values):
        names.update({value: _ASPRS[value] for value in values if value < len(_ASPRS)})
        if 0 in values and len(values) > 1:
            values.remove(0)
            ignored.append(0)
            message = f"{_format_labels([0], counts)} “{_ASPRS[0]}” in LAS files, so these points are of no class."
            problems.append(dataset_warning(message, _NAME_LABELS_REMEDY))
    elif is_survey and 0 in values:
        message = f"{_format_labels([0], counts)} kept as a class, because the labels are numbered from 0."
        remedy = "If these points were never classified, set the label 0 as the value to ignore."
        problems.append(dataset_warning(message, remedy))
    return _create_mapping([names[value] for value in values], values, ignored, problems)


def _are_standard(values: Sequence[int]) -> bool:
    """Return True if labels in LAS files can be the standard labels of ASPRS.

    Standard labels include no reserved label, and are not numbered 0, 1, 2, ... without gaps.
    """
    reserved = [value for value in values if len(_ASPRS) <= value < _FIRST_USER_DEFINED]
    return not reserved and (len(values) < 2 or list(values) != list(range(len(values))))


def _are_semantic3d(files: Iterable[str]) -> bool:
    """Return True if all files are named like those of Semantic3D."""
    return all(os.path.splitext(path)[0].endswith(_SEMANTIC3D_NAME) for path in files)


def _create_mapping(
    names: Sequence[str], values: Sequence[int], ignored: Sequence[int], problems: list[Problem]
) -> PointClassMapping:
    """Return a mapping with the classes `names`, whose labels are `values`, and the labels `ignored` of no class.

    For fewer than two or at least `NO_CLASS` classes, return only an error. `problems` are added to the result.
    """
    if len(values) < 2:
        only_label = f"the label {values[0]}" if values else "no label"
        message = f"All points of the inspected clouds have {only_label}; at least two labels are needed."
        return PointClassMapping(problems=[dataset_error(message, _REMEDY), *problems])
    if len(values) >= NO_CLASS:
        message = f"The points have {len(values):,} different labels, too many for classes."
        return PointClassMapping(problems=[dataset_error(message, _REMEDY), *problems])
    return PointClassMapping(tuple(names), MaskCode(tuple(values), ignored=tuple(ignored)), problems)


def _format_labels(values: Sequence[int], counts: Counter[int]) -> str:
    """Format labels with their fraction of the points, e.g. "Labels -1 and 255 (0.2% of the points) are".

    `counts` contains the number of points with each label.
    """
    share = sum(counts[value] for value in values) / max(counts.total(), 1)
    noun, verb = ("Label", "is") if len(values) == 1 else ("Labels", "are")
    return f"{noun} {listed(map(str, values), most=5)} ({100 * share:.2g}% of the points) {verb}"
