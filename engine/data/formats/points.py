"""Folders of point clouds whose points are labelled, and what their labels mean. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.idx import Bytes
from engine.data.decoding.masks import NO_CLASS, Meaning, names_by_value
from engine.data.decoding.point_clouds import Head, count_labels, is_cloud, is_las, read_head
from engine.data.decoding.reading import Unfit
from engine.data.formats.folders import is_folder
from engine.data.formats.tree import SPLIT_NAMES
from engine.data.splits import (
    Labels,
    MaskCode,
    PointSplit,
    Recognised,
    draw_validation,
    shown,
    spread_evenly,
    warn,
    wrong,
)

LAYOUT = (
    "Choose a folder of PLY, LAS or LAZ files, optionally divided into train and val folders. Each point needs "
    "its class: as a property label in PLY, as classification in LAS."
)
LOOKED_AT = 32
"""Clouds that are read to learn which labels there are, evenly spread."""
_ASPRS = (
    "never classified", "unclassified", "ground", "low vegetation", "medium vegetation", "high vegetation", "building",
    "low point (noise)", "model key-point", "water", "rail", "road surface", "overlap", "wire guard", "wire conductor",
    "transmission tower", "wire connector", "bridge deck", "high noise",
)  # fmt: skip
"""The standard classes by their value (ASPRS LAS Specification 1.4, tables 9 and 17)."""


def recognise_points(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """The point clouds in `folder`, whose folders are `folders`; None where there are none."""
    splits = {split: name for split, names in SPLIT_NAMES.items() for name in folders if name.lower() in names}
    listed = {split: _clouds(os.path.join(folder, name)) for split, name in splits.items()}
    listed = {split: files for split, files in listed.items() if files}
    if "train" not in listed:
        files = _clouds(folder)
        if not files and not listed:
            return None
        listed = {"train": files} | listed if files else listed
    problems: list[Problem] = []
    if "train" not in listed and not val_fraction:
        listed["train"] = []
    if "train" not in listed:
        message = f"There is {', '.join(shown(splits[split]) for split in listed)} but no train folder."
        return Recognised("points", problems=(wrong(message, LAYOUT),))
    if val_fraction and "val" not in listed and "test" in listed:
        problems.append(
            warn(
                f"There is no validation folder; {shown(splits['test'])} serves as one.",
                "Add a val folder to keep the test clouds for a final, independent evaluation.",
            )
        )
        listed["val"] = listed["test"]
    train = PointSplit(listed["train"])
    val = PointSplit(listed["val"]) if "val" in listed else None
    if val is None:
        train, val = _divided(listed["train"], folder, val_fraction, seed)
    if val_fraction and not val.files:
        problems.append(
            wrong("A single cloud can't be divided into training and validation.", "Add some, or a val folder.")
        )
    test = PointSplit(listed["test"]) if "test" in listed else None
    told_by = train.files or [*val.files, *(test.files if test else ())]
    meaning, features = _meaning(folder, told_by)
    if meaning.trouble:
        problems.append(wrong(meaning.trouble, LAYOUT))
    train, val = (PointSplit(split.files, features, split.made) for split in (train, val))
    if test is not None:
        test = val if test.files == val.files else PointSplit(test.files, features)
    return Recognised("points", meaning.classes, train, val, tuple(problems), meaning.code, test=test)


def heads(files: Sequence[str]) -> Iterator[Head | None]:
    """The header of each file, None for one that cannot be read."""
    for path in files:
        try:
            yield read_head(path)
        except Exception:  # a reader may raise nearly anything; whoever reads the whole file tells why
            yield None


def classes_of(labels: Labels, code: MaskCode) -> Bytes:
    """The class of each point, uint8 [n], `NO_CLASS` for those of none. Raises Unfit for a label that has no "
    "meaning."""
    known = np.array([*code.values, *code.ignored], np.int64)
    order = np.argsort(known)
    index = np.minimum(np.searchsorted(known[order], labels), len(known) - 1)
    found = order[index]
    strange = known[found] != labels
    if strange.any():
        raise Unfit(f"it holds the label {labels[strange][0]}, which belongs to no class")
    classes: Bytes = np.where(found < len(code.values), found, NO_CLASS).astype(np.uint8)
    return classes


def _clouds(folder: str) -> list[str]:
    """The clouds in `folder`, in the order of their names."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_cloud(entry.name) and not entry.name.startswith(".") and not is_folder(entry):
                found.append(entry.path)
    return sorted(found)


def _divided(files: list[str], folder: str, val_fraction: float, seed: int) -> tuple[PointSplit, PointSplit]:
    keys = (os.fsencode(os.path.relpath(path, folder)) for path in files)
    chosen = draw_validation(keys, np.zeros(len(files), np.int64), val_fraction, seed).tolist()
    train = [path for path, held_out in zip(files, chosen, strict=True) if not held_out]
    val = [path for path, held_out in zip(files, chosen, strict=True) if held_out]
    return PointSplit(train), PointSplit(val, made=True)


def _meaning(folder: str, files: Sequence[str]) -> tuple[Meaning, tuple[str, ...]]:
    """The meaning of the labels in `files`, and the features that all of them have."""
    known = [head for head in heads(files) if head is not None]
    if not known:
        return Meaning(trouble="None of the point clouds can be read."), ()
    labelled = [head for head in known if head.labelled]
    if not labelled:
        return Meaning(trouble="The points of the clouds have no labels."), ()
    features = tuple(name for name in labelled[0].features if all(name in head.features for head in labelled))
    there: set[int] = set()
    for index in spread_evenly(len(files), LOOKED_AT):
        try:
            there.update(count_labels(files[index])[0].tolist())
        except Exception:
            continue  # as above
    return _by_labels(folder, files, sorted(there)), features


def _by_labels(folder: str, files: Sequence[str], there: list[int]) -> Meaning:
    """By the files of names that masks have, too; else LAS files' standard names, of which 0 is no class, or numbers.
    Labels below 0, and 255 where the others are names or fewer, are of no class."""
    ignored = tuple(value for value in there if value < 0)
    values = [value for value in there if value >= 0]
    standard = all(map(is_las, files))
    named = names_by_value(folder)
    if named is not None:
        code = named.code or MaskCode(())
        others = tuple(value for value in there if value not in code.values and value not in code.ignored)
        return Meaning(named.classes, MaskCode(code.values, ignored=(*code.ignored, *others)))
    if standard and len(values) > 1:
        ignored, values = (*ignored, *(value for value in values if value == 0)), [value for value in values if value]
    if NO_CLASS in values:
        ignored, values = (*ignored, NO_CLASS), [value for value in values if value != NO_CLASS]
    if len(values) < 2:
        only = f"the label {values[0]}" if values else "no label"
        return Meaning(trouble=f"All points of the inspected clouds have {only}; at least two labels are needed.")
    if len(values) >= NO_CLASS:
        return Meaning(trouble=f"The points have {len(values):,} different labels, too many for classes.")
    names = tuple(_ASPRS[value] if standard and value < len(_ASPRS) else f"class {value}" for value in values)
    return Meaning(names, MaskCode(tuple(values), ignored=ignored))
