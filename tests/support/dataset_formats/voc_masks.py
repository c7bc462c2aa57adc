"""Writer of PASCAL VOC folders with masks, including the variants of CVAT and labelme."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.dataset_formats.pixels import draw_object_numbers, save_mask
from tests.support.dataset_formats.truth import Truth

VARIANTS = ("plain", "splits", "nested", "trainval", "trainval_and_val", "cvat", "labelme")
WITHOUT_SPLITS = ("plain", "labelme", "trainval")
_COLORS = ((0, 0, 0), (200, 10, 10), (10, 200, 10), (10, 10, 200))


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images, masks of classes and of objects, and a table of the classes, in the layout `variant`.

    The layouts "plain" and "labelme" have no lists of splits, and "trainval" lists all images as one split. Masks have
    colors in place of class numbers in the layout "cvat".
    """
    root = folder / "VOCdevkit/VOC2012" if variant == "nested" else folder
    names = ("background", *truth.classes)
    for image in truth.images:
        image.save(root / f"JPEGImages/{image.name}.jpg")
        values = image.draw_mask()
        if variant == "labelme":
            save_mask(root / f"SegmentationClass/{image.name}.npy", values)
            _save_palette(root / f"SegmentationClassPNG/{image.name}.png", values)
            save_mask(root / f"SegmentationObjectPNG/{image.name}.png", draw_object_numbers(image))
            continue
        colors = np.array(_COLORS, np.uint8)
        save_mask(root / f"SegmentationClass/{image.name}.png", colors[values] if variant == "cvat" else values)
        save_mask(root / f"SegmentationObject/{image.name}.png", draw_object_numbers(image))
    if variant == "cvat":
        lines = ["# label:color_rgb:parts:actions"]
        lines += [f"{name}:{','.join(map(str, color))}::" for name, color in zip(names, _COLORS, strict=True)]
        (root / "labelmap.txt").write_text("\n".join(lines) + "\n")
    else:
        (root / "class_names.txt").write_text("\n".join(names) + "\n")
    lists = root / "ImageSets/Segmentation"
    lists.mkdir(parents=True, exist_ok=True)
    if variant in ("plain", "labelme"):
        lists.rmdir()
        return
    for split in ("train", "val"):
        is_combined = split == "train" and variant.startswith("trainval")
        if variant != "trainval" or is_combined:
            chosen = truth.images if is_combined else truth.get_images(split)
            (lists / f"{'trainval' if is_combined else split}.txt").write_text(
                "\n".join(image.name for image in chosen) + "\n"
            )


def _save_palette(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(values, "P")
    image.putpalette([level for color in _COLORS for level in color])
    image.save(path)
