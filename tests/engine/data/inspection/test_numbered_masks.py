"""Recognition of masks whose values are object numbers, which must not be mistaken for masks of classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.decoding.numbered_masks import count_numbered_objects
from engine.data.inspection.inspector import inspect

SIDE = 60


def draw_numbered_mask(things: int, *, step: int = 1, first: int = 1) -> np.ndarray:
    """Return a mask, uint16 [60, 60], with `things` separate squares.

    The pixels of the first square have the value `first`, and the value increases by `step` from square to square.
    """
    mask = np.zeros((SIDE, SIDE), np.uint16)
    for number in range(things):
        row, column = divmod(number, 10)
        mask[6 * row : 6 * row + 4, 6 * column : 6 * column + 4] = first + number * step
    return mask


def draw_diagonal_mask(things: int) -> np.ndarray:
    """Return a mask, uint16 [60, 60], with `things` objects of two pixels that touch at a corner."""
    rows, columns = np.arange(2 * things), np.arange(2 * things)
    mask = np.zeros((SIDE, SIDE), np.uint16)
    mask[rows, columns] = 1 + rows // 2
    return mask


def draw_class_mask(classes: int, seed: int) -> np.ndarray:
    """Return a mask, uint16 [60, 60], of 36 blocks with random values from 0 (background) to `classes`."""
    return np.random.default_rng(seed).integers(0, classes + 1, (6, 6)).repeat(10, 0).repeat(10, 1).astype(np.uint16)


def write_masks(folder: Path, *masks: np.ndarray) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}.png" for number in range(len(masks))]
    for path, mask in zip(paths, masks, strict=True):
        Image.fromarray(mask).save(path)
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    ("masks", "things"),
    [
        ([draw_numbered_mask(12), draw_numbered_mask(3), draw_numbered_mask(30)], 30),
        (
            [draw_numbered_mask(12, first=26_001, step=7), draw_numbered_mask(3)],
            12,
        ),  # numbered as in Cityscapes
        ([draw_diagonal_mask(12), draw_diagonal_mask(3)], 12),
        ([draw_numbered_mask(9), draw_numbered_mask(9)], 0),  # every image has the same organs
        ([draw_numbered_mask(12, step=3), draw_numbered_mask(3)], 0),
        ([draw_numbered_mask(12, step=3), draw_numbered_mask(9, step=3)], 0),  # visible parts of a face
        ([draw_numbered_mask(4), draw_numbered_mask(3)], 0),
        ([draw_class_mask(10, seed) for seed in range(4)], 0),
        ([np.zeros((8, 8), np.uint16)], 0),
        ([], 0),
    ],
)
def test_numbered_objects_are_recognized(tmp_path: Path, masks: list[np.ndarray], things: int) -> None:
    assert count_numbered_objects(write_masks(tmp_path / "masks", *masks)) == things


@pytest.mark.parametrize(("first", "severities"), [(1, ["warning"]), (4000, ["warning", "error"])])
def test_numbered_objects_are_reported_first_with_task(tmp_path: Path, first: int, severities: list[str]) -> None:
    masks = [draw_numbered_mask(count, first=first) for count in (12, 30, 30, 30, 25)]
    write_masks(tmp_path / "masks", *masks)
    write_masks(tmp_path / "images", *(mask.astype(np.uint8) for mask in masks))
    report = inspect(str(tmp_path), val_fraction=0.25, seed=0, kinds=("masks",), progress=lambda done, total: None)
    warning = report.problems[0]
    assert "30 or more in one of them" in warning.message
    assert "choose the task Instance segmentation" in warning.remedy
    assert list(dict.fromkeys(problem.severity for problem in report.problems)) == severities
    edges = inspect(
        str(tmp_path), val_fraction=0.25, seed=0, kinds=("edges", "masks"), progress=lambda done, total: None
    )
    assert warning not in edges.problems
