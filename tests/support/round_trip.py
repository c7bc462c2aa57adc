"""Conversion of annotations to plain rows for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.data.formats.format import Content
from tests.support.read_formats import list_boxes_by_split, list_instances_by_split

Rows = dict[str, list[Any]]


def list_rows(content: Content, kind: str) -> dict[str, Rows]:
    """Return the annotations of `kind`, by split and by the stem of the image's name.

    They are (class, edges in pixels) for boxes and instances, and class names otherwise.
    """
    if kind not in ("boxes", "instances"):
        return {split: _tags_in(content, images, kind) for split, images in content.splits.items()}
    found: Mapping[str, Rows] = list_boxes_by_split(content) if kind == "boxes" else list_instances_by_split(content)
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
