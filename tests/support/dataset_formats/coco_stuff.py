"""Writer of COCO-Stuff's pixel maps."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from tests.support.dataset_formats.truth import Truth

VARIANTS = ("splits", "nested", "numbers")
KIND = "masks"
LIKELY = VARIANTS


def write(truth: Truth, folder: Path, variant: str = "splits") -> None:
    """Write images, masks and labels.txt.

    The masks of the variant "numbers" hold the numbers in labels.txt. Those of the other variants are smaller by one.
    """
    root = folder / "coco" if variant == "nested" else folder
    offset = 0 if variant == "numbers" else 1
    names = ("background", *truth.classes)
    for image in truth.images:
        image.save(root / "images" / f"{image.split}2017" / f"{image.name}.jpg")
        masks = f"stuff_{image.split}2017_pixelmaps" if variant == "numbers" else f"stuffthingmaps/{image.split}2017"
        path = root / masks / f"{image.name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.draw_mask() + (1 - offset)).save(path)
    lines = ["0: unlabeled", *(f"{number}: {name}" for number, name in enumerate(names, 1))]
    (root / "labels.txt").write_text("\n".join(lines))
