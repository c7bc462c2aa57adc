"""Images with the directions of their lines, from the files to the targets of a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from engine.contract.dataset import crop_margin
from engine.data.datasets.images import UnreadableImage
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.tiff import Bands
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.data.transforms.augmentation import draw_crops
from engine.data.transforms.device_transforms import AffinePlacement, CropPlacement, Placement
from engine.tasks.roads.directions import BACKGROUND, DIRECTIONS, STEP, compute_orientation_plane
from engine.tasks.roads.samples import OrientedImages
from tests.support.lines import make_line, make_lined
from tests.support.loaders import make_loader

SIDE = 48
COUNT = 12


def open_folder(folder: Path) -> Splits:
    return open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("masks",))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lined(tmp_path_factory.mktemp("lines"), {"train": COUNT, "val": 2}, SIDE)


def angle_difference(classes: np.ndarray, degrees: float) -> np.ndarray:
    return np.abs((classes * STEP - degrees + 90) % 180 - 90)


def test_road_images_have_mask_and_directions(folder: Path) -> None:
    train = open_folder(folder).train
    train.bands = Bands((0.0,) * 3, (255.0,) * 3, (0.5,) * 3, (0.2,) * 3)
    assert OrientedImages(train).bands == train.bands
    images = OrientedImages(open_folder(folder).train)
    for number in range(4):
        loaded = images.load(number, SIDE, 3).numpy()
        pixels, mask, degrees = make_line(SIDE, number + 1)
        assert loaded.shape == (5, SIDE, SIDE)
        assert (loaded[:3] == pixels.transpose(2, 0, 1)).all()
        assert (loaded[3] == (mask > 0)).all()
        assert (loaded[4] == compute_orientation_plane((mask > 0).astype(np.uint8))).all()
        assert np.median(angle_difference(loaded[4][mask > 0], degrees)) <= STEP


def test_directions_follow_mirroring(folder: Path) -> None:
    images = OrientedImages(open_folder(folder).train)
    sampler = GlobalBatchSampler(COUNT, 4, 0, 1, RandomStreams(3))
    loader = make_loader(images, sampler, size=SIDE - 6, augmentation="light", threads=0)
    mirrored = draw_crops(crop_margin(SIDE - 6), RandomStreams(3), 1, np.arange(COUNT), mirror=True)[:, 2]
    assert 0 < mirrored.sum() < COUNT
    close = []
    try:
        for batch in loader.epoch(1):
            assert batch.targets.shape == (4, 2, SIDE - 6, SIDE - 6)
            assert batch.targets.dtype == torch.int64
            for mask, along in batch.targets.numpy():
                assert ((along == BACKGROUND) == (mask == 0)).all()
                fresh = compute_orientation_plane(mask.astype(np.uint8)).astype(np.int64)
                directed = (mask == 1) & (fresh < DIRECTIONS) & (along < DIRECTIONS)
                off = np.abs(fresh - along)[directed]
                close.append(np.minimum(off, DIRECTIONS - off) <= 1)
    finally:
        loader.close()
    assert np.concatenate(close).mean() > 0.9


def test_directions_follow_each_images_placement(folder: Path) -> None:
    images = OrientedImages(open_folder(folder).train)
    classes = torch.tensor([*range(DIRECTIONS + 1), NO_CLASS], dtype=torch.uint8)

    def place(placement: Placement, planes: torch.Tensor) -> torch.Tensor:
        return images.batch_targets(torch.zeros(len(planes)), planes, placement, SIDE)

    def make_planes(directions: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.zeros_like(directions), directions])[None, :, None]

    mirrored = CropPlacement(torch.tensor([[0, 0, 1]]), SIDE, SIDE)
    once = place(mirrored, make_planes(classes))
    assert once[0, 1, 0].tolist() == [*(-each % DIRECTIONS for each in range(DIRECTIONS)), BACKGROUND, NO_CLASS]
    assert torch.equal(place(mirrored, once), make_planes(classes).long())
    cos, sin = np.cos(np.radians(2 * STEP)), np.sin(np.radians(2 * STEP))
    # Counterclockwise by two classes, and twice as wide. Rows run downwards.
    affine = torch.tensor([[cos, sin, 0, -sin, cos, 0], [2, 0, 0, 0, 1, 0]], dtype=torch.float32)
    rotated, stretched = place(AffinePlacement(affine, SIDE, 1), make_planes(classes).repeat(2, 1, 1, 1))[
        :, 1, 0
    ].tolist()
    assert rotated == [*((each + 2) % DIRECTIONS for each in range(DIRECTIONS)), BACKGROUND, NO_CLASS]
    angles = np.radians(STEP * np.arange(DIRECTIONS))
    expected = np.round(np.degrees(np.arctan2(np.sin(angles) / 2, np.cos(angles))) / STEP).astype(int) % DIRECTIONS
    assert stretched == [*expected, BACKGROUND, NO_CLASS]


def test_directions_are_cached_separately(folder: Path) -> None:
    plain = open_folder(folder).train
    sampler = GlobalBatchSampler(COUNT, COUNT, 0, 1, RandomStreams(3), shuffle=False)
    found = []
    for images, decoded in ((plain, COUNT), (OrientedImages(plain), COUNT), (OrientedImages(plain), 0)):
        loader = make_loader(images, sampler, size=SIDE, augmentation="none", threads=0, cache="disk")
        try:
            (batch,) = loader.epoch(1)
            assert loader.decoded == decoded
        finally:
            loader.close()
        found.append(batch.targets)
    assert torch.equal(found[0], found[1][:, 0])
    assert torch.equal(found[1], found[2])


def test_invalid_mask_names_its_image(tmp_path: Path) -> None:
    folder = make_lined(tmp_path, {"train": 2, "val": 2}, SIDE)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "masks/train/001.png")
    images = OrientedImages(open_folder(folder).train)
    assert images.path(1).endswith("001.png")
    with pytest.raises(UnreadableImage, match=r"001\.png.*its mask has a different size"):
        images.load(1, SIDE, 3)
