"""Comparison of a folder that a writer made with the truth."""

from __future__ import annotations

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
    """Return the annotations of each image of the truth, by split; `written` is the kind that was written."""
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


def rows_of(content: Content, kind: str) -> dict[str, Rows]:
    """Return the annotations of each image by its name without ending, by split."""
    if kind not in ("boxes", "instances"):
        return {split: _tags_in(content, images, kind) for split, images in content.splits.items()}
    found: Mapping[str, Rows] = boxes_in(content) if kind == "boxes" else instances_in(content)
    return {split: {name: sorted(map(_floats, row)) for name, row in rows.items()} for split, rows in found.items()}


def _floats(row: tuple[str, tuple[float, ...]]) -> tuple[str, tuple[float, ...]]:
    return row[0], tuple(map(float, row[1]))


def _tags_in(content: Content, images: Any, kind: str) -> Rows:
    if kind == "classes":
        pairs = zip(images.files, images.labels.tolist(), strict=True)
        return {Path(path).stem: [content.classes[label]] for path, label in pairs}
    return {
        Path(path).stem: [name for name, is_set in zip(content.classes, row, strict=True) if is_set]
        for path, row in zip(images.files, images.labels.tolist(), strict=True)
    }
