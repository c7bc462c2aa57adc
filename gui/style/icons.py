"""Icons from `resources/icons`, drawn in a colour of the present scheme."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer


@lru_cache(maxsize=128)
def pixmap(name: str, color: str, size: int = 16, ratio: float = 1.0) -> QPixmap:
    """The icon as a square picture of `size` logical pixels, for a screen of `ratio` pixels to one of them."""
    source = files("resources").joinpath("icons", f"{name}.svg").read_text(encoding="utf-8")
    renderer = QSvgRenderer(QByteArray(source.replace("currentColor", color).encode()))
    side = round(size * ratio)
    picture = QPixmap(side, side)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    renderer.render(painter, QRectF(0, 0, side, side))
    painter.end()
    picture.setDevicePixelRatio(ratio)
    return picture


def icon(name: str, color: str, size: int = 16) -> QIcon:
    """The icon for screens of one and of two pixels to a logical one."""
    result = QIcon(pixmap(name, color, size))
    result.addPixmap(pixmap(name, color, size, 2.0))
    return result
