"""Detection of duplicate images in any file format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from engine.contract.job import Job
from engine.data.datasets.images import FileImages
from engine.inference.review.duplicates import Fingerprints, compute_fingerprints, find_pairs
from engine.tasks.registry import TASKS

DATASETS = Path(__file__).parents[5] / "shared/datasets"


def draw_photograph(random: np.random.Generator) -> np.ndarray:
    """Return an image of smooth color patches, uint8 [120, 140, 3]."""
    small = Image.fromarray(random.integers(0, 256, (7, 8, 3), dtype=np.uint8))
    return np.asarray(small.resize((140, 120), Image.Resampling.BICUBIC))


def find_duplicates(*splits: FileImages) -> set[tuple[str, str]]:
    names = [Path(split.path(index)).name for split in splits for index in range(len(split))]
    prints = compute_fingerprints(splits, 3, 2, lambda done: None)
    return {(names[pair.first], names[pair.second]) for pair in find_pairs(prints)}


def images_in(folder: Path) -> list[FileImages]:
    splits = TASKS["classification"].open_splits(Job.from_fields(task="classification", dataset=str(folder)))
    assert isinstance(splits.train, FileImages)
    assert isinstance(splits.val, FileImages)
    return [splits.train, splits.val]


def test_resaved_copies_are_found(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(20):
                pixels = draw_photograph(random)
                Image.fromarray(pixels).save(tmp_path / f"{split}/{name}/{split}-{name}-{number}.png")
    with Image.open(tmp_path / "train/a/train-a-3.png") as original:
        original.save(tmp_path / "val/b/recompressed.jpg", quality=60)
        original.resize((91, 78)).save(tmp_path / "val/b/smaller.png")
        ImageEnhance.Brightness(original).enhance(1.02).save(tmp_path / "train/b/brighter.png")
    same = ["train-a-3.png", "brighter.png", "recompressed.jpg", "smaller.png"]
    found = find_duplicates(*images_in(tmp_path))
    assert found == {(one, other) for number, one in enumerate(same) for other in same[number + 1 :]}


def test_similar_photos_are_no_duplicates() -> None:
    folder = DATASETS / "hymenoptera"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing")
    assert len(find_duplicates(*images_in(folder))) <= 2


def test_pairs_are_near_in_hash_and_gray_levels() -> None:
    random = np.random.default_rng(0)
    hashes, levels = random.random((1030, 64)) < 0.5, np.full((1030, 144), 100, np.uint8)
    pairs = {(0, 1): 6, (2, 3): 7, (4, 1029): 0, (1026, 1028): 1, (5, 6): 2, (7, 8): 3, (9, 10): 4}
    for (first, second), bits in pairs.items():
        hashes[second] = hashes[first]
        hashes[second, :bits] ^= True
    levels[0], levels[1], levels[5] = 0, 8, 109  # a mean difference of 8 is allowed, and 9 is not
    is_readable = np.ones(1030, bool)
    is_readable[[8, 9]] = False
    found = list(find_pairs(Fingerprints(hashes, levels, is_readable)))
    assert found == [(0, 1, 6), (4, 1029, 0), (1026, 1028, 1)]


def test_fingerprints_hold_brightness_and_readability(tmp_path: Path) -> None:
    ramp = np.repeat(np.arange(0, 144, 2, dtype=np.uint8)[None], 72, 0)
    for number, pixels in enumerate((ramp, ramp[:, ::-1], ramp, ramp + 1)):
        path = tmp_path / f"{'val' if number > 1 else 'train'}/{'ab'[number % 2]}/{number}.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(pixels).save(path)
    splits = images_in(tmp_path)
    (tmp_path / "val/a/2.png").write_bytes(b"no image")
    done: list[int] = []
    found = compute_fingerprints(splits, 1, 1, done.append)
    assert (found.is_readable.tolist(), done) == ([True, True, False, True], [1, 2, 3, 4])
    assert [row.all() for row in found.hashes] == [True, False, False, True]
    assert not found.hashes[1:3].any()
    assert found.thumbnails[0].reshape(12, 12)[3].tolist() == [12 * column + 5 for column in range(12)]
