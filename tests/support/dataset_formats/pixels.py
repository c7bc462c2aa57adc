"""Builders of masks for the writers of dataset formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from tests.support.dataset_formats.truth import CLASSES, TrueImage


def save_mask(path: Path, values: npt.NDArray[np.integer]) -> Path:
    """Write values [h, w], or colors [h, w, 3], to a NumPy file if the suffix is .npy, otherwise to an image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".gif":  # Pillow would renumber the levels of a gray image
        image = Image.fromarray(values, "P")
        image.putpalette(list(range(256)) * 3)
        image.save(path, optimize=False)
    else:
        Image.fromarray(values).save(path)
    return path


def draw_object_numbers(image: TrueImage) -> npt.NDArray[np.uint8]:
    """Return a mask of the objects: 0 for the background, 1 for the first object, 2 for the second, and so on."""
    values = np.zeros((image.height, image.width), np.uint8)
    for number, each in enumerate(image.objects, 1):
        left, top, right, bottom = each.box
        values[top:bottom, left:right] = number
    return values


def draw_numbered_labels(image: TrueImage, labels: dict[str, int], factor: int, first: int) -> npt.NDArray[np.uint16]:
    """Return a mask with a value for each object: `label * factor + number`.

    `labels` maps a class to its label. The objects of each label are numbered from `first`.
    """
    values = np.zeros((image.height, image.width), np.uint16)
    counts = dict.fromkeys(CLASSES, first)
    for each in image.objects:
        left, top, right, bottom = each.box
        values[top:bottom, left:right] = labels[each.name] * factor + counts[each.name]
        counts[each.name] += 1
    return values


def draw_labels(image: TrueImage, background: int, labels: dict[str, int]) -> npt.NDArray[np.uint8]:
    """Return the mask of an image. `labels` gives the value of each class, and `background` that of other pixels."""
    table = np.array([background, *(labels[name] for name in CLASSES)], np.uint8)
    return table[image.draw_mask()]
