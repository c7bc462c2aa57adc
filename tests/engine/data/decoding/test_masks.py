"""Meaning of mask values, and images with masks."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.datasets.images import MaskedImages, UnreadableImage
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.mask_values import NO_CLASS, class_plane, read_values
from engine.data.decoding.masks import learn_meaning
from engine.data.decoding.reading import Unfit
from engine.data.splits import MaskCode
from tests.support.masks import make_masked


def png(pixels: np.ndarray, mode: str | None = None) -> bytes:
    stream = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(stream, "PNG")
    return stream.getvalue()


def write_masks(folder: Path, *masks: np.ndarray) -> list[str]:
    paths = [folder / f"{number}.png" for number in range(len(masks))]
    for path, mask in zip(paths, masks, strict=True):
        path.write_bytes(png(mask))
    return [str(path) for path in paths]


GRAY = np.array([[0, 3], [7, 255]], np.uint8)
COLORED = np.array([[[0, 0, 0], [128, 0, 0]], [[0, 128, 0], [128, 0, 0]]], np.uint8)


def test_read_values_returns_pixels() -> None:
    assert read_values(png(GRAY)).values.tolist() == GRAY.tolist()
    assert read_values(png(COLORED)).values.tolist() == [[0, 0x800000], [0x008000, 0x800000]]
    assert read_values(png(GRAY.astype(np.uint16) * 100)).values.tolist() == [[0, 300], [700, 25500]]


def test_palette_masks_have_indices() -> None:
    image = Image.fromarray(np.array([[0, 2], [1, 2]], np.uint8), "P")
    image.putpalette([0, 0, 0, 200, 10, 10, 10, 200, 10])
    stream = io.BytesIO()
    image.save(stream, "PNG")
    assert read_values(stream.getvalue()).values.tolist() == [[0, 2], [1, 2]]


def test_class_plane_maps_values_and_ignored_ones() -> None:
    code = MaskCode((0, 7, 3), ignored=(255,))
    assert class_plane(read_values(png(GRAY)), code).tolist() == [[0, 2], [1, NO_CLASS]]
    with pytest.raises(Unfit, match="contains the value 7, which belongs to no class"):
        class_plane(read_values(png(GRAY)), MaskCode((0, 3), ignored=(255,)))


def test_numbered_masks_have_class_per_number(tmp_path: Path) -> None:
    meaning = learn_meaning(str(tmp_path), write_masks(tmp_path, np.array([[0, 1], [4, 255]], np.uint8)), [])
    assert meaning.classes == ("class 0", "class 1", "class 2", "class 3", "class 4")
    assert meaning.code == MaskCode((0, 1, 2, 3, 4), ignored=(255,))


def test_two_values_are_background_and_foreground(tmp_path: Path) -> None:
    meaning = learn_meaning(str(tmp_path), write_masks(tmp_path, np.array([[0, 255]], np.uint8)), [])
    assert (meaning.classes, meaning.code) == (("background", "foreground"), MaskCode((0, 255)))


def test_class_names_come_from_companion_files(tmp_path: Path) -> None:
    masks = write_masks(tmp_path, np.array([[0, 1]], np.uint8))
    (tmp_path / "classes.txt").write_text("sky\nroad\ncar\n")
    assert learn_meaning(str(tmp_path), masks, []).classes == ("sky", "road", "car")
    (tmp_path / "classes.txt").unlink()
    definition = {"Classes": [{"Value": 1, "Name": "water", "Color": [0, 0, 255]}, {"Value": 5, "Name": "field"}]}
    (tmp_path / "esri_model_definition.emd").write_text(json.dumps(definition))
    meaning = learn_meaning(str(tmp_path), masks, [])
    assert meaning.classes == ("background", "water", "field")
    assert meaning.code == MaskCode((0, 1, 5), ignored=(255,))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("class_dict.csv", "name,r,g,b\nvoid,0,0,0\nroad,128,0,0\ntree,0,128,0\n"),
        ("label_colors.txt", "0 0 0\tvoid\n128 0 0\troad\n0 128 0\ttree\n"),
        ("labelmap.txt", "# label:color_rgb:parts:actions\nvoid:0,0,0::\nroad:128,0,0::\ntree:0,128,0::\n"),
    ],
)
def test_colors_get_names_from_table(tmp_path: Path, name: str, text: str) -> None:
    masks = write_masks(tmp_path, COLORED)
    assert learn_meaning(str(tmp_path), masks, []).classes == ("#000000", "#008000", "#800000")
    (tmp_path / name).write_text(text)
    meaning = learn_meaning(str(tmp_path), masks, [])
    assert meaning.classes == ("void", "road", "tree")
    assert meaning.code is not None
    assert class_plane(read_values(png(COLORED)), meaning.code).tolist() == [[0, 1], [2, 1]]


def test_masks_of_many_colors_are_refused(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    assert "as if they had been saved as JPEG" in learn_meaning(str(tmp_path), write_masks(tmp_path, noise), []).failure


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
