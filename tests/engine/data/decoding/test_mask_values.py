"""Reading of masks from images and arrays of every kind, and the type of the masks' values."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from engine.data.decoding.mask_survey import ENOUGH_PHOTOS, Survey, SurveyedMask, survey_masks
from engine.data.decoding.mask_values import (
    NO_CLASS,
    NOT_A_NUMBER,
    MaskValues,
    class_colors,
    class_plane,
    count_values,
    merge_counts,
    read_mask_size,
    read_values,
)
from engine.data.decoding.reading import Unfit
from engine.data.splits import MaskCode
from tests.support.mask_folders import color_mask, encode_mask, make_striped_mask, with_palette

NUMBERS = np.array([[0, 1, 2], [2, 1, 0]])


@pytest.mark.parametrize(
    "kind", ["uint8", "uint16", "int16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
)
@pytest.mark.parametrize("ending", ["tif", "npy"])
def test_read_values_accepts_integers_of_any_type(kind: str, ending: str) -> None:
    mask = read_values(encode_mask(NUMBERS.astype(kind), ending))
    assert (mask.mode, mask.values.tolist()) == ("gray", NUMBERS.tolist())
    assert class_plane(mask, MaskCode((2, 1, 0))).tolist() == (2 - NUMBERS).tolist()
    assert [each.tolist() for each in count_values(mask.values[:, [0, 0, 0, 1, 2]])] == [[0, 1, 2], [4, 2, 4]]


def test_read_values_accepts_tiffs_that_pillow_cannot_load() -> None:
    planes, stream = np.zeros((3, 2, 3), np.uint8), io.BytesIO()
    planes[:] = [[[1]], [[2]], [[3]]]
    tifffile.imwrite(stream, planes, photometric="miniswhite", planarconfig="separate")
    mask = read_values(stream.getvalue())
    assert (mask.mode, np.unique(mask.values).tolist()) == ("color", [0x010203])


def test_read_values_scales_one_bit_to_black_and_white() -> None:
    mask = read_values(encode_mask(Image.fromarray(make_striped_mask(0, 255)).convert("1"), "png"))
    assert np.unique(mask.values).tolist() == [0, 255]


@pytest.mark.parametrize(
    ("image", "mode", "values", "transparent"),
    [
        (Image.fromarray(make_striped_mask(0, 7)).convert("LA"), "gray", [0, 7], False),
        (Image.fromarray(color_mask(make_striped_mask(0, 1), {1: 0x0000FF})), "color", [0, 0xFF], False),
        (
            Image.fromarray(color_mask(make_striped_mask(0, 1), {1: 0x00FF00})).convert("RGBA"),
            "color",
            [0, 0xFF00],
            False,
        ),
        (Image.fromarray(np.array([[[255, 0, 0, 254], [255, 0, 0, 255]]], np.uint8)), "color", [0xFF0000], True),
        (Image.fromarray(np.array([[[7, 254], [7, 255]]], np.uint8)), "gray", [7], True),
        (with_palette(make_striped_mask(0, 1), 0x000000, 0x123456), "palette", [0, 1], False),
        (with_palette(make_striped_mask(0, 1), 0x000000, 0x123456).convert("PA"), "palette", [0, 1], False),
        (Image.fromarray(make_striped_mask(0, 1).astype(np.uint16) * 1000), "gray", [0, 1000], False),
    ],
    ids=["gray and alpha", "color", "opaque", "transparent", "faint", "palette", "palette and alpha", "16 bits"],
)
def test_read_values_returns_the_kind_of_image(
    image: Image.Image, mode: str, values: list[int], transparent: bool
) -> None:
    mask = read_values(encode_mask(image, "tif" if image.mode == "PA" else "png"))
    assert (mask.mode, np.unique(mask.values).tolist(), mask.transparent) == (mode, values, transparent)


def test_read_values_refuses_fractions_by_value() -> None:
    for ending in ("tif", "npy"):
        with pytest.raises(Unfit, match=r"floating-point values such as 0\.25"):
            read_values(encode_mask(np.array([[0, 0.25]], np.float32), ending))


def test_read_values_maps_nan_and_huge_floats_to_missing() -> None:
    mask = read_values(encode_mask(np.array([[np.nan, -3.4e38, 1]], np.float32), "tif"))
    assert mask.values.tolist() == [[NOT_A_NUMBER, NOT_A_NUMBER, 1]]


def test_read_values_runs_no_pickles(tmp_path: Path) -> None:
    content = tmp_path / "a.npy"
    np.save(content, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        read_values(content.read_bytes())


def test_read_values_takes_arrays_of_one_band_or_of_colors() -> None:
    assert read_values(encode_mask(NUMBERS[None].astype(np.uint8), "npy")).values.tolist() == NUMBERS.tolist()
    assert read_values(encode_mask(color_mask(NUMBERS, {1: 0xFF}), "npy")).mode == "color"
    for other in (np.zeros((2, 4, 4, 5), np.uint8), np.zeros((2, 2), complex), np.zeros((4, 4, 3), np.int16)):
        with pytest.raises(Unfit, match="height x width"):
            read_values(encode_mask(other, "npy"))


def test_mask_size_is_read_from_images_and_arrays(tmp_path: Path) -> None:
    for ending in ("png", "npy", "tif"):
        path = tmp_path / f"mask.{ending}"
        path.write_bytes(encode_mask(NUMBERS.astype(np.uint8), ending))
        assert read_mask_size(str(path)) == (2, 3)


def test_class_plane_never_takes_blue_for_white_or_gray() -> None:
    blue = read_values(encode_mask(color_mask(make_striped_mask(0, 1), {1: 0x0000FF}), "png"))
    white = read_values(encode_mask(make_striped_mask(255), "png"))
    colors, levels = MaskCode((0xFFFFFF, 0x0000FF, 0), colors=True), MaskCode((0, 255))
    assert np.unique(class_plane(blue, colors)).tolist() == [1, 2]
    assert np.unique(class_plane(white, colors)).tolist() == [0]
    with pytest.raises(Unfit, match="#0000ff, but the other masks are gray"):
        class_plane(blue, levels)
    with pytest.raises(Unfit, match="#0000ff, which belongs to no class"):
        class_plane(blue, MaskCode((0xFFFFFF, 0), colors=True))


def test_class_plane_equates_gray_in_color_with_gray() -> None:
    code = MaskCode((0, 9), ignored=(255,))
    gray = make_striped_mask(0, 9, 255)
    for mask in (gray, np.stack([gray] * 3, 2)):
        plane = class_plane(read_values(encode_mask(mask, "png")), code)
        assert plane[0, [0, 16, -1]].tolist() == [0, 1, NO_CLASS]


def test_class_plane_maps_an_odd_palette_by_its_colors() -> None:
    code = MaskCode((0, 1), palette=(0x000000, 0xFF0000))
    swapped = read_values(encode_mask(with_palette(make_striped_mask(0, 1), 0xFF0000, 0x000000), "png"))
    assert class_plane(swapped, code)[0, [0, -1]].tolist() == [1, 0]
    foreign = read_values(encode_mask(with_palette(make_striped_mask(0, 1), 0x000000, 0x00FF00), "png"))
    with pytest.raises(Unfit, match="#00ff00"):
        class_plane(foreign, code)
    short = MaskValues(np.array([[0, 1, 2]]), "palette", np.array([0x000000, 0x123456]))
    assert class_plane(short, MaskCode((2, 1, 0), palette=(-1, -1, 0x000000))).tolist() == [[2, 1, 0]]
    with pytest.raises(Unfit, match="no color for the index 2"):
        class_plane(short, MaskCode((0x000000, 0x123456), colors=True))


def test_class_colors_are_those_of_pascal_voc() -> None:
    expected = [[128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128], [64, 0, 0]]
    assert class_colors(9)[[1, 2, 3, 4, 8]].tolist() == expected


def test_class_plane_uses_the_closest_level() -> None:
    code = MaskCode((0, 255), nearest=True)
    mask = read_values(encode_mask(make_striped_mask(0, 3, 100, 200, 255), "png"))
    assert np.unique(class_plane(mask, code)[0], return_counts=True)[0].tolist() == [0, 1]
    assert class_plane(mask, code)[0, 15] == 0
    assert class_plane(mask, code)[0, 21] == 1


def test_survey_gives_up_on_folders_of_photos(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    paths = [tmp_path / f"{number:02}.png" for number in range(40)]
    for path in paths:
        path.write_bytes(encode_mask(noise, "png"))
    assert len(survey_masks(list(map(str, paths))).masks) == ENOUGH_PHOTOS


@pytest.mark.parametrize("shape", [(5, 6), (1, 5, 6), (5, 6, 1), (1, 5, 6, 1)])
def test_arrays_may_have_dimensions_of_one(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.arange(30, dtype=np.uint8).reshape(shape)
    assert read_values(encode_mask(values, "npy")).values.tolist() == values.reshape(5, 6).tolist()
    np.save(tmp_path / "a.npy", values)
    assert read_mask_size(str(tmp_path / "a.npy")) == (5, 6)


@pytest.mark.parametrize(
    ("ending", "options", "lossy"),
    [
        ("webp", {"lossless": True}, False),
        ("webp", {"quality": 50}, True),
        ("jpg", {}, True),
        ("png", {}, False),
        ("tif", {"compression": "jpeg"}, True),
    ],
)
def test_lossy_files_are_marked(ending: str, options: dict[str, object], lossy: bool) -> None:
    for mask in (make_striped_mask(0, 255), color_mask(make_striped_mask(0, 1), {1: 0xFF0000})):
        assert read_values(encode_mask(Image.fromarray(mask), ending, **options)).lossy == lossy


@pytest.mark.parametrize(
    ("text", "no_data"), [("0", 0), ("255", 255), ("-9999", -9999), ("-1e30", None), ("nan", None), ("?", None)]
)
def test_missing_data_may_be_any_number(text: str, no_data: int | None) -> None:
    for kind, compression in ((np.uint8, None), (np.float32, None), (np.uint64, None), (np.uint8, "zstd")):
        tags = [(42113, "s", 0, text, True)]
        mask = encode_mask(make_striped_mask(0, 7).astype(kind), "tif", extratags=tags, compression=compression)
        assert read_values(mask).no_data == no_data


@pytest.mark.parametrize(("is_lossy", "fits"), [(False, False), (True, True)])
def test_nearly_gray_colors_are_gray_in_lossy_masks_only(is_lossy: bool, fits: bool) -> None:
    mask = MaskValues(np.array([[0x0A0C0A, 0x000000]]), "color")
    code = MaskCode((0, 12), nearest=is_lossy)
    if fits:
        assert class_plane(mask, code).tolist() == [[1, 0]]
    else:
        with pytest.raises(Unfit):
            class_plane(mask, code)


def test_count_values_adds_the_blocks_of_large_masks() -> None:
    values, pixels = count_values(np.repeat(np.array([[3], [9], [3]], np.uint8), 1 << 20, 1))
    assert (values.tolist(), pixels.tolist()) == ([3, 9], [2 << 20, 1 << 20])


def test_merge_counts_adds_pixels_and_masks() -> None:
    counts = [
        (np.array(values), np.array(pixels)) for values, pixels in (([1, 2], [3, 4]), ([2, 5], [1, 1]), ([2], [9]))
    ]
    assert [each.tolist() for each in merge_counts(counts)] == [[1, 2, 5], [3, 14, 1], [1, 3, 1]]


# Surveys


def make_surveyed_mask(values: list[int], no_data: int | None = None, palette: list[int] | None = None) -> SurveyedMask:
    found = np.array(values)
    mode = "gray" if palette is None else "palette"
    colors = None if palette is None else np.array(palette)
    return SurveyedMask(mode, found, np.ones_like(found), len(values), True, colors, no_data, False, False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("masks", "missing"),
    [
        ([make_surveyed_mask([0, 1], 0), make_surveyed_mask([1, 2])], (0,)),
        ([make_surveyed_mask([0, 1], 0), make_surveyed_mask([0, 2])], ()),
        ([make_surveyed_mask([0, 9], 9), make_surveyed_mask([0, 1], 0)], (9,)),
    ],
)
def test_missing_data_is_declared_by_each_mask_with_it(masks: list[SurveyedMask], missing: tuple[int, ...]) -> None:
    assert Survey(masks).find_missing_data_levels() == missing


def test_indices_beyond_the_palette_have_its_last_color() -> None:
    colors = Survey([make_surveyed_mask([0, 1, 4], palette=[7, 8, 9])]).count_colors()
    assert (colors.values.tolist(), colors.pixels.tolist()) == ([7, 8, 9], [1, 1, 1])


@pytest.mark.parametrize(("odd", "palette"), [(0, {0: 7, 1: 8}), (1, {0: 7, 1: 8}), (2, None)])
def test_palettes_may_differ_in_few_masks(odd: int, palette: dict[int, int] | None) -> None:
    masks = [make_surveyed_mask([0, 1], palette=[7, 8])] * (10 - odd) + [
        make_surveyed_mask([0, 1], palette=[7, 5])
    ] * odd
    assert Survey(masks).find_common_palette() == Survey(masks[::-1]).find_common_palette() == palette


def test_survey_distinguishes_photos_from_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = np.broadcast_to(np.arange(64, dtype=np.uint8) * 3, (64, 64))
    flat = np.repeat(np.repeat(np.arange(64, dtype=np.uint8).reshape(8, 8), 16, 0), 16, 1)
    contents = {
        "a": b"torn",
        "b": encode_mask(columns, "png"),
        "c": encode_mask(flat, "png"),
        "d": encode_mask(flat.T, "png"),
        "f": encode_mask(columns.T, "png"),
    }
    for name, content in (contents | {"e": b""}).items():
        (tmp_path / f"{name}.png").write_bytes(content)
    survey = survey_masks([str(tmp_path / f"{name}.png") for name in "abcdef"])
    assert [mask.flat for mask in survey.masks] == [False, True, True, False]
    assert survey.failure.startswith("a.png: ")
    assert (survey.has_smooth_values(), Survey(survey.masks[:1]).has_smooth_values()) == (False, True)
    with monkeypatch.context() as patch:
        patch.setattr("engine.data.decoding.mask_survey.SAMPLED_MASKS", 2)
        survey = survey_masks([str(tmp_path / f"{name}.png") for name in "ccff"])
    assert [mask.flat for mask in survey.masks] == [True, False]
    monkeypatch.setattr("engine.data.decoding.mask_survey.MAX_VALUES", 2)
    assert len(survey_masks([str(tmp_path / "c.png")] * (ENOUGH_PHOTOS + 1)).masks) == ENOUGH_PHOTOS + 1
    rare = np.array([[2] * 9, [1] + [0] * 5 + [2] * 3], np.uint8)
    (tmp_path / "e.png").write_bytes(encode_mask(rare, "png"))
    (mask,) = survey_masks([str(tmp_path / "e.png")]).masks
    assert (mask.values.tolist(), mask.pixels.tolist(), mask.distinct) == ([0, 2], [5, 12], 3)
