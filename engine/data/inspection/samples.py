"""List samples of a dataset with their annotations, as training uses them. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine.contract.dataset import Sample, SampleBox
from engine.data.decoding.mask_values import NO_CLASS, class_plane, read_values
from engine.data.decoding.reading import describe_failure, read_image
from engine.data.formats.format import resolve
from engine.data.formats.registry import FORMATS
from engine.data.formats.shared.boxes import BoxSplit, read_upright_size
from engine.data.formats.shared.instances import InstanceSplit
from engine.data.formats.shared.splitting import count_samples
from engine.data.formats.shared.unpacking import name_within
from engine.data.splits import FileSplit, IdxSplit, LabelSplit, MaskSplit, RecognizedDataset, printable, spread_evenly

ListAnnotations = Callable[[RecognizedDataset, Any, int], dict[str, Any]]
"""Function that lists the annotations of a sample, given the dataset, the split and the index of the sample.

It returns the attributes of `Sample` that describe the annotations.
"""


def list_samples(found: RecognizedDataset, folder: str, limit: int) -> list[Sample]:
    """Return at most `limit` samples with their annotations, evenly spaced over all splits and in their order.

    `folder` is the folder of the dataset. Returns [] if the annotations can't be listed.
    """
    of_format = resolve(FORMATS[found.format_id].list_annotations)
    list_annotations = of_format or ANNOTATIONS.get(type(found.train))
    if list_annotations is None:
        return []
    rows = [(name, split, index) for name, split in found.splits.items() for index in range(count_samples(split))]
    samples = []
    for split_name, split, index in (rows[row] for row in spread_evenly(len(rows), limit)):
        try:
            annotations = list_annotations(found, split, index)
        except Exception as error:  # a broken file may raise nearly anything in a decoder
            annotations = {"problem": describe_failure(error)}
        samples.append(Sample(_format_name(split, index, folder), split_name, **annotations))
    return samples


def _format_name(split: Any, index: int, folder: str) -> str:
    """Return the path of a sample relative to the dataset folder, followed by its row if its file has many samples."""
    if isinstance(split, IdxSplit):
        row = index if split.rows is None else int(split.rows[index])
        return f"{printable(os.path.relpath(split.images, folder))}:{row}"
    return name_within(split.files[index], folder)


def _list_class(found: RecognizedDataset, split: FileSplit | IdxSplit, index: int) -> dict[str, Any]:
    return {"label": found.classes[int(split.labels[index])]}


def _list_labels(found: RecognizedDataset, split: LabelSplit, index: int) -> dict[str, Any]:
    return {"labels": tuple(found.classes[number] for number in np.flatnonzero(split.labels[index]).tolist())}


def _list_boxes(found: RecognizedDataset, split: BoxSplit, index: int) -> dict[str, Any]:
    rows = split.rows_of(index)
    boxes = zip(split.boxes[rows].tolist(), split.labels[rows].tolist(), split.ignored[rows].tolist(), strict=True)
    return {"boxes": tuple(_make_box(found.classes[label], edges) for edges, label, ignored in boxes if not ignored)}


def _list_instances(found: RecognizedDataset, split: InstanceSplit, index: int) -> dict[str, Any]:
    """Return the boxes of a sample's objects as "boxes", and their pixel counts by class name as "pixels".

    Ignored objects are left out. If the image can't be read, only "problem" is returned, which gives the reason.
    """
    size = read_upright_size(split.files[index])
    if size is None:
        return {"problem": "the image can't be read"}
    boxes, pixels = [], dict.fromkeys(found.classes, 0)
    for each in split.sources[index].instances(*size):
        if not each.ignored:
            height, width = each.window.pixels.shape
            left, top = each.window.left, each.window.top
            boxes.append(_make_box(found.classes[each.label], (left, top, left + width, top + height)))
            pixels[found.classes[each.label]] += each.area
    return {"boxes": tuple(boxes), "pixels": pixels}


def _make_box(label: str, edges: Sequence[float]) -> SampleBox:
    """Return a box with its left, top, right and bottom edge in pixels, rounded for display."""
    return SampleBox(label, *(round(float(edge), 3) for edge in edges))


def _count_mask_pixels(found: RecognizedDataset, split: MaskSplit, index: int) -> dict[str, Any]:
    """Return {"pixels": counts}, with the number of a mask's pixels of each class by class name.

    Raises Unfit, and any exception of the decoder.
    """
    assert found.code is not None
    plane = class_plane(read_values(read_image(split.masks[index])), found.code)
    return {"pixels": count_by_class(found.classes, plane)}


def count_by_class(classes: Sequence[str], numbers: np.ndarray) -> dict[str, int]:
    """Return the number of occurrences of each class in `numbers`, an array of class numbers.

    The result maps class names to counts. It maps "" to the number of occurrences of NO_CLASS, if there are any.
    """
    counts = np.bincount(numbers.ravel(), minlength=NO_CLASS + 1).tolist()
    # Beyond the classes, only NO_CLASS has a meaning.
    return dict(zip(classes, counts, strict=False)) | ({"": counts[NO_CLASS]} if counts[NO_CLASS] else {})


ANNOTATIONS: Mapping[type, ListAnnotations] = {
    FileSplit: _list_class,
    IdxSplit: _list_class,
    LabelSplit: _list_labels,
    BoxSplit: _list_boxes,
    InstanceSplit: _list_instances,
    MaskSplit: _count_mask_pixels,
}
"""Functions that list the annotations of a sample, keyed by the type of its split."""
