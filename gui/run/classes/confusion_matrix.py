"""How often each class was found as which: the confusion matrix, as an image with a cell that the keyboard moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from gui.format import localised
from gui.run.classes.table import class_names
from gui.style import fills, theme

LEAST, MOST = 14, 64
"""Pixels of a cell's side."""
_NUMBERS_FROM = 30
_WIDEST_NAME, _HIGHEST_NAME = 150, 110
_TITLE = 18
"""Room for the word that names the columns."""
_GAP = 6

_STEPS = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
}


class ConfusionMatrix(QWidget):
    """A row for each true class, a column for each class found. A cell is as full as its share of its row, and says
    it where there is room; right ones have a frame. Arrow keys and the pointer choose a cell, which is told in words.

    Signals:
        cell_chosen(int, int, str): row, column, and what the cell says, in words.
        cell_opened(int, int): what is in the cell is asked for, by a click or Enter.
    """

    cell_chosen = Signal(int, int, str)
    cell_opened = Signal(int, int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names: list[str] = []
        self._counts: npt.NDArray[np.int64] = np.zeros((0, 0), np.int64)
        self._shares = self._counts.astype(np.float64)
        self.cell: tuple[int, int] | None = None
        self.setAccessibleName("Confusion matrix")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self._fills = QImage()
        theme.notifier.changed.connect(self.recolor)

    def show_counts(self, classes: Sequence[str], counts: npt.NDArray[np.int64] | None) -> None:
        """`counts` is [n, n], true classes by those found; None where there is none."""
        self._counts = counts if counts is not None else np.zeros((0, 0), np.int64)
        totals = self._counts.sum(1, keepdims=True)
        self._shares = self._counts / np.maximum(totals, 1)
        self._names = class_names(classes, len(self._counts))
        if self.cell is not None and max(self.cell) >= len(self._counts):
            self.cell = None
        self.setMinimumSize(self._smallest())
        self._describe()
        self.recolor()

    def choose(self, row: int, column: int) -> None:
        """Makes a cell the chosen one, and tells of it."""
        if not (0 <= row < len(self._counts) and 0 <= column < len(self._counts)) or self.cell == (row, column):
            return
        self.cell = row, column
        self._describe()
        self.update()
        self.cell_chosen.emit(row, column, self.words(row, column))

    def words(self, row: int, column: int) -> str:
        """ "Of 40 that are rose, 12 (30.0 %) were found to be tulip."."""
        total, count = int(self._counts[row].sum()), int(self._counts[row, column])
        true, found = self._names[row], self._names[column]
        if not total:
            return f"No samples of {true}."
        what = "were predicted correctly" if row == column else f"were predicted as {found}"
        return f"Of {localised(total)} {true}, {localised(count)} ({localised(100 * count / total, 1)} %) {what}."

    def most_confused(self) -> tuple[int, int] | None:
        """Row and column of the largest share of a class that was found to be another; None where all is right."""
        wrong = self._shares.copy()
        np.fill_diagonal(wrong, 0.0)
        if not wrong.size or wrong.max() == 0:
            return None
        row, column = divmod(int(wrong.argmax()), len(wrong))
        return row, column

    def cell_rect(self, row: int, column: int) -> QRectF:
        """Where a cell is drawn."""
        side, left, top = self._geometry()
        return QRectF(left + column * side, top + row * side, side, side)

    def sizeHint(self) -> QSize:
        return self._smallest().expandedTo(QSize(300, 240))

    # Drawing

    def paintEvent(self, event: QPaintEvent) -> None:
        if not len(self._counts):
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.TextAntialiasing)
        scheme = theme.colors()
        side, left, top = self._geometry()
        painter.setPen(QColor(scheme.muted))
        width = side * len(self._counts)
        painter.drawText(QRectF(left, 0, max(width, 120), _TITLE), Qt.AlignmentFlag.AlignLeft, "Predicted →")
        painter.drawText(
            QRectF(0, top - _TITLE, left - _GAP, _TITLE),
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
            "Actual ↓",
        )
        self._draw_names(painter, side, left, top)
        whole = QRectF(left, top, width, width)
        painter.drawImage(whole, self._fills)
        self._draw_lines(painter, side, whole)
        if side >= _NUMBERS_FROM:
            self._draw_numbers(painter)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self.cell is not None:
            painter.setPen(QPen(QColor(scheme.text), 2))
            painter.drawRect(self.cell_rect(*self.cell).adjusted(1, 1, -1, -1))
        if self.hasFocus():  # around all of it, since a cell may be filled with the accent
            painter.setPen(QPen(QColor(scheme.accent), 2))
            painter.drawRect(whole.adjusted(-1, -1, 1, 1))

    def _draw_lines(self, painter: QPainter, side: float, whole: QRectF) -> None:
        """What is right is told by a frame, not by its place alone."""
        scheme = theme.colors()
        painter.setPen(QPen(QColor(scheme.grid), 1))
        for index in range(len(self._counts) + 1):
            x, y = whole.left() + index * side, whole.top() + index * side
            painter.drawLine(QPointF(x, whole.top()), QPointF(x, whole.bottom()))
            painter.drawLine(QPointF(whole.left(), y), QPointF(whole.right(), y))
        painter.setPen(QPen(QColor(scheme.muted), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for index in range(len(self._counts)):
            painter.drawRect(self.cell_rect(index, index))

    def _draw_numbers(self, painter: QPainter) -> None:
        for row, column in np.argwhere(self._counts).tolist():
            painter.setPen(fills.text_on(self._fills.pixelColor(column, row)))
            text = _percent(float(self._shares[row, column]))
            painter.drawText(self.cell_rect(row, column), Qt.AlignmentFlag.AlignCenter, text)

    def recolor(self) -> None:
        """A pixel for each cell, which is drawn as large as the cell: thousands of fills one by one would take long."""
        scheme = theme.colors()
        over, under = (
            np.array([color.red(), color.green(), color.blue()]) for color in map(QColor, (scheme.accent, scheme.panel))
        )
        shares = self._shares[..., None]
        pixels = np.round(shares * over + (1 - shares) * under).astype(np.uint8)
        count = len(pixels)
        self._fills = QImage(pixels.tobytes(), count, count, 3 * count, QImage.Format.Format_RGB888).copy()
        self.update()

    def _draw_names(self, painter: QPainter, side: float, left: float, top: float) -> None:
        scheme = theme.colors()
        metrics = painter.fontMetrics()
        elide = Qt.TextElideMode.ElideRight
        for index, name in enumerate(self._names):
            for_cell = self.cell is not None
            painter.setPen(QColor(scheme.text if for_cell and self.cell and self.cell[0] == index else scheme.muted))
            rect = QRectF(0, top + index * side, left - _GAP, side)
            right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(rect, right, metrics.elidedText(name, elide, int(left - _GAP)))
            painter.setPen(QColor(scheme.text if for_cell and self.cell and self.cell[1] == index else scheme.muted))
            if self._names_lie(side):
                rect = QRectF(left + index * side, top - _TITLE, side, _TITLE)
                painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, metrics.elidedText(name, elide, int(side - 4)))
                continue
            painter.save()
            painter.translate(QPointF(left + (index + 0.5) * side + metrics.ascent() / 2 - 1, top - 4))
            painter.rotate(-90)
            painter.drawText(QPointF(0, 0), metrics.elidedText(name, elide, int(top - _TITLE - 4)))
            painter.restore()

    def _names_lie(self, side: float) -> bool:
        """Whether the columns' names fit side by side."""
        return all(self.fontMetrics().horizontalAdvance(name) + 6 <= side for name in self._names)

    def _margins(self) -> tuple[float, float]:
        """Room for the names, at the left and at the top where they stand upright."""
        widest = max(map(self.fontMetrics().horizontalAdvance, self._names), default=0)
        left = max(min(widest, _WIDEST_NAME), self.fontMetrics().horizontalAdvance("Actual ↓")) + _GAP + 2
        return left, _TITLE + min(widest, _HIGHEST_NAME) + 8

    def _geometry(self) -> tuple[float, float, float]:
        """A cell's side, and where the first one begins."""
        count = max(1, len(self._counts))
        left, top = self._margins()
        side = min((self.width() - left - 2) / count, (self.height() - 2 * _TITLE - 2) / count, MOST)
        if not self._names_lie(side):
            side = min((self.width() - left - 2) / count, (self.height() - top - 2) / count, MOST)
            return max(float(LEAST), side), left, top
        return max(float(LEAST), side), left, 2 * _TITLE

    def _smallest(self) -> QSize:
        if not len(self._counts):
            return QSize(0, 0)
        left, top = self._margins()
        cells = LEAST * len(self._counts)
        return QSize(int(left + cells + 4), int(top + cells + 4))

    # Choosing a cell

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = _STEPS.get(Qt.Key(event.key()))
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.cell is not None:
            self.cell_opened.emit(*self.cell)
            return
        if step is None or not len(self._counts):
            super().keyPressEvent(event)
            return
        row, column = self.cell or (0, 0)
        last = len(self._counts) - 1
        if self.cell is None:
            self.choose(0, 0)
        else:
            self.choose(min(last, max(0, row + step[0])), min(last, max(0, column + step[1])))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        at = self._at(event.position())
        if at is not None:
            self.choose(*at)
            self.cell_opened.emit(*at)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            at = self._at(QPointF(event.pos()))
            if at is None:
                QToolTip.hideText()
            else:
                QToolTip.showText(event.globalPos(), self.words(*at), self)
            return True
        return super().event(event)

    def _at(self, position: QPointF) -> tuple[int, int] | None:
        side, left, top = self._geometry()
        row, column = int((position.y() - top) // side), int((position.x() - left) // side)
        count = len(self._counts)
        return (row, column) if 0 <= row < count and 0 <= column < count else None

    def _describe(self) -> None:
        if not len(self._counts):
            self.setAccessibleDescription("")
            return
        at = self.cell or self.most_confused()
        most = "" if self.cell else "Confused most often: "
        self.setAccessibleDescription(
            most + self.words(*at) if at is not None else "Every class was predicted correctly."
        )


def _percent(share: float) -> str:
    whole = round(100 * share)
    return "<1" if whole == 0 else str(whole)
