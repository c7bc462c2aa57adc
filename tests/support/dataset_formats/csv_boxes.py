"""Writer of tables of boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.dataset_formats.truth import TrueImage, TrueObject, Truth

VARIANTS = ("plain", "splits", "nested", "vott", "retinanet", "lists", "semicolons", "column")
NAMED_APART = ("open_images", "sizes")
"""Additional variants that store the class names in a separate file."""
WITHOUT_SPLITS = ("plain", "vott", "sizes", "lists", "semicolons")
KINDS = dict.fromkeys((*VARIANTS, *NAMED_APART), "boxes")
WITHOUT_EMPTY = frozenset({"open_images", "vott"})
"""Variants that omit images without objects, because their tables have no row for them."""
WARNINGS = dict.fromkeys(WITHOUT_EMPTY, "no table names")
ONE_CLASS = "strings"
"""Additional variant without classes. One cell holds all objects of an image."""
_CODES = {"apple": "/m/014j1m", "bear": "/m/01dws", "cup": "/m/02p5f1q"}
_HEADS = {
    "open_images": "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsGroupOf",
    "vott": '"image","xmin","ymin","xmax","ymax","label"',
    "sizes": "image_id,class_id,x,y,w,h",
    "lists": "image_id,width,height,bbox,label",
    "strings": "image_name,BoxesString,domain",
    "semicolons": "filename;class;xmin;ymin;xmax;ymax",
    "column": "path,class,x_min,y_min,x_max,y_max,split",
}


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the images, and their boxes to a single table or, in some layouts (`variant`), to a table per split."""
    for image in truth.images:
        place = f"{image.split}/{image.name}.png" if variant in ("splits", "nested") else f"images/{image.name}.png"
        image.save(folder / place)
    tables = {
        "splits": ("train/_annotations.csv", "val/_annotations.csv"),
        "nested": ("annotations/train_labels.csv", "annotations/val_labels.csv"),
        "open_images": ("train-annotations-bbox.csv", "validation-annotations-bbox.csv"),
        "retinanet": ("train.csv", "val.csv"),
    }.get(variant, ("boxes.csv",))
    for table, split in zip(tables, ("train", "val"), strict=False):
        images = truth.get_images(split) if len(tables) == 2 else truth.images
        path = folder / table
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in _lines(truth, images, variant)))
    if variant == "retinanet":
        (folder / "classes.csv").write_text(
            "".join(f"{name},{9 * number}\n" for number, name in enumerate(truth.classes))
        )
    if variant == "open_images":
        (folder / "class-descriptions.csv").write_text("".join(f"{code},{name}\n" for name, code in _CODES.items()))
    if variant == "sizes":
        (folder / "classes.txt").write_text("\n".join(truth.classes))


def _lines(truth: Truth, images: Sequence[TrueImage], variant: str) -> Iterator[str]:
    if variant != "retinanet":
        yield _HEADS.get(variant, "filename,width,height,class,xmin,ymin,xmax,ymax")
    for image in images:
        if variant == "strings":
            boxes = ";".join(" ".join(map(str, each.box)) for each in image.objects)
            yield f"{image.name},{boxes or 'no_box'},here"
            continue
        for each in image.objects:
            yield _line(truth, image, each, variant)
        if not image.objects and variant not in WITHOUT_EMPTY:
            yield _make_empty_row(image, variant)


def _line(truth: Truth, image: TrueImage, each: TrueObject, variant: str) -> str:
    left, top, right, bottom = each.box
    number = truth.classes.index(each.name)
    w, h = image.width, image.height
    sides = f"{right - left},{bottom - top}"
    box = f"[{left}.0, {top}.0, {right - left}.0, {bottom - top}.0]"
    lines = {
        "open_images": f"{image.name},xclick,{_CODES[each.name]},1,{left / w},{right / w},{top / h},{bottom / h},0,0",
        "vott": f'"{image.name}.png",{left},{top},{right}.0,{bottom}.0,"{each.name}"',
        "retinanet": f"images/{image.name}.png,{left},{top},{right},{bottom},{each.name}",
        "sizes": f"{image.name},{number},{left},{top},{sides}",
        "lists": f'{image.name},{w},{h},"{box}",{each.name}',
        "semicolons": f"{image.name}.png;{each.name};{left},0;{top},0;{right},0;{bottom},0",
        "column": f"/home/me/{image.name}.png,{each.name},{left},{top},{right},{bottom},{image.split}",
    }
    return lines.get(variant, f"{image.name}.png,{w},{h},{each.name},{left},{top},{right},{bottom}")


def _make_empty_row(image: TrueImage, variant: str) -> str:
    """Return the row for an image without objects."""
    match variant:
        case "retinanet":
            return f"images/{image.name}.png,,,,,"
        case "sizes":
            return f"{image.name},,,,,"
        case "lists":
            return f"{image.name},{image.width},{image.height},,"
        case "semicolons":
            return f"{image.name}.png;;;;;"
        case "column":
            return f"/home/me/{image.name}.png,,,,,,{image.split}"
    return f"{image.name}.png,{image.width},{image.height},,,,,"
