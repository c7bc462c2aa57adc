"""Dataset fingerprints, and the time that they take for many files.

Ranks compare them to detect that their datasets differ.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.data.datasets.images import FileImages
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.files import Files, Listing
from engine.data.loading.agreement import fingerprint
from engine.data.splits import FileSplit
from tests.support import boxed
from tests.support.boxed import ONE, SPLITS, TWO, Rectangle
from tests.support.clouds import make_clouds
from tests.support.dataset_formats import huggingface, webdataset
from tests.support.dataset_formats.truth import TRUTH

Tree = Callable[..., Path]


def fingerprint_of(folder: Path, kind: str) -> int:
    return fingerprint(open_splits(str(folder), val_fraction=0.25, seed=0, kinds=(kind,)))


def test_fingerprint_of_copied_folder_is_equal(tree: Tree, tmp_path: Path) -> None:
    folder = tree("a", "b", count=8)
    shutil.copytree(folder, tmp_path / "copy")
    assert fingerprint_of(folder, "classes") == fingerprint_of(tmp_path / "copy", "classes")
    (folder / "a/3.png").rename(folder / "a/30.png")
    assert fingerprint_of(folder, "classes") != fingerprint_of(tmp_path / "copy", "classes")


@pytest.mark.parametrize(
    ("write", "variant", "kind"),
    [
        (webdataset.write, "plain", "classes"),
        (huggingface.write, "parquet", "classes"),
        (huggingface.write, "parquet_labels", "labels"),
        (huggingface.write, "parquet_boxes", "boxes"),
    ],
)
def test_fingerprint_of_unpacked_copies_is_equal(
    write: Callable[..., None], variant: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for node in ("a", "b"):
        monkeypatch.setenv("FOOTPLATE_CACHE", str(tmp_path / f"cache-{node}"))
        folder = tmp_path / node
        folder.mkdir()
        write(TRUTH, folder, variant)
        for file in folder.rglob("*.*"):
            os.utime(file, (1_000_000_000, 1_000_000_000 + ord(node)))
        opened = open_splits(str(folder), val_fraction=0.25, seed=0, kinds=(kind,))
        found.add(fingerprint(opened))
        assert (folder / opened.train.path(0)).is_file()
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["boxes", "instances"])
def test_fingerprint_includes_boxes_and_outlines(tmp_path: Path, kind: str) -> None:
    moved = ONE._replace(rectangles=(Rectangle(11, 20, 30, 70, "cat"),))
    first = fingerprint_of(boxed.coco(tmp_path / "a", SPLITS), kind)
    assert first == fingerprint_of(boxed.coco(tmp_path / "b", SPLITS), kind)
    assert first != fingerprint_of(boxed.coco(tmp_path / "c", SPLITS | {"train": {"a": TWO, "b": moved}}), kind)


def test_fingerprint_includes_idx_labels_and_cloud_names(digits: Path, tmp_path: Path) -> None:
    before = fingerprint_of(digits, "classes")
    labels = digits / "t10k-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1] + b"\x03")
    assert fingerprint_of(digits, "classes") != before
    clouds = make_clouds(tmp_path / "clouds", {"train": 3, "val": 1}, 400)
    before = fingerprint_of(clouds, "points")
    (clouds / "train/00.ply").unlink()
    assert fingerprint_of(clouds, "points") != before


@pytest.mark.long
def test_fingerprint_of_a_million_files_is_fast(capsys: pytest.CaptureFixture[str]) -> None:
    listings = [Listing.of(f"/set/n{each:08}", [f"n{each:08}_{i}.jpeg" for i in range(1000)]) for each in range(1000)]
    files, labels = Files.of(listings), np.repeat(np.arange(1000), 1000)
    drawn = np.arange(len(files)) % 5 == 0
    train, val = (
        FileImages(FileSplit(files.select(which), labels[which], Files.of()), "/set") for which in (~drawn, drawn)
    )
    splits = Splits(tuple(map(str, range(1000))), 3, "classes", train, val)
    started = time.process_time()
    fingerprint(splits)
    taken = time.process_time() - started
    with capsys.disabled():
        print(f"\n  a fingerprint of {len(files):,} files: {1000 * taken:.0f} ms")
    assert taken < 1
