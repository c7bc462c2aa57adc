"""Conversion of coordinates between an image and the square that the model sees: the resized and cropped image."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from engine.contract.images import Framing
from engine.data.decoding.images import frame
from engine.data.decoding.view import View, letterbox_plane


@pytest.mark.parametrize("framing", ["crop", "whole", "continued"])
@pytest.mark.parametrize(("height", "width"), [(90, 60), (60, 90), (70, 70)])
@pytest.mark.parametrize(("size", "resized"), [(32, 32), (32, 40), (24, 56)])
def test_view_finds_what_the_model_sees(height: int, width: int, size: int, resized: int, framing: Framing) -> None:
    box = np.array([width / 2 - 8, height / 2 - 10, width / 2 + 4, height / 2 + 12])
    left, top, right, bottom = box.astype(int)
    pixels = np.zeros((height, width, 1), np.uint8)
    pixels[top:bottom, left:right] = 255
    margin = (resized - size) // 2
    framed = frame(pixels, resized, framing)
    assert framed.shape == (1, resized, resized)
    (square,) = framed[:, margin : margin + size, margin : margin + size]
    rows, columns = (np.flatnonzero((square > 127).any(axis)) for axis in (1, 0))
    visible = np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], float)
    view = View.of(height, width, size, resized, framing)
    assert np.abs(view.convert_boxes(visible, height, width) - box).max() <= max(height, width) / resized
    assert view.map_rows(top, top + 1)[0] == pytest.approx(rows[0], abs=1)
    assert view.map_columns(left + 1)[-1] == pytest.approx(columns[0], abs=1)


def test_view_converts_exactly() -> None:
    view = View(scale_y=0.5, scale_x=2, top=3, left=-4)
    assert View.of(5, 4, 4, 4, "crop") == (1, 1, 0, 0)
    assert View.of(10, 21, 6, 8, "whole") == (0.4, pytest.approx(8 / 21), 1, -1)
    assert view.map_rows(1, 3).tolist() == [3.25, 3.75]
    assert view.map_columns(2).tolist() == [-3.5, -1.5]
    visible = np.array([[0, 4, 6, 8], [-9, 0, 99, 99]], float)
    assert view.convert_boxes(visible, 20, 40).tolist() == [[2, 2, 5, 10], [0, 0, 40, 20]]


@pytest.mark.parametrize(("height", "width", "top", "left"), [(10, 21, 2, 0), (21, 10, 0, 2), (3, 3, 0, 0)])
def test_box_plane_takes_pixels_like_pillow(height: int, width: int, top: int, left: int) -> None:
    plane = np.random.default_rng(0).integers(0, 200, (height, width), np.uint8)
    boxed = letterbox_plane(plane, 8, 255)
    tall, wide = 8 - 2 * top, 8 - 2 * left
    expected = np.full((8, 8), 255, np.uint8)
    resized = Image.fromarray(plane).resize((wide, tall), Image.Resampling.NEAREST)
    expected[top : top + tall, left : left + wide] = np.asarray(resized)
    assert boxed.tolist() == expected.tolist()
