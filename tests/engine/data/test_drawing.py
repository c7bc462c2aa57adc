"""Drawings on images, and their legends."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from engine.contract.images import CLOUD_TEXT
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.drawing import draw_boxes, encode_png, find_classes, frame_legend, mask_legend, overlay_mask, to_rgb

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
        assert [drawn[place, place].tolist() for place in (2, 8, 9)] == [rgb(entry.color)] * 2 + [[90] * 3]
    assert len({entry.color for entry in legend}) == len(NAMES)
    tiny = draw_boxes(image, np.array([[5.0, 4.0, 5.4, 4.2], [8.0, 8.0, 9.0, 9.0]]), [1, 2], ["car"])
    assert [tiny[row, column].tolist() for row, column in ((4, 5), (8, 8))] == [
        rgb(legend[each].color) for each in (1, 2)
    ]


def test_frames_and_labels_scale_with_image() -> None:
    def drawn(side: int, *labels: str) -> np.ndarray:
        box = np.array([[0.0, 0.0, side, side]])
        return draw_boxes(np.zeros((side, side, 3), np.uint8), box, [0], labels).any(2)

    assert [int(drawn(side)[side // 2, : side // 2].sum()) for side in (100, 400, 1000)] == [1, 2, 5]
    small, large = (int(drawn(side, "car").sum() - drawn(side).sum()) for side in (100, 1000))
    assert 0 < 3 * small < large
    wide, box = np.zeros((100, 1000, 3), np.uint8), [0.0, 0.0, 1000.0, 100.0]
    assert int(draw_boxes(wide, np.array([box]), [0]).any(2)[50, :500].sum()) == 5
    boxes = np.array([[left, 0.0, left + 100, 100.0] for left in (0, 100, 200)])
    plain, labeled = (draw_boxes(wide, boxes, [0] * 3, labels).any(2) for labels in ([], ["i", "i", "W"]))
    counts = [int((plain != labeled)[:, left : left + 100].sum()) for left in (0, 100, 200)]
    assert 0 < counts[0] == counts[1] < counts[2]


def test_encode_png_stores_a_cloud_as_text() -> None:
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    for cloud in ("", "1 2 3"):
        with Image.open(BytesIO(encode_png(image, cloud))) as decoded:
            assert decoded.info.get(CLOUD_TEXT, "") == cloud
            np.testing.assert_array_equal(np.asarray(decoded), image)


def test_to_rgb_shows_the_first_channels() -> None:
    image = np.array([[[0, 0.4999]], [[1, 1.2]], [[0.25, -1]], [[9, 9]]])
    assert to_rgb(image).tolist() == [[[0, 255, 64], [127, 255, 0]]]
    assert to_rgb(image[1:3]).tolist() == [[[255] * 3, [255] * 3]]


def test_classes_in_excludes_no_class() -> None:
    assert find_classes(np.array([[NO_CLASS, 3], [0, 3]], np.uint8)) == (0, 3)
    assert find_classes(np.full((2, 2), NO_CLASS, np.uint8)) == ()
