"""Writer of LoveDA's folders; the classes of the truth are buildings, roads and water."""

from __future__ import annotations

from pathlib import Path

from tests.support.dataset_formats.pixels import save_mask, with_labels
from tests.support.dataset_formats.truth import Truth

VARIANTS = ("plain",)
LABELS = {"apple": 2, "bear": 3, "cup": 4}


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and masks of urban and rural areas; the first row of each has no data."""
    for number, image in enumerate(truth.images):
        area = folder / image.split.title() / ("Urban" if number % 2 else "Rural")
        image.save(area / f"images_png/{number}.png")
        values = with_labels(image, 1, LABELS)
        values[0] = 0
        save_mask(area / f"masks_png/{number}.png", values)
