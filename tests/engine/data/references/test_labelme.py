"""JSON files written and read by labelme."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.dataset_formats.annotations import measure_areas, measure_true_areas, recognize_folder
from tests.support.dataset_formats.truth import CLASSES, TRUTH, TrueImage, TrueObject
from tests.support.references import Boxes, assert_alike, check_reading, list_true_boxes, make_marks, write_truth

pytestmark = make_marks("labelme")


def open_label_file(path: Path | None = None) -> Any:
    """Open a file with labelme's class `LabelFile`, or return an empty instance if `path` is None.

    labelme 6 moved this class to the module `_label_file`.
    """
    from labelme._label_file import LabelFile
    from loguru import logger

    logger.disable("labelme")
    return LabelFile() if path is None else LabelFile(str(path))


def shape_of(each: TrueObject, kind: str) -> dict[str, Any]:
    from labelme.utils import img_arr_to_b64

    left, top, right, bottom = each.box
    shape = {"label": each.name, "shape_type": kind, "group_id": None, "flags": {}, "description": "", "mask": None}
    match kind:
        case "polygon":
            return shape | {"points": [list(map(float, point)) for point in each.polygon]}
        case "rectangle":
            return shape | {"points": [[float(left), float(top)], [float(right), float(bottom)]]}
    mask = img_arr_to_b64(np.full((bottom - top, right - left), 255, np.uint8))
    return shape | {"points": [[left, top], [right - 1, bottom - 1]], "mask": mask}


def save(image: TrueImage, folder: Path, shapes: list[dict[str, Any]], flags: dict[str, bool], *, embed: bool) -> None:
    path = image.save(folder / image.split / f"{image.name}.png")
    open_label_file().save(
        str(path.with_suffix(".json")),
        shapes=shapes,
        image_path=path.name,
        image_height=image.height,
        image_width=image.width,
        image_data=path.read_bytes() if embed else None,
        flags=flags,
    )


@pytest.mark.parametrize("embed", [False, True])
@pytest.mark.parametrize("kind", ["polygon", "rectangle", "mask"])
def test_files_of_labelme_are_read(tmp_path: Path, kind: str, embed: bool) -> None:
    for image in TRUTH.images:
        save(image, tmp_path, [shape_of(each, kind) for each in image.objects], {}, embed=embed)
    check_reading(tmp_path, "labelme")
    found = recognize_folder(tmp_path)
    assert found is not None
    assert found.kind == ("boxes" if kind == "rectangle" else "instances")
    if kind != "rectangle":
        assert measure_areas(found, tmp_path) == measure_true_areas(TRUTH)


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_flags_of_labelme_are_read(tmp_path: Path, kind: str) -> None:
    for image in TRUTH.images:
        tags = image.tags[:1] if kind == "classes" else image.tags
        save(image, tmp_path, [], {name: name in tags for name in CLASSES}, embed=False)
    check_reading(tmp_path, "labelme", kind)


@pytest.mark.parametrize("variant", ["plain", "splits", "apart", "embedded", "masks", "boxes", "renamed"])
def test_labelme_reads_files_as_footplate_does(tmp_path: Path, variant: str) -> None:
    folder = write_truth("labelme", variant, tmp_path / "labelme")
    found: Boxes = {}
    for path in folder.rglob("*.json"):
        label_data = open_label_file(path)
        corner = 1 if variant == "masks" else 0  # the second point of a mask is its last pixel
        found[Path(label_data.image_path).stem] = sorted(
            (
                each["label"],
                *map(float, np.min(each["points"], 0)),
                *(float(edge + corner) for edge in np.max(each["points"], 0)),
            )
            for each in label_data.shapes
        )
    assert_alike(found, list_true_boxes())
    check_reading(folder, "labelme", has_splits=variant == "splits")
