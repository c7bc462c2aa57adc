"""Two ways to obtain the annotation of each image: from Footplate's reader, and from the ground truth."""

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


def recognize_folder(folder: Path, kind: str | None = None) -> RecognizedDataset | None:
    """Recognize the dataset in a folder. Return None if it is ambiguous or has errors.

    `kind` is the kind of annotations, or None to detect it.
    """
    kind = kind or detect_kind(str(folder))
    if kind is None:
        return None
    found = recognize(str(folder), val_fraction=0.3, seed=0, kinds=(kind,))
    return None if errors(found.problems) else found


def read_annotations(found: RecognizedDataset, folder: Path) -> dict[str, Annotation]:
    """Return the annotation that Footplate reads for each image. Keys are the images' names in the ground truth."""
    samples = list_samples(found, str(folder), 1000)
    return {_extract_true_name(sample.file): _annotation(sample) for sample in samples if not sample.problem}


def _extract_true_name(file: str) -> str:
    """Extract the image's ground-truth name from a file name, which may have an additional prefix and suffix."""
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


def read_splits(found: RecognizedDataset, folder: Path) -> dict[str, str]:
    """Return the split of each image. Keys are the images' names in the ground truth."""
    return {_extract_true_name(sample.file): sample.split for sample in list_samples(found, str(folder), 1000)}


def measure_areas(found: RecognizedDataset, folder: Path) -> dict[str, dict[str, int]]:
    """Return the number of object pixels that Footplate reads, for each image and class."""
    return {
        _extract_true_name(sample.file): {name: count for name, count in (sample.pixels or {}).items() if count}
        for sample in list_samples(found, str(folder), 1000)
    }


def measure_true_areas(truth: Truth) -> dict[str, dict[str, int]]:
    """Return the number of object pixels in the ground truth, for each image and class."""
    areas: dict[str, dict[str, int]] = {}
    for image in truth.images:
        found = areas.setdefault(image.name, {})
        for each in image.objects:
            left, top, right, bottom = each.box
            found[each.name] = found.get(each.name, 0) + (right - left) * (bottom - top)
    return areas


def list_true_annotations(
    truth: Truth, kind: str, expect: Callable[[TrueImage, str], Annotation] | None = None
) -> dict[str, Annotation]:
    """Return the annotation to expect for each image in the ground truth, by the image's name.

    `expect` is the function of the format's `Writer`, or None if the format can represent the ground truth exactly.
    """
    return {image.name: (expect or _true_annotation)(image, kind) for image in truth.images}


def count_values(values: npt.NDArray[np.integer]) -> list[int]:
    """Return how many pixels of a mask have each value, as sorted counts without the values."""
    return sorted(np.unique(values, return_counts=True)[1].tolist())


def rename_boxes(image: TrueImage, names: Mapping[str, str]) -> list[tuple[str, float, float, float, float]]:
    """Return the boxes of an image as sorted tuples (class, left, top, right, bottom).

    `names` maps ground-truth classes to those of the dataset.
    """
    return sorted((names[each.name], *map(float, each.box)) for each in image.objects)


def _true_annotation(image: TrueImage, kind: str) -> Annotation:
    if kind == "classes":
        return image.tags[0]
    if kind == "labels":
        return frozenset(image.tags)
    if kind == "masks":
        return count_values(image.draw_mask())
    return rename_boxes(image, {name: name for name in CLASSES})
