"""Reading of masks from images and arrays of every kind, and the type of the masks' values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.decoding.mask_survey import ENOUGH_PHOTOS, survey_masks
from engine.data.decoding.mask_values import NO_CLASS, NOT_A_NUMBER, class_plane, mask_size, read_values
from engine.data.decoding.reading import Unfit
from engine.data.splits import MaskCode
from tests.support.mask_folders import encoded, painted, striped, with_palette

NUMBERS = np.array([[0, 1, 2], [2, 1, 0]])


@pytest.mark.parametrize(
    "kind", ["uint8", "uint16", "int16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
)
@pytest.mark.parametrize("ending", ["tif", "npy"])
def test_read_values_accepts_integers_of_any_type(kind: str, ending: str) -> None:
    mask = read_values(encoded(NUMBERS.astype(kind), ending))
    assert (mask.mode, mask.values.tolist()) == ("gray", NUMBERS.tolist())


def test_read_values_scales_one_bit_to_black_and_white() -> None:
    mask = read_values(encoded(Image.fromarray(striped(0, 255)).convert("1"), "png"))
    assert np.unique(mask.values).tolist() == [0, 255]


@pytest.mark.parametrize(
    ("image", "mode", "values", "transparent"),
    [
        (Image.fromarray(striped(0, 7)).convert("LA"), "gray", [0, 7], False),
        (Image.fromarray(painted(striped(0, 1), {1: 0x0000FF})), "color", [0, 0xFF], False),
        (Image.fromarray(painted(striped(0, 1), {1: 0x00FF00})).convert("RGBA"), "color", [0, 0xFF00], False),
        (Image.new("RGBA", (4, 4), (255, 0, 0, 0)), "color", [0xFF0000], True),
        (with_palette(striped(0, 1), 0x000000, 0x123456), "palette", [0, 1], False),
        (Image.fromarray(striped(0, 1).astype(np.uint16) * 1000), "gray", [0, 1000], False),
    ],
    ids=["gray and alpha", "color", "opaque", "transparent", "palette", "16 bits"],
)
def test_read_values_returns_the_kind_of_image(
    image: Image.Image, mode: str, values: list[int], transparent: bool
) -> None:
    mask = read_values(encoded(image, "png"))
    assert (mask.mode, np.unique(mask.values).tolist(), mask.transparent) == (mode, values, transparent)


def test_read_values_refuses_fractions_by_value() -> None:
    for ending in ("tif", "npy"):
        with pytest.raises(Unfit, match=r"floating-point values such as 0\.25"):
            read_values(encoded(np.array([[0, 0.25]], np.float32), ending))


def test_read_values_maps_nan_and_huge_floats_to_missing() -> None:
    mask = read_values(encoded(np.array([[np.nan, -3.4e38, 1]], np.float32), "tif"))
    assert mask.values.tolist() == [[NOT_A_NUMBER, NOT_A_NUMBER, 1]]


def test_read_values_runs_no_pickles(tmp_path: Path) -> None:
    content = tmp_path / "a.npy"
    np.save(content, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        read_values(content.read_bytes())


def test_read_values_takes_arrays_of_one_band_or_of_colors() -> None:
    assert read_values(encoded(NUMBERS[None].astype(np.uint8), "npy")).values.tolist() == NUMBERS.tolist()
    assert read_values(encoded(painted(NUMBERS, {1: 0xFF}), "npy")).mode == "color"
    with pytest.raises(Unfit, match="height x width"):
        read_values(encoded(np.zeros((2, 4, 4, 5), np.uint8), "npy"))


def test_mask_size_is_read_from_images_and_arrays(tmp_path: Path) -> None:
    for ending in ("png", "npy", "tif"):
        path = tmp_path / f"mask.{ending}"
        path.write_bytes(encoded(NUMBERS.astype(np.uint8), ending))
        assert mask_size(str(path)) == (3, 2)


def test_class_plane_never_takes_blue_for_white_or_gray() -> None:
    blue = read_values(encoded(painted(striped(1), {1: 0x0000FF}), "png"))
    white = read_values(encoded(striped(255), "png"))
    colors, levels = MaskCode((0xFFFFFF, 0x0000FF), colors=True), MaskCode((0, 255))
    assert np.unique(class_plane(blue, colors)).tolist() == [1]
    assert np.unique(class_plane(white, colors)).tolist() == [0]
    with pytest.raises(Unfit, match="#0000ff, but the other masks are gray"):
        class_plane(blue, levels)


def test_class_plane_equates_gray_in_color_with_gray() -> None:
    code = MaskCode((0, 9), ignored=(255,))
    gray = striped(0, 9, 255)
    for mask in (gray, np.stack([gray] * 3, 2)):
        assert np.unique(class_plane(read_values(encoded(mask, "png")), code)).tolist() == [0, 1, NO_CLASS]


def test_class_plane_maps_an_odd_palette_by_its_colors() -> None:
    code = MaskCode((0, 1), palette=(0x000000, 0xFF0000))
    swapped = read_values(encoded(with_palette(striped(0, 1), 0xFF0000, 0x000000), "png"))
    assert class_plane(swapped, code)[0, [0, -1]].tolist() == [1, 0]
    foreign = read_values(encoded(with_palette(striped(0, 1), 0x000000, 0x00FF00), "png"))
    with pytest.raises(Unfit, match="#00ff00"):
        class_plane(foreign, code)


def test_class_plane_uses_the_closest_level() -> None:
    code = MaskCode((0, 255), nearest=True)
    mask = read_values(encoded(striped(0, 3, 100, 200, 255), "png"))
    assert np.unique(class_plane(mask, code)[0], return_counts=True)[0].tolist() == [0, 1]
    assert class_plane(mask, code)[0, 15] == 0
    assert class_plane(mask, code)[0, 21] == 1


def test_survey_gives_up_on_folders_of_photos(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    paths = [tmp_path / f"{number:02}.png" for number in range(40)]
    for path in paths:
        path.write_bytes(encoded(noise, "png"))
    assert len(survey_masks(list(map(str, paths))).masks) == ENOUGH_PHOTOS
