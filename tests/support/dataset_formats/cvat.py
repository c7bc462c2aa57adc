"""Writer of CVAT's XML files for images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.dataset_formats.truth import CLASSES, TrueImage, TrueObject, Truth

VARIANTS = ("plain", "subsets", "tasks", "flat", "boxes", "masks", "turned", "utf16", "tags", "labels")
WITHOUT_SPLITS = ("plain", "flat", "boxes", "masks", "turned", "utf16", "tags", "labels")
KINDS = {"boxes": "boxes", "turned": "boxes", "tags": "classes", "labels": "labels"}
"""Most detailed kind of annotations for each variant that doesn't store instances."""


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the ground truth as one task, as a project with subsets, or as one task per split.

    `variant` is one of `VARIANTS`. "subsets" is a project with subsets, "tasks" writes one task per split, and all
    others are one task. "boxes", "turned" (boxes), "masks", "tags" and "labels" select the annotations, which are
    otherwise polygons.
    """
    for image in truth.images:
        image.save(folder / _image_path(image, variant))
    if variant == "tasks":
        for number, split in enumerate(("train", "val"), 1):
            subset = {"train": "Train", "val": "Validation"}[split]
            _save(folder / f"task_{number}_backup/annotations.xml", _xml(truth.get_images(split), variant, subset))
    else:
        _save(folder / "annotations.xml", _xml(truth.images, variant), "utf-16" if variant == "utf16" else "utf-8")


def _save(path: Path, content: str, encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding)


def _image_path(image: TrueImage, variant: str) -> str:
    match variant:
        case "subsets":
            return f"images/{'Validation' if image.split == 'val' else 'Train'}/{image.name}.png"
        case "tasks":
            return f"task_{2 if image.split == 'val' else 1}_backup/images/{image.name}.png"
        case "flat":
            return f"{image.name}.png"
    return f"images/{image.name}.png"


def _xml(images: Sequence[TrueImage], variant: str, subset: str = "") -> str:
    labels = "".join(f"<label><name>{name}</name><type>any</type></label>" for name in CLASSES)
    task = f"<task><id>7</id><subset>{subset}</subset><labels>{labels}</labels></task>"
    encoding = "utf-16" if variant == "utf16" else "utf-8"
    inner = "".join(_image(number, image, variant) for number, image in enumerate(images))
    return (
        f'<?xml version="1.0" encoding="{encoding}"?>\n<annotations>\n<version>1.1</version>\n<meta>{task}</meta>\n'
        f"{inner}</annotations>\n"
    )


def _image(number: int, image: TrueImage, variant: str) -> str:
    subset = (
        f' subset="{"Validation" if image.split == "val" else "Train"}" task_id="7"' if variant == "subsets" else ""
    )
    shapes = "".join(_shape(each, variant) for each in image.objects)
    if variant in ("tags", "labels"):
        names = image.tags if variant == "labels" else image.tags[:1]
        shapes = "".join(f'<tag label="{name}" source="manual"></tag>' for name in names)
    size = f'width="{image.width}" height="{image.height}"'
    return f'<image id="{number}" name="{image.name}.png"{subset} {size}>{shapes}</image>\n'


def _shape(each: TrueObject, variant: str) -> str:
    left, top, right, bottom = each.box
    common = f'label="{each.name}" source="manual" occluded="0" z_order="0"'
    if variant == "boxes":
        return f'<box {common} xtl="{left}.00" ytl="{top}.00" xbr="{right}.00" ybr="{bottom}.00"></box>'
    if variant == "turned":  # the box with width and height swapped, rotated by 90 degrees
        x, y, half_width, half_height = (left + right) / 2, (top + bottom) / 2, (bottom - top) / 2, (right - left) / 2
        edges = f'xtl="{x - half_width}" ytl="{y - half_height}" xbr="{x + half_width}" ybr="{y + half_height}"'
        return f'<box {common} {edges} rotation="90.00"></box>'
    if variant == "masks":
        rows, columns = bottom - top, right - left
        return (
            f'<mask {common} rle="0, {rows * columns}" left="{left}" top="{top}" width="{columns}" height="{rows}">'
            "</mask>"
        )
    points = ";".join(f"{x}.00,{y}.00" for x, y in each.polygon)
    return f'<polygon {common} points="{points}"></polygon>'
