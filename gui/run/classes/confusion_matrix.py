"""Confusion matrix, drawn as an image, with a current cell that arrow keys move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontInfo,
    QHelpEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from gui.format import localized
from gui.run.classes.table import class_names
from gui.style import fills, theme
from gui.translation import tr

MIN_SIDE, MAX_SIDE = 14, 96
"""Minimum and maximum side length of a cell in pixels."""
_MIN_NUMBERED_SIDE = 20
"""Minimum side length in pixels of cells that contain numbers."""
_NUMBERED_UP_TO = 20
"""Maximum number of classes for enlarging the cells so that numbers fit."""
_NUMBER_HEIGHT = 0.48
"""Maximum height of a number, as a fraction of the cell's side."""
_MAX_NAME_WIDTH, _MAX_NAME_HEIGHT = 150, 110
_GAP = 6

_STEPS = {  # changes of row and column
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
}


class ConfusionMatrix(QWidget):
    """Confusion matrix with a row for each true class and a column for each predicted class.

    The fill and the label of a cell show its count as a fraction of its row. Correct cells have a frame. Arrow keys and
    the mouse select a cell.

    Signals:
        cell_chosen(int, int, str): row, column and description of the selected cell.
        cell_opened(int, int): row and column of a cell that the user has clicked or opened with Enter.
    """

    cell_chosen = Signal(int, int, str)
    cell_opened = Signal(int, int)

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []
        self._counts: npt.NDArray[np.int64] = np.zeros((0, 0), np.int64)
        self._row_fractions = self._counts.astype(np.float64)  # counts divided by the sum of their row
        self.cell: tuple[int, int] | None = None  # current row and column
        self.setAccessibleName(tr("Confusion matrix"))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self._fills = QImage()
        theme.notifier.changed.connect(self.recolor)

    def show_counts(self, classes: Sequence[str], counts: npt.NDArray[np.int64] | None) -> None:
        """Show `counts`, or nothing if it is None. The current cell is kept if it still exists.

        Args:
            classes: Names of the classes.
            counts: Counts by true class (row) and predicted class (column), int64 [n, n].
        """
        self._counts = counts if counts is not None else np.zeros((0, 0), np.int64)
        totals = self._counts.sum(1, keepdims=True)
        self._row_fractions = self._counts / np.maximum(totals, 1)
        self._names = class_names(classes, len(self._counts))
        if self.cell is not None and max(self.cell) >= len(self._counts):
            self.cell = None
        self.setMinimumSize(self._minimum_size())
        self._update_description()
        self.recolor()

    def choose(self, row: int, column: int) -> None:
        """Select a cell and emit `cell_chosen`. Do nothing if it doesn't exist or is already selected."""
        if not (0 <= row < len(self._counts) and 0 <= column < len(self._counts)) or self.cell == (row, column):
            return
        self.cell = row, column
        self._update_description()
        self.update()
        self.cell_chosen.emit(row, column, self.describe_cell(row, column))

    def describe_cell(self, row: int, column: int) -> str:
        """Describe a cell, as in "Of 40 rose, 12 (30.0%) were predicted as tulip."."""
        total, count = int(self._counts[row].sum()), int(self._counts[row, column])
        true, predicted = self._names[row], self._names[column]
        if not total:
            return tr("No samples of {true}.").format(true=true)
        text = (
            tr("Of {total} {true}, {count} ({percent}%) were predicted correctly.")
            if row == column
            else tr("Of {total} {true}, {count} ({percent}%) were predicted as {predicted}.")
        )
        return text.format(
            total=localized(total),
            true=true,
            count=localized(count),
            percent=localized(100 * count / total, 1),
            predicted=predicted,
        )

    def describe_mistake(self) -> str:
        """Describe the most common mistake, as in "Most common mistake: rose taken for tulip (12 of 40)".

        Returns "" if there are no mistakes.
        """
        cell = self.most_confused()
        if cell is None:
            return ""
        row, column = cell
        return tr("Most common mistake: {true} taken for {predicted} ({count} of {total})").format(
            true=self._names[row],
            predicted=self._names[column],
            count=localized(int(self._counts[row, column])),
            total=localized(int(self._counts[row].sum())),
        )

    def most_confused(self) -> tuple[int, int] | None:
        """Return row and column of the incorrect cell with the largest fraction, or None if there are no mistakes."""
        wrong = self._row_fractions.copy()
        np.fill_diagonal(wrong, 0.0)
        if not wrong.size or wrong.max() == 0:
            return None
        row, column = divmod(int(wrong.argmax()), len(wrong))
        return row, column

    def cell_rect(self, row: int, column: int) -> QRectF:
        side, left, top = self._geometry()
        return QRectF(left + column * side, top + row * side, side, side)

    def sizeHint(self) -> QSize:
        return self._minimum_size().expandedTo(QSize(300, 240))

    # Drawing

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw titles, class names, colored cells, numbers if they fit, and frames of current cell and focus."""
        if not len(self._counts):
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.TextAntialiasing)
        scheme = theme.colors()
        side, left, top = self._geometry()
        painter.setPen(QColor(scheme.muted))
        width = side * len(self._counts)
        painter.drawText(
            QRectF(left, 0, self.width() - left, self._title_height), Qt.AlignmentFlag.AlignLeft, tr("Predicted →")
        )
        painter.drawText(
            QRectF(0, top - self._title_height, left - _GAP, self._title_height),
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
            tr("Actual ↓"),
        )
        self._draw_names(painter, side, left, top)
        area = QRectF(left, top, width, width)
        painter.drawImage(area, self._fills)
        self._draw_lines(painter, side, area)
        if side >= _MIN_NUMBERED_SIDE:
            self._draw_numbers(painter)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self.cell is not None:
            painter.setPen(QPen(QColor(scheme.text), 2))
            painter.drawRect(self.cell_rect(*self.cell).adjusted(1, 1, -1, -1))
        if self.hasFocus():  # draw it around the matrix, because cells may have the accent color
            painter.setPen(QPen(QColor(scheme.accent), 2))
            painter.drawRect(area.adjusted(-1, -1, 1, 1))

    def _draw_lines(self, painter: QPainter, side: float, area: QRectF) -> None:
        """Draw the grid in `area`, for cells with `side` pixels, and frames around the cells of correct predictions.

        Without the frames, these cells would be hard to find.
        """
        scheme = theme.colors()
        painter.setPen(QPen(QColor(scheme.grid), 1))
        for index in range(len(self._counts) + 1):
            x, y = area.left() + index * side, area.top() + index * side
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
        painter.setPen(QPen(QColor(scheme.muted), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for index in range(len(self._counts)):
            painter.drawRect(self.cell_rect(index, index))

    def _draw_numbers(self, painter: QPainter) -> None:
        """Write each cell's fraction of its row as a percentage, in a color that is readable on the cell.

        Skip empty cells.
        """
        font = QFont(self.font())
        side, _left, _top = self._geometry()
        font.setPixelSize(min(QFontInfo(font).pixelSize(), round(_NUMBER_HEIGHT * side)))
        painter.setFont(font)
        for row, column in np.argwhere(self._counts).tolist():
            painter.setPen(fills.choose_text_color(self._fills.pixelColor(column, row)))
            text = _format_percent(float(self._row_fractions[row, column]))
            painter.drawText(self.cell_rect(row, column), Qt.AlignmentFlag.AlignCenter, text)

    def recolor(self) -> None:
        """Redraw the cells in the current color scheme.

        The cells are an image with a pixel per cell, because drawing thousands of rectangles would be slow.
        """
        scheme = theme.colors()
        full, empty = (
            np.array([color.red(), color.green(), color.blue()]) for color in map(QColor, (scheme.accent, scheme.panel))
        )
        fractions = self._row_fractions[..., None]
        pixels = np.round(fractions * full + (1 - fractions) * empty).astype(np.uint8)
        count = len(pixels)
        self._fills = QImage(pixels.tobytes(), count, count, 3 * count, QImage.Format.Format_RGB888).copy()
        self.update()

    def _draw_names(self, painter: QPainter, side: float, left: float, top: float) -> None:
        """Draw the class names left of the rows and above the columns, vertically if the columns are narrow.

        Names of the current cell are highlighted. `side` is the width of a cell; `left` and `top` are the matrix's
        corner.
        """
        scheme = theme.colors()
        metrics = painter.fontMetrics()
        elide = Qt.TextElideMode.ElideRight
        row, column = self.cell or (None, None)
        for index, name in enumerate(self._names):
            painter.setPen(QColor(scheme.text if row == index else scheme.muted))
            rect = QRectF(0, top + index * side, left - _GAP, side)
            right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(rect, right, metrics.elidedText(name, elide, int(left - _GAP)))
            painter.setPen(QColor(scheme.text if column == index else scheme.muted))
            if self._names_fit(side):
                rect = QRectF(left + index * side, top - self._title_height, side, self._title_height)
                painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, metrics.elidedText(name, elide, int(side - 4)))
                continue
            painter.save()
            painter.translate(QPointF(left + (index + 0.5) * side + metrics.ascent() / 2 - 1, top - 4))
            painter.rotate(-90)
            painter.drawText(QPointF(0, 0), metrics.elidedText(name, elide, int(top - self._title_height - 4)))
            painter.restore()

    @property
    def _title_height(self) -> int:
        """Height of the title above the columns, in pixels."""
        return self.fontMetrics().height() + 2

    def _names_fit(self, side: float) -> bool:
        """Return True if the column names fit horizontally above cells that are `side` pixels wide."""
        return all(self.fontMetrics().horizontalAdvance(name) + 6 <= side for name in self._names)

    def _margins(self) -> tuple[float, float]:
        """Return the left margin for the row names, and the top margin for vertical column names, in pixels."""
        widest = max(map(self.fontMetrics().horizontalAdvance, self._names), default=0)
        left = max(min(widest, _MAX_NAME_WIDTH), self.fontMetrics().horizontalAdvance(tr("Actual ↓"))) + _GAP + 2
        return left, self._title_height + min(widest, _MAX_NAME_HEIGHT) + 8

    def _geometry(self) -> tuple[float, float, float]:
        """Return the side of a cell, and the left and top edge of the first cell, in pixels."""
        count = max(1, len(self._counts))
        left, vertical_top = self._margins()
        horizontal_top = 2 * self._title_height  # title, and a line for horizontal column names
        max_side = min((self.width() - left - 2) / count, theme.scale_pixels(MAX_SIDE))
        side = min(max_side, (self.height() - horizontal_top - 2) / count)
        if self._names_fit(side):
            return max(float(self._min_side), side), left, horizontal_top
        side = min(max_side, (self.height() - vertical_top - 2) / count)
        return max(float(self._min_side), side), left, vertical_top

    @property
    def _min_side(self) -> int:
        """Return the minimum side of a cell in pixels, which leaves room for numbers in small matrices."""
        return theme.scale_pixels(_MIN_NUMBERED_SIDE) if len(self._counts) <= _NUMBERED_UP_TO else MIN_SIDE

    def _minimum_size(self) -> QSize:
        if not len(self._counts):
            return QSize(0, 0)
        left, top = self._margins()
        cells = self._min_side * len(self._counts)
        return QSize(int(left + cells + 4), int(top + cells + 4))

    # Choosing a cell

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the current cell with the arrows, or open it with Enter."""
        step = _STEPS.get(Qt.Key(event.key()))
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.cell is not None:
            self.cell_opened.emit(*self.cell)
        elif step is None or not len(self._counts):
            super().keyPressEvent(event)
        elif self.cell is None:
            self.choose(0, 0)
        else:
            last = len(self._counts) - 1
            row, column = (min(last, max(0, index + move)) for index, move in zip(self.cell, step, strict=True))
            self.choose(row, column)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Select and open the cell under the pointer."""
        cell = self._cell_at(event.position())
        if cell is not None:
            self.choose(*cell)
            self.cell_opened.emit(*cell)

    def event(self, event: QEvent) -> bool:
        """Show a description of the cell under the pointer as its tool tip."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            cell = self._cell_at(QPointF(event.pos()))
            if cell is None:
                QToolTip.hideText()
            else:
                QToolTip.showText(event.globalPos(), self.describe_cell(*cell), self)
            return True
        return super().event(event)

    def _cell_at(self, position: QPointF) -> tuple[int, int] | None:
        """Return row and column of the cell at a position in the widget, or None outside of the matrix."""
        side, left, top = self._geometry()
        row, column = int((position.y() - top) // side), int((position.x() - left) // side)
        count = len(self._counts)
        return (row, column) if 0 <= row < count and 0 <= column < count else None

    def _update_description(self) -> None:
        """Describe the selected cell for screen readers. If no cell is selected, describe the most common mistake."""
        if not len(self._counts):
            self.setAccessibleDescription("")
            return
        text = self.describe_cell(*self.cell) if self.cell is not None else self.describe_mistake()
        self.setAccessibleDescription(text or tr("Every class was predicted correctly."))


def _format_percent(fraction: float) -> str:
    """Format a positive fraction as a whole number of percent, or as "<1" if it would be rounded to 0."""
    percent = round(100 * fraction)
    return "<1" if percent == 0 else str(percent)
