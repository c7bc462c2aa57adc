"""Class names for masks, known conventions, and folders on which a model is evaluated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.inference.evaluation.class_mapping import map_classes
from tests.support.mask_folders import (
    color_mask,
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

RED, GREEN, BLUE = 0xFF0000, 0x00FF00, 0x0000FF
HALF = {"background": 0.5, "foreground": 0.5}
VOC = [0x000000, 0x800000, 0x008000, 0x808000, 0x000080, 0x800080, 0x008080, 0x808080, 0x400000, 0xC00000, 0x408000,
       0xC08000, 0x400080, 0xC00080, 0x408080, 0xC08080, 0x004000, 0x804000, 0x00C000, 0x80C000, 0x004080]  # fmt: skip


def test_voc_names_need_its_palette_or_its_folder(tmp_path: Path) -> None:
    mask = make_striped_mask(*range(21), *[255] * 11)
    assert recognize_folder(make_folder(tmp_path / "plain", [mask] * 4)).classes[1] == "class 1"
    colors = [*VOC, *[0] * 234, 0xE0E0C0]
    assert (
        recognize_folder(make_folder(tmp_path / "palette", [with_palette(mask, *colors)] * 4)).classes[1] == "aeroplane"
    )
    for name, values, expected in (("shape", mask, "aeroplane"), ("few", make_striped_mask(0, 1, 2, 255), "class 1")):
        folder = make_folder(tmp_path / name, [values] * 4)
        (folder / "images").rename(folder / "JPEGImages")
        (folder / "masks").rename(folder / "SegmentationClass")
        assert recognize_folder(folder).classes[1] == expected


def test_class_table_in_the_folder_of_masks_is_read(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [make_striped_mask(0, 1)] * 4)
    (folder / "masks" / "classes.txt").write_text("ground\nroof\n")
    assert recognize_folder(folder).classes == ("ground", "roof")


def test_missing_numbers_need_no_warning(tmp_path: Path) -> None:
    mask = make_striped_mask(0, 1, 2, 3).astype(np.float32)
    mask[mask == 3] = np.nan
    code = get_mask_code(recognize_folder(make_folder(tmp_path, [mask] * 4, "tif")))
    assert (code.values, code.notes) == ((0, 1, 2), ())


def test_gray_masks_may_mark_void_next_to_palettes(tmp_path: Path) -> None:
    masks = [with_palette(make_striped_mask(0, 1, 2), 0, RED, GREEN)] * 5 + [
        Image.fromarray(make_striped_mask(0, 1, 255))
    ]
    code = get_mask_code(recognize_folder(make_folder(tmp_path, masks)))
    assert (code.values, code.colors, code.palette) == ((0, 1, 2), False, (0, RED, GREEN))


@pytest.mark.parametrize("values", [(0, 15, 255), (0, 7, 30, 255), (5, 33, 255)])
def test_void_next_to_few_small_numbers_is_no_class(tmp_path: Path, values: tuple[int, ...]) -> None:
    code = get_mask_code(recognize_folder(make_folder(tmp_path, [make_striped_mask(*values)] * 4)))
    assert (code.values, code.ignored) == (values[:-1], (255,))


def test_missing_number_is_dropped_from_the_classes(tmp_path: Path) -> None:
    tags = [(42113, "s", 0, "0", True)]
    folder = make_folder(tmp_path, [make_striped_mask(0, 1, 2, 3)] * 4, "tif", extratags=tags)
    assert (recognize_folder(folder).classes, get_mask_code(recognize_folder(folder)).values) == (
        ("class 1", "class 2", "class 3"),
        (1, 2, 3),
    )
    (tmp_path / "classes.txt").write_text("ground\nroof\ntree\ncar\n")
    assert measure_class_fractions(folder)["ground"] == 0.25


def test_few_odd_palettes_leave_the_indices(tmp_path: Path) -> None:
    masks = [with_palette(make_striped_mask(0, 1, 2), 0, RED, GREEN)] * 15
    odd = [
        with_palette(make_striped_mask(0, 1, 2), 0, GREEN, RED),
        with_palette(make_striped_mask(0, 1, 2), 0, BLUE, GREEN),
    ]
    report = report_on(make_folder(tmp_path, [*masks, *masks, *odd]))
    assert get_mask_code(recognize_folder(tmp_path)).palette == (0, RED, GREEN)
    assert report.unreadable_count == 1
    assert "#0000ff" in report.unreadable[0].reason


def test_very_long_class_name_of_masks_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [make_striped_mask(0, 1, 2)] * 4)
    (folder / "classes.txt").write_text("sky\nroad\n" + "c" * 256)
    assert "256 characters" in join_errors(folder)


def test_table_that_lacks_values_of_most_masks_is_refused(tmp_path: Path) -> None:
    by_value = make_folder(tmp_path / "value", [make_striped_mask(0, 1, 1, 2)] * 4)
    (by_value / "_classes.csv").write_text("Pixel Value, Class\n0, sky\n1, road\n")
    assert "such as the value 2" in join_errors(by_value)
    by_color = make_folder(tmp_path / "color", [color_mask(make_striped_mask(0, 1, 2), {1: RED, 2: BLUE})] * 4)
    (by_color / "class_dict.csv").write_text("name,r,g,b\nsky,0,0,0\nroad,255,0,0\n")
    assert "such as the color #0000ff" in join_errors(by_color)
    by_palette = make_folder(tmp_path / "palette", [with_palette(make_striped_mask(0, 1, 2), 0, RED, BLUE)] * 4)
    (by_palette / "class_dict.csv").write_text("name,r,g,b\nsky,0,0,0\nroad,255,0,0\n")
    assert "such as the value 2" in join_errors(by_palette)


def test_two_names_fit_black_and_white_masks(tmp_path: Path) -> None:
    for number, (name, text) in enumerate(
        (("classes.txt", "sky\nroad\n"), ("_classes.csv", "Pixel Value, Class\n0, sky\n1, road\n"),
         ("class_dict.csv", "name,r,g,b\nsky,0,0,0\nroad,255,255,255\n"))
    ):  # fmt: skip
        folder = make_folder(tmp_path / str(number), [make_striped_mask(0, 255)] * 4)
        (folder / name).write_text(text)
        assert measure_class_fractions(folder) == {"sky": 0.5, "road": 0.5}
        assert not get_mask_code(recognize_folder(folder)).colors


def test_two_names_fit_noisy_masks(tmp_path: Path) -> None:
    for name, text in (
        ("classes.txt", "skin\nlesion\n"),
        ("class_dict.csv", "name,r,g,b\nlesion,255,255,255\nskin,0,0,0\n"),
    ):
        folder = make_folder(
            tmp_path / name.partition(".")[0], [Image.fromarray(make_disc(seed)) for seed in range(8)], "jpg"
        )
        (folder / name).write_text(text)
        assert recognize_folder(folder).classes == ("skin", "lesion")


def test_stray_value_costs_one_image_with_a_class_list(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [make_striped_mask(0, 1, 2)] * 11 + [make_striped_mask(0, 1, 2, 77)])
    (tmp_path / "codes.txt").write_text("sky\nroad\ntree\n")
    report = report_on(folder)
    assert (report.classes, report.unreadable_count) == (("sky", "road", "tree"), 1)


def test_equal_colors_in_a_palette_share_a_name(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [with_palette(make_striped_mask(0, 1, 2, 3), 0, RED, 0, RED)] * 6)
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\nground,0,0,0\nroof,255,0,0\n")
    assert measure_class_fractions(folder) == {"ground": 0.5, "roof": 0.5}


def test_list_of_names_that_starts_at_one_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [make_striped_mask(0, 1, 2, 3)] * 4)
    (tmp_path / "labels.txt").write_text("wall\nfloor\ntree\n")
    assert "labels.txt names 3 classes" in join_errors(folder)
    (tmp_path / "labels.txt").write_text("1 wall\n2 floor\n3 tree\n0 other\n")
    assert measure_class_fractions(folder) == {"wall": 0.25, "floor": 0.25, "tree": 0.25, "other": 0.25}


def test_table_that_does_not_fit_is_passed_over(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [make_striped_mask(0, 1, 2)] * 4)
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\nroad,255,0,0\nroof,0,255,0\n")
    assert recognize_folder(folder).classes == ("class 0", "class 1", "class 2")
    assert any("class_dict.csv can't name" in problem.message for problem in report_on(folder).problems)


# Published conventions


def test_cityscapes_numbers_are_classes(tmp_path: Path) -> None:
    ids = make_folder(tmp_path / "ids", [make_striped_mask(*range(start, start + 16)) for start in (0, 7, 11, 18)])
    assert len(recognize_folder(ids).classes) == 34
    train_ids = make_folder(
        tmp_path / "train_ids", [make_striped_mask(*range(start, start + 9), 255) for start in (0, 5, 10)] * 3
    )
    code = get_mask_code(recognize_folder(train_ids))
    assert (code.values, code.ignored) == (tuple(range(19)), (255,))


def test_ade20k_numbers_start_with_other(tmp_path: Path) -> None:
    masks = [np.resize(np.arange(start, start + 40), (40, 40)).astype(np.uint8) for start in (0, 30, 60, 90, 111)]
    folder = make_folder(tmp_path, [np.kron(mask, np.ones((4, 4))).astype(np.uint8) for mask in masks * 3])
    assert get_mask_code(recognize_folder(folder)).values == tuple(range(151))


def test_drive_gifs_have_two_classes(tmp_path: Path) -> None:
    gray = make_folder(tmp_path / "gray", [make_striped_mask(0, 255), make_striped_mask(0, 255)] * 3, "gif")
    assert len(measure_class_fractions(gray)) == 2
    one_bit = make_folder(tmp_path / "bits", [Image.fromarray(make_striped_mask(0, 255)).convert("1")] * 6, "gif")
    assert measure_class_fractions(one_bit) == HALF


# Evaluation


def test_map_classes_maps_values_by_number(tmp_path: Path) -> None:
    few = recognize_folder(make_folder(tmp_path / "few", [make_striped_mask(0, 20, 100)] * 4))
    assert few.classes == ("value 0", "value 20", "value 100")
    mapped, mapping = map_classes(few, [f"class {number}" for number in range(101)])
    assert mapping.unknown == ()
    assert get_mask_code(mapped).values[20] == 20
    two = recognize_folder(make_folder(tmp_path / "two", [make_striped_mask(0, 255)] * 4))
    mapped, mapping = map_classes(two, ["value 0", "value 128", "value 255"])
    assert (mapping.missing, mapping.unknown) == (("value 128",), ())
    assert get_mask_code(mapped).values[::2] == (0, 255)


def test_mask_values_report_shares_and_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_on(make_folder(tmp_path, [make_striped_mask(0, 1, 2, 255), make_striped_mask(0, 1)] * 4))
    assert [(each.value, each.masks, each.class_name) for each in report.mask_values] == [
        ("0", 8, "class 0"), ("1", 8, "class 1"), ("2", 4, "class 2"), ("255", 4, None),
    ]  # fmt: skip
    assert [each.share for each in report.mask_values] == [0.375, 0.375, 0.125, 0.125]
    monkeypatch.setattr("engine.data.inspection.masks.MAX_VALUES_LISTED", 2)
    assert [each.share for each in report_on(tmp_path).mask_values] == [0.375, 0.375]
