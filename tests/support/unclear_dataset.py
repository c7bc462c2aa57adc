"""Reports on dataset folders that Footplate can't recognize with certainty."""

from __future__ import annotations

from io import BytesIO

from PIL import Image, ImageDraw

from engine.contract.dataset import DatasetReport, Example, Interpretation, SplitReport
from engine.contract.problems import Choice, Problem

BOXES = Choice("Object detection with COCO JSON", {"format": "coco", "task": "detection"})
CLASSES = Choice("Read as class folders", {"format": "imagefolder"})


def make_png(color: str) -> bytes:
    """Return a PNG image of one color with a rectangle drawn on it."""
    stream = BytesIO()
    image = Image.new("RGB", (64, 40), color)
    ImageDraw.Draw(image).rectangle((10, 8, 40, 30), outline="white")
    image.save(stream, "PNG")
    return stream.getvalue()


UNCLEAR = DatasetReport(
    folder="/data/warehouse",
    format="",
    readings=(
        Interpretation(
            "coco",
            "detection",
            "COCO JSON",
            evidence=("annotations in COCO's format: annotations/instances_train_warehouse_north_2024.json",),
            examples=tuple(
                Example("", "train", make_png(color), n) for n, color in enumerate(("navy", "teal", "brown"))
            ),
        ),
        Interpretation(
            "imagefolder",
            "classification",
            "class folders",
            evidence=("2 folders of images (north, south)",),
            against=("a folder named by its role (annotations)",),
        ),
    ),
    problems=(
        Problem("dataset", "/data/warehouse can be read in several ways.", "Choose one.", choices=(BOXES, CLASSES)),
    ),
)
"""Report on a folder that can be read as COCO or as class folders. The second reading has no images."""

UNCERTAIN = DatasetReport(
    folder="/data/warehouse",
    format="coco",
    kind="boxes",
    title="COCO JSON",
    evidence=("annotations in COCO's format: annotations.json", "a folder of images (images)"),
    certain=False,
    classes=("crate", "pallet"),
    splits=(
        SplitReport("train", {"crate": 12, "pallet": 14}, total=20, objects={"crate": 30, "pallet": 14}),
        SplitReport("val", {"crate": 3, "pallet": 4}, is_drawn=True, total=5, objects={"crate": 8, "pallet": 4}),
    ),
    examples=(Example("crate", "train", make_png("navy"), 0), Example("pallet", "train", make_png("teal"), 1)),
)
"""Report on a folder whose recognized reading is uncertain."""
