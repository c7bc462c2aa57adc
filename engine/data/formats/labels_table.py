"""Images whose labels, any number for each, stand in tables: CSV, JSON, or ArcGIS's labelled tiles. Torch-free."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.masks import arcgis_classes
from engine.data.decoding.reading import MOST_TABLE_BYTES, Unfit, judged, read_text, read_xml
from engine.data.formats.folders import walk
from engine.data.formats.tree import SPLIT_NAMES
from engine.data.splits import Labels, Recognised, counted, draw_validation, first, shown, spread_evenly, warn, wrong

LAYOUT = (
    "Choose a folder of images with a labels.csv (a column of file names, then a column of 0 and 1 per label or "
    "one column that lists labels) or a labels.json ({file: [labels]}), or with one such table each for train and val."
)
FILE_COLUMNS = (
    "file", "filename", "file_name", "image", "image_name", "imagename", "image_file", "img", "picture", "path", "image_path",
    "filepath", "file_path", "name", "id", "image_id", "image_index",
)  # fmt: skip
LIST_COLUMNS = (
    "labels", "label", "tags", "tag", "classes", "class", "categories", "category", "attributes", "finding_labels",
)  # fmt: skip
SPLIT_COLUMNS = ("split", "set", "subset", "dataset", "partition")
LABELLED = "label"
"""What the name of a table with labels holds that goes before others."""
_YES = frozenset({"1", "1.0", "true", "yes"})
_NO = frozenset({"0", "0.0", "false", "no", ""})
MOST_CELLS = 1 << 29
"""Images times labels: a training takes 4 bytes for each, and every worker has them."""
_SAMPLED = 200
"""Rows by which it is told whether a column holds file names."""
_TABLES = (".csv", ".tsv", ".json")

Truth = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LabelSplit:
    """Images as files. `labels` [N, C] says which classes each of them has."""

    files: Sequence[str]
    labels: Truth
    made: bool = False


class _Row(NamedTuple):
    """One image's row of a table; `split` is "" if the table does not give it."""

    file: str
    labels: tuple[str, ...]
    split: str = ""


class _Table(NamedTuple):
    """`names` are the labels that it has columns for, in their order; none where it lists labels."""

    rows: list[_Row]
    names: tuple[str, ...] = ()


def recognise_labels(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """The images and their tables in `folder`, whose folders are `folders`; None where it is not of that kind."""
    tables, others = _tables(folder, folders)
    if not tables:
        return None
    problems: list[Problem] = []
    if others:
        problems.append(warn(f"These tables of labels are not used: {first(others)}."))
    there = _Images(folder)
    names: dict[str, None] = {}
    labelled: dict[str, dict[str, set[str]]] = {}
    missing: list[str] = []
    for split, parent, table in tables:
        names.update(dict.fromkeys(table.names))
        for row in table.rows:
            path = there.find(row.file, parent)
            if path is None:
                missing.append(row.file)
                continue
            labelled.setdefault(row.split or split, {}).setdefault(path, set()).update(row.labels)
    names.update(dict.fromkeys(sorted({label for of in labelled.values() for has in of.values() for label in has})))
    problems += _without_counterpart(missing, sorted(there.all - {path for of in labelled.values() for path in of}))
    classes = tuple(names)
    largest = max(map(len, labelled.values()), default=0)
    if largest * len(classes) > MOST_CELLS:
        message = (
            f"The tables in {shown(folder)} name {len(classes):,} labels for {largest:,} images, which is too many."
        )
        return Recognised("labels", problems=(wrong(message, "Merge labels that few images have."),))
    if val_fraction and "val" not in labelled and "test" in labelled and "train" in labelled:
        problems.append(
            warn(
                "There are no labels for a validation split; the test images serve as one.",
                "Add one to keep the test images for a final, independent evaluation.",
            )
        )
        labelled["val"] = labelled["test"]
    whole = labelled.get("train") or labelled.get("") or (None if val_fraction else {})
    if whole is None or not classes:
        message = f"The tables in {shown(folder)} name no images with labels for training."
        return Recognised("labels", problems=(*problems, wrong(message, LAYOUT)))
    train = _split(whole, classes)
    val = _split(labelled["val"], classes) if "val" in labelled else None
    if val is None:
        train, val = _divided(train, folder, val_fraction, seed)
    if val_fraction and not len(val.files):
        problems.append(
            wrong("There are too few images to hold any out for validation.", "Add some, or a table for val.")
        )
    problems += _judge(train, val, classes)
    serves_for_both = "test" in labelled and labelled["test"] is labelled.get("val")
    test = val if serves_for_both else _split(labelled["test"], classes) if "test" in labelled else None
    return Recognised("labels", tuple(map(shown, classes)), train, val, tuple(problems), test=test)


def _without_counterpart(missing: Sequence[str], alone: Sequence[str]) -> Iterator[Problem]:
    """What is to be told of images that a table names and that are `missing`, and of those that none names."""
    if missing:
        message = f"{counted(missing, 'image')} that a table names can't be found: {first(missing)}."
        yield warn(message, "They are left out.")
    if alone:
        message = f"{counted(alone, 'image')} that no table names: {first(alone)}."
        yield warn(message, "They are not used; add their labels.")


def _split(labelled: Mapping[str, set[str]], classes: Sequence[str]) -> LabelSplit:
    files = sorted(labelled)
    rows = {name: row for row, name in enumerate(classes)}
    truth = np.zeros((len(files), len(classes)), np.bool_)
    for row, path in enumerate(files):
        truth[row, [rows[label] for label in labelled[path]]] = True
    return LabelSplit(files, truth)


def rarest_labels(whole: LabelSplit) -> Labels:
    """Of each image that of its labels that the fewest have, [N]; one more than there are where it has none."""
    counts = np.append(whole.labels.sum(0), whole.labels.size + 1)
    there = np.column_stack([whole.labels, ~whole.labels.any(1)])
    return np.where(there, counts, counts.max() + 1).argmin(1).astype(np.int64)


def _divided(whole: LabelSplit, folder: str, val_fraction: float, seed: int) -> tuple[LabelSplit, LabelSplit]:
    """Of the images of each rarest label the given share goes to validation, so that rare ones are in both parts."""
    keys = (os.fsencode(os.path.relpath(path, folder)) for path in whole.files)
    chosen = draw_validation(keys, rarest_labels(whole), val_fraction, seed)
    train, val = (np.flatnonzero(which).tolist() for which in (~chosen, chosen))
    return (
        LabelSplit([whole.files[row] for row in train], whole.labels[train]),
        LabelSplit([whole.files[row] for row in val], whole.labels[val], made=True),
    )


def _judge(train: LabelSplit, val: LabelSplit, classes: Sequence[str]) -> Iterator[Problem]:
    for split, what in ((train, "learned"), (val, "validated")):
        never = [name for name, count in zip(classes, split.labels.sum(0), strict=True) if not count]
        title = "training" if split is train else "validation"
        if never and len(split.files):
            said = "is never" if len(never) == 1 else "are never"
            yield warn(
                f"No {title} image has the label {first(never)}, which {said} {what}.", "Add some, or remove it."
            )


# Tables


def _tables(folder: str, folders: Sequence[str]) -> tuple[list[tuple[str, str, _Table]], list[str]]:
    """The tables of labels in the folder or in its splits: each with its split ("" for all), its path and its rows.
    Tables of splits go before one for all; the paths of the tables that are not used come second."""
    splits = {name.lower(): split for split, names in SPLIT_NAMES.items() for name in names}
    parents = [
        ("", folder),
        *((splits[name.lower()], os.path.join(folder, name)) for name in folders if name.lower() in splits),
    ]
    found: dict[str, tuple[str, str, _Table]] = {}
    for split, parent in parents:
        for name in sorted(os.listdir(parent), key=lambda name: (LABELLED not in name.lower(), name)):
            if name.startswith(".") or not name.lower().endswith(_TABLES):
                continue
            path = os.path.join(parent, name)
            table = _read(path)
            if table is not None:
                words = re.split(r"[^a-z]+", name.lower())
                of_split = split or next((splits[word] for word in words if word in splits), "")
                found[path] = (of_split, parent, table)
    if not found:
        return [("", folder, table) for table in _tiles(folder, folders)], []
    named = [path for path, (split, _, table) in found.items() if split or any(row.split for row in table.rows)]
    used = named or list(found)[:1]
    return [found[path] for path in used], [path for path in found if path not in used]


def _read(path: str) -> _Table | None:
    try:
        text = read_text(path, MOST_TABLE_BYTES)
    except OSError:
        return None
    with judged(path):
        if not path.lower().endswith(".json"):
            return _of_lines(text, "\t" if path.lower().endswith(".tsv") else "")
        try:
            content = json.loads(text)
        except ValueError:
            return None
        return _of_json(content)


def _of_lines(text: str, delimiter: str) -> _Table | None:
    """A table with a head, or one of files and labels without."""
    first = text.partition("\n")[0]
    delimiter = delimiter or max(",;\t", key=first.count)
    lines = [line for line in csv.reader(io.StringIO(text), delimiter=delimiter) if any(cell.strip() for cell in line)]
    if not lines:
        return None
    head = [cell.strip() for cell in lines[0]]
    if is_image(head[0]):
        head, lines = ["file", *(["labels"] * (len(head) > 1))], [head, *lines]
    plain = [re.sub(r"[^a-z0-9]+", "_", cell.lower()).strip("_") for cell in head]
    rows = [[cell.strip() for cell in line] + [""] * (len(head) - len(line)) for line in lines[1:]]
    of_files = _file_column(plain, rows)
    if of_files is None:
        return None
    of_split = next((column for column, name in enumerate(plain) if name in SPLIT_COLUMNS and column != of_files), None)
    splits = [_split_named(row[of_split]) if of_split is not None else "" for row in rows]
    others = [column for column in range(len(head)) if column not in (of_files, of_split)]
    listed = next((column for column in others if plain[column] in LIST_COLUMNS), None)
    if listed is None:
        flags = [column for column in others if head[column] and _is_flags(row[column] for row in rows)]
        if flags:
            names = tuple(head[column] for column in flags)
            each = [tuple(head[c] for c in flags if row[c].lower() in _YES) for row in rows]
            return _Table(
                [_Row(row[of_files], has, split) for row, has, split in zip(rows, each, splits, strict=True)], names
            )
        if len(others) != 1:
            return None
        listed = others[0]
    if _is_flags(row[listed] for row in rows):  # a single label, told by 0 and 1
        each = [(head[listed],) * (row[listed].lower() in _YES) for row in rows]
        return _Table(
            [_Row(row[of_files], has, split) for row, has, split in zip(rows, each, splits, strict=True)],
            (head[listed],),
        )
    between = next((mark for mark in ";|," if any(mark in row[listed] for row in rows)), None)
    each = [tuple(part.strip() for part in row[listed].split(between) if part.strip()) for row in rows]
    return _Table([_Row(row[of_files], has, split) for row, has, split in zip(rows, each, splits, strict=True)])


def _file_column(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int | None:
    """The column of the images' files: by what stands in it, else by its name, where endings are left away."""
    sample = [rows[index] for index in spread_evenly(len(rows), _SAMPLED)]
    for column in range(len(names)):
        if sample and all(is_image(row[column]) for row in sample):
            return column
    return next((names.index(name) for name in FILE_COLUMNS if name in names), None)


def _is_flags(cells: Iterable[str]) -> bool:
    there = {cell.lower() for cell in cells}
    return there <= _YES | _NO and bool(there - {""})


def _split_named(cell: str) -> str:
    return next((split for split, names in SPLIT_NAMES.items() if cell.lower() in names), "")


def _of_json(content: Any) -> _Table | None:
    """{file: labels}, or a list of {file, labels}, in which labels are a name, a list of names or {name: whether}."""
    if isinstance(content, dict):
        pairs = [{"file": file, "labels": labels} for file, labels in content.items()]
        if not any(is_image(file) for file in content):
            return None
    elif isinstance(content, list) and all(isinstance(each, dict) for each in content):
        pairs = content
    else:
        return None
    rows = []
    names: dict[str, None] = {}
    for each in pairs:
        by_name = {str(key).lower(): value for key, value in each.items()}
        file = next((by_name[name] for name in FILE_COLUMNS if isinstance(by_name.get(name), str)), None)
        labels = next((by_name[name] for name in LIST_COLUMNS if name in by_name), None)
        split = next((by_name[name] for name in SPLIT_COLUMNS if isinstance(by_name.get(name), str)), "")
        if isinstance(labels, str):
            labels = [labels]
        elif isinstance(labels, dict):
            names.update(dict.fromkeys(map(str, labels)))
            labels = [name for name, whether in labels.items() if whether]
        if file is None or not isinstance(labels, list) or not all(isinstance(label, str | int) for label in labels):
            return None
        rows.append(_Row(file, tuple(map(str, labels)), _split_named(split)))
    return _Table(rows, tuple(names)) if rows else None


def _tiles(folder: str, folders: Sequence[str]) -> Iterator[_Table]:
    """ArcGIS's Labeled_Tiles and MultiLabeled_Tiles: images/N.tif, and the names of its classes as objects in
    labels/N.xml, which are values where the definition beside them has names for these."""
    if not {"images", "labels"} <= set(folders):
        return
    known = arcgis_classes(folder)
    titles = {} if known is None else dict(zip(map(str, known[0]), known[1], strict=True))
    rows = []
    for name in sorted(os.listdir(os.path.join(folder, "labels"))):
        if not name.lower().endswith(".xml"):
            continue
        path = os.path.join(folder, "labels", name)
        try:
            root = read_xml(path)
        except (OSError, Unfit):
            continue
        labels = [(each.text or "").strip() for each in root.iterfind(".//object/name")]
        rows.append(_Row(os.path.splitext(name)[0], tuple(titles.get(label, label) for label in labels if label)))
    if rows:
        yield _Table(rows, tuple(titles.values()))


class _Images:
    """The images in a folder, by the ways in which tables name them."""

    def __init__(self, folder: str) -> None:
        self.all: set[str] = set()
        self._folder = folder
        self._names: dict[str, list[str]] = {}
        for parent, names in walk(folder):
            for name in names:
                if is_image(name):
                    path = os.path.join(parent, name)
                    self.all.add(path)
                    for known in {name, os.path.splitext(name)[0]}:
                        self._names.setdefault(known, []).append(path)

    def find(self, file: str, parent: str) -> str | None:
        """The image that `file` in a table that lies in `parent` means: by its path from there or from the folder,
        else by its name, with or without its ending, where there is one of that name below `parent`, or one in
        all."""
        file = file.replace("\\", "/")
        for root in (parent, self._folder):
            path = os.path.normpath(os.path.join(root, file))
            if path in self.all:
                return path
        named = self._names.get(os.path.basename(file), [])
        near = [path for path in named if path.startswith(os.path.join(parent, ""))]
        return next((found[0] for found in (near, named) if len(found) == 1), None)
