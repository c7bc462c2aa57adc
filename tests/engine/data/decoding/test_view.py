"""Conversion of coordinates between an image and the center of the square that contains it."""

from __future__ import annotations

import numpy as np
import pytest

from engine.contract.images import Framing
from engine.data.decoding.images import frame
from engine.data.decoding.view import View


@pytest.mark.parametrize("framing", ["crop", "whole", "continued"])
@pytest.mark.parametrize(("height", "width"), [(90, 60), (60, 90), (70, 70)])
@pytest.mark.parametrize(("size", "resized"), [(32, 32), (32, 40), (24, 56)])
def test_view_finds_what_the_model_sees(height: int, width: int, size: int, resized: int, framing: Framing) -> None:
    box = np.array([width / 2 - 8, height / 2 - 10, width / 2 + 4, height / 2 + 12])
    left, top, right, bottom = box.astype(int)
    pixels = np.zeros((height, width, 1), np.uint8)
    pixels[top:bottom, left:right] = 255
    margin = (resized - size) // 2
    (square,) = frame(pixels, resized, framing)[:, margin : margin + size, margin : margin + size]
    rows, columns = (np.flatnonzero((square > 127).any(axis)) for axis in (1, 0))
    seen = np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], float)
    view = View.of(height, width, size, resized, framing)
    assert np.abs(view.boxes(seen, height, width) - box).max() <= max(height, width) / resized
    assert view.rows(top, top + 1)[0] == pytest.approx(rows[0], abs=1)
    assert view.columns(left, left + 1)[0] == pytest.approx(columns[0], abs=1)
