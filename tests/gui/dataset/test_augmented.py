"""Examples as the augmentation makes them, at the size that the model takes."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtGui import QColor, QImage

from engine.contract.dataset import Crop, crop_margin
from gui.dataset.augmented import MOST, as_given


def noise(height: int, width: int) -> tuple[QImage, np.ndarray]:
    """The same picture twice."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    return QImage(pixels.tobytes(), width, height, 3 * width, QImage.Format.Format_RGB888).copy(), pixels


def array(image: QImage) -> np.ndarray:
    plain = image.convertToFormat(QImage.Format.Format_RGB888)
    rows = np.frombuffer(plain.constBits(), np.uint8).reshape(plain.height(), plain.bytesPerLine())
    return rows[:, : 3 * plain.width()].reshape(plain.height(), plain.width(), 3).copy()


@pytest.mark.parametrize("crop", [Crop(0.0, 0.0, False), Crop(0.99, 0.3, True), Crop(0.5, 0.99, False)])
@pytest.mark.parametrize("size", [24, 64])
def test_that_a_picture_of_the_size_that_is_loaded_is_cropped_and_mirrored_to_the_pixel(crop: Crop, size: int) -> None:
    image, pixels = noise(*[size + crop_margin(size)] * 2)
    top, left = crop.corner(size)
    expected = pixels[top : top + size, left : left + size]
    np.testing.assert_array_equal(
        array(as_given(image, crop, size, whole=True)), expected[:, ::-1] if crop.mirrored else expected
    )


def test_that_pictures_are_whole_or_their_middle_is_taken() -> None:
    white = QImage(200, 100, QImage.Format.Format_RGB32)
    white.fill(QColor("white"))
    black = {
        whole: float((array(as_given(white, Crop(0.5, 0.5, False), 64, whole=whole)) == 0).mean())
        for whole in (True, False)
    }
    assert black[True] > 0.3
    assert black[False] == 0


def test_that_no_picture_is_drawn_larger_than_examples_are() -> None:
    image, _ = noise(30, 30)
    assert as_given(image, Crop(0.2, 0.2, False), 2048, whole=False).width() == MOST
