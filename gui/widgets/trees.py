"""Trees whose fold marks and indentation grow with the text size."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPoint, QRect
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QTreeView, QTreeWidget

from gui.style import icons, theme

INDENTATION = 14
"""Indentation of a level in pixels, at a text size of 100%."""
_MARK = 12
"""Width and height of a fold mark in pixels, at a text size of 100%."""


def draw_fold_mark(tree: QTreeView, painter: QPainter, rect: QRect, index: QModelIndex | QPersistentModelIndex) -> None:
    """Draw the arrow of a row that has children, at the right end of `rect`, the indentation before the row."""
    if not tree.model().hasChildren(index):
        return
    side = theme.scale_pixels(_MARK)
    ratio = painter.device().devicePixelRatio()
    name = "down" if tree.isExpanded(index) else "right"
    image = icons.pixmap(name, theme.colors().muted, round(side * ratio))
    center = QPoint(rect.right() - tree.indentation() // 2, rect.center().y())
    painter.drawPixmap(QRect(center.x() - side // 2, center.y() - side // 2, side, side), image)


class TreeView(QTreeView):
    """Tree view whose fold marks and indentation grow with the text size."""

    def __init__(self) -> None:
        super().__init__()
        theme.scale_with_text(self.setIndentation, INDENTATION)

    def drawBranches(self, painter: QPainter, rect: QRect, index: QModelIndex | QPersistentModelIndex) -> None:
        draw_fold_mark(self, painter, rect, index)


class TreeWidget(QTreeWidget):
    """Tree widget whose fold marks and indentation grow with the text size."""

    def __init__(self) -> None:
        super().__init__()
        theme.scale_with_text(self.setIndentation, INDENTATION)

    def drawBranches(self, painter: QPainter, rect: QRect, index: QModelIndex | QPersistentModelIndex) -> None:
        draw_fold_mark(self, painter, rect, index)
