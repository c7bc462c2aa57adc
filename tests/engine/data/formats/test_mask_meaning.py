"""Classes of mask folders. A table, a palette or the values themselves explain the values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

from engine.data.datasets.images import MaskedImages
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.masks import learn_meaning
from engine.data.splits import MaskCode
from tests.support.mask_folders import (
    color_mask,
    encode_mask,
    get_mask_code,
    join_errors,
    make_disc,
    make_folder,
    make_striped_mask,
    measure_class_fractions,
    recognize_folder,
    report_on,
    with_palette,
)

RED, GREEN, BLUE, WHITE = 0xFF0000, 0x00FF00, 0x0000FF, 0xFFFFFF
HALF = {"background": 0.5, "foreground": 0.5}


def in_color(mask: np.ndarray) -> np.ndarray:
    return np.stack([mask] * 3, 2)


# Gray levels and colors


@pytest.mark.parametrize("values", [(0, 255), (0, 7), (0, 1, 2, 5), (0, 1, 255), (0, 128, 255)])
def test_gray_masks_in_color_equal_gray_masks(tmp_path: Path, values: tuple[int, ...]) -> None:
    gray = make_folder(tmp_path / "gray", [make_striped_mask(*values)] * 4)
    color = make_folder(tmp_path / "color", [in_color(make_striped_mask(*values))] * 4)
    assert recognize_folder(color).classes == recognize_folder(gray).classes
    assert get_mask_code(recognize_folder(color)) == get_mask_code(recognize_folder(gray))
    assert measure_class_fractions(color) == measure_class_fractions(gray)


def test_mixed_gray_and_color_masks_give_the_same_classes(tmp_path: Path) -> None:
    mask = make_striped_mask(0, 255)
    one_bit, alpha = Image.fromarray(mask).convert("1"), Image.fromarray(in_color(mask)).convert("RGBA")
    for others in ([in_color(mask)], [one_bit, alpha], [Image.fromarray(mask).convert("LA"), in_color(mask)]):
        folder = make_folder(tmp_path / str(len(list(tmp_path.iterdir()))), [mask, *others] * 4)
        assert measure_class_fractions(folder) == HALF
    assert any("different ways" in problem.message for problem in report_on(folder).problems)


def test_blue_tile_stays_blue_in_training_and_inspection(tmp_path: Path) -> None:
    full = color_mask(make_striped_mask(0, 1, 2), {0: WHITE, 1: BLUE, 2: RED})
    blue, black = color_mask(make_striped_mask(1), {1: BLUE}), in_color(make_striped_mask(0))
    folder = make_folder(tmp_path, [full, blue, blue, blue] * 3)
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\nroad,255,255,255\nroof,0,0,255\ncar,255,0,0\nvoid,0,0,0\n")
    assert measure_class_fractions(folder)["roof"] > 0.7
    train = open_splits(str(folder), val_fraction=0.25, seed=0, kinds=("masks",)).train
    assert isinstance(train, MaskedImages)
    assert sum(counts := list(train.class_counts(4)))
    assert counts[1] > 0.7 * sum(counts)
    only = make_folder(tmp_path / "only", [blue, black] * 4)
    assert recognize_folder(only).classes == ("#000000", "#0000ff")
    assert {each.value: each.share for each in report_on(only).mask_values} == {"#000000": 0.5, "#0000ff": 0.5}


def test_gray_masks_among_colors_need_equal_levels(tmp_path: Path) -> None:
    color = color_mask(make_striped_mask(0, 1, 2), {1: WHITE, 2: RED})
    assert recognize_folder(make_folder(tmp_path / "equal", [color, make_striped_mask(0, 255)] * 4)).classes == (
        "#000000", "#ff0000", "#ffffff",
    )  # fmt: skip
    assert "others are gray" in join_errors(make_folder(tmp_path / "odd", [color, make_striped_mask(0, 1, 2)] * 4))


def test_colors_without_red_take_their_table(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [color_mask(make_striped_mask(0, 1, 2), {1: GREEN, 2: BLUE})] * 4)
    (tmp_path / "labelmap.txt").write_text("background:0,0,0::\ngrass:0,255,0::\nwater:0,0,255::\n")
    assert measure_class_fractions(folder) == {"background": 0.34, "grass": 0.34, "water": 0.31}


def test_transparent_pixels_are_reported_and_keep_their_color(tmp_path: Path) -> None:
    pixels = np.dstack([color_mask(make_striped_mask(0, 1), {1: RED}), make_striped_mask(0, 255)])
    report = report_on(make_folder(tmp_path, [pixels] * 4))
    assert report.classes == ("#000000", "#ff0000")
    assert any("transparent" in problem.message for problem in report.problems)


# Palettes


def test_equal_palettes_give_indices_and_names_by_color(tmp_path: Path) -> None:
    masks = [
        with_palette(make_striped_mask(0, 1, 2), 0, RED, GREEN),
        with_palette(make_striped_mask(0, 2), 0, RED, GREEN),
    ]
    folder = make_folder(tmp_path, masks * 4)
    assert get_mask_code(recognize_folder(folder)) == MaskCode((0, 1, 2), ignored=(255,), palette=(0, RED, GREEN))
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\ntree,0,255,0\nground,0,0,0\nroof,255,0,0\n")
    assert recognize_folder(folder).classes == ("tree", "ground", "roof")
    assert get_mask_code(recognize_folder(folder)).values == (2, 0, 1)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_different_palettes_give_colors(tmp_path: Path, first: int) -> None:
    masks = [with_palette(make_striped_mask(0, 1), *colors) for colors in ((0, RED), (0, GREEN), (RED, 0))]
    folder = make_folder(tmp_path, [*masks[first:], *masks[:first]] * 2)
    assert recognize_folder(folder).classes == ("#000000", "#00ff00", "#ff0000")
    assert report_on(folder).splits[0].shares["#000000"] == pytest.approx(0.5)
    assert any("palettes differ" in problem.message for problem in report_on(folder).problems)


def test_gray_palettes_that_differ_give_levels(tmp_path: Path) -> None:
    masks = [
        with_palette(make_striped_mask(0, 1), 0, WHITE),
        with_palette(make_striped_mask(0), WHITE, 0),
        with_palette(make_striped_mask(0), 0),
    ]
    assert recognize_folder(make_folder(tmp_path, masks * 3)).classes == ("background", "foreground")
    assert measure_class_fractions(tmp_path)["foreground"] > 0.3


def test_unused_entries_of_palettes_may_differ(tmp_path: Path) -> None:
    masks = [with_palette(make_striped_mask(0, 1), 0, RED), with_palette(make_striped_mask(0, 1), 0, RED, GREEN)]
    masks += [with_palette(make_striped_mask(0, 1), 0, RED, BLUE)]
    assert get_mask_code(recognize_folder(make_folder(tmp_path, masks * 2))).values == (0, 1)


def test_gray_masks_next_to_palettes_are_indices_or_levels(tmp_path: Path) -> None:
    indexed = with_palette(make_striped_mask(0, 1), 0, WHITE)
    by_index = make_folder(tmp_path / "index", [indexed, make_striped_mask(0, 1)] * 4)
    assert get_mask_code(recognize_folder(by_index)).values == (0, 1)
    by_level = make_folder(tmp_path / "level", [indexed, make_striped_mask(0, 255)] * 4)
    assert measure_class_fractions(by_level) == HALF


# Values alone


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0, 128, 255), (0, 128, 255)),
        ((0, 85, 170, 255), (0, 85, 170, 255)),
        ((0, 10, 20, 30), (0, 10, 20, 30)),
        ((38, 75, 113), (38, 75, 113)),
    ],
)
def test_values_with_gaps_are_classes(tmp_path: Path, values: tuple[int, ...], expected: tuple[int, ...]) -> None:
    report = report_on(make_folder(tmp_path, [make_striped_mask(*values)] * 4))
    assert report.classes == tuple(f"value {value}" for value in expected)
    assert get_mask_code(recognize_folder(tmp_path)).values == expected
    assert any("255 too" in problem.message for problem in report.problems) == (255 in values)


def test_ignored_value_leaves_the_other_values(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [make_striped_mask(0, 128, 255)] * 4)
    assert report_on(folder, ignored=255).classes == ("background", "foreground")
    assert report_on(folder, ignored=128).classes == ("background", "foreground")


@pytest.mark.parametrize("values", [(0, 1, 255), (0, 1, 2, 3, 255), (0, 4, 11, 255), tuple(range(34))])
def test_class_numbers_are_filled_and_255_is_void(tmp_path: Path, values: tuple[int, ...]) -> None:
    code = get_mask_code(recognize_folder(make_folder(tmp_path, [np.resize(values, (40, 40)).astype(np.uint8)] * 4)))
    top = max(value for value in values if value != 255)
    assert (code.values, code.ignored) == (tuple(range(top + 1)), (255,))


def test_masks_of_0_1_next_to_0_255_are_ambiguous(tmp_path: Path) -> None:
    masks = [make_striped_mask(0, 1), make_striped_mask(0, 255)] * 4
    assert "Ignored mask value" in join_errors(make_folder(tmp_path, masks))
    assert report_on(tmp_path, ignored=None).classes == ()
    both = make_folder(tmp_path / "both", [*masks, make_striped_mask(0, 1, 255)])
    assert get_mask_code(recognize_folder(both)).ignored == (255,)


def blur(mask: np.ndarray) -> Image.Image:
    return Image.fromarray(mask).filter(ImageFilter.GaussianBlur(0.7))


@pytest.mark.parametrize("ending", ["jpg", "webp", "png"])
def test_noise_at_two_levels_gives_two_classes(tmp_path: Path, ending: str) -> None:
    masks = [blur(make_disc(seed)) if ending == "png" else Image.fromarray(make_disc(seed)) for seed in range(8)]
    report = report_on(make_folder(tmp_path, masks, ending))
    assert report.classes == ("background", "foreground")
    assert report.splits[0].shares["foreground"] == pytest.approx((make_disc(0) > 0).mean(), abs=0.02)
    assert any("whichever is nearer" in problem.message for problem in report.problems)


def test_noise_in_gray_color_jpegs_gives_two_classes(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [Image.fromarray(in_color(make_disc(seed))) for seed in range(8)], "jpg")
    assert recognize_folder(folder).classes == ("background", "foreground")
    assert measure_class_fractions(folder)["foreground"] == pytest.approx((make_disc(0) > 0).mean(), abs=0.02)


@pytest.mark.parametrize("levels", [(0, 60, 120), (0, 128, 255), (0, 1, 2)])
def test_noise_at_other_levels_is_refused(tmp_path: Path, levels: tuple[int, ...]) -> None:
    mask = np.kron(np.random.default_rng(0).choice(levels, (24, 24)), np.ones((3, 3))).astype(np.uint8)
    folder = make_folder(tmp_path, [mask] * 4, "jpg")
    assert "JPEG" in join_errors(folder)


def test_photos_and_depth_images_are_refused(tmp_path: Path) -> None:
    ramp = np.add.outer(np.arange(64), np.arange(64) * 2).astype(np.uint8)
    deep = (np.add.outer(np.arange(64), np.arange(64)) * 37).astype(np.uint16)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    for number, image in enumerate((ramp, deep, noise)):
        assert "photos or depth" in join_errors(make_folder(tmp_path / str(number), [image] * 4))


def test_values_beyond_8_bits_are_classes_unless_they_count(tmp_path: Path) -> None:
    apart = make_striped_mask(0, 1, 2).astype(np.uint16) * 1000
    assert recognize_folder(make_folder(tmp_path / "apart", [apart] * 4)).classes == (
        "value 0",
        "value 1000",
        "value 2000",
    )
    counting = np.where(
        make_striped_mask(*range(8)) > 0, make_striped_mask(*range(8)).astype(np.uint16) + 24000, 0
    ).astype(np.uint16)
    assert "24,007" in join_errors(make_folder(tmp_path / "counting", [counting] * 4))


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.float32])
def test_missing_data_of_tiffs_is_no_class(tmp_path: Path, kind: Any) -> None:
    tags = [(42113, "s", 0, "99", True)]
    folder = make_folder(tmp_path, [make_striped_mask(0, 1, 2, 99).astype(kind)] * 4, "tif", extratags=tags)
    assert recognize_folder(folder).classes == ("class 0", "class 1", "class 2")
    report = report_on(folder)
    assert [(each.value, each.class_name) for each in report.mask_values][-1] == ("99", None)
    assert any("The value 99 means missing data" in problem.message for problem in report.problems)
    tags = [(42113, "s", 0, "98", True)]
    others = make_folder(tmp_path / "others", [make_striped_mask(0, 1, 2, 98).astype(kind)] * 2, "tif", extratags=tags)
    for directory in ("images", "masks"):
        for file in (others / directory).iterdir():
            file.rename(folder / directory / f"other-{file.name}")
    assert any("The values 98 and 99 mean missing data" in problem.message for problem in report_on(folder).problems)


def test_missing_zero_is_background_with_one_value(tmp_path: Path) -> None:
    tags = [(42113, "s", 0, "0", True)]
    folder = make_folder(tmp_path, [make_striped_mask(0, 255)] * 4, "tif", extratags=tags)
    assert measure_class_fractions(folder) == HALF


def test_negative_and_nan_values_are_no_class(tmp_path: Path) -> None:
    integral = make_striped_mask(0, 1, 2).astype(np.float32)
    integral[0] = np.nan
    minus = make_striped_mask(0, 1, 2).astype(np.int16)
    minus[0] = -1
    for number, mask in enumerate((integral, minus)):
        report = report_on(make_folder(tmp_path / str(number), [mask] * 4, "tif"))
        assert (len(report.classes), report.unreadable_count) == (3, 0)
        assert report.mask_values[0].class_name is None


def test_unreadable_masks_are_refused_with_a_reason(tmp_path: Path) -> None:
    fractions = make_folder(tmp_path / "fractions", [make_striped_mask(0, 1).astype(np.float32) / 4] * 4, "tif")
    assert ".tif: it has floating-point values such as 0.25" in join_errors(fractions)
    cut = make_folder(tmp_path / "cut", [make_striped_mask(0, 1)] * 4)
    for path in (cut / "masks").iterdir():
        path.write_bytes(path.read_bytes()[:30])
    assert ".png: it is" in join_errors(cut)
    cmyk = make_folder(tmp_path / "cmyk", [Image.new("CMYK", (8, 8))] * 4, "tif")
    assert "mode CMYK" in join_errors(cmyk)


def test_arrays_are_masks(tmp_path: Path) -> None:
    for number, kind in enumerate((np.uint8, np.int64, np.float32)):
        (tmp_path / f"{number}.npy").write_bytes(encode_mask(make_striped_mask(0, 1, 2).astype(kind), "npy"))
    meaning = learn_meaning(str(tmp_path), [str(tmp_path / f"{number}.npy") for number in range(3)], [])
    assert meaning.classes == ("class 0", "class 1", "class 2")
