"""Examples as the augmentation makes them, and how large pictures are."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from engine.contract.dataset import Example, PictureSizes
from engine.contract.paths import sample_dataset
from engine.data.augmentation import crop
from engine.data.augmented import EPOCHS, SIDE, with_augmented
from engine.data.crops import crop_margin, draw_crops
from engine.data.drawing import png
from engine.data.idx import Bytes
from engine.data.inspection import inspect
from engine.data.sizes import picture_sizes


def pixels(content: bytes) -> Bytes:
    with Image.open(BytesIO(content)) as image:
        return np.asarray(image)


def noise(height: int, width: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize("mirror", [True, False])
def test_that_examples_are_cropped_and_mirrored_as_training_does_it(mirror: bool) -> None:
    margin = crop_margin(SIDE)
    picture = noise(SIDE + margin, SIDE + margin)
    loaded = torch.from_numpy(picture).permute(2, 0, 1)[None].contiguous()
    for sample in (0, 7, 1234):
        (example,) = with_augmented([Example("a", "train", png(picture), sample)], seed=5, mirror=mirror, whole=True)
        assert len(example.augmented) == EPOCHS
        for epoch, made in enumerate(example.augmented, 1):
            drawn = draw_crops(margin, 5, epoch, np.array([sample]), mirror=mirror)
            expected = crop(loaded, torch.from_numpy(drawn), SIDE)[0].permute(1, 2, 0).numpy()
            np.testing.assert_array_equal(pixels(made), expected)


def test_that_an_example_whose_place_is_not_known_stays_as_it_is() -> None:
    example = Example("a", "train", png(noise(20, 30)))
    assert with_augmented([example], seed=0, mirror=True, whole=True) == [example]


def test_that_pictures_are_whole_or_their_middle_is_taken() -> None:
    white = np.full((100, 200, 3), 255, np.uint8)
    for whole in (True, False):
        (example,) = with_augmented([Example("", "train", png(white), 0)], seed=0, mirror=True, whole=whole)
        shares = [float((pixels(made) == 0).mean()) for made in example.augmented]
        assert all(share > 0.3 for share in shares) if whole else shares == [0.0] * EPOCHS


def test_that_grey_pictures_stay_grey() -> None:
    (example,) = with_augmented(
        [Example("", "train", png(noise(28, 28)[..., 0]), 3)], seed=0, mirror=False, whole=False
    )
    assert {pixels(made).shape for made in example.augmented} == {(SIDE, SIDE)}


def test_that_every_example_of_a_folder_is_augmented() -> None:
    report = inspect(str(sample_dataset()), val_fraction=0.2, seed=3, progress=lambda _done, _total: None)
    assert report.examples
    assert all(len(example.augmented) == EPOCHS for example in report.examples)
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
