"""Comparison of a folder that a writer made with the truth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.data.formats.format import Content, Format
from engine.data.formats.registry import recognise
from engine.data.formats.tree import Tree
from tests.support.dataset_formats.truth import CLASSES, TRUTH, TrueImage
from tests.support.read_formats import boxes_in, instances_in

Rows = dict[str, list[Any]]


def check_round_trip(form: Format, writer: ModuleType, variant: str, folder: Path) -> None:
    """Write a variant, and check that it is read without problems and as the truth has it, in every kind found."""
    writer.write(TRUTH, folder, variant)
    tree = Tree(str(folder))
    (detection,) = form.detect(tree)
    recognised = recognise(str(folder), val_fraction=0.25, seed=0, kinds=(detection.kinds[0],))
    assert (recognised.format, recognised.certain) == (form.id, True)
    first = "boxes" if form.kinds == ("boxes",) else "instances"
    assert detection.kinds[0] == getattr(writer, "KINDS", {}).get(variant, first)
    for kind in detection.kinds:
        content = form.read(tree, detection, kind)
        assert content.classes == CLASSES
        assert content.problems == []
        truth = true_rows(detection.kinds[0], kind, has_splits=variant not in writer.WITHOUT_SPLITS)
        assert rows_of(content, kind) == truth


def true_rows(written: str, kind: str, *, has_splits: bool) -> dict[str, Rows]:
    """Return what is in each image of the truth, by split; `written` is the kind that was written."""
    rows: dict[str, Rows] = {}
    for image in TRUTH.images:
        rows.setdefault(image.split if has_splits else "", {})[image.name] = _true_row(image, written, kind)
    return rows


def _true_row(image: TrueImage, written: str, kind: str) -> list[Any]:
    if "classes" in (written, kind):
        return [image.tags[0]]
    if kind == "labels":
        return sorted(image.tags)
    return sorted((each.name, tuple(map(float, each.box))) for each in image.objects)


def rows_of(content: Content, kind: str, *, named: bool = True) -> dict[str, Rows]:
    """Return what is in each image, by split; `named`: by its name in the truth, however it was renamed."""
    found: Mapping[str, Rows]
    if kind in ("boxes", "instances"):
        found = boxes_in(content) if kind == "boxes" else instances_in(content)
        found = {
            split: {name: sorted(map(_floats, row)) for name, row in rows.items()} for split, rows in found.items()
        }
    else:
        found = {split: _tags_in(content, part, kind) for split, part in content.splits.items()}
    if not named:
        return dict(found)
    return {split: {_name(name): row for name, row in rows.items()} for split, rows in found.items()}


def _floats(row: tuple[str, tuple[float, ...]]) -> tuple[str, tuple[float, ...]]:
    return row[0], tuple(map(float, row[1]))


def _name(path: str) -> str:
    """Return the name in the truth of an image that may have been renamed."""
    return re.search(r"img_\d", path)[0]  # type: ignore[index]


def _tags_in(content: Content, part: Any, kind: str) -> Rows:
    if kind == "classes":
        pairs = zip(part.files, part.labels.tolist(), strict=True)
        return {Path(path).stem: [content.classes[label]] for path, label in pairs}
    return {
        Path(path).stem: [name for name, is_set in zip(content.classes, row, strict=True) if is_set]
        for path, row in zip(part.files, part.labels.tolist(), strict=True)
    }
