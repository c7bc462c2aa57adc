"""Writer of PASCAL VOC folders."""

from __future__ import annotations

from pathlib import Path

from tests.support.dataset_formats.truth import TrueImage, TrueObject, Truth

VARIANTS = (
    "plain", "flat", "splits", "nested", "devkit", "paths", "renamed", "utf16", "false_utf16", "namespace",
    "odd_fields", "swapped", "floats", "polygons", "parts",
)  # fmt: skip
KIND = "boxes"
WITHOUT_SPLITS = ("flat", "renamed")


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write each image with an XML file of its objects, in the layout `variant`. Some layouts also list the splits."""
    for number, image in enumerate(truth.images):
        image_at, xml_at = _get_paths(image, number, variant)
        image.save(folder / image_at)
        path = folder / xml_at
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_encode_text(_xml(image, variant), variant))
    if variant in ("flat", "splits", "nested", "renamed"):
        return
    lists = folder / {"devkit": "VOC2012/ImageSets/Main", "paths": ""}.get(variant, "ImageSets/Main")
    lists.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        names = [image.name for image in truth.get_images(split)]
        lines = [f"./JPEGImages/{name}.png ./Annotations/{name}.xml" if variant == "paths" else name for name in names]
        (lists / f"{split}.txt").write_text("\n".join(lines) + "\n")


def _get_paths(image: TrueImage, number: int, variant: str) -> tuple[str, str]:
    """Return the paths of an image and its XML file.

    In the variant "renamed", the XML file is named by `number`.
    """
    stem = image.name
    match variant:
        case "flat":
            return f"{stem}.png", f"{stem}.xml"
        case "splits":
            split = {"val": "valid"}.get(image.split, image.split)
            return f"{split}/{stem}.png", f"{split}/{stem}.xml"
        case "nested":
            below = f"{image.split}/day {len(image.objects)}/{stem}"
            return f"images/{below}.png", f"Annotations/{below}.xml"
        case "devkit":
            return f"VOC2012/JPEGImages/{stem}.png", f"VOC2012/Annotations/{stem}.xml"
        case "renamed":
            return f"images/{stem}.png", f"xmls/{number:05}.xml"
    return f"JPEGImages/{stem}.png", f"Annotations/{stem}.xml"


def _xml(image: TrueImage, variant: str) -> str:
    name = {"renamed": image.name, "odd_fields": "image.jpg"}.get(variant, f"{image.name}.png")
    size = f"<size><width>{image.width}</width><height>{image.height}</height><depth>3</depth></size>"
    declared = {"utf16": "utf-16", "false_utf16": "utf-16", "floats": "gbk"}.get(variant, "utf-8")
    space = ' xmlns="http://example.org/voc"' if variant == "namespace" else ""
    objects = "".join(_object(each, variant) for each in image.objects)
    return (
        f'<?xml version="1.0" encoding="{declared}"?>\n<annotation{space}><folder>图</folder>'
        f"<filename>{name}</filename>{'' if variant == 'odd_fields' else size}{objects}</annotation>"
    )


def _object(each: TrueObject, variant: str) -> str:
    left, top, right, bottom = each.box
    if variant == "swapped":
        left, right, top, bottom = right, left, bottom, top
    difficult = {"odd_fields": "<difficult>Unspecified</difficult><truncated/>", "parts": ""}.get(
        variant, "<difficult>0</difficult>"
    )
    box = _box(left, top, right, bottom, ".0" if variant == "floats" else "")
    if variant == "polygons":
        points = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in each.polygon)
        box = f"<deleted>0</deleted><polygon><username>me</username>{points}</polygon>"
    nested = f"<part><name>head</name>{_box(0, 0, 3, 3)}</part>" if variant == "parts" else ""
    return f"<object>{nested}<name>{each.name}</name>{difficult}{box}</object>"


def _box(left: int, top: int, right: int, bottom: int, more: str = "") -> str:
    return (
        f"<bndbox><xmin>{left}{more}</xmin><ymin>{top}{more}</ymin>"
        f"<xmax>{right}{more}</xmax><ymax>{bottom}{more}</ymax></bndbox>"
    )


def _encode_text(text: str, variant: str) -> bytes:
    encoding = {"utf16": "utf-16", "false_utf16": "utf-8-sig", "floats": "gbk"}.get(variant, "utf-8")
    return text.encode(encoding)
