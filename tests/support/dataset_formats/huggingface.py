"""Writer of Hugging Face datasets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.dataset_formats.archives import encode_png
from tests.support.dataset_formats.truth import TrueImage, Truth

NEEDS_PYARROW = ("parquet", "parquet_labels", "parquet_boxes", "named")
VARIANTS = ("plain", "splits", "nested", "csv", "labels", "boxes", *(NEEDS_PYARROW if find_spec("pyarrow") else ()))
NAMED_APART = ("readme",) if find_spec("pyarrow") else ()
"""Additional variants that store the class names in README.md."""
WITHOUT_SPLITS = ("plain", "csv", "labels")
KINDS = {
    "labels": "labels", "boxes": "boxes", "parquet_labels": "labels", "parquet_boxes": "boxes",
} | dict.fromkeys(("plain", "splits", "nested", "csv", "parquet", "readme", "named"), "classes")  # fmt: skip


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the images with metadata files, or as Parquet files, in the layout `variant`."""
    if variant in (*NEEDS_PYARROW, "readme"):
        _write_parquet(truth, folder, variant)
        return
    with_splits = variant not in WITHOUT_SPLITS
    for split in ("train", "val") if with_splits else ("",):
        images = truth.get_images(split) if split else truth.images
        parent = folder / ("validation" if split == "val" else split)
        places = {image: f"{'deep/' if variant == 'nested' else ''}{image.name}.png" for image in images}
        for image in images:
            image.save(parent / places[image])
        rows = [_row(truth, image, variant) | {"file_name": places[image]} for image in images]
        if variant == "csv":
            lines = "".join(f"{row['file_name']},{row['label']}\n" for row in rows)
            (parent / "metadata.csv").write_text("file_name,label\n" + lines)
        else:
            (parent / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _row(truth: Truth, image: TrueImage, variant: str) -> dict[str, Any]:
    if variant.endswith("boxes"):
        boxes = [each.box for each in image.objects]
        sizes = [[float(x), float(y), float(right - x), float(bottom - y)] for x, y, right, bottom in boxes]
        classes: list[Any] = [each.name for each in image.objects]
        if variant == "parquet_boxes":
            classes = [truth.classes.index(name) for name in classes]
        return {"objects": {"bbox": sizes, "category": classes}}
    if variant.endswith("labels"):
        numbers = [truth.classes.index(name) for name in image.tags]
        return {"labels": numbers if variant == "parquet_labels" else list(image.tags)}
    return {"label": truth.classes.index(image.tags[0]) if variant in ("parquet", "readme") else image.tags[0]}


def _write_parquet(truth: Truth, folder: Path, variant: str) -> None:
    import pyarrow
    from pyarrow import parquet

    (folder / "data").mkdir(parents=True)
    for split, shards in (("train", 2), ("validation", 1)):
        images = truth.get_images("val" if split == "validation" else split)
        for shard in range(shards):
            rows = [_cells(truth, image, variant) for image in images[shard::shards]]
            table = pyarrow.Table.from_pylist(rows)
            noted = _make_features(truth.classes, variant)
            if noted:
                table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": noted}})})
            parquet.write_table(table, folder / "data" / f"{split}-{shard:05d}-of-{shards:05d}.parquet")
    if variant == "readme":
        names = "".join(f"          '{number}': {name}\n" for number, name in enumerate(truth.classes))
        info = (
            "dataset_info:\n  features:\n  - name: image\n    dtype: image\n"
            f"  - name: label\n    dtype:\n      class_label:\n        names:\n{names}"
        )
        (folder / "README.md").write_text(f"---\n{info}---\n\n# A dataset\n")


def _cells(truth: Truth, image: TrueImage, variant: str) -> dict[str, Any]:
    content: Any = {"bytes": encode_png(image), "path": f"{image.name}.png"}
    return {"image": content} | _row(truth, image, variant)


def _make_features(classes: Sequence[str], variant: str) -> dict[str, Any]:
    """Return the column types in the form in which the library `datasets` stores them."""
    names = {"names": list(classes), "_type": "ClassLabel"}
    match variant:
        case "parquet":
            return {"image": {"_type": "Image"}, "label": names}
        case "parquet_labels":
            return {"image": {"_type": "Image"}, "labels": {"feature": names, "_type": "Sequence"}}
        case "parquet_boxes":
            number = {"dtype": "float64", "_type": "Value"}
            box = {"feature": {"feature": number, "_type": "List"}, "_type": "List"}
            objects = {"bbox": box, "category": {"feature": names, "_type": "List"}}
            return {"image": {"_type": "Image"}, "objects": objects}
    return {}
