"""Conversion of images of every kind to uint8 tensors of the requested size."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from engine.data.datasets.images import DatasetError, fit
from engine.data.datasets.open_splits import open_splits
from tests.support.images import write_idx, write_image

Tree = Callable[..., Path]


def load_image(path: Path, size: int, channels: int) -> torch.Tensor:
    """Return the image at `path` after the complete loading pipeline: [channels, size, size]."""
    root = path.parent.parent
    write_image(path.parent / "zzz.png")
    write_image(root / "other/1.png")
    write_image(root / "other/2.png")
    splits = open_splits(str(root), val_fraction=0.4, seed=0)
    for split in (splits.train, splits.val):
        for index in range(len(split)):
            if split.path(index).endswith(path.name):
                return split.load(index, size, channels)
    raise AssertionError(path)


@pytest.mark.parametrize("ending", ["jpg", "JPEG", "png", "bmp", "webp", "tif", "tiff", "gif", "ppm"])
def test_every_format_is_decoded_in_color(tmp_path: Path, ending: str) -> None:
    decoded = load_image(write_image(tmp_path / f"set/a/image.{ending}", (200, 30, 90)), 8, 3)
    assert (decoded.dtype, tuple(decoded.shape)) == (torch.uint8, (3, 8, 8))
    assert torch.allclose(decoded.float().mean((1, 2)), torch.tensor([200.0, 30.0, 90.0]), atol=4)


@pytest.mark.parametrize(
    ("ending", "mode", "color", "expected"),
    [
        ("png", "L", 77, 77),
        ("jpg", "L", 77, 77),
        ("pgm", "L", 77, 77),
        ("png", "1", 1, 255),
        ("png", "LA", (77, 128), 77),
        ("png", "I;16", 77 * 257, 77),
        ("tif", "I;16", 77 * 257, 77),
        ("tif", "F", 0.5, 0),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_gray_images_keep_their_level(
    tmp_path: Path, *, ending: str, mode: str, color: object, expected: int, channels: int
) -> None:
    decoded = load_image(write_image(tmp_path / f"set/a/image.{ending}", color, mode=mode), 8, channels)
    assert decoded.shape[0] == channels
    assert torch.allclose(decoded.float(), torch.tensor(float(expected)), atol=1)


@pytest.mark.parametrize(
    ("ending", "mode", "color"),
    [("png", "RGBA", (200, 30, 90, 10)), ("jpg", "CMYK", (55, 225, 165, 0)), ("png", "P", None), ("gif", "P", None)],
)
def test_palette_transparency_and_cmyk_become_rgb(tmp_path: Path, ending: str, mode: str, color: object) -> None:
    path = tmp_path / f"set/a/image.{ending}"
    path.parent.mkdir(parents=True)
    if mode == "P":
        Image.new("RGB", (20, 16), (200, 30, 90)).quantize(4).save(path)
    else:
        write_image(path, color, mode=mode)
    assert torch.allclose(load_image(path, 8, 3).float().mean((1, 2)), torch.tensor([200.0, 30.0, 90.0]), atol=6)


@pytest.mark.parametrize("shape", [(30, 50), (50, 30), (7, 9), (64, 64), (1, 200)])
@pytest.mark.parametrize("size", [8, 16, 33])
def test_image_is_center_cropped_to_size(shape: tuple[int, int], size: int) -> None:
    ramp = torch.arange(shape[1], dtype=torch.float32).mul(255 / shape[1]).to(torch.uint8).expand(1, 1, *shape)
    image = fit(ramp, size)
    assert tuple(image.shape) == (1, 1, size, size)
    assert abs(image.float().mean() - ramp.float().mean()) < 255 / size  # the center of a ramp is its mean


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_images_round_trip(tmp_path: Path, zipped: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 28, 28)).astype(np.uint8)
    ending = ".gz" if zipped else ""
    write_idx(tmp_path / f"train-images-idx3-ubyte{ending}", pixels)
    write_idx(tmp_path / f"train-labels-idx1-ubyte{ending}", np.arange(30) % 3)
    splits = open_splits(str(tmp_path), val_fraction=0.2, seed=0)
    assert (len(splits.train), len(splits.val), splits.channels) == (24, 6, 1)
    seen = []
    for split in (splits.train, splits.val):
        mapped = split.mapped_file(28, 1)
        assert mapped is not None
        stored, rows = mapped
        for index in range(len(split)):
            row = int(split.path(index).rsplit(" ", 1)[1])
            seen.append(row)
            assert np.array_equal(split.load(index, 28, 1)[0], pixels[row])
            assert rows is not None
            assert np.array_equal(stored[rows[index], 0], pixels[row])
            assert split.targets[index] == row % 3
    assert sorted(seen) == list(range(30))


def test_idx_load_many_matches_load(digits: Path) -> None:
    split = open_splits(str(digits), val_fraction=0.2, seed=0).train
    together = split.load_many(np.arange(40), 32, 3)
    assert together is not None
    assert together.shape == (40, 3, 32, 32)
    assert np.array_equal(np.stack([split.load(index, 32, 3) for index in range(40)]), together)


def test_idx_files_are_mapped(digits: Path) -> None:
    mapped = open_splits(str(digits), val_fraction=0.2, seed=0).train.mapped_file(28, 1)
    assert mapped is not None
    base = mapped[0]
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base.base, mmap.mmap)


@pytest.mark.parametrize("harm", ["truncated", "longer", "not idx", "counts"])
def test_broken_idx_files_are_named(digits: Path, harm: str) -> None:
    path = digits / "train-images-idx3-ubyte"
    content = path.read_bytes()
    if harm == "counts":
        write_idx(path, np.zeros((39, 28, 28)))
    else:
        path.write_bytes({"truncated": content[:-1], "longer": content + b"x", "not idx": b"hello"}[harm])
    with pytest.raises(DatasetError) as caught:
        open_splits(str(digits), val_fraction=0.2, seed=0)
    messages = {"truncated": "truncated", "longer": "longer", "not idx": "not an idx file", "counts": "40 labels"}
    assert "train-images-idx3-ubyte" in str(caught.value)
    assert messages[harm] in str(caught.value)


def test_open_splits_raises_all_errors_at_once(tree: Tree) -> None:
    root = tree("train/cat", "train/dog", "val/cat", "val/bird", "val/cow")
    with pytest.raises(DatasetError) as caught:
        open_splits(str(root), val_fraction=0.2, seed=0)
    assert [problem.field for problem in caught.value.problems] == ["dataset", "dataset"]


def test_real_datasets_open(real_dataset: Path) -> None:
    splits = open_splits(str(real_dataset), val_fraction=0.2, seed=0)
    expected = {"hymenoptera": (("ants", "bees"), 3, 244, 153), "mnist": (tuple("0123456789"), 1, 60_000, 10_000)}
    assert (splits.classes, splits.channels, len(splits.train), len(splits.val)) == expected[real_dataset.name]
    assert tuple(splits.train.load(0, 64, splits.channels).shape) == (splits.channels, 64, 64)
