"""Datasets with moved, renamed or deleted files. They must be read correctly, or be rejected.

Each function that changes a dataset folder gets a random number `draw`, which determines the change.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.dataset_formats import WRITERS, Writer
from tests.support.dataset_formats.annotations import list_true_annotations, read_annotations, recognize_folder
from tests.support.dataset_formats.truth import TRUTH

Change = Callable[[Path, int], None]


def move_down(folder: Path, draw: int) -> None:
    """Move the dataset into a subfolder whose name, possibly a misleading one, depends on `draw`."""
    inner = folder / ("export", "dataset", "train", "images")[draw % 4]
    paths = list(folder.iterdir())
    if inner in paths:
        return
    inner.mkdir()
    for path in paths:
        shutil.move(path, inner / path.name)


def rename_splits(folder: Path, draw: int) -> None:
    """Rename the folders "train" and "val" to other names, which depend on `draw`."""
    names = {"train": ("training", "Train", "part1")[draw % 3], "val": ("valid", "validation", "part2")[draw % 3]}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and path.name in names:
            path.rename(path.with_name(names[path.name]))


def drop_a_file(folder: Path, draw: int) -> None:
    """Delete one file, which the random number `draw` selects."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if files:
        files[draw % len(files)].unlink()


def drop_a_folder(folder: Path, draw: int) -> None:
    """Delete one subfolder, which the random number `draw` selects."""
    folders = sorted(path for path in folder.rglob("*") if path.is_dir())
    if folders:
        shutil.rmtree(folders[draw % len(folders)])


def cut_a_file_short(folder: Path, draw: int) -> None:
    """Remove the second half of one text file, which the random number `draw` selects."""
    files = sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in (".txt", ".json", ".csv", ".xml", ".yaml")
    )
    if files:
        chosen = files[draw % len(files)]
        chosen.write_bytes(chosen.read_bytes()[: chosen.stat().st_size // 2])


def add_clutter(folder: Path, draw: int) -> None:
    """Add unrelated files, as they are common in dataset folders. `draw` selects one of the names."""
    (folder / "README.md").write_text("# Data\n")
    (folder / ("notes.txt", "thumbs.db", "log.csv")[draw % 3]).write_text("a,b\n1,2\n")
    (folder / ".cache").mkdir(exist_ok=True)


LOSSES = (drop_a_file, drop_a_folder, cut_a_file_short)
"""Changes that may lose objects or class names without an error, e.g. if a truncated text file ends at a line break."""
CHANGES: tuple[Change, ...] = (move_down, rename_splits, drop_a_file, drop_a_folder, cut_a_file_short, add_clutter)


def is_part(annotation: Any, truth: Any) -> bool:
    """Return True if all boxes of an annotation are in the ground truth. A number may replace a lost class name."""
    if not isinstance(annotation, list) or not all(isinstance(each, tuple) for each in annotation):
        return False
    names = {tuple(edges): name for name, *edges in truth}
    return all(
        tuple(edges) in names and (name == names[tuple(edges)] or re.fullmatch(r"(class )?\d+", name))
        for name, *edges in annotation
    )


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_folder_is_read_as_the_truth_or_refused(writer: Writer, data: st.DataObject) -> None:
    variant = data.draw(st.sampled_from(writer.variants))
    changes = data.draw(st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 1000)), min_size=1, max_size=3))
    with TemporaryDirectory() as name:
        folder = Path(name, "data")
        folder.mkdir()
        writer.write(TRUTH, folder, variant)
        for change, draw in changes:
            change(folder, draw)
        found = recognize_folder(folder)
        if found is None:
            return
        truth = list_true_annotations(TRUTH, found.kind, writer.expect)
        for image, annotation in read_annotations(found, folder).items():
            if annotation != truth[image]:
                assert any(change in LOSSES for change, _ in changes), (found.format, changes)
                assert is_part(annotation, truth[image]), (found.format, changes)
