"""Tar files written and read by webdataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.dataset_formats.truth import CLASSES, TRUTH, TrueImage
from tests.support.references import check_reading, make_marks, write_truth

pytestmark = make_marks("webdataset")


def sample_of(image: TrueImage, kind: str) -> dict[str, Any]:
    sample: dict[str, Any] = {"__key__": image.name, "png": image.draw_pixels()}
    match kind:
        case "words":
            return sample | {"cls": image.tags[0]}
        case "numbers":
            return sample | {"cls": CLASSES.index(image.tags[0])}
        case "class in JSON":
            return sample | {"json": {"label": image.tags[0]}}
    return sample | {"json": {"labels": list(image.tags)}}


@pytest.mark.parametrize("kind", ["words", "numbers", "class in JSON", "labels in JSON"])
def test_shards_of_webdataset_are_read(tmp_path: Path, kind: str) -> None:
    import webdataset

    for split in ("train", "val"):
        with webdataset.ShardWriter(str(tmp_path / f"{split}-%06d.tar"), maxcount=2, verbose=0) as shards:
            for image in TRUTH.get_images(split):
                shards.write(sample_of(image, kind))
    if kind == "numbers":
        (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    check_reading(tmp_path, "webdataset")


@pytest.mark.parametrize("variant", ["plain", "splits", "nested", "numbers", "json", "labels", "gz"])
def test_webdataset_reads_shards_as_footplate_does(tmp_path: Path, variant: str) -> None:
    import json

    import webdataset

    folder = write_truth("webdataset", variant, tmp_path / "shards")
    found = {}
    for path in sorted(folder.rglob("*.tar*")):
        for sample in webdataset.WebDataset(str(path), shardshuffle=False):
            match variant:
                case "json":
                    label = json.loads(sample["json"])["label"]
                case "labels":
                    label = tuple(json.loads(sample["json"])["labels"])
                case "numbers":
                    label = CLASSES[int(sample["cls"])]
                case _:
                    label = sample["cls"].decode().strip()
            found[sample["__key__"]] = label
    assert found == {image.name: image.tags if variant == "labels" else image.tags[0] for image in TRUTH.images}
    check_reading(folder, "webdataset", has_splits=variant in ("splits", "nested"))
