"""Writer of label tables in CSV files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = (
    "plain", "splits", "nested", "column", "is_valid", "tsv", "semicolons", "utf16", "bom", "one_hot", "floats", "words",
    "ids", "paths", "index", "json", "json_list", "jsonl", "single", "single_hot",
)  # fmt: skip
NAMED_APART = ("caffe", "numbers", "single_numbers")
"""Additional variants that store the class names in a separate file."""
WITHOUT_SPLITS = tuple(
    variant
    for variant in (*VARIANTS, *NAMED_APART)
    if variant not in ("splits", "nested", "column", "is_valid", "caffe")
)
KINDS = dict.fromkeys(("single", "single_hot", "single_numbers", "caffe"), "classes") | {
    variant: "labels"
    for variant in (*VARIANTS, *NAMED_APART)
    if variant not in ("single", "single_hot", "single_numbers", "caffe")
}  # fmt: skip
"""Most detailed kind of annotations of each variant."""


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the images, and CSV files with their classes or labels, in the layout `variant`.

    Some layouts have a file per split, others a single file for all images.
    """
    for image in truth.images:
        image.save(folder / _place(image, variant))
    if variant in ("splits", "nested", "caffe"):
        for split in ("train", "val"):
            _write_table(truth, truth.get_images(split), folder, variant, split)
    else:
        _write_table(truth, truth.images, folder, variant, "")


def _place(image: TrueImage, variant: str) -> str:
    if variant in ("splits", "nested"):
        return f"{image.split}/images/{image.name}.png"
    return f"images/{image.name}.png"


def _write_table(truth: Truth, images: Sequence[TrueImage], folder: Path, variant: str, split: str) -> None:
    table = folder / split / "labels" if variant == "nested" else folder / (f"{split}_labels" if split else "labels")
    table.parent.mkdir(parents=True, exist_ok=True)
    tags = {image: image.tags[:1] if KINDS[variant] == "classes" else image.tags for image in images}
    names = {image: Path(_place(image, variant)).name for image in images}
    match variant:
        case "json":
            content = json.dumps({names[image]: list(tags[image]) for image in images})
            table.with_suffix(".json").write_text(content)
        case "json_list":
            rows = [{"image": names[image], "labels": {n: n in tags[image] for n in truth.classes}} for image in images]
            table.with_suffix(".json").write_text(json.dumps(rows))
        case "jsonl":
            rows = [{"file_name": f"images/{names[image]}", "tags": list(tags[image])} for image in images]
            table.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "caffe":
            lines = [f"images/{names[image]} {truth.classes.index(tags[image][0])}\n" for image in images]
            table.with_suffix(".txt").write_text("".join(lines))
            (folder / "classes.txt").write_text("\n".join(truth.classes))
        case _:
            _write_csv(truth, images, table, variant)


def _write_csv(truth: Truth, images: Sequence[TrueImage], table: Path, variant: str) -> None:
    """Write a CSV file with a header and a row for each image.

    The variants with "numbers" in their names also write the class names to a second file.
    """
    delimiter = {"tsv": "\t", "semicolons": ";"}.get(variant, ",")
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter)
    writer.writerow(
        [
            *_make_leading_cells(None, variant),
            *_make_label_cells(truth, None, variant),
            *_make_trailing_cells(None, variant),
        ]
    )
    for image in images:
        writer.writerow(
            [
                *_make_leading_cells(image, variant),
                *_make_label_cells(truth, image, variant),
                *_make_trailing_cells(image, variant),
            ]
        )
    encoding = {"utf16": "utf-16", "bom": "utf-8-sig"}.get(variant, "utf-8")
    table.with_suffix(".tsv" if variant == "tsv" else ".csv").write_bytes(stream.getvalue().encode(encoding))
    if "numbers" in variant:
        rows = "".join(f"{number},{name}\n" for number, name in enumerate(truth.classes))
        (table.parent / "class_names.csv").write_text("class_id,name\n" + rows)


def _make_leading_cells(image: TrueImage | None, variant: str) -> list[str]:
    """Return the cells before the labels: the row's index (only in the variant "index") and the image.

    If `image` is None, return the cells of the header.
    """
    index = [] if variant != "index" else ["" if image is None else str(sum(map(ord, image.name)))]
    if image is None:
        return [*index, "Path" if variant == "paths" else "image_id" if variant == "ids" else "filename"]
    if variant == "ids":
        return [*index, image.name]
    root = r"D:\data\project\images" + "\\" if variant == "paths" else ""
    return [*index, f"{root}{image.name}.png"]


def _make_label_cells(truth: Truth, image: TrueImage | None, variant: str) -> list[str]:
    """Return the label cells of an image, or those of the header if `image` is None."""
    if variant in ("one_hot", "floats", "words", "semicolons", "single_hot", "nested"):
        yes, no = {"floats": ("1.0", "0.0"), "words": ("True", "FALSE"), "semicolons": ("1,0", "0,0")}.get(
            variant, ("1", "0")
        )
        if image is None:
            return list(truth.classes)
        tags = image.tags[:1] if variant == "single_hot" else image.tags
        return [yes if name in tags else no for name in truth.classes]
    if image is None:
        return ["label" if variant.startswith("single") else "Finding Labels" if variant == "paths" else "tags"]
    if variant.startswith("single"):
        number = str(truth.classes.index(image.tags[0]))
        return [number if variant == "single_numbers" else image.tags[0]]
    if variant == "numbers":
        return [" ".join(str(truth.classes.index(name)) for name in image.tags)]
    return [{"is_valid": " ", "bom": ",", "column": "; "}.get(variant, "|").join(image.tags)]


def _make_trailing_cells(image: TrueImage | None, variant: str) -> list[str]:
    """Return the cells that follow the labels: the split in some variants, and a two-line remark in "plain".

    If `image` is None, return the column headers.
    """
    match variant:
        case "column":
            return ["Split" if image is None else {"train": "Training", "val": "dev"}[image.split]]
        case "is_valid":
            return ["is_valid" if image is None else str(image.split == "val")]
        case "plain":
            return ["notes" if image is None else f'two\nlines of "{image.name}"']
    return []
