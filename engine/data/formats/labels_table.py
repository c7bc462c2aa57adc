"""Images with classes or labels in a table: CSV, TSV, JSON, JSON Lines or a list of paths. Torch-free."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from engine.contract.problems import Problem, errors
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.class_numbers import name_numbers
from engine.data.formats.shared.label_columns import CONFIDENCE, UNCERTAIN, Labeling, parse_split, split_labels
from engine.data.formats.shared.label_detection import (
    ChosenTables,
    TableFile,
    TableGroup,
    detect_in,
    find_flag_cells,
    has_row_per_label,
)
from engine.data.formats.shared.shapes import ShapedImage, convert
from engine.data.formats.shared.table_images import TableImages
from engine.data.formats.shared.tables import NO, YES, find_tables, is_metadata, remove_fraction, warn_about_cut_lines
from engine.data.formats.tree import Tree
from engine.data.splits import (
    count_sentence,
    dataset_error,
    dataset_warning,
    first_names,
    printable,
    warn_about,
)
from engine.system.format import counted

LAYOUT = (
    "Choose a folder of images with a labels.csv (a column of file names, then a column of 0 and 1 per label or "
    "one column that lists labels) or a labels.json ({file: [labels]}), or with one such table each for train and val."
)
MAX_CELLS = 1 << 29
"""Maximum number of images times the number of labels. Training takes 4 bytes for each in every worker."""


def _detect(tree: Tree) -> list[Detection]:
    """Detect tables of labels, except metadata files of Hugging Face, which belong to the format "huggingface"."""
    tables = [(folder, name) for folder, name in find_tables(tree) if not is_metadata(tree, folder, name)]
    return detect_in(tree, tables)


@dataclass
class LabelCollection:
    """Labels of images that were read from tables, and faults in these tables.

    Attributes:
        images: Search for images, and collector of those that were not found.
        labeled: Labels by split and image path.
        names: Labels that are names of columns, in the order of the columns.
        differing: Paths of images whose rows have different labels.
        unlabeled: Names, in the tables, of images without a label.
        skipped: Paths of images without a label.
        contested: Paths of images that the tables name with two different folders.
        problems: Other faults.
    """

    images: TableImages
    labeled: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    differing: dict[str, None] = field(default_factory=dict)
    unlabeled: list[str] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    contested: dict[str, None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def skip(self, file: TableFile, name: str) -> None:
        """Record an image without a label in its row of a table, so that it is reported as left out."""
        self.unlabeled.append(name)
        if path := self.images.find(file, name):
            self.skipped.add(path)

    def add(self, file: TableFile, name: str, split: str, labels: tuple[str, ...], *, repeated: bool) -> None:
        """Add the labels in a row of a table to the image called `name`. An image may have several rows.

        `repeated` is True if other rows of the table have the same image name. An image is recorded for a warning if it
        is missing, if its rows have different labels, or if rows with another name refer to it.
        """
        path = self.images.find(file, name, split)  # records a missing image
        if path is None:
            return
        images = self.labeled.setdefault(split, {})
        earlier_labels = images.get(path)
        # A name with another folder than the image may mean an image that is missing.
        has_other_folder = not path.replace(os.sep, "/").endswith(name)
        if earlier_labels is not None and not repeated and has_other_folder:
            self.contested[path] = None  # two names with different folders, but only one such image
            return
        if earlier_labels is not None and earlier_labels != labels:
            self.differing[path] = None
            labels = tuple(dict.fromkeys([*earlier_labels, *labels]))
        images[path] = labels


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their classes or labels from the tables that the detection has found."""
    chosen: ChosenTables = detection.source
    collected = LabelCollection(TableImages(tree))
    if chosen.unused:
        collected.problems.append(
            dataset_warning(f"These tables of labels are not used: {first_names(chosen.unused)}.")
        )
    collected.problems += [
        dataset_error(f"{printable(tree.within(error.path))} {error.reason}.", error.remedy) for error in chosen.broken
    ]
    collected.problems += warn_about_cut_lines(tree, [file.table for group, _ in chosen.groups for file in group.files])
    for group, labeling in chosen.groups:
        if labeling.flag_columns:  # a yes/no column for each label
            _read_flags(group, labeling, collected)
        else:
            _read_listed(group, labeling, collected, kind)
    has_several_labels = any(labeling.mark or has_row_per_label(group, labeling) for group, labeling in chosen.groups)
    folders = dict.fromkeys([*(file.folder for group, _ in chosen.groups for file in group.files), ""])
    return _make_content(tree, kind, collected, list(folders), has_several_labels=has_several_labels)


def _read_flags(group: TableGroup, labeling: Labeling, collected: LabelCollection) -> None:
    """Read tables that have a yes/no column for each label into `collected`.

    `labeling.flag_columns` are the indices of these columns.
    """
    yes = find_flag_cells(group, labeling.flag_columns, YES)
    row_counts = group.profiles[labeling.file].cells  # by image name
    for file in group.files:
        table = file.table
        names = [(column, table.head[column]) for column in labeling.flag_columns]
        collected.names.update(dict.fromkeys(name for _, name in names))
        split_name = "" if labeling.split is None else table.normalized_names[labeling.split]
        for row in table.rows():
            name = row[labeling.file]
            split = file.split if labeling.split is None else parse_split(split_name, row[labeling.split])
            labels = tuple([label for column, label in names if row[column] in yes])
            collected.add(file, name, split or file.split, labels, repeated=row_counts[name] > 1)
    _report_unknown(group, labeling, collected)


def _report_unknown(group: TableGroup, labeling: Labeling, collected: LabelCollection) -> None:
    """Add warnings about yes/no flags of unknown value to the problems of `collected`.

    These are the value -1 (uncertain), and blank cells if other cells contain words for "no".
    """
    head = group.files[0].table.head
    uncertain: Counter[str] = Counter()  # number of cells with -1 by label
    for column in labeling.flag_columns:
        for cell, count in group.profiles[column].cells.items():
            if remove_fraction(cell) == UNCERTAIN:
                uncertain[head[column]] += count
    if uncertain and not labeling.signed:  # otherwise -1 means no
        columns = first_names(list(uncertain))
        message = f"{counted(uncertain.total(), 'value')} of -1 (uncertain), in the columns {columns}."
        collected.problems.append(dataset_warning(message, "Such values count as 0; write 1 or 0 if you know better."))
    blank = sum(group.profiles[column].blank for column in labeling.flag_columns)
    if blank and find_flag_cells(group, labeling.flag_columns, NO):
        message = f"{counted(blank, 'blank value')} of labels (unknown)."
        collected.problems.append(dataset_warning(message, "Such values count as 0; write 1 or 0 if you know better."))


def _read_listed(group: TableGroup, labeling: Labeling, collected: LabelCollection, kind: str) -> None:
    """Read tables that have one column with the label, or a list of labels, of each image into `collected`.

    Rows with the label -1 are skipped, and for the kind "classes" also rows without a label.
    """
    assert labeling.listed is not None
    profile = group.profiles[labeling.listed]
    label_column = group.files[0].table.head[labeling.listed]
    yes = find_flag_cells(group, [labeling.listed], YES)
    # A flag needs the name of its column as the label.
    is_flag = kind == "labels" and profile.is_flags and not labeling.mark and not group.files[0].table.headless
    are_numbers = profile.is_numbers
    row_counts = group.profiles[labeling.file].cells  # by image name
    labels_of_cell: dict[str, tuple[str, ...]] = {"": ()}
    for cell in profile.cells:
        if is_flag:  # a single label that is present or absent
            labels_of_cell[cell] = (label_column,) if cell in yes else ()
        else:
            labels_of_cell[cell] = split_labels(remove_fraction(cell) if are_numbers else cell, labeling.mark)
    if is_flag:
        collected.names[label_column] = None
    column_names = group.files[0].table.normalized_names
    confidence_column = column_names.index(CONFIDENCE) if CONFIDENCE in column_names else None
    if confidence_column is not None and not group.profiles[confidence_column].is_flags:
        confidence_column = None  # fractions are scores, not flags
    uncertain_cells = {cell for cell in profile.cells if are_numbers and remove_fraction(cell) == UNCERTAIN}
    for file in group.files:
        split_name = "" if labeling.split is None else file.table.normalized_names[labeling.split]
        for row in file.table.rows():
            name, cell = row[labeling.file], row[labeling.listed]
            is_unlabeled = not cell and kind == "classes"  # otherwise, a blank cell means no label
            if cell in uncertain_cells or is_unlabeled:
                collected.skip(file, name)
                continue
            split = file.split if labeling.split is None else parse_split(split_name, row[labeling.split])
            is_absent = confidence_column is not None and remove_fraction(row[confidence_column].lower()) in NO
            labels = () if is_absent else labels_of_cell[cell]
            collected.add(file, name, split or file.split, labels, repeated=row_counts[name] > 1)


def _make_content(
    tree: Tree, kind: str, collected: LabelCollection, folders: Sequence[str], *, has_several_labels: bool = False
) -> Content:
    """Convert the labels in `collected` to "classes" or "labels", with problems about names and images.

    Images that two different names may mean are removed from `collected`.

    The `folders` may contain a file with names for numbered classes. If `has_several_labels` is True, the tables list
    several labels for some images, so that different labels in several rows are no fault.
    """
    problems = collected.problems
    for images in collected.labeled.values():
        for path in collected.contested.keys() & images.keys():
            del images[path]
    used_labels = {
        label for images in collected.labeled.values() for several in set(images.values()) for label in several
    }
    labels = list(dict.fromkeys([*collected.names, *_sort_names(used_labels)]))  # in the order of their numbers
    problems += _report_differences(collected, kind, has_several_labels=has_several_labels)
    used = collected.skipped.union(*collected.labeled.values())
    contested = list(map(os.path.basename, collected.contested))
    problems += collected.images.problems(used, contested, "Such images are not used; add their labels.")
    largest = max(map(len, collected.labeled.values()), default=0)
    if kind == "labels" and largest * len(labels) > MAX_CELLS:
        message = f"The tables in {printable(tree.root)} name {len(labels):,} labels for {largest:,} images; that is too many."
        return Content((), {}, [*problems, dataset_error(message, "Merge labels that few images have.")])
    if not labels or not largest:
        if not errors(problems):
            message = f"The tables in {printable(tree.root)} name no images with labels that are in the folder."
            problems.append(dataset_error(message, LAYOUT))
        return Content((), {}, problems)
    splits = {
        split: [
            ShapedImage(path, tags=labels_of_image)
            for path, labels_of_image in sorted(images.items())
            if kind == "labels" or len(labels_of_image) == 1  # the others have been reported
        ]
        for split, images in collected.labeled.items()
    }
    titles = name_numbers(tree, folders, labels) or {}
    content = convert(kind, splits, problems, labels)
    return replace(content, classes=tuple(printable(titles.get(name, name)) for name in labels))


def _sort_names(names: Iterable[str]) -> list[str]:
    """Return names sorted alphabetically, or by value if all of them are integers of at most 64 bits."""
    names = list(names)
    return sorted(names, key=int) if all(re.fullmatch(r"[+-]?\d{1,18}", name) for name in names) else sorted(names)


def _report_differences(collected: LabelCollection, kind: str, *, has_several_labels: bool) -> Iterator[Problem]:
    """Yield problems with images that have no label, or different labels in several rows.

    For the kind "classes", images without a label are also added to `collected.unlabeled`.
    """
    if kind == "classes":
        labels_by_path = [item for images in collected.labeled.values() for item in images.items()]
        with_several = [path for path, labels in labels_by_path if len(labels) > 1]
        remedy = "Such images are left out; keep one row of each, or choose the task Multi-label classification."
        yield from warn_about(with_several, "image", "with several classes:", remedy)
        collected.unlabeled += [path for path, labels in labels_by_path if not labels]
    elif collected.differing and not has_several_labels:
        differing = list(collected.differing)
        message = (
            f"{count_sentence(differing, 'image')} in several rows with different labels: {first_names(differing)}."
        )
        yield dataset_warning(message, "All of these labels are used; keep one row of each image.")
    remedy = "Such images are left out; fill in their classes (-1 and blank mean none)."
    yield from warn_about(collected.unlabeled, "image", "without a class:", remedy)


FORMAT = Format("table", "Table of labels", ("classes", "labels"), LAYOUT, _detect, read)
