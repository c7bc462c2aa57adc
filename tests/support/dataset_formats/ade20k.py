"""Writer of ADE20K's scene parsing benchmark. The ground-truth classes are written as its first three classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.dataset_formats.annotations import count_values
from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain", "nested", "without_names", "some_names")
KIND = "masks"
WARNINGS = dict.fromkeys(("without_names", "some_names"), "does not name all")


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images, the table of class names, and masks: 0 for unlabeled pixels, otherwise 1 + the class number.

    In the variants "without_names" and "some_names", the table is missing or incomplete. The variant "nested" writes
    everything to a subfolder.
    """
    root = folder / "ADEChallengeData2016" if variant == "nested" else folder
    for image in truth.images:
        name = f"ADE_{image.split}_{image.name}"
        split = {"train": "training", "val": "validation"}[image.split]
        image.save(root / f"images/{split}/{name}.jpg")
        save_mask(root / f"annotations/{split}/{name}.png", image.draw_mask())
    if variant != "without_names":
        names = [f"{name}, {name}s" for name in truth.classes] + [f"thing {number}" for number in range(4, 151)]
        rows = [f"{value} \t0.1\t5\t1\t{name} " for value, name in enumerate(names, 1)]
        rows = rows[:-1] if variant == "some_names" else rows
        (root / "objectInfo150.txt").write_text("\n".join(["Idx\tRatio\tTrain\tVal\tName", *rows]) + "\n")


def expect(image: TrueImage, kind: str) -> Any:
    """Return the sorted pixel counts of all mask values, including the unlabeled pixels."""
    return count_values(image.draw_mask())
