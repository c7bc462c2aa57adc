"""Classes of folders of masks: what their values mean, by tables, by palettes and by the values alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

from engine.contract.problems import errors
from engine.data.datasets.images import MaskedImages
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.masks import learn_meaning
from engine.data.formats.class_mapping import map_classes
from engine.data.splits import MaskCode, Recognised
from tests.support.mask_folders import (
    encoded,
    found_in,
    make_folder,
    painted,
    report_on,
    shares_in,
    striped,
    with_palette,
)

RED, GREEN, BLUE, WHITE = 0xFF0000, 0x00FF00, 0x0000FF, 0xFFFFFF
HALF = {"background": 0.5, "foreground": 0.5}
VOC = [0x000000, 0x800000, 0x008000, 0x808000, 0x000080, 0x800080, 0x008080, 0x808080, 0x400000, 0xC00000, 0x408000,
       0xC08000, 0x400080, 0xC00080, 0x408080, 0xC08080, 0x004000, 0x804000, 0x00C000, 0x80C000, 0x004080]  # fmt: skip


def in_color(mask: np.ndarray) -> np.ndarray:
    return np.stack([mask] * 3, 2)


def code_of(recognised: Recognised) -> MaskCode:
    assert recognised.code is not None, recognised.problems
    return recognised.code


def trouble_in(folder: Path) -> str:
    return " ".join(problem.message for problem in errors(found_in(folder).problems))


# Gray levels and colors


@pytest.mark.parametrize("values", [(0, 255), (0, 7), (0, 1, 2, 5), (0, 1, 255), (0, 128, 255)])
def test_gray_masks_in_color_equal_gray_masks(tmp_path: Path, values: tuple[int, ...]) -> None:
    gray = make_folder(tmp_path / "gray", [striped(*values)] * 4)
    color = make_folder(tmp_path / "color", [in_color(striped(*values))] * 4)
    assert found_in(color).classes == found_in(gray).classes
    assert code_of(found_in(color)) == code_of(found_in(gray))
    assert shares_in(color) == shares_in(gray)


def test_mixed_gray_and_color_masks_are_read_alike(tmp_path: Path) -> None:
    mask = striped(0, 255)
    one_bit, alpha = Image.fromarray(mask).convert("1"), Image.fromarray(in_color(mask)).convert("RGBA")
    for others in ([in_color(mask)], [one_bit, alpha], [Image.fromarray(mask).convert("LA"), in_color(mask)]):
        folder = make_folder(tmp_path / str(len(list(tmp_path.iterdir()))), [mask, *others] * 4)
        assert shares_in(folder) == HALF
    assert any("different ways" in problem.message for problem in report_on(folder).problems)


def test_blue_tile_stays_blue_in_training_and_inspection(tmp_path: Path) -> None:
    full = painted(striped(0, 1, 2), {0: WHITE, 1: BLUE, 2: RED})
    blue, black = painted(striped(1), {1: BLUE}), in_color(striped(0))
    folder = make_folder(tmp_path, [full, blue, blue, blue] * 3)
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\nroad,255,255,255\nroof,0,0,255\ncar,255,0,0\nvoid,0,0,0\n")
    assert shares_in(folder)["roof"] > 0.7
    train = open_splits(str(folder), val_fraction=0.25, seed=0, kinds=("masks",)).train
    assert isinstance(train, MaskedImages)
    assert sum(counts := list(train.class_counts(4)))
    assert counts[1] > 0.7 * sum(counts)
    only = make_folder(tmp_path / "only", [blue, black] * 4)
    assert found_in(only).classes == ("#000000", "#0000ff")
    assert {each.value: each.share for each in report_on(only).mask_values} == {"#000000": 0.5, "#0000ff": 0.5}


def test_gray_masks_among_colors_need_equal_levels(tmp_path: Path) -> None:
    color = painted(striped(0, 1, 2), {1: WHITE, 2: RED})
    assert found_in(make_folder(tmp_path / "equal", [color, striped(0, 255)] * 4)).classes == (
        "#000000", "#ff0000", "#ffffff",
    )  # fmt: skip
    assert "others are gray" in trouble_in(make_folder(tmp_path / "odd", [color, striped(0, 1, 2)] * 4))


def test_colors_without_red_take_their_table(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [painted(striped(0, 1, 2), {1: GREEN, 2: BLUE})] * 4)
    (tmp_path / "labelmap.txt").write_text("background:0,0,0::\ngrass:0,255,0::\nwater:0,0,255::\n")
    assert shares_in(folder) == {"background": 0.34, "grass": 0.34, "water": 0.31}


def test_transparent_pixels_are_reported_and_keep_their_color(tmp_path: Path) -> None:
    pixels = np.dstack([painted(striped(0, 1), {1: RED}), striped(0, 255)])
    report = report_on(make_folder(tmp_path, [pixels] * 4))
    assert report.classes == ("#000000", "#ff0000")
    assert any("transparent" in problem.message for problem in report.problems)


# Palettes


def test_equal_palettes_give_indices_and_names_by_color(tmp_path: Path) -> None:
    masks = [with_palette(striped(0, 1, 2), 0, RED, GREEN), with_palette(striped(0, 2), 0, RED, GREEN)]
    folder = make_folder(tmp_path, masks * 4)
    assert code_of(found_in(folder)) == MaskCode((0, 1, 2), ignored=(255,), palette=(0, RED, GREEN))
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\ntree,0,255,0\nground,0,0,0\nroof,255,0,0\n")
    assert found_in(folder).classes == ("tree", "ground", "roof")
    assert code_of(found_in(folder)).values == (2, 0, 1)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_different_palettes_give_colors(tmp_path: Path, first: int) -> None:
    masks = [with_palette(striped(0, 1), *colors) for colors in ((0, RED), (0, GREEN), (RED, 0))]
    folder = make_folder(tmp_path, [*masks[first:], *masks[:first]] * 2)
    assert found_in(folder).classes == ("#000000", "#00ff00", "#ff0000")
    assert report_on(folder).splits[0].shares["#000000"] == pytest.approx(0.5)
    assert any("palettes differ" in problem.message for problem in report_on(folder).problems)


def test_gray_palettes_that_differ_give_levels(tmp_path: Path) -> None:
    masks = [with_palette(striped(0, 1), 0, WHITE), with_palette(striped(0), WHITE, 0), with_palette(striped(0), 0)]
    assert found_in(make_folder(tmp_path, masks * 3)).classes == ("background", "foreground")
    assert shares_in(tmp_path)["foreground"] > 0.3


def test_unused_entries_of_palettes_may_differ(tmp_path: Path) -> None:
    masks = [with_palette(striped(0, 1), 0, RED), with_palette(striped(0, 1), 0, RED, GREEN)]
    masks += [with_palette(striped(0, 1), 0, RED, BLUE)]
    assert code_of(found_in(make_folder(tmp_path, masks * 2))).values == (0, 1)


def test_gray_masks_beside_palettes_are_indices_or_levels(tmp_path: Path) -> None:
    indexed = with_palette(striped(0, 1), 0, WHITE)
    by_index = make_folder(tmp_path / "index", [indexed, striped(0, 1)] * 4)
    assert code_of(found_in(by_index)).values == (0, 1)
    by_level = make_folder(tmp_path / "level", [indexed, striped(0, 255)] * 4)
    assert shares_in(by_level) == HALF


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
    report = report_on(make_folder(tmp_path, [striped(*values)] * 4))
    assert report.classes == tuple(f"value {value}" for value in expected)
    assert code_of(found_in(tmp_path)).values == expected
    assert any("255 too" in problem.message for problem in report.problems) == (255 in values)


def test_ignored_value_leaves_the_other_values(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [striped(0, 128, 255)] * 4)
    assert report_on(folder, ignored=255).classes == ("background", "foreground")
    assert report_on(folder, ignored=128).classes == ("background", "foreground")


@pytest.mark.parametrize("values", [(0, 1, 255), (0, 1, 2, 3, 255), (0, 4, 11, 255), tuple(range(34))])
def test_class_numbers_are_filled_and_255_is_void(tmp_path: Path, values: tuple[int, ...]) -> None:
    code = code_of(found_in(make_folder(tmp_path, [np.resize(values, (40, 40)).astype(np.uint8)] * 4)))
    top = max(value for value in values if value != 255)
    assert (code.values, code.ignored) == (tuple(range(top + 1)), (255,))


def test_masks_of_0_1_beside_0_255_are_a_question(tmp_path: Path) -> None:
    masks = [striped(0, 1), striped(0, 255)] * 4
    assert "Ignored mask value" in trouble_in(make_folder(tmp_path, masks))
    assert report_on(tmp_path, ignored=None).classes == ()
    both = make_folder(tmp_path / "both", [*masks, striped(0, 1, 255)])
    assert code_of(found_in(both)).ignored == (255,)


def blurred(mask: np.ndarray) -> Image.Image:
    return Image.fromarray(mask).filter(ImageFilter.GaussianBlur(0.7))


def disc(seed: int) -> np.ndarray:
    rows, columns = np.mgrid[:96, :96]
    return (((rows - 48) ** 2 + (columns - 40 - seed) ** 2 < 900) * 255).astype(np.uint8)


@pytest.mark.parametrize("ending", ["jpg", "webp", "png"])
def test_noise_around_two_levels_gives_two_classes(tmp_path: Path, ending: str) -> None:
    masks = [blurred(disc(seed)) if ending == "png" else Image.fromarray(disc(seed)) for seed in range(8)]
    report = report_on(make_folder(tmp_path, masks, ending))
    assert report.classes == ("background", "foreground")
    assert report.splits[0].shares["foreground"] == pytest.approx((disc(0) > 0).mean(), abs=0.02)
    assert any("whichever is nearer" in problem.message for problem in report.problems)


def test_noise_in_gray_color_jpegs_gives_two_classes(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [Image.fromarray(in_color(disc(seed))) for seed in range(8)], "jpg")
    assert found_in(folder).classes == ("background", "foreground")
    assert shares_in(folder)["foreground"] == pytest.approx((disc(0) > 0).mean(), abs=0.02)


@pytest.mark.parametrize("levels", [(0, 60, 120), (0, 128, 255), (0, 1, 2)])
def test_noise_around_other_levels_is_refused(tmp_path: Path, levels: tuple[int, ...]) -> None:
    mask = np.kron(np.random.default_rng(0).choice(levels, (24, 24)), np.ones((3, 3))).astype(np.uint8)
    folder = make_folder(tmp_path, [mask] * 4, "jpg")
    assert "JPEG" in trouble_in(folder)


def test_photos_and_depth_images_are_refused(tmp_path: Path) -> None:
    ramp = np.add.outer(np.arange(64), np.arange(64) * 2).astype(np.uint8)
    deep = (np.add.outer(np.arange(64), np.arange(64)) * 37).astype(np.uint16)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    for number, image in enumerate((ramp, deep, noise)):
        assert "photos or depth" in trouble_in(make_folder(tmp_path / str(number), [image] * 4))


def test_values_beyond_8_bits_are_classes_unless_they_count(tmp_path: Path) -> None:
    apart = striped(0, 1, 2).astype(np.uint16) * 1000
    assert found_in(make_folder(tmp_path / "apart", [apart] * 4)).classes == ("value 0", "value 1000", "value 2000")
    counting = np.where(striped(*range(8)) > 0, striped(*range(8)).astype(np.uint16) + 24000, 0).astype(np.uint16)
    assert "24,007" in trouble_in(make_folder(tmp_path / "counting", [counting] * 4))


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.float32])
def test_missing_data_of_tiffs_is_no_class(tmp_path: Path, kind: Any) -> None:
    tags = [(42113, "s", 0, "99", True)]
    folder = make_folder(tmp_path, [striped(0, 1, 2, 99).astype(kind)] * 4, "tif", extratags=tags)
    assert found_in(folder).classes == ("class 0", "class 1", "class 2")
    report = report_on(folder)
    assert [(each.value, each.class_name) for each in report.mask_values][-1] == ("99", None)
    assert any("missing data" in problem.message for problem in report.problems)


def test_missing_zero_is_background_beside_one_value(tmp_path: Path) -> None:
    tags = [(42113, "s", 0, "0", True)]
    folder = make_folder(tmp_path, [striped(0, 255)] * 4, "tif", extratags=tags)
    assert shares_in(folder) == HALF


def test_negative_and_nan_values_are_no_class(tmp_path: Path) -> None:
    whole = striped(0, 1, 2).astype(np.float32)
    whole[0] = np.nan
    minus = striped(0, 1, 2).astype(np.int16)
    minus[0] = -1
    for number, mask in enumerate((whole, minus)):
        report = report_on(make_folder(tmp_path / str(number), [mask] * 4, "tif"))
        assert (len(report.classes), report.unreadable_count) == (3, 0)
        assert report.mask_values[0].class_name is None


def test_unreadable_masks_are_refused_with_a_reason(tmp_path: Path) -> None:
    fractions = make_folder(tmp_path / "fractions", [striped(0, 1).astype(np.float32) / 4] * 4, "tif")
    assert ".tif: it has floating-point values such as 0.25" in trouble_in(fractions)
    cut = make_folder(tmp_path / "cut", [striped(0, 1)] * 4)
    for path in (cut / "masks").iterdir():
        path.write_bytes(path.read_bytes()[:30])
    assert ".png: it is" in trouble_in(cut)
    cmyk = make_folder(tmp_path / "cmyk", [Image.new("CMYK", (8, 8))] * 4, "tif")
    assert "mode CMYK" in trouble_in(cmyk)


def test_arrays_are_masks(tmp_path: Path) -> None:
    for number, kind in enumerate((np.uint8, np.int64, np.float32)):
        (tmp_path / f"{number}.npy").write_bytes(encoded(striped(0, 1, 2).astype(kind), "npy"))
    meaning = learn_meaning(str(tmp_path), [str(tmp_path / f"{number}.npy") for number in range(3)], [])
    assert meaning.classes == ("class 0", "class 1", "class 2")


# Names


def test_voc_names_need_its_palette_or_its_folder(tmp_path: Path) -> None:
    mask = striped(*range(21), *[255] * 11)
    assert found_in(make_folder(tmp_path / "plain", [mask] * 4)).classes[1] == "class 1"
    colors = [*VOC, *[0] * 234, 0xE0E0C0]
    assert found_in(make_folder(tmp_path / "palette", [with_palette(mask, *colors)] * 4)).classes[1] == "aeroplane"
    folder = make_folder(tmp_path / "shape", [mask] * 4)
    (folder / "images").rename(folder / "JPEGImages")
    (folder / "masks").rename(folder / "SegmentationClass")
    assert found_in(folder).classes[20] == "tvmonitor"


@pytest.mark.parametrize("values", [(0, 15, 255), (0, 7, 30, 255), (5, 33, 255)])
def test_void_beside_few_small_numbers_is_no_class(tmp_path: Path, values: tuple[int, ...]) -> None:
    code = code_of(found_in(make_folder(tmp_path, [striped(*values)] * 4)))
    assert (code.values, code.ignored) == (values[:-1], (255,))


def test_missing_number_is_dropped_from_the_classes(tmp_path: Path) -> None:
    tags = [(42113, "s", 0, "0", True)]
    folder = make_folder(tmp_path, [striped(0, 1, 2, 3)] * 4, "tif", extratags=tags)
    assert (found_in(folder).classes, code_of(found_in(folder)).values) == (
        ("class 1", "class 2", "class 3"),
        (1, 2, 3),
    )
    (tmp_path / "classes.txt").write_text("ground\nroof\ntree\ncar\n")
    assert shares_in(folder)["ground"] == 0.25


def test_few_odd_palettes_leave_the_indices(tmp_path: Path) -> None:
    masks = [with_palette(striped(0, 1, 2), 0, RED, GREEN)] * 15
    odd = [with_palette(striped(0, 1, 2), 0, GREEN, RED), with_palette(striped(0, 1, 2), 0, BLUE, GREEN)]
    report = report_on(make_folder(tmp_path, [*masks, *masks, *odd]))
    assert code_of(found_in(tmp_path)).palette == (0, RED, GREEN)
    assert report.unreadable_count == 1
    assert "#0000ff" in report.unreadable[0].reason


def test_table_that_lacks_values_of_most_masks_is_refused(tmp_path: Path) -> None:
    by_value = make_folder(tmp_path / "value", [striped(0, 1, 1, 2)] * 4)
    (by_value / "_classes.csv").write_text("Pixel Value, Class\n0, sky\n1, road\n")
    assert "such as the value 2" in trouble_in(by_value)
    by_color = make_folder(tmp_path / "color", [painted(striped(0, 1, 2), {1: RED, 2: BLUE})] * 4)
    (by_color / "class_dict.csv").write_text("name,r,g,b\nsky,0,0,0\nroad,255,0,0\n")
    assert "such as the color #0000ff" in trouble_in(by_color)
    by_palette = make_folder(tmp_path / "palette", [with_palette(striped(0, 1, 2), 0, RED, BLUE)] * 4)
    (by_palette / "class_dict.csv").write_text("name,r,g,b\nsky,0,0,0\nroad,255,0,0\n")
    assert "such as the value 2" in trouble_in(by_palette)


def test_two_names_fit_black_and_white_masks(tmp_path: Path) -> None:
    for number, (name, text) in enumerate(
        (("classes.txt", "sky\nroad\n"), ("_classes.csv", "Pixel Value, Class\n0, sky\n1, road\n"),
         ("class_dict.csv", "name,r,g,b\nsky,0,0,0\nroad,255,255,255\n"))
    ):  # fmt: skip
        folder = make_folder(tmp_path / str(number), [striped(0, 255)] * 4)
        (folder / name).write_text(text)
        assert shares_in(folder) == {"sky": 0.5, "road": 0.5}


def test_two_names_fit_noisy_masks(tmp_path: Path) -> None:
    for name, text in (
        ("classes.txt", "skin\nlesion\n"),
        ("class_dict.csv", "name,r,g,b\nlesion,255,255,255\nskin,0,0,0\n"),
    ):
        folder = make_folder(
            tmp_path / name.partition(".")[0], [Image.fromarray(disc(seed)) for seed in range(8)], "jpg"
        )
        (folder / name).write_text(text)
        assert found_in(folder).classes == ("skin", "lesion")


def test_stray_value_costs_one_image_beside_a_list(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [striped(0, 1, 2)] * 11 + [striped(0, 1, 2, 77)])
    (tmp_path / "codes.txt").write_text("sky\nroad\ntree\n")
    report = report_on(folder)
    assert (report.classes, report.unreadable_count) == (("sky", "road", "tree"), 1)


def test_equal_colors_in_a_palette_share_a_name(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [with_palette(striped(0, 1, 2, 3), 0, RED, 0, RED)] * 6)
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\nground,0,0,0\nroof,255,0,0\n")
    assert shares_in(folder) == {"ground": 0.5, "roof": 0.5}


def test_list_of_names_that_starts_at_one_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [striped(0, 1, 2, 3)] * 4)
    (tmp_path / "labels.txt").write_text("wall\nfloor\ntree\n")
    assert "labels.txt names 3 classes" in trouble_in(folder)
    (tmp_path / "labels.txt").write_text("1 wall\n2 floor\n3 tree\n0 other\n")
    assert shares_in(folder) == {"wall": 0.25, "floor": 0.25, "tree": 0.25, "other": 0.25}


def test_table_that_does_not_fit_is_passed_over(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [striped(0, 1, 2)] * 4)
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\nroad,255,0,0\nroof,0,255,0\n")
    assert found_in(folder).classes == ("class 0", "class 1", "class 2")
    assert any("class_dict.csv can't name" in problem.message for problem in report_on(folder).problems)


# Published conventions


def test_cityscapes_numbers_are_classes(tmp_path: Path) -> None:
    ids = make_folder(tmp_path / "ids", [striped(*range(start, start + 16)) for start in (0, 7, 11, 18)])
    assert len(found_in(ids).classes) == 34
    train_ids = make_folder(
        tmp_path / "train_ids", [striped(*range(start, start + 9), 255) for start in (0, 5, 10)] * 3
    )
    code = code_of(found_in(train_ids))
    assert (code.values, code.ignored) == (tuple(range(19)), (255,))


def test_ade20k_numbers_start_with_other(tmp_path: Path) -> None:
    masks = [np.resize(np.arange(start, start + 40), (40, 40)).astype(np.uint8) for start in (0, 30, 60, 90, 111)]
    folder = make_folder(tmp_path, [np.kron(mask, np.ones((4, 4))).astype(np.uint8) for mask in masks * 3])
    assert code_of(found_in(folder)).values == tuple(range(151))


def test_drive_gifs_have_two_classes(tmp_path: Path) -> None:
    gray = make_folder(tmp_path / "gray", [striped(0, 255), striped(0, 255)] * 3, "gif")
    assert len(shares_in(gray)) == 2
    one_bit = make_folder(tmp_path / "bits", [Image.fromarray(striped(0, 255)).convert("1")] * 6, "gif")
    assert shares_in(one_bit) == HALF


# Evaluation


def test_map_classes_maps_values_by_number(tmp_path: Path) -> None:
    few = found_in(make_folder(tmp_path / "few", [striped(0, 20, 100)] * 4))
    assert few.classes == ("value 0", "value 20", "value 100")
    mapped, mapping = map_classes(few, [f"class {number}" for number in range(101)])
    assert mapping.unknown == ()
    assert code_of(mapped).values[20] == 20
    two = found_in(make_folder(tmp_path / "two", [striped(0, 255)] * 4))
    mapped, mapping = map_classes(two, ["value 0", "value 128", "value 255"])
    assert (mapping.missing, mapping.unknown) == (("value 128",), ())
    assert code_of(mapped).values[::2] == (0, 255)


def test_mask_values_report_shares_and_classes(tmp_path: Path) -> None:
    report = report_on(make_folder(tmp_path, [striped(0, 1, 2, 255), striped(0, 1)] * 4))
    assert [(each.value, each.masks, each.class_name) for each in report.mask_values] == [
        ("0", 8, "class 0"), ("1", 8, "class 1"), ("2", 4, "class 2"), ("255", 4, None),
    ]  # fmt: skip
    assert [each.share for each in report.mask_values] == [0.375, 0.375, 0.125, 0.125]
