"""Meaning of mask values, and images with masks."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.datasets.images import MaskedImages, UnreadableImage
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.mask_values import NO_CLASS
from tests.support.masks import make_masked


def png(pixels: np.ndarray, mode: str | None = None) -> bytes:
    stream = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(stream, "PNG")
    return stream.getvalue()


def test_mask_covers_image_in_its_square(tmp_path: Path) -> None:
    folder = make_masked(tmp_path, {"train": 4, "val": 2}, side=32)
    wide = np.zeros((16, 32, 3), np.uint8)
    wide[:, 16:] = 255
    mask = np.where(wide[..., 0] > 0, 1, 0).astype(np.uint8)
    Image.fromarray(wide).save(folder / "images/train/000.png")
    Image.fromarray(mask).save(folder / "masks/train/000.png")
    splits = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("masks",))
    assert (len(splits.train), len(splits.val), splits.classes) == (4, 2, ("class 0", "class 1", "class 2"))
    planes = splits.train.load(0, 16, 3).numpy()
    assert planes.shape == (4, 16, 16)
    assert (planes[3, :4] == NO_CLASS).all()
    assert (planes[3, 12:] == NO_CLASS).all()
    assert (planes[:3, :4] == 0).all()
    assert planes[3, 4:12].tolist() == [[0] * 8 + [1] * 8] * 8
    assert (planes[:3, 4:12, :7] == 0).all()
    assert (planes[:3, 4:12, 9:] == 255).all()


def test_unusable_mask_is_named(tmp_path: Path) -> None:
    folder = make_masked(tmp_path, {"train": 4, "val": 2}, side=32)
    splits = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("masks",))
    assert isinstance(splits.train, MaskedImages)
    Image.fromarray(np.zeros((8, 32), np.uint8)).save(folder / "masks/train/001.png")
    Image.fromarray(np.full((32, 32), 9, np.uint8)).save(folder / "masks/train/002.png")
    with pytest.raises(
        UnreadableImage, match=r"001.png: its mask has a different size \(32 x 8 pixels, the image has 32 x 32\)"
    ):
        splits.train.load(1, 16, 3)
    with pytest.raises(UnreadableImage, match=r"002.png: its mask contains the value 9, which belongs to no class"):
        splits.train.load(2, 16, 3)
    assert splits.train.class_counts(3)[0] > 8 * 32  # only masks with unknown values are left out
