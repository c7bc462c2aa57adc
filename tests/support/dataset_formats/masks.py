"""Writer of folders with images and masks in all common layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.dataset_formats.annotations import count_values, rename_boxes
from tests.support.dataset_formats.pixels import draw_object_numbers, save_mask
from tests.support.dataset_formats.truth import CLASSES, TrueImage, Truth

_PLACES = {
    "plain": ("images/{name}.jpg", "masks/{name}.png"),
    "splits": ("images/{split}/{name}.png", "masks/{split}/{name}.png"),
    "split_first": ("{split}/images/{name}.png", "{split}/labels/{name}.tif"),
    "nested": ("data/images/{split}/{width}/{name}.png", "data/masks/{split}/{width}/{name}.png"),
    "longer_names": ("imgs/{split}/{name}.png", "annotations/{split}/{name}_segmentation.png"),
    "one_folder": ("{name}.jpg", "{name}_mask.png"),
    "one_folder_per_split": ("{split}/{name}.jpg", "{split}/{name}_mask.png"),
    "patients": ("{width}/{name}.tif", "{width}/{name}_mask.tif"),
    "carvana": ("{split}/{name}.jpg", "{split}_masks/{name}_mask.gif"),
    "camvid": ("{split}/{name}.png", "{split}annot/{name}.png"),
    "cvat_camvid": ("{split}/{name}.png", "{split}annot/{name}.png"),
    "kvasir": ("Kvasir-SEG/images/{name}.jpg", "Kvasir-SEG/masks/{name}.png"),
    "clinic": ("PNG/Original/{name}.png", "PNG/Ground Truth/{name}.png"),
    "drive": ("{splitting}/images/{name}_{splitting}.tif", "{splitting}/1st_manual/{name}_manual1.gif"),
    "isic": (
        "ISIC2018_Task1-2_{Splitting}_Input/{name}.jpg",
        "ISIC2018_Task1_{Splitting}_GroundTruth/{name}_segmentation.png",
    ),
    "sat": ("{split}/{name}_sat.jpg", "{split}/{name}_mask.png"),
    "arrays": ("images/{split}/{name}.png", "masks/{split}/{name}.npy"),
    "roboflow": ("{valid}/{name}_jpg.rf.0a1b.jpg", "{valid}/{name}_jpg.rf.0a1b_mask.png"),
    "flat_masks": ("images/{split}/{name}.png", "masks/{name}.png"),
    "flat_masks_of_splits": ("{split}/{name}.jpg", "masks/{name}.png"),
    "masks_below": ("{name}.png", "masks/{name}.png"),
    "numbered": ("PNGImages/{name}.png", "PedMasks/{name}_mask.png"),
}
VARIANTS = tuple(_PLACES)
KIND = "masks"
WITHOUT_SPLITS = frozenset({
    "plain", "one_folder", "patients", "kvasir", "clinic", "masks_below", "numbered",
})  # fmt: skip
NUMBERED = frozenset({"numbered"})
KINDS = dict.fromkeys(NUMBERED, "instances")
"""Kind of annotations for the variants whose masks hold object numbers instead of classes."""
COLORS = ((0, 0, 0), (200, 10, 10), (10, 200, 10), (10, 10, 200))


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and masks to the folders of the layout `variant`, a key of `_PLACES`.

    Mask values are object numbers in the layouts `NUMBERED`, otherwise 0 for the background and 1 + the class number.
    The layout "cvat_camvid" has colors in place of values.
    """
    image_place, mask_place = _PLACES[variant]
    for image in truth.images:
        fields = _fields(image)
        image.save(folder / image_place.format(**fields))
        values = draw_object_numbers(image) if variant in NUMBERED else image.draw_mask()
        if variant == "cvat_camvid":
            values = np.array(COLORS, np.uint8)[values]
        save_mask(folder / mask_place.format(**fields), values)
    if variant == "cvat_camvid":
        names = ("background", *truth.classes)
        lines = [f"{red} {green} {blue} {name}" for (red, green, blue), name in zip(COLORS, names, strict=True)]
        (folder / "label_colors.txt").write_text("\n".join(lines) + "\n")
    if variant == "roboflow":
        lines = [
            "Pixel Value, Class",
            *(f"{value}, {name}" for value, name in enumerate(("background", *truth.classes))),
        ]
        for valid in ("train", "valid"):
            (folder / valid / "_classes.csv").write_text("\n".join(lines))


def _fields(image: TrueImage) -> dict[str, object]:
    splitting = {"train": "training", "val": "validation"}[image.split]
    return {
        "name": image.name,
        "split": image.split,
        "width": image.width,
        "splitting": splitting,
        "Splitting": splitting.title(),
        "valid": {"train": "train", "val": "valid"}[image.split],
    }


def expect(image: TrueImage, kind: str) -> Any:
    """Return the annotation of `kind` that Footplate should read for an image."""
    return (
        rename_boxes(image, dict.fromkeys(CLASSES, "pedestrian"))
        if kind == "instances"
        else count_values(image.draw_mask())
    )
