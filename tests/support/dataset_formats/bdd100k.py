"""Writer of BDD100K folders."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.dataset_formats.truth import Truth

VARIANTS = ("plain",)
KIND = "boxes"


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images, and a list of their objects per split in BDD100K's format.

    Each image also has a lane, which has no box and must therefore be ignored. The format has a single layout, so
    `variant` is unused.
    """
    (folder / "labels/det_20").mkdir(parents=True)
    for split in ("train", "val"):
        images = []
        for image in truth.get_images(split):
            image.save(folder / f"images/100k/{split}/{image.name}.png")
            labels = [
                {
                    "id": str(number),
                    "category": each.name,
                    "box2d": dict(zip(("x1", "y1", "x2", "y2"), each.box, strict=True)),
                }
                for number, each in enumerate(image.objects)
            ]
            labels.append({"id": "lane", "category": "lane", "poly2d": [{"vertices": [[0, 0], [1, 1]]}]})
            images.append({"name": f"{image.name}.png", "attributes": {"weather": "clear"}, "labels": labels})
        (folder / f"labels/det_20/det_{split}.json").write_text(json.dumps(images))
