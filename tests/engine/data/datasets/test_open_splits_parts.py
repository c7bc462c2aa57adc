"""Opened splits: changes to all of them, cross-validation folds, identity, and how files and masks are read."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.data.cache.cache_policy import open_store
from engine.data.datasets.images import DatasetError, FileImages, IdxImages, MaskedImages, UnreadableImage
from engine.data.datasets.open_splits import Splits, open_recognized, open_splits, select_fold
from engine.data.files import Files, make_files
from engine.data.formats.registry import recognize
from engine.data.formats.shared.splitting import sample_keys
from engine.data.splits import FileSplit, IdxSplit, MaskCode, MaskSplit, order_by_hash
from engine.system.cache_limit import LIMIT_VARIABLE
from tests.support.images import write_image
from tests.support.trained_runs import make_colors


def files(*names: str) -> FileImages:
    return FileImages(
        FileSplit(make_files(f"/set/{name}" for name in names), np.zeros(len(names), int), Files.of()), "/set"
    )


def test_with_each_changes_a_shared_split_once() -> None:
    changed: list[Any] = []

    def change(images: Any) -> Any:
        changed.append(images)
        return files("changed.png")

    train, val, test = files("a.png"), files("b.png"), files("c.png")
    shared = Splits(("x",), 3, "classes", train, val, test=val).with_each(change, channels=1)
    assert (shared.test, shared.channels, changed) == (shared.val, 1, [val, train])
    assert Splits(("x",), 3, "classes", train, val).with_each(change).test is None
    separate = Splits(("x",), 3, "classes", train, val, test=test).with_each(change)
    assert separate.test not in (separate.val, None)


def test_test_images_serve_for_validation_and_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_colors(tmp_path / "both", {"train": 2, "test": 1})
    monkeypatch.setenv("HOME", str(tmp_path))
    opened = open_splits("~/both", val_fraction=0.2, seed=0)
    assert opened.test is opened.val
    for number in range(4):
        write_image(tmp_path / "gray/test" / "ab"[number % 2] / f"{number}.png", 40 * number, mode="L")
    found = recognize(str(tmp_path / "gray"), val_fraction=0.0, seed=0)
    assert open_recognized(found, str(tmp_path / "gray")).channels == 1
    for number in range(4):
        path = tmp_path / "bands/test" / "ab"[number % 2] / f"{number}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.random.default_rng(number).integers(0, 60_000, (9, 8, 4), np.uint16))
    found = recognize(str(tmp_path / "bands"), val_fraction=0.0, seed=0)
    assert open_recognized(found, str(tmp_path / "bands")).channels == 4
    for number in range(8):
        path = tmp_path / "mixed" / ("train", "val")[number // 4] / "ab"[number % 2] / f"{number}.png"
        write_image(path, 40 * number if number < 4 else (40, 90, 20), mode="L" if number < 4 else "RGB")
    assert open_splits(str(tmp_path / "mixed"), val_fraction=0.2, seed=0).channels == 3


@pytest.mark.parametrize(("bands", "has_statistics"), [(1, False), (2, True), (3, False), (4, True)])
def test_bands_have_statistics_and_a_kind(tmp_path: Path, bands: int, has_statistics: bool) -> None:
    for number in range(8):
        values = np.random.default_rng(number).integers(0, 60_000, (9, 8, bands), np.uint16)
        path = tmp_path / "ab"[number % 2] / f"{number}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, values)
    opened = open_splits(str(tmp_path), val_fraction=0.25, seed=0)
    assert (opened.channels, opened.statistics is not None) == (bands, has_statistics)
    train: Any = opened.train
    assert train.bands is not None
    assert repr(train.bands) in train.cache_key


@pytest.mark.parametrize("number", [1, 2, 3])
def test_fold_holds_out_every_third_of_the_order(tmp_path: Path, number: int) -> None:
    folder = str(make_colors(tmp_path / "set", {"train": 11, "val": 4}))
    found = recognize(folder, val_fraction=0.2, seed=5)
    train: Any = found.train
    order = order_by_hash(sample_keys(train, folder), train.labels, 5)
    val: Any = select_fold(found, folder, f"{number}/3", 5).val
    assert list(val.files) == [train.files[index] for index in sorted(order[number - 1 :: 3])]
    assert val.is_drawn


def test_folds_of_idx_files_keep_rows_and_labels(digits: Path) -> None:
    for path in digits.glob("t10k*"):
        path.unlink()
    found = recognize(str(digits), val_fraction=0.3, seed=0)
    rows = []
    for number in (1, 2):
        fold = select_fold(found, str(digits), f"{number}/2", 0)
        for split in (fold.train, fold.val):
            assert isinstance(split, IdxSplit)
            assert split.rows is not None
            assert split.labels.tolist() == (split.rows % 10).tolist()
        rows.append(sorted([*fold.train.rows.tolist(), *fold.val.rows.tolist()]))  # type: ignore[union-attr]
    assert rows == [list(range(40))] * 2


def test_images_of_a_lost_folder_may_be_broken(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 9, 2)))  # either axis may hold the channels
    split = FileSplit(make_files([str(tmp_path / "a.npy")]), np.zeros(1, int), Files.of())
    with pytest.raises(UnreadableImage):
        FileImages(split, str(tmp_path / "gone")).load(0, 8, 3)
    (tmp_path / "empty").mkdir()
    lost = FileSplit(make_files([str(tmp_path / "lost.png")]), np.zeros(1, int), Files.of())
    for folder in ("gone", "empty"):
        with pytest.raises(DatasetError, match=f"{folder} no longer exists"):
            FileImages(lost, str(tmp_path / folder)).load(0, 8, 3)
    with pytest.raises(UnreadableImage):
        FileImages(lost, str(tmp_path)).load(0, 8, 3)


def test_identity_includes_masks_and_rows() -> None:
    masked = [
        MaskedImages(MaskSplit(["/set/a.png"], [f"/set/{mask}.png"]), MaskCode(values), "/set")
        for mask, values in (("m", (0, 1)), ("n", (0, 1)), ("m", (0, 2)))
    ]
    labels = np.zeros(3, int)
    digits = [
        IdxImages(IdxSplit("idx", labels, rows), np.zeros(shape, np.uint8))
        for rows, shape in ((None, (3, 8, 8)), (None, (3, 8, 6)), (labels + 1, (3, 8, 8)), (labels + 2, (3, 8, 8)))
    ]
    identities = {b"".join(map(bytes, images.identity())) for images in (*masked, *digits)}
    assert len(identities) == 7


@pytest.mark.parametrize(("shape", "is_mapped"), [((3, 8, 8), True), ((3, 8, 6), False), ((3, 6, 8), False)])
def test_idx_file_is_mapped_in_its_size_only(shape: tuple[int, ...], is_mapped: bool) -> None:
    images = IdxImages(IdxSplit("idx", np.zeros(3, int)), np.zeros(shape, np.uint8))
    assert [images.mapped_file(8, channels) is not None for channels in (1, 3)] == [is_mapped, False]


def test_idx_images_are_loaded_in_the_requested_order() -> None:
    pixels = np.arange(5, dtype=np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2)
    images = IdxImages(IdxSplit("/set/idx", np.zeros(3, int), np.array([0, 2, 4])), pixels)
    assert images.load_many(np.array([2, 0, 1]), 8, 3)[:, 2, 0, 0].tolist() == [4, 0, 2]
    assert images.path(1) == "idx image 2"


def test_stretched_images_have_a_cache_of_their_own(tmp_path: Path) -> None:
    path = str(write_image(tmp_path / "a.png"))
    images = FileImages(FileSplit(make_files([path]), np.zeros(1, int), Files.of()), str(tmp_path))
    folders = []
    for stretched in (False, True, False):
        store: Any = open_store(images, 8, 3, "disk", lambda choice, why: None, stretched=stretched)
        folders.append(store.folder)
        store.close()
    assert folders[0] == folders[2] != folders[1]


def test_disk_cache_depends_on_masks_and_their_code(tmp_path: Path) -> None:
    for name in ("a", "m"):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / f"{name}.png")
    images = MaskedImages(
        MaskSplit(*[[str(tmp_path / f"{name}.png")] for name in "am"]), MaskCode((0, 1)), str(tmp_path)
    )
    chosen: list[tuple[str, str]] = []
    store: Any = open_store(images, 1024, 3, "disk", lambda *reason: chosen.append(reason))
    other: Any = open_store(images.with_code(MaskCode((0, 2))), 1024, 3, "disk", lambda *reason: chosen.append(reason))
    assert store.folder != other.folder
    assert [(choice, "later runs: 4 MiB in" in why) for choice, why in chosen] == [("disk", True)] * 2
    assert not store.prepare(0)
    assert store.put(0, images.load(0, 1024, 3).numpy(), 1.0)
    assert store.prepare(0)
    os.utime(tmp_path / "m.png", ns=(5, 5))
    assert not store.prepare(0)
    for each in (store, other):
        each.close()


@pytest.mark.parametrize(
    ("mode", "available", "choice"),
    [
        ("memory", 512, "memory"),
        ("memory", 511, "off"),
        ("auto", 2048, "memory"),
        ("auto", 2047, "off"),
        ("disk", 2048, "memory"),
        ("off", 2048, "off"),
    ],
)
def test_cache_in_memory_needs_a_part_of_what_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, available: int, choice: str
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "lots")  # so that the disk is refused
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=available))
    chosen: list[tuple[str, str]] = []
    path = str(write_image(tmp_path / "a.png"))
    images = MaskedImages(MaskSplit([path], [path]), MaskCode((0, 1)), str(tmp_path))  # 256 bytes: 4 planes of 8 x 8
    store = open_store(images, 8, 3, mode, lambda *reason: chosen.append(reason))
    assert ([each for each, _ in chosen], store is None) == ([choice], choice == "off")
    ((_, why),) = chosen
    assert ("The disk cache can't be used" in why) == (mode in ("auto", "disk"))
    assert ("as requested" in why) == (mode == "off")


def test_mask_that_is_smaller_than_the_square_has_no_class_outside(tmp_path: Path) -> None:
    for name in ("a", "m"):
        Image.fromarray(np.zeros((4, 8), np.uint8)).save(tmp_path / f"{name}.png")
    paths = [[str(tmp_path / f"{name}.png")] for name in ("a", "m")]
    images = MaskedImages(MaskSplit(*paths), MaskCode((0, 1), ignored=(9,)), str(tmp_path))
    assert images.load(0, 8, 3)[3, :, 0].tolist() == [255, 255, 0, 0, 0, 0, 255, 255]
    Image.fromarray(np.array([[0, 0, 0, 1, 1, 9, 9, 9]], np.uint8)).save(tmp_path / "m.png")
    assert images.class_counts(2) == [3, 2]
