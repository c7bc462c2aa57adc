"""What is drawn on images, and the legends that say what its colours stand for."""

from __future__ import annotations

import numpy as np

from engine.data.decoding.masks import NO_CLASS
from engine.data.drawing import classes_in, frame_legend, lay_mask, mask_legend, outline

NAMES = ("road", "sky", "tree", "car")


def rgb(colour: str) -> list[int]:
    return list(bytes.fromhex(colour.removeprefix("#")))


def test_that_the_legend_of_masks_has_the_colours_that_are_laid() -> None:
    image = np.full((2, 3, 3), 90, np.uint8)
    plane = np.array([[0, 1, 2], [3, NO_CLASS, 0]], np.uint8)
    laid = lay_mask(image, plane)
    legend = mask_legend(NAMES)
    assert [entry.name for entry in legend] == list(NAMES)
    assert legend[0].colour == ""
    assert laid[0, 0].tolist() == laid[1, 1].tolist() == [90] * 3
    for (row, column), number in (((0, 1), 1), ((0, 2), 2), ((1, 0), 3)):
        assert laid[row, column].tolist() == [45 + part // 2 for part in rgb(legend[number].colour)]


def test_that_the_legend_of_frames_has_the_colours_that_are_drawn_and_none_is_left_out() -> None:
    image = np.full((12, 12, 3), 90, np.uint8)
    legend = frame_legend(NAMES)
    for number, entry in enumerate(legend):
        drawn = outline(image, np.array([[2.0, 2.0, 9.0, 9.0]]), [number])
        assert drawn[2, 2].tolist() == rgb(entry.colour)
    assert len({entry.colour for entry in legend}) == len(NAMES)


def test_that_frames_and_words_are_larger_in_larger_images() -> None:
    def drawn(side: int, *words: str) -> np.ndarray:
        box = np.array([[0.0, 0.0, side, side]])
        return outline(np.zeros((side, side, 3), np.uint8), box, [0], words).any(2)

    assert [int(drawn(side)[side // 2, : side // 2].sum()) for side in (100, 400, 1000)] == [1, 2, 5]
    small, large = (int(drawn(side, "car").sum() - drawn(side).sum()) for side in (100, 1000))
    assert 0 < 3 * small < large


def test_that_what_is_of_no_class_is_not_among_the_classes_of_a_plane() -> None:
    assert classes_in(np.array([[NO_CLASS, 3], [0, 3]], np.uint8)) == (0, 3)
    assert classes_in(np.full((2, 2), NO_CLASS, np.uint8)) == ()
