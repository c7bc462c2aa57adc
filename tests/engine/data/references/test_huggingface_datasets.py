"""Datasets written and read by Hugging Face's `datasets`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.data.formats.registry import find_readings
from tests.support.dataset_formats.truth import CLASSES, TRUTH, TrueImage
from tests.support.references import check_reading, make_marks, write_truth

pytestmark = make_marks("datasets")

SPLITS = {"train": "train", "validation": "val"}


def make_dataset(split: str, kind: str, source: Path) -> Any:
    """Save the ground-truth images of a split to the folder `source`, and return them as a `datasets.Dataset`.

    `kind` selects the column with annotations: "classes", "labels" or "boxes".
    """
    import datasets

    datasets.disable_progress_bars()
    images = TRUTH.get_images(split)
    number = datasets.ClassLabel(names=list(CLASSES))
    features: dict[str, Any] = {"image": datasets.Image()}
    rows: dict[str, list[Any]] = {"image": [str(image.save(source / f"{image.name}.png")) for image in images]}
    match kind:
        case "classes":
            features["label"] = number
            rows["label"] = [CLASSES.index(image.tags[0]) for image in images]
        case "labels":
            features["labels"] = datasets.List(number)
            rows["labels"] = [[CLASSES.index(tag) for tag in image.tags] for image in images]
        case _:
            box = datasets.List(datasets.Value("float32"), length=4)
            features["objects"] = {"bbox": datasets.List(box), "category": datasets.List(number)}
            rows["objects"] = [objects_of(image) for image in images]
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


def objects_of(image: TrueImage) -> dict[str, list[Any]]:
    boxes = [(left, top, right - left, bottom - top) for left, top, right, bottom in (o.box for o in image.objects)]
    return {
        "bbox": [list(map(float, box)) for box in boxes],
        "category": [CLASSES.index(each.name) for each in image.objects],
    }


@pytest.mark.parametrize("kind", ["classes", "labels", "boxes"])
def test_parquet_of_datasets_is_read(tmp_path: Path, kind: str) -> None:
    from datasets.table import embed_table_storage

    data = tmp_path / "set/data"
    data.mkdir(parents=True)
    for name, split in SPLITS.items():
        made = make_dataset(split, kind, tmp_path / "source").with_format("arrow")
        packed = made.map(embed_table_storage, batched=True).with_format(None)
        packed.to_parquet(str(data / f"{name}-00000-of-00001.parquet"))
    check_reading(tmp_path / "set", "huggingface", kind)


def test_save_to_disk_is_refused_with_a_remedy(tmp_path: Path) -> None:
    import datasets

    made = {name: make_dataset(split, "classes", tmp_path / "source") for name, split in SPLITS.items()}
    datasets.DatasetDict(made).save_to_disk(str(tmp_path / "set"))
    best = find_readings(str(tmp_path / "set"))[0]
    assert (best.name, best.kind) == ("unsupported:arrow", "")
    assert "to_parquet" in best.detection.remedy


def test_class_folders_are_read_as_by_datasets(tmp_path: Path) -> None:
    import datasets

    for image in TRUTH.images:
        image.save(tmp_path / "set" / image.split / image.tags[0] / f"{image.name}.png")
    loaded = datasets.load_dataset("imagefolder", data_dir=str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))
    found = {
        Path(row["image"].filename).stem: split.features["label"].int2str(row["label"])
        for split in loaded.values()
        for row in split
    }
    assert found == {image.name: image.tags[0] for image in TRUTH.images}
    check_reading(tmp_path / "set", "imagefolder")


@pytest.mark.parametrize("variant", ["plain", "splits", "nested", "csv", "labels", "boxes"])
def test_datasets_reads_metadata_as_footplate_does(tmp_path: Path, variant: str) -> None:
    import datasets

    folder = write_truth("huggingface", variant, tmp_path / "set")
    loaded = datasets.load_dataset("imagefolder", data_dir=str(folder), cache_dir=str(tmp_path / "cache"))
    rows = {Path(row["image"].filename).stem: row for split in loaded.values() for row in split}
    check_rows(rows, variant)
    check_reading(folder, "huggingface", has_splits=variant in ("splits", "nested", "boxes"))


@pytest.mark.parametrize("variant", ["parquet", "parquet_labels", "parquet_boxes"])
def test_datasets_reads_parquet_as_footplate_does(tmp_path: Path, variant: str) -> None:
    import datasets

    folder = write_truth("huggingface", variant, tmp_path / "set")
    loaded = datasets.load_dataset("parquet", data_dir=str(folder / "data"), cache_dir=str(tmp_path / "cache"))
    undecoded = {name: split.cast_column("image", datasets.Image(decode=False)) for name, split in loaded.items()}
    assert set(undecoded) == set(SPLITS)
    rows = {Path(row["image"]["path"]).stem: row for split in undecoded.values() for row in split}
    check_rows(rows, variant.removeprefix("parquet_").replace("parquet", "numbers"))
    check_reading(folder, "huggingface")


def check_rows(rows: dict[str, dict[str, Any]], variant: str) -> None:
    """Check that rows of a dataset, which `datasets` has read, have the annotations of the ground truth.

    `rows` maps the name of each image to its row. In the variant "numbers", classes are numbers, otherwise names.
    """
    assert rows.keys() == {image.name for image in TRUTH.images}
    for image in TRUTH.images:
        row = rows[image.name]
        if "labels" in row:
            labels = [CLASSES[each] if isinstance(each, int) else each for each in row["labels"]]
            assert labels == list(image.tags)
        elif "objects" in row:
            classes = [CLASSES[each] if isinstance(each, int) else each for each in row["objects"]["category"]]
            assert classes == [each.name for each in image.objects]
            assert row["objects"]["bbox"] == objects_of(image)["bbox"]
        else:
            assert (CLASSES[row["label"]] if variant == "numbers" else row["label"]) == image.tags[0]
