"""Dataset fingerprints, which ranks compare to detect that their datasets differ, and the time to compute them."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.data.datasets.images import DatasetError, FileImages
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.files import Files, Listing, make_files
from engine.data.loading.agreement import check_same_dataset, compute_fingerprint
from engine.data.splits import FileSplit
from tests.support import boxed
from tests.support.boxed import ONE, SPLITS, TWO, Rectangle
from tests.support.clouds import make_clouds
from tests.support.dataset_formats import huggingface, webdataset
from tests.support.dataset_formats.truth import TRUTH

Tree = Callable[..., Path]


def fingerprint_of(folder: Path, kind: str) -> int:
    return compute_fingerprint(open_splits(str(folder), val_fraction=0.25, seed=0, kinds=(kind,)))


def test_fingerprint_of_copied_folder_is_equal(tree: Tree, tmp_path: Path) -> None:
    folder = tree("a", "b", count=8)
    shutil.copytree(folder, tmp_path / "copy")
    assert fingerprint_of(folder, "classes") == fingerprint_of(tmp_path / "copy", "classes")
    opened = open_splits(str(folder), val_fraction=0.25, seed=0)
    changes: list[dict[str, Any]] = [{}, {"classes": ("a", "c")}, {"channels": 1}, {"format": "other"}]
    assert len({compute_fingerprint(replace(opened, **change)) for change in changes}) == 4
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
        found.add(compute_fingerprint(opened))
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


def compare_ranks(*ranks: tuple[str, ...]) -> list[str]:
    """Let ranks compare their datasets, and return each rank's error message, or "" if it raises no error.

    Each of `ranks` is a pair of texts: the training images and the validation images that the rank finds, one letter
    per image. For example, "aB" are the images a.png of class 0 and b.png of class 1, because a capital letter means
    class 1. A third text is the name of class 1.
    """
    barrier, shared = threading.Barrier(len(ranks), timeout=60), [None] * len(ranks)

    def check(rank: int) -> str:
        def gather(value: object) -> list[object]:
            shared[rank] = value  # type: ignore[call-overload]
            barrier.wait()
            values = list(shared)
            barrier.wait()
            return values

        sets = [
            FileImages(
                FileSplit(
                    make_files(f"/set/{letter.lower()}.png" for letter in letters),
                    np.array([letter.isupper() for letter in letters], np.int64),
                    Files.of(),
                ),
                "/set",
            )
            for letters in ranks[rank][:2]
        ]
        try:
            check_same_dataset(Splits(("x", *ranks[rank][2:]), 3, "classes", *sets), "/set", gather)
        except DatasetError as error:
            return error.problems[0].message
        return ""

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(check, range(len(ranks))))


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        ([("aB", "c")] * 3, []),
        ([("abc", "d"), ("abc", "d"), ("axc", "d")], ["training", "rank 2", "3 samples", "b.png", "x.png"]),
        ([("abc", "d"), ("ab", "d")], ["training", "rank 1", "finds 2.", "c.png"]),
        ([("ab", "cd"), ("ab", "cD")], ["validation", "rank 1", "d.png"]),
        ([("a", "c"), ("a", "cd"), ("a", "c")], ["validation", "rank 1", "d.png"]),
        ([("a", "c", "y"), ("a", "c", "z")], ["the file names are the same, but the classes or annotations differ."]),
    ],
)
def test_ranks_name_the_first_difference(ranks: list[tuple[str, ...]], named: list[str]) -> None:
    messages = compare_ranks(*ranks)
    assert len(set(messages)) == 1
    assert [fragment for fragment in ("training", "rank 1", "rank 2", "a.png") if fragment in messages[0]] == [
        fragment for fragment in ("training", "rank 1", "rank 2") if fragment in named
    ]
    assert all(fragment in messages[0] for fragment in named)


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
    compute_fingerprint(splits)
    taken = time.process_time() - started
    with capsys.disabled():
        print(f"\n  a fingerprint of {len(files):,} files: {1000 * taken:.0f} ms")
    assert taken < 1
