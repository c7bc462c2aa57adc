"""Images of filled rectangles, and functions that write the rectangles' boxes in several formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

CLASSES = ("cat", "dog")
COLORS = {"cat": (250, 20, 20), "dog": (20, 20, 250)}
GRAY = 90


class Rectangle(NamedTuple):
    """Labeled rectangle, with its edges in pixels."""

    left: int
    top: int
    right: int
    bottom: int
    name: str


class DrawnImage(NamedTuple):
    """Drawn image: its size in pixels and its rectangles. Later rectangles cover earlier ones."""

    height: int
    width: int
    rectangles: tuple[Rectangle, ...]


TWO = DrawnImage(60, 80, (Rectangle(8, 4, 40, 28, "dog"), Rectangle(50, 30, 74, 56, "cat")))
ONE = DrawnImage(80, 60, (Rectangle(10, 20, 30, 70, "cat"),))
NONE = DrawnImage(64, 64, ())
SPLITS: dict[str, dict[str, DrawnImage]] = {"train": {"a": TWO, "b": ONE}, "val": {"c": ONE, "d": TWO}}

Write = Callable[[Path, Mapping[str, Mapping[str, DrawnImage]]], Path]


def draw(path: Path, drawn: DrawnImage) -> Path:
    pixels = np.full((drawn.height, drawn.width, 3), GRAY, np.uint8)
    for left, top, right, bottom, name in drawn.rectangles:
        pixels[top:bottom, left:right] = COLORS[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def voc_xml(drawn: DrawnImage, *, name_of: Callable[[str], str] = str, size: bool = True) -> str:
    size_element = (
        f"<size><width>{drawn.width}</width><height>{drawn.height}</height><depth>3</depth></size>" if size else ""
    )
    objects = "".join(
        f"<object><name>{name_of(name)}</name><difficult>0</difficult><bndbox><xmin>{left}</xmin><ymin>{top}</ymin>"
        f"<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
        for left, top, right, bottom, name in drawn.rectangles
    )
    return f"<annotation>{size_element}{objects}</annotation>"


def yolo_txt(drawn: DrawnImage) -> str:
    lines = []
    for left, top, right, bottom, name in drawn.rectangles:
        middle = (left + right) / 2 / drawn.width, (top + bottom) / 2 / drawn.height
        sides = (right - left) / drawn.width, (bottom - top) / drawn.height
        lines.append(" ".join(map(str, (CLASSES.index(name), *middle, *sides))))
    return "\n".join(lines)


def kitti_txt(drawn: DrawnImage, *, name_of: Callable[[str], str] = str, more: Sequence[str] = ()) -> str:
    lines = [
        f"{name_of(name)} 0.0 0 0.0 {left}.0 {top}.0 {right}.0 {bottom}.0 0 0 0 0 0 0 0"
        for left, top, right, bottom, name in drawn.rectangles
    ]
    return "\n".join([*lines, *more])


def coco_json(images: Mapping[str, DrawnImage], *, file_name: str = "{}.png", outlines: bool = True) -> dict:
    entries, annotations = [], []
    for number, (stem, drawn) in enumerate(images.items(), 10):
        entries.append(
            {"id": number, "file_name": file_name.format(stem), "width": drawn.width, "height": drawn.height}
        )
        for left, top, right, bottom, name in drawn.rectangles:
            annotation = {
                "id": len(annotations),
                "image_id": number,
                "category_id": 3 + 4 * CLASSES.index(name),
                "bbox": [left, top, right - left, bottom - top],
                "iscrowd": 0,
            }
            if outlines:
                annotation["segmentation"] = [[left, top, right, top, right, bottom, left, bottom]]
            annotations.append(annotation)
    categories = [{"id": 3 + 4 * number, "name": name} for number, name in enumerate(CLASSES)]
    return {"images": entries, "annotations": annotations, "categories": categories}


def arcgis_definition(root: Path, mode: str) -> Path:
    classes = [{"Value": 5, "Name": "dog"}, {"Value": 2, "Name": "cat"}]
    return text(root / "esri_model_definition.emd", json.dumps({"MetaDataMode": mode, "Classes": classes}))


def value_of(name: str) -> str:
    return {"dog": "5", "cat": "2"}[name]


# The same images as a dataset in each format


def voc(root: Path, splits: Mapping[str, Mapping[str, DrawnImage]]) -> Path:
    for split, images in splits.items():
        for stem, drawn in images.items():
            draw(root / f"JPEGImages/{stem}.png", drawn)
            text(root / f"Annotations/{stem}.xml", voc_xml(drawn))
        text(root / f"ImageSets/Main/{split}.txt", "\n".join(images))
    return root


def coco(root: Path, splits: Mapping[str, Mapping[str, DrawnImage]]) -> Path:
    for split, images in splits.items():
        for stem, drawn in images.items():
            draw(root / f"{split}2017/{stem}.png", drawn)
        text(root / f"annotations/instances_{split}2017.json", json.dumps(coco_json(images)))
    return root


def yolo(root: Path, splits: Mapping[str, Mapping[str, DrawnImage]]) -> Path:
    for split, images in splits.items():
        for stem, drawn in images.items():
            draw(root / f"images/{split}/{stem}.png", drawn)
            text(root / f"labels/{split}/{stem}.txt", yolo_txt(drawn))
    text(
        root / "data.yaml",
        "path: ../somewhere/else\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n",
    )
    return root


def yolo_coco(root: Path, splits: Mapping[str, Mapping[str, DrawnImage]]) -> Path:
    for split, images in splits.items():
        for stem, drawn in images.items():
            draw(root / f"images/{split}2017/{stem}.png", drawn)
            text(root / f"labels/{split}2017/{stem}.txt", yolo_txt(drawn))
    text(root / "classes.txt", "cat\ndog\n")
    return root


def yolo_darknet(root: Path, splits: Mapping[str, Mapping[str, DrawnImage]]) -> Path:
    for split, images in splits.items():
        for stem, drawn in images.items():
            draw(root / f"obj_train_data/{stem}.png", drawn)
            text(root / f"obj_train_data/{stem}.txt", yolo_txt(drawn))
        text(root / f"{split}.txt", "\n".join(f"data/obj_train_data/{stem}.png" for stem in images))
    text(root / "obj.names", "cat\ndog\n")
    return root


def kitti(root: Path, splits: Mapping[str, Mapping[str, DrawnImage]]) -> Path:
    for split, images in splits.items():
        for stem, drawn in images.items():
            draw(root / f"training/image_2/{stem}.png", drawn)
            text(root / f"training/label_2/{stem}.txt", kitti_txt(drawn))
        text(root / f"ImageSets/{split}.txt", "\n".join(images))
    return root


def arcgis_voc(root: Path, images: Mapping[str, DrawnImage]) -> Path:
    for stem, drawn in images.items():
        draw(root / f"images/{stem}.tif", drawn)
        text(root / f"labels/{stem}.xml", voc_xml(drawn, name_of=value_of))
    return arcgis_definition(root, "PASCAL_VOC_rectangles").parent


def arcgis_kitti(root: Path, images: Mapping[str, DrawnImage]) -> Path:
    for stem, drawn in images.items():
        draw(root / f"images/{stem}.tif", drawn)
        text(root / f"labels/{stem}.txt", kitti_txt(drawn, name_of=value_of))
    return arcgis_definition(root, "KITTI_rectangles").parent


def write_numbered_mask(path: Path, drawn: DrawnImage) -> Path:
    """Write a mask in which the pixels of the first rectangle are 1, those of the second are 2, and so on."""
    values = np.zeros((drawn.height, drawn.width), np.uint8 if len(drawn.rectangles) < 256 else np.uint16)
    for number, (left, top, right, bottom, _) in enumerate(drawn.rectangles, 1):
        values[top:bottom, left:right] = number
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)
    return path


def write_images_with_labels(root: Path, files: Mapping[str, str | None], yaml: str = "") -> Path:
    """Write images of 80 x 60 pixels, and a YOLO label file for each.

    `files` maps the path of an image to the content of its label file, or to None for an image without label file.
    Label files are written to the same paths with "labels" in place of "images". `yaml` is the content of data.yaml, or
    "" to write no such file.
    """
    for path, content in files.items():
        draw(root / path, DrawnImage(60, 80, ()))
        if content is not None:
            text((root / path.replace("images", "labels")).with_suffix(".txt"), content)
    if yaml:
        text(root / "data.yaml", yaml)
    return root
