"""Generator of small images with COCO annotations: bright discs on noise, with boxes and outlines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES = ("red", "green")


def make_outlined(folder: Path, counts: dict[str, int], side: int = 64) -> Path:
    """Write images of one to three separate discs to images/SPLIT/N.png, and annotations/instances_SPLIT.json.

    `counts` maps a split to its number of square images of `side` px. Returns `folder`.
    """
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:side, :side]
    for split, count in counts.items():
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for number in range(count):
            pixels = random.integers(0, 100, (side, side, 3), dtype=np.uint8)
            # Each disc is in a separate quarter.
            for quarter in random.permutation(4)[: 1 + number % 3]:
                radius = int(random.integers(side // 8, side // 5))
                top, left = (int(side * part / 2) + int(random.integers(radius, side // 2 - radius + 1))
                             for part in divmod(int(quarter), 2))  # fmt: skip
                of = int(random.integers(0, 2))
                pixels[(rows - top) ** 2 + (columns - left) ** 2 < radius**2, of] = 230
                angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
                corners = np.stack([left + 0.5 + radius * np.cos(angles), top + 0.5 + radius * np.sin(angles)], 1)
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": number + 1,
                        "category_id": of + 1,
                        "bbox": [left + 0.5 - radius, top + 0.5 - radius, 2 * radius, 2 * radius],
                        "area": 3.14 * radius**2,
                        "iscrowd": 0,
                        "segmentation": [corners.flatten().tolist()],
                    }
                )
            images.append({"id": number + 1, "file_name": f"{number:03}.png", "width": side, "height": side})
            place = folder / "images" / split / f"{number:03}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(place)
        categories = [{"id": place, "name": name} for place, name in enumerate(CLASSES, 1)]
        content = {"images": images, "annotations": annotations, "categories": categories}
        place = folder / "annotations" / f"instances_{split}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(content))
    return folder
