"""The icons of the desktop entry and the one that they are drawn from, which is the window's, too."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication

from engine.desktop.files import ICON_SIZES
from gui.style import icons

REDRAW = "draw them anew: icons.pixmap('footplate', '#000000', SIZE).save('resources/desktop/icons/SIZE.png')"


def pixels(image: QImage) -> np.ndarray:
    image = image.convertToFormat(QImage.Format.Format_RGBA8888)
    return np.array(image.constBits(), np.uint8).reshape(image.height(), -1).astype(float)


@pytest.mark.parametrize("size", ICON_SIZES)
def test_desktop_icon_matches_the_window(styled: QApplication, size: int) -> None:
    kept = QImage(str(files("resources").joinpath(f"desktop/icons/{size}.png")))
    assert (kept.width(), kept.height()) == (size, size)
    drawn = icons.pixmap("footplate", "#000000", size).toImage()
    assert np.abs(pixels(kept) - pixels(drawn)).mean() < 2, REDRAW
