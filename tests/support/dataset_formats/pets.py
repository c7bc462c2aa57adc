"""Writer of Oxford-IIIT Pet's folders; every object is a pet."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import Truth

VARIANTS = ("plain", "splits")


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and trimaps; the first row of each is not classified."""
    for image in truth.images:
        image.save(folder / f"images/{image.name}.jpg")
        trimap = np.where(image.mask() > 0, 1, 2).astype(np.uint8)
        trimap[0] = 3
        save_mask(folder / f"annotations/trimaps/{image.name}.png", trimap)
    if variant == "splits":
        for name, split in (("trainval", "train"), ("test", "val")):
            lines = [f"{image.name} 1 1 1" for image in truth.of(split)]
            (folder / f"annotations/{name}.txt").write_text("\n".join(lines) + "\n")
