"""Examples as training is given them under the light augmentation."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QImage, QPainter, QTransform

from engine.contract.dataset import Crop, crop_margin

MOST = 384
"""Pixels of the side in which pictures for models that take larger ones are drawn; examples have no more themselves."""


def as_given(picture: QImage, crop: Crop, size: int, *, whole: bool) -> QImage:
    """What `crop` takes of `picture` for a model that takes pictures of `size`: a square of that side, or of `MOST`.

    It is cropped from a larger square, in which the picture is `whole`, with black around it, or which is its middle. As in
    training, but for how colours between pixels are found.
    """
    side = min(size, MOST)
    loaded = side + crop_margin(side)
    width, height = picture.width(), picture.height()
    scale = loaded / (max(width, height) if whole else min(width, height))
    wide, tall = max(1, round(width * scale)), max(1, round(height * scale))
    fitted = picture.scaled(
        wide, tall, Qt.AspectRatioMode.IgnoreAspectRatio, Qt.TransformationMode.SmoothTransformation
    )
    top, left = crop.corner(side)
    square = QImage(side, side, QImage.Format.Format_RGB32)
    square.fill(Qt.GlobalColor.black)
    painter = QPainter(square)
    painter.drawImage((loaded - wide) // 2 - left, (loaded - tall) // 2 - top, fitted)
    painter.end()
    return square.transformed(QTransform().scale(-1, 1)) if crop.mirrored else square
