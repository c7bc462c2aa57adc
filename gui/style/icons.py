"""Icons from `resources/icons`, drawn in colors of the current theme."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from PySide6.QtCore import QByteArray, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QIconEngine, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QApplication, QStyleOption

from gui.style import theme


def icon(name: str, color: str, on: str = "") -> QIcon:
    """Return the icon `name` in a color of the current theme. In selected rows, it has the color of the text.

    `color` is the name of a field of `theme.Colors`. `on` is the name of the icon for a checked button, or "" for the
    same icon.
    """
    return QIcon(_IconEngine(name, color, on or name))


@lru_cache(maxsize=128)
def pixmap(name: str, color: str, side: int) -> QPixmap:
    """Read an icon and return it as a square image of `side` pixels, in a color such as "#000000". It is cached."""
    source = files("resources").joinpath("icons", f"{name}.svg").read_text(encoding="utf-8")
    image = QPixmap(side, side)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    QSvgRenderer(QByteArray(source.replace("currentColor", color).encode())).render(painter, QRectF(0, 0, side, side))
    painter.end()
    return image


class _IconEngine(QIconEngine):
    """Icon engine that draws the icon `on` for `QIcon.State.On` and the icon `name` otherwise."""

    def __init__(self, name: str, color: str, on: str) -> None:
        super().__init__()
        self._name, self._color, self._on = name, color, on

    def clone(self) -> QIconEngine:
        return _IconEngine(self._name, self._color, self._on)

    def paint(self, painter: QPainter, rect: QRect, mode: QIcon.Mode, state: QIcon.State) -> None:
        painter.drawPixmap(rect, self.pixmap(rect.size() * painter.device().devicePixelRatio(), mode, state))

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        """Draw the icon for a state and a mode, as large as the shorter side of `size`."""
        color = "accent_text" if mode == QIcon.Mode.Selected else self._color
        name = self._on if state == QIcon.State.On else self._name
        image = pixmap(name, getattr(theme.colors(), color), min(size.width(), size.height()))
        if mode != QIcon.Mode.Disabled:
            return image
        return QApplication.style().generatedIconPixmap(mode, image, QStyleOption())
