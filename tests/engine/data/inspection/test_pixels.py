"""Warnings about pixels that lose their contrast before they reach the model."""

from __future__ import annotations

import re
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from engine.contract.problems import Problem
from engine.data.decoding.transparency import NEARLY_WHITE
from engine.data.inspection.inspector import inspect
from engine.data.inspection.pixels import check_pixels

SIDE = 24


def problems(folder: Path) -> list[Problem]:
    return list(inspect(str(folder), val_fraction=0.25, seed=0, progress=lambda done, total: None).problems)


def texts(folder: Path) -> str:
    return " ".join(map(str, problems(folder)))


def write(folder: Path, arrays: list[np.ndarray]) -> Path:
    """Write each array as a PNG, alternately for the classes "a" and "b", and return `folder`."""
    for number, array in enumerate(arrays):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(imagecodecs.png_encode(array))
    return folder


def noise(seed: int, low: int, high: int, kind: str = "uint8", bands: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high + 1, (SIDE, SIDE, bands)).astype(kind)


def test_ordinary_images_have_no_problem_of_pixels(tmp_path: Path) -> None:
    assert problems(write(tmp_path, [noise(seed, 0, 255) for seed in range(12)])) == []


def test_images_of_different_single_colors_have_no_problem(tmp_path: Path) -> None:
    arrays = [np.full((SIDE, SIDE, 3), 20 * number, np.uint8) for number in range(12)]
    assert problems(write(tmp_path, arrays)) == []


@pytest.mark.parametrize("high", [2, 9, 15])
def test_narrow_bit_depths_are_reported_with_a_factor(tmp_path: Path, high: int) -> None:
    blank = [np.zeros((SIDE, SIDE, 3), np.uint8)] * 4
    folder = write(tmp_path, [noise(seed, 0, high) for seed in range(12)] + blank)
    (problem,) = check_pixels([str(path) for path in folder.rglob("*.png")], 3, None)
    assert f"levels 0 to {high} of 255" in problem.message
    assert f"by {255 // high}" in problem.remedy


@pytest.mark.parametrize(("level", "difference"), [(90, 2), (128, 3), (128, 4), (252, 2)])
def test_nearly_constant_images_are_reported(tmp_path: Path, level: int, difference: int) -> None:
    found = texts(write(tmp_path, [noise(seed, level, level + difference) for seed in range(12)]))
    assert ("nearly constant" in found) == (difference < 4)


@pytest.mark.parametrize(("high", "bands"), [(4095, 1), (255, 1), (65535, 3)])
def test_the_range_of_deep_images_is_reported(tmp_path: Path, high: int, bands: int) -> None:
    arrays = [noise(seed, 0, high, "uint16", bands) for seed in range(12)]
    for array in arrays:
        array[..., 1:] //= 2
    (problem,) = problems(write(tmp_path, [array if bands == 3 else array[..., 0] for array in arrays]))
    assert "16-bit" in problem.message
    assert "by a sample of 8 images" in problem.message
    ranges = r"values from (.*) to (.*) become" if bands == 1 else r"of each band \(the first: (.*) to (.*)\) become"
    found = re.search(ranges, problem.message)
    assert found is not None
    low, high_ = (float(number.replace(",", "")) for number in found.groups())
    assert 0 <= low < 0.02 * high
    assert 0.98 * high < high_ <= high
    assert problem.severity == "warning"


@pytest.mark.parametrize(("level", "where"), [(0, "on white"), (NEARLY_WHITE - 5, "on white"), (255, "on black")])
def test_transparent_images_are_reported_with_their_background(tmp_path: Path, level: int, where: str) -> None:
    arrays = []
    for seed in range(12):
        array = np.full((SIDE, SIDE, 4), level, np.uint8)
        array[..., 3] = 255 * noise(seed, 0, 1)[..., 0]
        arrays.append(array)
    (problem,) = problems(write(tmp_path, arrays))
    assert f"the model sees them {where}" in problem.message
    assert ("nearly white" in problem.message) == (where == "on black")
    assert "8 of 8" in problem.message


def test_transparent_images_on_two_backgrounds_are_counted(tmp_path: Path) -> None:
    for name, levels in (("train", (255, 255, 120, 120)), ("val", (120, 120))):
        arrays = [np.dstack([np.full((SIDE, SIDE, 3), level), noise(level, 0, 255)[..., :1]]) for level in levels]
        write(tmp_path / name, [array.astype(np.uint8) for array in arrays])
    assert "4 of 4 images inspected have transparent parts; the model sees them on white, 2 of them on black" in texts(
        tmp_path
    )


@pytest.mark.parametrize(("blank", "is_reported"), [(2, False), (3, True), (5, True), (6, False)])
def test_blank_images_among_others_are_named(tmp_path: Path, blank: int, is_reported: bool) -> None:
    arrays = [noise(seed, 0, 255) for seed in range(10 - blank)] + [np.zeros((SIDE, SIDE, 3), np.uint8)] * blank
    files = [str(path) for path in write(tmp_path, arrays).rglob("*.png")]
    found = [problem.message.partition(" (")[0] for problem in check_pixels(files, 3, None)]
    assert found == [f"{blank} of 10 images inspected are a single color"] * is_reported


def test_examples_have_the_background_of_the_model(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for number in range(4):
            image = Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 0))
            image.paste((0, 0, 0, 255), (4, 4, 12 + number, 12))
            path = tmp_path / name / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            image.save(path)
    report = inspect(str(tmp_path), val_fraction=0.25, seed=0, progress=lambda done, total: None)
    example = imagecodecs.png_decode(report.examples[0].png)
    assert (int(example.min()), int(example.max())) == (0, 255)
