"""Division of samples into splits, and the properties of masks that are found in a few sampled ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.contract.problems import Problem
from engine.data.files import Files, make_files
from engine.data.formats.format import Confidence
from engine.data.formats.shared.mask_sample import MaskSample, are_label_images, detect_masks, sample_masks
from engine.data.formats.shared.splitting import divide, list_strata, sample_keys, select_samples
from engine.data.splits import (
    FileSplit,
    IdxSplit,
    LabelSplit,
    MaskSplit,
    RecognizedDataset,
    abbreviate_names,
    dataset_error,
    first_names,
    make_unrecognized,
    warn_unreadable,
)
from tests.support.images import write_image, write_noise


def split(count: int) -> FileSplit:
    return FileSplit(make_files(f"/data/{count}_{n}.png" for n in range(count)), np.arange(count) % 2, Files.of())


@pytest.mark.parametrize(
    ("counts", "val_fraction", "expected", "problems"),
    [
        ({"train": 4, "val": 3, "test": 2}, 0.5, (4, 3, 2), 0),
        ({"train": 4, "": 6, "val": 3}, 0.5, (4, 3, None), 0),
        ({"train": 4, "test": 2}, 0.5, (4, 2, 2), 1),
        ({"train": 4, "test": 2}, 0.0, (4, 0, 2), 0),
        ({"": 8, "test": 2}, 0.25, (6, 2, 2), 0),
        ({"test": 2}, 0.0, (0, 0, 2), 0),
        ({"test": 2}, 0.5, None, 1),
        ({"": 2}, 0.5, (2, 0, None), 1),
        ({"train": 0, "val": 0}, 0.5, None, 1),
    ],
)
def test_divide_chooses_splits(
    counts: dict[str, int], val_fraction: float, expected: tuple[int | None, ...] | None, problems: int
) -> None:
    found: list[Problem] = []
    splits = {name: split(count) for name, count in counts.items()}
    divided = divide(splits, "/data", found, val_fraction=val_fraction, seed=0, layout="")
    lengths = None if divided is None else tuple(None if each is None else len(each.files) for each in divided)
    assert (lengths, len(found)) == (expected, problems)
    if divided is not None:
        drawn = [each.is_drawn for each in (divided.train, divided.val)]
        assert drawn == [False, "val" not in counts and not ("test" in counts and "train" in counts and val_fraction)]


def test_strata_are_classes_or_rarest_labels() -> None:
    assert list_strata(split(3)).tolist() == [0, 1, 0]
    assert list_strata(IdxSplit("a", np.array([5, 7]))).tolist() == [5, 7]
    assert list_strata(MaskSplit(["a", "b"], ["c", "d"])).tolist() == [0, 0]
    labels = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 1]], bool)
    assert list_strata(LabelSplit(list("abcde"), labels)).tolist() == [2, 0, 1, 3, 2]
    unused = np.array([[1, 0], [0, 0]], bool)
    assert list_strata(LabelSplit(list("ab"), unused)).tolist() == [0, 2]


def test_sample_keys_are_rows_or_relative_paths() -> None:
    chosen = IdxSplit("a", np.array([1, 2, 3])).select(np.array([False, True, True]), is_drawn=True)
    assert list(sample_keys(chosen, "")) == [number.to_bytes(8, "little") for number in (1, 2)]
    again = chosen.select(np.array([False, True]), is_drawn=True)
    assert (list(sample_keys(again, "")), again.labels.tolist()) == ([(2).to_bytes(8, "little")], [3])
    assert list(sample_keys(MaskSplit(["/data/x/a.png", "/data/b.png"], []), "/data")) == [b"x/a.png", b"b.png"]


def test_drawn_files_have_no_strays() -> None:
    files = FileSplit(make_files(["/d/a", "/d/b"]), np.array([0, 1]), make_files(["/d/x"]))
    selected = [files.select(np.array([False, True]), is_drawn=is_drawn) for is_drawn in (False, True)]
    assert [(list(each.files), each.labels.tolist()) for each in selected] == [(["/d/b"], [1])] * 2
    assert [list(each.strays) for each in selected] == [["/d/x"], []]
    shared = RecognizedDataset("table", train=selected[0], val=files, test=files)
    assert shared.splits == {"train": selected[0], "val": files}
    assert make_unrecognized(dataset_error("no", "none"), "boxes").other == "boxes"


def test_messages_count_and_name_the_first_files() -> None:
    assert [abbreviate_names(list(names)) for names in ("abc", "abcd")] == ["a, b, c", "a, b, c, …"]
    assert first_names(["/a/x.png", "/b/x.png", "c.png"]) == "x.png, c.png"
    faults = [(f"/a/{name}.png", f"{name} is torn") for name in "xyz"]
    messages = [warn_unreadable(faults[:count], "box", "")[0].message for count in (1, 2, 3)]
    assert ["1 box " in messages[0], "2 boxes " in messages[1]] == [True, True]
    assert [message.partition("x is torn")[2] for message in messages] == [").", "; and 1 more).", "; and 2 more)."]


def test_select_samples_selects_every_list() -> None:
    masks = select_samples(MaskSplit(list("abc"), list("xyz")), np.array([True, False, True]), is_drawn=True)
    assert (masks.files, masks.masks, masks.is_drawn) == (["a", "c"], ["x", "z"], True)
    labels = np.array([[1, 0], [0, 1], [1, 1]], bool)
    chosen: Any = select_samples(LabelSplit(list("abc"), labels), np.array([False, False, True]))
    assert (chosen.files, chosen.labels.tolist(), chosen.is_drawn) == (["c"], [[True, True]], False)


# Masks


def save(path: Path, values: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array(values, np.uint8)).save(path)
    return str(path)


def test_masks_with_doubts_are_detected_weakly() -> None:
    for fitting, against, doubts in ((2, "", 0), (1, "", 1), (2, "odd values", 1), (1, "odd values", 2)):
        found = detect_masks(MaskSample(readable=3, fitting=fitting), ("masks",), against=against)
        assert (found.confidence, len(found.against)) == (Confidence.WEAK if doubts else Confidence.CERTAIN, doubts)


def test_sample_masks_counts_properties(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    few = np.where(
        generator.random((40, 40)) < 0.8, generator.integers(0, 16, (40, 40)), np.arange(1600).reshape(40, 40)
    )
    photo = str(write_image(tmp_path / "a.png", size=(40, 40)))
    masks = [
        save(tmp_path / "few.png", few % 256),
        save(tmp_path / "noise.png", generator.integers(0, 256, (40, 40))),
        save(tmp_path / "gray.png", np.full((40, 40, 3), 7)),
        save(tmp_path / "color.png", np.full((40, 40, 3), (7, 8, 9))),
        save(tmp_path / "lossy.jpg", np.full((30, 40), 9)),
        save(tmp_path / "ramp.png", np.repeat(np.arange(100), 16).reshape(40, 40)),
    ]
    (tmp_path / "torn.png").write_bytes(b"torn")
    sample = sample_masks([(photo, path) for path in (str(tmp_path / "gone.png"), str(tmp_path / "torn.png"), *masks)])
    assert (sample.readable, sample.label_like, sample.fitting, sample.colored, sample.lossy) == (6, 5, 5, 1, 1)
    assert sample.failure.startswith("gone.png: ")
    assert (sample.numbers[2], sample.numbers[4], sample.has_zero) == ([7], [9], True)


@pytest.mark.parametrize(("size", "fitting"), [((16, 20), 1), ((20, 16), 1), ((20, 20), 0)])
def test_sample_masks_may_have_the_size_of_the_turned_image(
    tmp_path: Path, size: tuple[int, int], fitting: int
) -> None:
    pair = str(write_image(tmp_path / "a.png", size=(20, 16))), save(tmp_path / "b.png", np.ones(size))
    assert sample_masks([pair]).fitting == fitting


def test_label_images_are_a_majority_of_the_clear_ones(tmp_path: Path) -> None:
    mask = save(tmp_path / "mask.png", np.kron(np.eye(4), np.ones((9, 9))))
    photos = [str(write_noise(tmp_path / f"{seed}.png", seed)) for seed in range(2)]
    plain = str(write_image(tmp_path / "plain.png", (1, 2, 3)))
    votes = [
        are_label_images(paths) for paths in ([mask, *photos], [mask, mask, photos[0]], [mask, plain], [plain], [])
    ]
    assert votes == [False, True, True, None, None]
    with Image.open(photos[0]) as photo:
        photo.convert("P").save(tmp_path / "palette.png")
        photo.convert("RGBA").save(tmp_path / "transparent.png")
    save(tmp_path / "gray.png", np.full((9, 9, 3), 7))
    save(tmp_path / "dots.png", np.random.default_rng(0).integers(0, 2, (40, 40)))
    save(tmp_path / "ramp.png", np.repeat(np.arange(100), 90).reshape(90, 100))
    Image.fromarray(np.eye(40).astype(np.uint16) * 300).save(tmp_path / "deep.png")
    names = ("palette", "transparent", "gray", "dots", "ramp", "deep")
    labels = [name for name in names if are_label_images([str(tmp_path / f"{name}.png")])]
    assert labels == ["palette", "gray", "deep"]
