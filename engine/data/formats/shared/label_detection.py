"""Detect tables of image labels, and the columns that contain the labels. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.data.decoding.image_files import EXTENSIONS
from engine.data.formats.format import Confidence, Detection
from engine.data.formats.shared.label_columns import (
    LABEL_COLUMNS,
    LIST_NAMES,
    OTHER_COLUMNS,
    Labeling,
    Profile,
    find_file_column,
    find_label_columns,
    has_only_measures,
    may_be_measured,
    parse_split,
    profile_columns,
)
from engine.data.formats.shared.table_images import TableFile, TableImages
from engine.data.formats.shared.tables import (
    FILE_COLUMNS,
    INDEX_COLUMNS,
    YES,
    Table,
    format_table_path,
    normalize_name,
    open_table,
    remove_fraction,
)
from engine.data.formats.tree import Tree, split_in, split_named, split_of_table
from engine.data.splits import printable
from engine.system.format import counted
from engine.system.regular_files import UnusableFile

LABELED = "label"
"""Word in the names of table files that are preferred as tables of labels."""
_SPLIT_WORDS = frozenset({"partition", "partitions", "split", "splits", "fold", "folds"})
_MEASURES_REMEDY = (
    "Footplate learns classes, not measured values. Write classes, or 0 and 1 for each label, into the table."
)
_UNNAMED_PER_NAMED = 3
"""Maximum ratio of the images in the folder to the images in a table.

Above it, the table may be incomplete.
"""
_SEVERAL_LABELS = 0.2
"""Maximum fraction of images with different labels in several rows.

Above it, each row is assumed to add a label to its image.
"""


class _FoundTable(NamedTuple):
    """Table, and the fraction of its images that exist, in a sample of those named in the table."""

    file: TableFile
    found_fraction: float


@dataclass
class TableGroup:
    """Tables with the same columns.

    Attributes:
        files: The tables.
        profiles: Statistics about each column over all tables.
        labelings: Possible ways to read labels, most likely first.
        found_fraction: Fraction of images that exist in the folder, in a sample of those named in the tables.
    """

    files: list[TableFile]
    profiles: list[Profile]
    labelings: list[Labeling]
    found_fraction: float

    @property
    def has_splits(self) -> bool:
        """True if each table belongs to a split, or if a column contains splits."""
        return self.labelings[0].split is not None or all(each.split for each in self.files)


@dataclass(frozen=True)
class ChosenTables:
    """Tables to read, passed on from the detection to the reading.

    Attributes:
        groups: Tables, each group with the way to read labels from it.
        unused: Paths of tables that are not used.
        broken: Errors for tables that can't be read.
    """

    groups: tuple[tuple[TableGroup, Labeling], ...]
    unused: tuple[str, ...] = ()
    broken: tuple[UnusableFile, ...] = ()


def detect_in(tree: Tree, files: Iterable[tuple[str, str]]) -> list[Detection]:
    """Detect tables of labels among `files`, each given by folder and name. The most likely detection comes first.

    If no table is usable, one detection reports broken tables of labels or, without any, tables with only measured
    values, which can't be read.
    """
    by_columns: dict[tuple[str, ...], list[_FoundTable]] = {}  # by the names of the columns
    with_measures: list[str] = []  # descriptions of tables with measured values instead of labels
    images = TableImages(tree)
    for folder, name in files:
        table = open_table(tree.path(folder, name), head=True)
        column = None if table is None else find_file_column(table)
        if table is None or column is None or _lists_splits(table):
            continue
        file = TableFile(folder, split_of_table(folder, name), table)
        found_fraction = images.measure_found_fraction(file, [row[column] for row in table.sample(20) if row[column]])
        profiles = profile_columns(table)
        if found_fraction and find_label_columns(table, profiles):
            by_columns.setdefault(table.normalized_names, []).append(_FoundTable(file, found_fraction))
        elif found_fraction and has_only_measures(table, profiles):
            with_measures.append(format_table_path(table, tree))
    broken: list[UnusableFile] = []
    table_groups = [tables for found in by_columns.values() for tables in _divide_alternatives(found)]
    groups = [group for tables in table_groups if (group := _read_group(tables, broken)) is not None]
    if groups:
        return list(_make_detections(groups, tuple(broken), tree))
    if broken:
        evidence = tuple(f"{printable(tree.within(each.path))} with images and labels" for each in broken[:3])
        chosen = ChosenTables(groups=(), broken=tuple(broken))
        return [Detection(("classes", "labels"), Confidence.LIKELY, evidence, source=chosen)]
    if with_measures:
        evidence = (f"{with_measures[0]} gives images numbers with fractions",)
        return [Detection((), Confidence.WEAK, evidence, remedy=_MEASURES_REMEDY)]
    return []


def _lists_splits(table: Table) -> bool:
    """Return True if a table has no column names, and the name of its file suggests that it lists splits."""
    has_invented_names = table.head[1:] == ("labels",)
    words = normalize_name(os.path.basename(table.path)).split("_")
    return has_invented_names and any(word in _SPLIT_WORDS for word in words)


def _divide_alternatives(tables: list[_FoundTable]) -> list[list[_FoundTable]]:
    """Divide tables with the same columns into groups that can be read together.

    Tables without a split that name the same images are kept apart, since they are alternatives.
    """
    without_split = [each for each in tables if not each.file.split]
    names = [_read_image_names(each.file.table) for each in without_split]
    is_any_repeated = len(set().union(*names)) < sum(map(len, names))
    if not is_any_repeated:
        return [tables]
    with_split = [each for each in tables if each.file.split]
    return [*([with_split] if with_split else []), *([each] for each in without_split)]


def _read_image_names(table: Table) -> set[str]:
    """Return the image names in the first lines of a table, which are the only ones that detection reads."""
    column = find_file_column(table)
    return set() if column is None else {row[column] for row in table.rows()}


def _read_group(tables: Sequence[_FoundTable], broken: list[UnusableFile]) -> TableGroup | None:
    """Read tables with the same columns completely, and return them as a group, or None if they contain no labels.

    Unreadable tables are appended to `broken`.
    """
    readable = []
    profiles: list[Profile] = []
    for file, _ in tables:
        try:
            # Detection has read only the first lines of the table.
            table = open_table(file.table.path) or file.table
            found = profile_columns(table)
        except UnusableFile as error:
            broken.append(error)
            continue
        readable.append(TableFile(file.folder, file.split, table))
        profiles = list(map(_sum_profiles, profiles, found)) if profiles else found
    if not readable:
        return None
    labelings = find_label_columns(readable[0].table, profiles)
    found_fraction = max(each.found_fraction for each in tables)
    return TableGroup(readable, profiles, labelings, found_fraction) if labelings else None


def _sum_profiles(first: Profile, second: Profile) -> Profile:
    """Return the statistics about a column that two tables have in common, over both tables."""
    return Profile(first.cells + second.cells, first.blank + second.blank, first.rows + second.rows)


def _make_detections(groups: Sequence[TableGroup], broken: tuple[UnusableFile, ...], tree: Tree) -> Iterator[Detection]:
    """Yield a detection for each way to read labels from the group of tables that has the most evidence.

    Groups that contain labels of other splits are combined with it. Other groups with as much evidence become
    alternative detections. `broken` are the errors for unreadable tables, which all detections contain.
    """
    # The path makes the order unique.
    ranked = sorted(groups, key=lambda group: (_rank(group), group.files[0].table.path))
    combined = _combine_splits(ranked)
    alternatives = [group for group in ranked if _rank(group) == _rank(ranked[0]) and group not in combined]
    for used_groups in [combined, *([group] for group in alternatives)]:
        first, *others = used_groups
        # Next to tables of splits, tables without a split are not used.
        files = [file for file in first.files if file.split] or first.files
        unused = [file for group in ranked if group not in used_groups for file in group.files]
        unused += [file for file in first.files if file not in files]
        main = replace(first, files=files)
        against_tables = _find_evidence_against(main, others, tree)
        for labeling in main.labelings:
            against = (*against_tables, *_find_evidence_of_measures(main, labeling))
            chosen = ChosenTables(
                ((main, labeling), *((group, group.labelings[0]) for group in others)),
                tuple(file.table.path for file in unused),
                broken,
            )
            yield Detection(
                _find_kinds(chosen),
                _rate_confidence(main, labeling) if not against else Confidence.WEAK,
                tuple(_describe_evidence(tree, group, each) for group, each in chosen.groups),
                against,
                variant=_name_variant(main, labeling, tree, name_table=bool(alternatives)),
                source=chosen,
                obvious=labeling.is_unambiguous and not against,
            )


def _combine_splits(ranked: Sequence[TableGroup]) -> list[TableGroup]:
    """Return the first of the `ranked` groups, and those that continue it with other splits.

    A group with a split that an earlier one contains is left out.
    """
    best = ranked[0]
    combined, splits = [best], _find_splits(best)
    for group in ranked[1:]:
        if best.has_splits and _continues(group, best) and splits.isdisjoint(_find_splits(group)):
            combined.append(group)
            splits |= _find_splits(group)
    return combined


def _name_variant(group: TableGroup, labeling: Labeling, tree: Tree, *, name_table: bool) -> str:
    """Return a name that distinguishes a detection from those of other tables (`name_table`) and other label columns."""
    table = group.files[0].table
    names = [format_table_path(table, tree)] if name_table else []
    if len(group.labelings) > 1 and labeling.listed is not None:
        names.append(printable(table.head[labeling.listed]))
    return "/".join(filter(None, names))


def _rate_confidence(group: TableGroup, labeling: Labeling) -> Confidence:
    """Return the confidence that a group of tables contains labels in the given columns.

    It is WEAK if several columns may contain labels, CERTAIN for columns of flags and for a column whose name suggests
    labels, and otherwise LIKELY.
    """
    if not labeling.is_unambiguous:
        return Confidence.WEAK
    has_flags = labeling.listed is None  # no column that lists labels: one column of 0 and 1 per class instead
    is_certain = has_flags or _has_label_name(group, labeling)
    return Confidence.CERTAIN if is_certain else Confidence.LIKELY


def _continues(group: TableGroup, main: TableGroup) -> bool:
    """Return True if `group` seems to continue the labels in `main`, and not to contain other data about images.

    Its tables must have splits, and its label column must have the same name as that of `main`, no name, or a name that
    suggests labels. The two groups have different columns.
    """
    is_same_column = _find_label_column_name(group) == _find_label_column_name(main)
    return group.has_splits and (is_same_column or _has_label_name(group, group.labelings[0]))


def _find_label_column_name(group: TableGroup) -> str:
    """Return the name of the column with the labels, or "" if they are flags in several columns."""
    column = group.labelings[0].listed
    return "" if column is None else group.files[0].table.normalized_names[column]


def _has_label_name(group: TableGroup, labeling: Labeling) -> bool:
    """Return True if the name of the label column suggests labels, or if its table has no column names."""
    table = group.files[0].table
    return labeling.listed is not None and (table.headless or table.normalized_names[labeling.listed] in LABEL_COLUMNS)


def _find_evidence_against(group: TableGroup, others: Sequence[TableGroup], tree: Tree) -> tuple[str, ...]:
    """Return the evidence that tables are not the labels of the images in the folder.

    Most of their images may be missing from the folder, or many images in the folder may be missing from the tables.
    """
    if group.found_fraction < 0.5:
        return ("most of the images that a table names are not in the folder",)
    named = sum(each.profiles[0].rows for each in (group, *others))  # any column has the number of rows
    # Tables often lack the test images.
    without_test = [folder for folder in tree.walk() if not any(map(_is_test_name, folder.split(os.sep)))]
    present = sum(tree.suffixes(folder)[ending] for folder in without_test for ending in EXTENSIONS)
    if present > _UNNAMED_PER_NAMED * named:
        return (f"only {named:,} of {present:,} images named in {format_table_path(group.files[0].table, tree)}",)
    return ()


def _is_test_name(name: str) -> bool:
    """Return True if the name of a folder denotes test samples."""
    return (split_named(name) or split_in(name)) == "test"


def _find_evidence_of_measures(group: TableGroup, labeling: Labeling) -> Iterator[str]:
    """Yield evidence, as a phrase for the user, that the label column or another column holds measured values."""
    table = group.files[0].table
    columns = [] if labeling.listed is None else [labeling.listed]
    # Next to a column that certainly contains the labels, other columns may hold measured values.
    if labeling.listed is None or not labeling.is_unambiguous:
        other_names = (*OTHER_COLUMNS, *INDEX_COLUMNS, *FILE_COLUMNS)
        columns += [column for column, name in enumerate(table.normalized_names) if name not in other_names]
    for column in dict.fromkeys(columns):
        if column in (labeling.file, labeling.split):
            continue
        if may_be_measured(table.normalized_names[column], group.profiles[column]):
            yield f"numbers in the column {printable(table.head[column])}, which may be measured values rather than classes"


def _rank(group: TableGroup) -> tuple[bool, ...]:
    """Return a key for sorting groups of tables, with the strongest evidence first.

    Each item is True for a weakness of the group, and the first item matters most.
    """
    labeling = group.labelings[0]
    is_unnamed = labeling.listed is not None and not _has_label_name(group, labeling)
    has_word = any(LABELED in os.path.basename(file.table.path).lower() for file in group.files)
    return not labeling.is_unambiguous, is_unnamed, group.found_fraction < 0.5, not group.has_splits, not has_word


def _find_splits(group: TableGroup) -> set[str]:
    """Return the splits that occur in the tables of a group."""
    column = group.labelings[0].split  # of the most likely labeling
    if column is None:
        return {file.split for file in group.files}
    # All tables of a group have the same columns.
    name = group.files[0].table.normalized_names[column]
    return {parse_split(name, cell) for cell in group.profiles[column].cells}


def _describe_evidence(tree: Tree, group: TableGroup, labeling: Labeling) -> str:
    """Describe the tables of a group and their labels, as evidence for a detection."""
    head = group.files[0].table.head
    tables = " and ".join(format_table_path(file.table, tree) for file in group.files[:3])
    if labeling.listed is None:
        return f"{tables} with images and {counted(len(labeling.flag_columns), 'label')}"
    count = len(group.profiles[labeling.listed].cells)
    content = "labels" if labeling.mark else counted(count, "class")
    return f"{tables} with images and {content} in the column {printable(head[labeling.listed])}"


def _find_kinds(chosen: ChosenTables) -> tuple[str, ...]:
    """Return the possible kinds of annotations in the tables, most likely first: "classes" and "labels".

    If an image has several labels, only "labels" is possible.
    """
    counts: set[int] = set()  # of labels per image, in tables with a yes/no column for each label
    for group, labeling in chosen.groups:
        if labeling.mark or has_row_per_label(group, labeling):
            return ("labels",)
        if labeling.flag_columns:
            yes = find_flag_cells(group, labeling.flag_columns, YES)
            rows = (row for file in group.files for row in file.table.rows())
            counts.update(sum(row[column] in yes for column in labeling.flag_columns) for row in rows)
    if max(counts, default=0) > 1:
        return ("labels",)
    # An image may lack all of several possible labels, but not its class.
    return ("labels", "classes") if 0 in counts else ("classes", "labels")


def has_row_per_label(group: TableGroup, labeling: Labeling) -> bool:
    """Return True if some images have several rows, one for each of their labels."""
    listed = labeling.listed
    names = group.profiles[labeling.file].cells
    if listed is None or max(names.values(), default=0) < 2:
        return False
    by_name: dict[str, set[str]] = {}
    for file in group.files:
        for row in file.table.rows():
            if names[row[labeling.file]] > 1:
                by_name.setdefault(row[labeling.file], set()).add(row[listed])
    differing = sum(len(cells) > 1 for cells in by_name.values())
    is_plural = group.files[0].table.normalized_names[listed] in LIST_NAMES
    return differing > _SEVERAL_LABELS * len(names) or (is_plural and differing > 0)


def find_flag_cells(group: TableGroup, columns: Iterable[int], values: frozenset[str]) -> frozenset[str]:
    """Return the distinct texts in yes/no `columns` that are among `values`, in the spelling of the table.

    `values` are the lower-case words for "yes", or those for "no".
    """
    return frozenset(
        cell for column in columns for cell in group.profiles[column].cells if remove_fraction(cell.lower()) in values
    )
