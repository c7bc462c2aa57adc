"""Annotations by image, as Footplate reads them and as the truth has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.contract.dataset import Sample
from engine.contract.problems import errors
from engine.data.formats.registry import detect_kind, recognize
from engine.data.inspection.samples import list_samples
from engine.data.splits import RecognizedDataset
from tests.support.dataset_formats.truth import CLASSES, TrueImage, Truth

Annotation = Any


def recognized(folder: Path, kind: str | None = None) -> RecognizedDataset | None:
    """Return the automatically recognized dataset; None if the folder is refused or ambiguous."""
    kind = kind or detect_kind(str(folder))
    if kind is None:
        return None
    found = recognize(str(folder), val_fraction=0.3, seed=0, kinds=(kind,))
    return None if errors(found.problems) else found


def by_image(found: RecognizedDataset, folder: Path) -> dict[str, Annotation]:
    """Return the annotations of each image that can be used, by its name without folders and ending."""
    samples = list_samples(found, str(folder), 1000)
    return {_true_name(sample.file): _annotation(sample) for sample in samples if not sample.problem}


def _true_name(file: str) -> str:
    """Return the name of an image in the truth for its file, whose name may have words before and behind."""
    found = re.search(r"img_\d+", Path(file).stem)
    return found[0] if found else Path(file).stem


def _annotation(sample: Sample) -> Annotation:
    if sample.label is not None:
        return sample.label
    if sample.labels is not None:
        return frozenset(sample.labels)
    if sample.boxes is not None:
        return sorted((box.label, box.x1, box.y1, box.x2, box.y2) for box in sample.boxes)
    return sorted(filter(None, (sample.pixels or {}).values()))


def split_by_image(found: RecognizedDataset, folder: Path) -> dict[str, str]:
    """Return the split of each image by its name in the truth."""
    return {_true_name(sample.file): sample.split for sample in list_samples(found, str(folder), 1000)}


def area_by_image(found: RecognizedDataset, folder: Path) -> dict[str, dict[str, int]]:
    """Return the number of pixels of the objects of each class, image by image."""
    return {
        _true_name(sample.file): {name: count for name, count in (sample.pixels or {}).items() if count}
        for sample in list_samples(found, str(folder), 1000)
    }


def true_areas(truth: Truth) -> dict[str, dict[str, int]]:
    """Return what `area_by_image` is to return."""
    areas: dict[str, dict[str, int]] = {}
    for image in truth.images:
        found = areas.setdefault(image.name, {})
        for each in image.objects:
            left, top, right, bottom = each.box
            found[each.name] = found.get(each.name, 0) + (right - left) * (bottom - top)
    return areas


def of_truth(
    truth: Truth, kind: str, expect: Callable[[TrueImage, str], Annotation] | None = None
) -> dict[str, Annotation]:
    """Return the expected annotation of each image of the truth, by its name."""
    return {image.name: (expect or _true_annotation)(image, kind) for image in truth.images}


def counts_of_values(values: npt.NDArray[np.integer]) -> list[int]:
    """Return the sorted numbers of pixels of each value of a mask."""
    return sorted(np.unique(values, return_counts=True)[1].tolist())


def boxes_named(image: TrueImage, names: Mapping[str, str]) -> list[tuple[str, float, float, float, float]]:
    """Return the boxes of an image with other names of their classes."""
    return sorted((names[each.name], *map(float, each.box)) for each in image.objects)


def _true_annotation(image: TrueImage, kind: str) -> Annotation:
    if kind == "classes":
        return image.tags[0]
    if kind == "labels":
        return frozenset(image.tags)
    if kind == "masks":
        return counts_of_values(image.mask())
    return boxes_named(image, {name: name for name in CLASSES})
