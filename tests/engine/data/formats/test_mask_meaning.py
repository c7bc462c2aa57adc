"""Classes of mask folders. A table, a palette or the values themselves explain the values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.data.datasets.images import MaskedImages
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.mask_values import GRAY
from engine.data.splits import MaskCode
from tests.support.mask_folders import (
    color_mask,
    get_mask_code,
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
VOC = [0x000000, 0x800000, 0x008000, 0x808000, 0x000080, 0x800080, 0x008080, 0x808080, 0x400000, 0xC00000, 0x408000,
       0xC08000, 0x400080, 0xC00080, 0x408080, 0xC08080, 0x004000, 0x804000, 0x00C000, 0x80C000, 0x004080]  # fmt: skip


def in_color(mask: np.ndarray) -> np.ndarray:
    return np.stack([mask] * 3, 2)


def no_data(value: int) -> dict[str, Any]:
    """Return the options of a TIFF that declares `value` as missing data."""
    return {"ending": "tif", "extratags": [(42113, "s", 0, str(value), True)]}


WHITE_HALF = make_striped_mask(0, 255)
THREE = make_striped_mask(0, 1, 2)
COLORED = color_mask(THREE, {1: RED, 2: BLUE})
INDEXED = with_palette(make_striped_mask(0, 1), 0, WHITE)
TRANSPARENT = np.dstack([color_mask(make_striped_mask(0, 1), {1: RED}), WHITE_HALF])
DISCS = [Image.fromarray(make_disc(seed)) for seed in range(8)]
IN_MANY_WAYS = [
    WHITE_HALF,
    Image.fromarray(WHITE_HALF).convert("1"),
    Image.fromarray(WHITE_HALF).convert("LA"),
    Image.fromarray(in_color(WHITE_HALF)).convert("RGBA"),
]
WITH_NAN = np.where(THREE == 2, np.float32("nan"), THREE)
RAMP = np.add.outer(np.arange(64), np.arange(64) * 2).astype(np.uint8)
STATIC = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
NOISE = np.kron(np.random.default_rng(0).choice((0, 60, 120), (24, 24)), np.ones((3, 3))).astype(np.uint8)


@pytest.mark.parametrize(
    ("masks", "options", "table", "fractions"),
    [
        pytest.param(IN_MANY_WAYS, {}, "", HALF, id="one mask, saved in many ways"),
        pytest.param([INDEXED, WHITE_HALF], {}, "", HALF, id="levels next to a palette"),
        pytest.param([IN_MANY_WAYS[1]], {"ending": "gif"}, "", HALF, id="one bit in a GIF"),
        pytest.param([WHITE_HALF], no_data(0), "", HALF, id="missing 0 next to one value"),
        pytest.param(DISCS, {"ending": "jpg"}, "", {"background": 0.7, "foreground": 0.3}, id="noise of JPEG"),
        pytest.param([in_color(make_disc(3))], {"ending": "jpg"}, "", {"background": 0.7, "foreground": 0.3},
                     id="noise of JPEG in color"),
        pytest.param([WHITE_HALF], {}, "sky,0,0,0\nroad,255,255,255\n", {"sky": 0.5, "road": 0.5},
                     id="colors that name levels"),
        pytest.param([in_color(WHITE_HALF)], {}, "sky,0,0,0\nroad,255,255,255\ncar,255,0,0\n",
                     {"sky": 0.5, "road": 0.5, "car": 0}, id="colors that name gray in color"),
        pytest.param(DISCS, {"ending": "jpg"}, "lesion,255,255,255\nskin,0,0,0\n", {"skin": 0.7, "lesion": 0.3},
                     id="names of two noisy levels"),
        pytest.param([color_mask(THREE, {1: GREEN, 2: BLUE})], {}, "sky,0,0,0\ngrass,0,255,0\nwater,0,0,255\n",
                     {"sky": 0.34, "grass": 0.34, "water": 0.31}, id="names of colors without red"),
        pytest.param([with_palette(make_striped_mask(0, 1, 2, 3), 0, RED, 0, RED)], {}, "sky,0,0,0\nroof,255,0,0\n",
                     {"sky": 0.5, "roof": 0.5}, id="equal colors in a palette share a name"),
        pytest.param([make_striped_mask(0, 1, 2, 3)], no_data(0), "a,0,0,0\nb,1,1,1\nc,2,2,2\nd,3,3,3\n",
                     dict.fromkeys("abcd", 0.25), id="missing 0 that a table names"),
    ],
)  # fmt: skip
def test_masks_have_classes_of_any_source(
    tmp_path: Path, masks: list[Any], options: dict[str, Any], table: str, fractions: dict[str, float]
) -> None:
    folder = make_folder(tmp_path, masks * (8 // len(masks)), **options)
    if table:
        (folder / "masks/class_dict.csv").write_text(f"name,r,g,b\n{table}")
    assert measure_class_fractions(folder) == fractions


@pytest.mark.parametrize(
    ("masks", "options", "table", "found"),
    [
        pytest.param(IN_MANY_WAYS, {}, "", ("background foreground", "different ways"), id="many ways"),
        pytest.param(DISCS, {"ending": "jpg"}, "", ("background foreground", "whichever is nearer"), id="noise"),
        pytest.param([TRANSPARENT], {}, "", ("#000000 #ff0000", "transparent"), id="transparent"),
        pytest.param([make_striped_mask(0, 128, 255)], {}, "", ("value 0 value 128 value 255", "255 too"), id="white"),
        pytest.param([THREE], {}, "road,255,0,0\nroof,0,255,0\n", ("class 0 class 1 class 2", "class_dict.csv can't name"),
                     id="table of other colors"),
        pytest.param([make_striped_mask(0, 1, 2, 3)], no_data(0), "",
                     ("class 1 class 2 class 3", "The value 0 means missing data"), id="missing data"),
        pytest.param([with_palette(make_striped_mask(0, 1), *each) for each in ((0, RED), (0, GREEN), (RED, 0), (0, RED))],
                     {}, "", ("#000000 #00ff00 #ff0000", "palettes differ"), id="palettes"),
        pytest.param([COLORED, THREE], {}, "", ("", "others are gray"), id="gray levels among colors"),
        pytest.param([COLORED, THREE.astype(np.uint16) * 1000], {}, "", ("", "gray levels beyond 8 bits"),
                     id="deep levels among colors"),
        pytest.param([COLORED, THREE.astype(np.int16) - 1], {"ending": "tif"}, "", ("", "gray levels beyond 8 bits"),
                     id="negative levels among colors"),
        pytest.param([INDEXED, make_striped_mask(0, 128, 255)], {}, "", ("value 0 value 128 value 255", "255 too"),
                     id="gray levels next to a gray palette"),
        pytest.param([COLORED], {}, "road,0,255,255\nroof,0,255,0\n", ("#000000 #0000ff #ff0000", "class_dict.csv can't"),
                     id="colors that no table names"),
        pytest.param([with_palette(THREE, 0, RED, BLUE)], {}, "sky,0,0,0\nroad,255,0,0\n", ("", "such as the value 2"),
                     id="table without a color of the palette"),
        pytest.param([NOISE], {"ending": "jpg"}, "", ("", "JPEG"), id="three levels in a JPEG"),
        pytest.param([RAMP], {}, "", ("", "photos or depth"), id="smooth photos"),
        pytest.param([STATIC], {}, "", ("", "photos or depth"), id="noisy photos"),
        pytest.param([THREE], {}, f"{'c' * 256},0,0,0\nroad,1,1,1\nroof,2,2,2\n", ("", "256 characters"),
                     id="very long name"),
        pytest.param([RAMP.astype(np.uint16) * 37], {}, "", ("", "photos or depth"), id="depth"),
        pytest.param([Image.new("CMYK", (8, 8))], {"ending": "tif"}, "", ("", "mode CMYK"), id="ink"),
        pytest.param([WITH_NAN / 4], {"ending": "tif"}, "", ("", ".tif: it has floating-point values such as 0.25"),
                     id="fractions"),
    ],
)  # fmt: skip
def test_masks_are_doubted_or_refused_with_a_reason(
    tmp_path: Path, masks: list[Any], options: dict[str, Any], table: str, found: tuple[str, str]
) -> None:
    folder = make_folder(tmp_path, masks * (8 // len(masks)), **options)
    if table:
        (folder / "class_dict.csv").write_text(f"name,r,g,b\n{table}")
    report = report_on(folder)
    classes, phrase = found
    assert " ".join(report.classes) == classes
    severity = "warning" if classes else "error"
    assert [each.severity for each in report.problems if phrase in each.message] == [severity]


@pytest.mark.parametrize(
    ("masks", "ending", "code"),
    [
        pytest.param([WITH_NAN], "tif", MaskCode((0, 1), ignored=(255, -(1 << 31))), id="not a number"),
        pytest.param([with_palette(THREE, 0, RED, GREEN)] * 7 + [Image.fromarray(make_striped_mask(0, 1, 255))], "png",
                     MaskCode((0, 1, 2), ignored=(255,), palette=(0, RED, GREEN)), id="gray void next to palettes"),
        pytest.param([INDEXED, make_striped_mask(0, 1)], "png", MaskCode((0, 1), ignored=(255,), palette=(0, WHITE)),
                     id="gray indices next to palettes"),
        pytest.param([with_palette(make_striped_mask(0, 1), 0, RED, each) for each in (BLUE, GREEN)], "png",
                     MaskCode((0, 1), ignored=(255,), palette=(0, RED)), id="unused entries of palettes differ"),
        pytest.param([with_palette(make_striped_mask(0, 1), 0, GRAY), with_palette(make_striped_mask(0), GRAY, 0)], "png",
                     MaskCode((0, GRAY), ignored=(WHITE,), colors=True), id="gray palettes that differ"),
        pytest.param([with_palette(make_striped_mask(0, 1, 3), 0, RED, 7, GREEN)], "png",
                     MaskCode((0, 1, 2, 3), ignored=(255,), palette=(0, RED, -1, GREEN)), id="unused index of a palette"),
        pytest.param([color_mask(THREE, {1: WHITE, 2: RED}), WHITE_HALF], "png", MaskCode((0, RED, WHITE), colors=True),
                     id="gray levels that are colors"),
    ],
)  # fmt: skip
def test_masks_have_values_of_their_classes(tmp_path: Path, masks: list[Any], ending: str, code: MaskCode) -> None:
    found = get_mask_code(recognize_folder(make_folder(tmp_path, masks * (8 // len(masks)), ending)))
    assert found == code


@pytest.mark.parametrize("values", [(0, 255), (0, 1, 255), (0, 128, 255)])
def test_gray_masks_in_color_equal_gray_masks(tmp_path: Path, values: tuple[int, ...]) -> None:
    gray = make_folder(tmp_path / "gray", [make_striped_mask(*values)] * 4)
    color = make_folder(tmp_path / "color", [in_color(make_striped_mask(*values))] * 4)
    assert recognize_folder(color).classes == recognize_folder(gray).classes
    assert get_mask_code(recognize_folder(color)) == get_mask_code(recognize_folder(gray))


@pytest.mark.parametrize(
    ("masks", "ignored", "classes"),
    [
        ([with_palette(make_striped_mask(0, 1, 2, 3), 0, RED, GREEN, BLUE)], 1, ("class 0", "class 2", "class 3")),
        ([COLORED], RED, ("#000000", "#0000ff")),
        ([THREE], 0, ("class 1", "class 2")),
        ([make_striped_mask(0, 1, 255)], 0, ("value 1", "value 255")),
    ],
)
def test_ignored_values_have_no_class(tmp_path: Path, masks: list[Any], ignored: int, classes: tuple[str, ...]) -> None:
    report = report_on(make_folder(tmp_path, masks * 4), ignored=ignored)
    assert (report.classes, report.unreadable_count) == (classes, 0)
    value = f"#{RED:06x}" if ignored == RED else str(ignored)
    assert [each.value for each in report.mask_values if each.class_name is None] == [value]


def test_long_tables_are_ignored_but_long_lists_are_errors(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [THREE] * 4)
    (folder / "class_dict.csv").write_text("name,r,g,b\n" + "".join(f"c{row},0,0,{row}\n" for row in range(256)))
    assert recognize_folder(folder).classes == ("class 0", "class 1", "class 2")
    (folder / "classes.txt").write_text("".join(f"c{row}\n" for row in range(256)))
    assert "classes.txt names 256 classes" in " ".join(map(str, report_on(folder).problems))


def test_masks_with_only_ignored_colors_have_no_classes(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [color_mask(make_striped_mask(1, 2), {1: RED, 2: RED + 1})] * 4)
    for path in (folder / "masks").iterdir():
        Image.new("RGB", (32, 32), (255, 0, 0)).save(path)
    assert "the masks have no other value" in " ".join(each.message for each in report_on(folder, ignored=RED).problems)


def test_blue_tile_stays_blue_in_training_and_inspection(tmp_path: Path) -> None:
    full = color_mask(THREE, {0: WHITE, 1: BLUE, 2: RED})
    blue = color_mask(make_striped_mask(1), {1: BLUE})
    folder = make_folder(tmp_path, [full, blue, blue, blue] * 3)
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\nroad,255,255,255\nroof,0,0,255\ncar,255,0,0\nvoid,0,0,0\n")
    assert measure_class_fractions(folder)["roof"] > 0.7
    train = open_splits(str(folder), val_fraction=0.25, seed=0, kinds=("masks",)).train
    assert isinstance(train, MaskedImages)
    assert sum(counts := list(train.class_counts(4)))
    assert counts[1] > 0.7 * sum(counts)


def test_equal_palettes_give_indices_and_names_by_color(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [with_palette(THREE, 0, RED, GREEN)] * 4)
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\ntree,0,255,0\nground,0,0,0\nroof,255,0,0\n")
    assert recognize_folder(folder).classes == ("tree", "ground", "roof")
    assert get_mask_code(recognize_folder(folder)).values == (2, 0, 1)


def test_voc_names_need_its_palette_or_its_folder(tmp_path: Path) -> None:
    mask = make_striped_mask(*range(21), *[255] * 11)
    assert recognize_folder(make_folder(tmp_path / "plain", [mask] * 4)).classes[1] == "class 1"
    palette = with_palette(mask, *VOC, *[0] * 234, 0xE0E0C0)
    assert recognize_folder(make_folder(tmp_path / "palette", [palette] * 4)).classes[1] == "aeroplane"
    others = {"few": (0, 1, 2, 255), "complete": range(21), "more": (*range(22), 255)}
    masks = {"shape": (mask, "aeroplane")} | {
        name: (make_striped_mask(*each), "class 1") for name, each in others.items()
    }
    for name, (values, expected) in masks.items():
        folder = make_folder(tmp_path / name, [values] * 4)
        (folder / "images").rename(folder / "JPEGImages")
        (folder / "masks").rename(folder / "SegmentationClass")
        assert recognize_folder(folder).classes[1] == expected


def test_all_missing_values_are_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [make_striped_mask(0, 1, 2, 99)] * 4, **no_data(99))
    other = make_folder(tmp_path / "other", [make_striped_mask(0, 1, 2, 98)] * 2, **no_data(98))
    for path in [*other.glob("*/*")]:
        path.rename(folder / path.parent.name / f"other-{path.name}")
    report = report_on(folder)
    assert any("The values 98 and 99 mean missing data" in problem.message for problem in report.problems)
    assert [(each.value, each.class_name) for each in report.mask_values][-2:] == [("98", None), ("99", None)]
    unused = make_folder(tmp_path / "unused", [THREE] * 4, **no_data(99))
    assert get_mask_code(recognize_folder(unused)).notes == ()
