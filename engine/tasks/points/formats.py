"""Dataset format for labeled point clouds in files of any type and folders of any depth. Torch-free."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from engine.contract.problems import Problem
from engine.data.decoding.image_files import EXTENSIONS as IMAGE_ENDINGS
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.tree import Tree, split_named, suffix
from engine.data.splits import dataset_error, dataset_warning, first_names, printable, spread_evenly
from engine.system.format import counted, listed
from engine.tasks.points.classes import learn_classes
from engine.tasks.points.decoding import rooms
from engine.tasks.points.decoding.clouds import (
    AMBIGUOUS,
    EXTENSIONS,
    TABLE_EXTENSIONS,
    count_labels,
    read_fields,
    read_head,
)
from engine.tasks.points.decoding.fields import Fields, Head
from engine.tasks.points.decoding.tables import read_table
from engine.tasks.points.drawing import create_point_legend
from engine.tasks.points.semantic_kitti import VAL_SEQUENCES, find_sequence

LAYOUT = (
    "Choose a folder of point clouds (PLY, LAS, LAZ, PCD, tables in XYZ, TXT, CSV or ASC, scans of KITTI), optionally "
    "divided into train and val folders. Each point needs its class: a field label in PLY, PCD and tables, the "
    "classification in LAS, a file .labels next to a table or .label next to a scan."
)
READ_FOR_LABELS = 32
"""Number of evenly spaced clouds that are read to find out which labels occur."""
_SAMPLED = 8
"""Maximum number of clouds that are opened to detect the format.

It applies separately to files with an extension that only clouds use, and to files with an ambiguous extension.
"""
_OTHER_TEXTS = ("readme", "license", "licence", "classes", "class_names", "labels", "labelmap", "requirements", "notes")
"""Names, without extension, of text files that aren't point clouds."""


@dataclass(frozen=True, eq=False)
class PointSplit:
    """Split of point cloud files. `features` are the inputs of a model in addition to the positions of points.

    `is_drawn` is True if the folder has no such split, so that its files are sampled from the training files.
    """

    holds_images: ClassVar[bool] = False
    files: Sequence[str]
    features: tuple[str, ...] = ()
    is_drawn: bool = False


def detect(tree: Tree) -> list[Detection]:
    """Return a detection with all point clouds in a folder, or [] if there are none.

    Its evidence comes from the fields of some files. Files with an ambiguous extension, such as .txt, only count if
    they contain labels. If the folder also contains images, the columns of such files must also have names.
    """
    unambiguous, folders, has_images = _find_clouds(tree)
    sampled_fields = {name: _try_read_fields(tree.path(name)) for name in _select_evenly(unambiguous)}
    labeled = [name for name, fields in sampled_fields.items() if fields is not None and fields.has_labels]
    ambiguous_fields = {name: _try_read_fields(tree.path(name)) for name in _sample_ambiguous(tree, folders)}
    ambiguous_labeled = [name for name, fields in ambiguous_fields.items() if fields is not None and fields.has_labels]
    with_column_names = [name for name in ambiguous_labeled if not _has_guessed_columns(tree.path(name))]
    if has_images:
        ambiguous_labeled = with_column_names
    if not unambiguous and not ambiguous_labeled:
        return []
    accepted_extensions = {suffix(name) for name in ambiguous_labeled}
    names = list(unambiguous)
    if accepted_extensions:
        names += [name for folder in folders for name in _list_ambiguous_files(tree, folder, accepted_extensions)]
    types = sorted({suffix(name)[1:].upper() for name in names})
    evidence = [f"{counted(len(names), 'file')} of points ({', '.join(types)})"]
    objections = []
    confidence = Confidence.LIKELY
    if labeled or ambiguous_labeled:
        evidence.append("labels of points")
        if with_column_names or not all(_has_guessed_columns(tree.path(name)) for name in labeled):
            confidence = Confidence.CERTAIN
        elif not labeled:
            confidence = Confidence.WEAK
            objections.append("columns without names")
    elif has_images:
        confidence = Confidence.WEAK
    return [Detection(("points",), confidence, tuple(evidence), tuple(objections), source=tuple(sorted(names)))]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the labeled clouds of `detection` by split, with the features that all of them have, and their classes.

    Unusable files are reported as problems in the result. `kind`, the kind of annotations, is always "points".
    """
    problems: list[Problem] = []
    files = _select_usable(tree, detection.source, problems)
    if not files:
        return Content((), {}, problems)
    splits = _divide_into_splits(tree, list(files), problems)
    # `_select_usable` also returns unreadable clouds, without fields, but at least one with fields.
    readable = [fields for fields in files.values() if fields is not None]
    features = tuple(name for name in readable[0].features if all(name in fields.features for fields in readable))
    used = [path for paths in splits.values() for path in paths]
    _report_columns(used, problems)
    _report_objects(used, problems)
    mapping = learn_classes(tree.root, used, _count_labels(used))
    point_splits = {split: PointSplit(paths, features) for split, paths in splits.items()}
    return Content(mapping.classes, point_splits, [*problems, *mapping.problems], mapping.code)


def read_heads(files: Sequence[str]) -> Iterator[Head | None]:
    """Yield the header of each file, or None if it can't be read."""
    for path in files:
        try:
            yield read_head(path)
        except Exception:  # a reader may raise nearly anything; reading the file reports why
            yield None


def _find_clouds(tree: Tree) -> tuple[list[str], list[str], bool]:
    """List possible point clouds in a folder.

    Returns the files with an extension that only clouds use, the folders that have files with an ambiguous extension,
    and True if there are images.
    """
    unambiguous: list[str] = []
    folders: list[str] = []
    has_images = False
    for folder in tree.walk():
        if os.path.basename(folder) == rooms.ANNOTATIONS:  # objects of a room, which are read with the room's file
            continue
        has_images = has_images or tree.has(IMAGE_ENDINGS, folder)
        unambiguous += [os.path.join(folder, name) for name in tree.files(folder, sorted(EXTENSIONS))]
        if tree.has(AMBIGUOUS, folder):
            folders.append(folder)
    return unambiguous, folders, has_images


def _list_ambiguous_files(tree: Tree, folder: str, extensions: Iterable[str]) -> list[str]:
    """Return the files in a folder that may be point clouds or other text files, by one of the `extensions`.

    Usual names of other texts, such as readme.txt, are left out.
    """
    names = tree.files(folder, sorted(extensions))
    return [os.path.join(folder, name) for name in names if os.path.splitext(name)[0].lower() not in _OTHER_TEXTS]


def _sample_ambiguous(tree: Tree, folders: Sequence[str]) -> list[str]:
    """Return up to `_SAMPLED` files with an ambiguous extension, taken from as many of the `folders` as possible."""
    sampled_folders = [folders[index] for index in spread_evenly(len(folders), _SAMPLED)]
    files_per_folder = max(1, _SAMPLED // max(len(sampled_folders), 1))
    sampled_files: list[str] = []
    for folder in sampled_folders:
        names = _list_ambiguous_files(tree, folder, AMBIGUOUS)
        sampled_files += [names[index] for index in spread_evenly(len(names), files_per_folder)]
    return sampled_files


def _select_evenly(names: Sequence[str]) -> list[str]:
    """Return up to `_SAMPLED` of the file names, evenly spaced."""
    return [names[index] for index in spread_evenly(len(names), _SAMPLED)]


def _try_read_fields(path: str) -> Fields | None:
    """Return the fields of the points in a file, or None if it can't be read as a point cloud."""
    try:
        return read_fields(path)
    except Exception:  # a reader may raise nearly anything for a broken file
        return None


def _has_guessed_columns(path: str) -> bool:
    """Return True for a table if both its labels and its other columns are recognized only by their values.

    If the labels are in a separate file, the table certainly contains points.
    """
    if suffix(path) not in TABLE_EXTENSIONS or rooms.is_room(path):
        return False
    table = read_table(path)
    return table.is_guessed and table.fields.has_labels


def _select_usable(tree: Tree, names: Iterable[str], problems: list[Problem]) -> dict[str, Fields | None]:
    """Return the labeled clouds with their fields, and report the other files in `problems`.

    The fields are None for an unreadable cloud. The result is empty if no labeled cloud can be read.
    """
    files = {tree.path(name): _try_read_fields(tree.path(name)) for name in names}
    unlabeled = [path for path, fields in files.items() if fields is not None and not fields.has_labels]
    # An unreadable file with an unambiguous extension stays a cloud, which the inspection reports.
    no_clouds = [path for path, fields in files.items() if fields is None and suffix(path) in AMBIGUOUS]
    usable = {path: fields for path, fields in files.items() if path not in {*unlabeled, *no_clouds}}
    if not any(usable.values()):
        message = "The points of the clouds have no labels." if unlabeled else "None of the point clouds can be read."
        problems.append(dataset_error(message, LAYOUT))
        return {}
    if unlabeled:
        message = f"{_format_count(unlabeled, files)} without labels ({first_names(unlabeled)}) and not used."
        problems.append(dataset_warning(message, "Add labels to them, or remove them."))
    if no_clouds:
        message = f"{_format_count(no_clouds, files)} no point clouds ({first_names(no_clouds)}) and not used."
        problems.append(
            dataset_warning(message, "Remove them, or write a point per line: x, y, z, and the label last.")
        )
    return usable


def _format_count(chosen: Sequence[str], files: Mapping[str, object]) -> str:
    """Format the beginning of a sentence about the files `chosen` among `files`, e.g. "2 of 10 files are"."""
    return f"{len(chosen):,} of {len(files):,} files {'is' if len(chosen) == 1 else 'are'}"


def _divide_into_splits(tree: Tree, files: Sequence[str], problems: list[Problem]) -> dict[str, list[str]]:
    """Divide files into splits by the names of their folders, or by the usual sequences of SemanticKITTI.

    Returns the files of each split, or all files under "" if there are no splits. Files outside the folders of the
    splits become the training split if no folder is named like one. Otherwise, they are reported in `problems` and
    left out.
    """
    splits: dict[str, list[str]] = {}
    for path in files:
        folders = tree.within(path).split(os.sep)[:-1]
        split = next(filter(None, map(split_named, folders)), "")
        splits.setdefault(split, []).append(path)
    without_split = splits.get("", [])
    if without_split and set(splits) == {""}:
        train = [path for path in without_split if find_sequence(path) not in VAL_SEQUENCES]
        val = [path for path in without_split if find_sequence(path) in VAL_SEQUENCES]
        is_kitti = all(map(find_sequence, without_split)) and train and val
        return {"train": train, "val": val} if is_kitti else splits
    if without_split and "train" not in splits:
        splits["train"] = splits.pop("")
    elif without_split:
        clouds = "1 cloud is" if len(without_split) == 1 else f"{len(without_split):,} clouds are"
        message = f"{clouds} in no folder of a split ({first_names(without_split)}) and not used."
        problems.append(dataset_warning(message, "Move them to the train, val or test folder."))
        del splits[""]
    return splits


def _count_labels(files: Sequence[str]) -> Counter[int]:
    """Count the points with each label in a sample of the files."""
    counts: Counter[int] = Counter()
    for index in spread_evenly(len(files), READ_FOR_LABELS):
        try:
            labels, points = count_labels(files[index])
        except Exception:
            continue  # a reader may raise nearly anything; the inspection of the file reports why
        counts.update(dict(zip(labels.tolist(), points.tolist(), strict=True)))
    return counts


def _report_columns(files: Sequence[str], problems: list[Problem]) -> None:
    """Report in `problems` how tables without column names are interpreted."""
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for path in files:
        if suffix(path) in TABLE_EXTENSIONS and not rooms.is_room(path):
            try:
                table = read_table(path)
            except Exception:
                continue  # a reader may raise nearly anything; the inspection of the file reports why
            if table.is_guessed:
                by_columns.setdefault(tuple(name or "not used" for name in table.columns), []).append(path)
    for columns, paths in by_columns.items():
        tables = "1 table has" if len(paths) == 1 else f"{len(paths):,} tables have"
        message = f"{tables} no names of columns ({first_names(paths)}); they are read as {', '.join(columns)}."
        remedy = "If this is wrong, name the columns in the first line, such as x y z red green blue label."
        problems.append(dataset_warning(message, remedy))


def _report_objects(files: Sequence[str], problems: list[Problem]) -> None:
    """Report in `problems` the files of objects in rooms whose names match no class."""
    unknown = [
        os.path.join(os.path.basename(os.path.dirname(path)), rooms.ANNOTATIONS, name)
        for path in files
        if suffix(path) in TABLE_EXTENSIONS and rooms.is_room(path)
        for name in rooms.find_unknown_objects(path)
    ]
    if unknown:
        objects = "1 object is" if len(unknown) == 1 else f"{len(unknown):,} objects are"
        message = f"{objects} of no class of S3DIS ({listed(map(printable, unknown), most=3)}), so their points are of no class."
        problems.append(
            dataset_warning(message, f"Name the files by one of {', '.join(rooms.CLASSES)}, as in chair_1.txt.")
        )


FORMAT = Format(
    "points",
    "Point clouds",
    ("points",),
    LAYOUT,
    detect,
    read,
    open="engine.tasks.points.samples:open_points",
    inspect="engine.tasks.points.inspection:inspect_points",
    list_annotations="engine.tasks.points.inspection:count_class_points",
    legend=create_point_legend,
)
