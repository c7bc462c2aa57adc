"""What the augmentation takes of examples, and how large pictures are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.contract.dataset import PictureSizes, crop_margin
from engine.contract.paths import sample_dataset
from engine.data.crops import draw_crops, first_crops
from engine.data.inspection import EPOCHS, inspect
from engine.data.randomness import RandomStreams
from engine.data.sizes import picture_sizes


@pytest.mark.parametrize("mirror", [True, False])
def test_that_the_crops_told_of_are_those_of_training_at_every_size(mirror: bool) -> None:
    for sample in (0, 7, 1234):
        told = first_crops(EPOCHS, RandomStreams(5), sample, mirror=mirror)
        for size in (8, 64, 224, 1000):
            for epoch, crop in enumerate(told, 1):
                drawn = draw_crops(crop_margin(size), RandomStreams(5), epoch, np.array([sample]), mirror=mirror)
                assert [*crop.corner(size), int(crop.mirrored)] == drawn[0].tolist()
    assert any(
        crop.mirrored for sample in range(9) for crop in first_crops(EPOCHS, RandomStreams(5), sample, mirror=True)
    )


def test_that_of_every_example_of_a_folder_it_is_told_what_is_taken() -> None:
    report = inspect(str(sample_dataset()), val_fraction=0.2, seed=3, progress=lambda _done, _total: None)
    assert report.examples
    assert all(len(example.crops) == EPOCHS for example in report.examples)
    assert not report.whole
    assert report.sizes is not None
    assert report.sizes.smallest == report.sizes.largest == (28, 28)


def test_that_sizes_are_those_of_the_smallest_the_middle_and_the_largest(tmp_path: Path) -> None:
    files = []
    for number, (width, height) in enumerate(((40, 30), (10, 12), (80, 20), (5, 100), (200, 100))):
        files.append(str(tmp_path / f"{number}.png"))
        Image.new("L", (width, height)).save(files[-1])
    (tmp_path / "broken.png").write_bytes(b"no picture")
    assert picture_sizes([*files, str(tmp_path / "broken.png")]) == PictureSizes((10, 12), (40, 30), (200, 100), 5)
    assert picture_sizes([str(tmp_path / "broken.png")]) is None
    assert picture_sizes([]) is None
