"""Drawings on images, and their legends."""

from __future__ import annotations

import numpy as np

from engine.data.decoding.mask_values import NO_CLASS
from engine.data.drawing import classes_in, draw_boxes, frame_legend, mask_legend, overlay_mask

NAMES = ("road", "sky", "tree", "car")


def rgb(color: str) -> list[int]:
    return list(bytes.fromhex(color.removeprefix("#")))


def test_mask_legend_matches_overlay() -> None:
    image = np.full((2, 3, 3), 90, np.uint8)
    plane = np.array([[0, 1, 2], [3, NO_CLASS, 0]], np.uint8)
    overlaid = overlay_mask(image, plane)
    legend = mask_legend(NAMES)
    assert [entry.name for entry in legend] == list(NAMES)
    assert legend[0].color == ""
    assert overlaid[0, 0].tolist() == overlaid[1, 1].tolist() == [90] * 3
    for (row, column), number in (((0, 1), 1), ((0, 2), 2), ((1, 0), 3)):
        assert overlaid[row, column].tolist() == [45 + level // 2 for level in rgb(legend[number].color)]


def test_frame_legend_matches_frames() -> None:
    image = np.full((12, 12, 3), 90, np.uint8)
    legend = frame_legend(NAMES)
    for number, entry in enumerate(legend):
        drawn = draw_boxes(image, np.array([[2.0, 2.0, 9.0, 9.0]]), [number])
        assert drawn[2, 2].tolist() == rgb(entry.color)
    assert len({entry.color for entry in legend}) == len(NAMES)


def test_frames_and_labels_scale_with_image() -> None:
    def drawn(side: int, *labels: str) -> np.ndarray:
        box = np.array([[0.0, 0.0, side, side]])
        return draw_boxes(np.zeros((side, side, 3), np.uint8), box, [0], labels).any(2)

    assert [int(drawn(side)[side // 2, : side // 2].sum()) for side in (100, 400, 1000)] == [1, 2, 5]
    small, large = (int(drawn(side, "car").sum() - drawn(side).sum()) for side in (100, 1000))
    assert 0 < 3 * small < large


def test_classes_in_excludes_no_class() -> None:
    assert classes_in(np.array([[NO_CLASS, 3], [0, 3]], np.uint8)) == (0, 3)
    assert classes_in(np.full((2, 2), NO_CLASS, np.uint8)) == ()
