"""YOLO text files read by ultralytics' parser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dataset_formats.truth import CLASSES
from tests.support.references import Boxes, assert_alike, check_reading, list_true_boxes, make_marks, write_truth

pytestmark = make_marks("ultralytics")

ROUNDED = 0.001
"""Rounding error of boxes in pixels, because ultralytics uses float32."""


@pytest.fixture(autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty folder for ultralytics' settings."""
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path_factory.mktemp("ultralytics")))


def read_boxes(folder: Path) -> tuple[Boxes, dict[str, str]]:
    """Read all images below `folder` with their label files as ultralytics does.

    Returns the boxes of each image, and the error message for each image that ultralytics rejects, both by file stem.
    """
    from ultralytics.data.utils import img2label_paths, verify_image_label

    boxes: Boxes = {}
    refused: dict[str, str] = {}
    for path in sorted(folder.rglob("*.png")):
        (text,) = img2label_paths([str(path)])
        # Without key points, of which there are 0 with 0 values each.
        name, rows, shape, *_, reason = verify_image_label((str(path), text, "", False, len(CLASSES), 0, 0, False))
        if name is None:
            refused[path.stem] = reason
            continue
        height, width = shape
        boxes[path.stem] = sorted(
            (CLASSES[int(number)], (x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height)
            for number, x, y, w, h in rows.astype(float)
        )
    return boxes, refused


@pytest.mark.parametrize("variant", ["plain", "splits", "roboflow", "nested", "beside", "lists", "darknet", "outlines"])
def test_ultralytics_reads_yolo_as_footplate_does(tmp_path: Path, variant: str) -> None:
    folder = write_truth("yolo", variant, tmp_path / "yolo")
    found, refused = read_boxes(folder)
    assert refused == {}
    assert_alike(found, list_true_boxes(), ROUNDED)
    check_reading(folder, "yolo", has_splits=variant not in ("plain", "beside"))


@pytest.mark.parametrize(
    ("variant", "reason"), [("commas", "could not convert"), ("utf16", "can't decode"), ("scored", "5 columns")]
)
def test_footplate_reads_more_than_ultralytics(tmp_path: Path, variant: str, reason: str) -> None:
    folder = write_truth("yolo", variant, tmp_path / "yolo")
    found, refused = read_boxes(folder)
    assert refused.keys() >= {name for name, boxes in list_true_boxes().items() if boxes}
    assert all(reason in each for each in refused.values())
    assert not any(found.values())
    check_reading(folder, "yolo")
