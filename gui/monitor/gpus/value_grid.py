"""Grid of labeled numbers, painted as one widget because hundreds of them change every second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from PySide6.QtCore import QEvent, QPoint, QRect, QSize
from PySide6.QtGui import QColor, QFont, QFontMetrics, QHelpEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from gui.style import theme

GAP = 16
_LABEL_SHARE = 0.86
"""Font size of labels as a fraction of the numbers' font size."""
_MARK = 10
"""Length in pixels of the line sample that links a value to its line in the graph."""


@dataclass(frozen=True)
class LabeledValue:
    """Formatted value with a label.

    Attributes:
        id: Id of the quantity or of another value.
        meaning: Tool tip.
        color: Returns the color of the value's line in a graph, or is None if there is no such line.
        alarming: True to draw the value in the warning color.
    """

    id: str
    label: str
    text: str
    meaning: str = ""
    color: Callable[[], str] | None = None
    alarming: bool = False


class ValueGrid(QWidget):
    """Grid of labeled values in as many columns as fit.

    The space for a value never shrinks, so that a change of its text doesn't move the other values. `max_rows` limits
    the rows. The last values are left out if they don't fit.
    """

    def __init__(self, max_rows: int | None = None) -> None:
        super().__init__()
        self.figures: tuple[LabeledValue, ...] = ()
        self._max_rows = max_rows
        self._faded = False
        self._reserved_widths: dict[str, int] = {}  # largest width so far in pixels, by id of the value
        self._columns: list[int] = []  # widths of the columns
        self._visible_count = 0  # number of values that fit
        self._hinted_rows = 0  # number of rows of the last size hint
        self._update_fonts()
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    @property
    def visible_figures(self) -> tuple[LabeledValue, ...]:
        """Values that fit into the grid."""
        return self.figures[: self._visible_count]

    @property
    def row_height(self) -> int:
        return self._label_metrics.height() + self._value_metrics.height() + 3

    def show_figures(self, figures: Sequence[LabeledValue], *, faded: bool = False) -> None:
        """Show the values. If `faded`, draw them in gray because they are outdated."""
        new_figures = tuple(figures)
        if new_figures == self.figures and faded == self._faded:
            return
        has_other_ids = [figure.id for figure in new_figures] != [figure.id for figure in self.figures]
        self.figures, self._faded = new_figures, faded
        if self._widen() or has_other_ids:
            self._arrange()
        self.update()

    def set_max_rows(self, max_rows: int) -> None:
        if max_rows != self._max_rows:
            self._max_rows = max_rows
            self._arrange()
            self.update()

    def figure_at(self, point: QPoint) -> LabeledValue | None:
        """Return the value at `point`, or None if there is none."""
        return next((figure for figure, rect in self._cells() if rect.contains(point)), None)

    def text(self) -> str:
        """Describe all values, for screen readers."""
        return ", ".join(f"{figure.label} {figure.text}".strip() for figure in self.figures)

    def sizeHint(self) -> QSize:
        return QSize(120, self._rows * self.row_height)

    def minimumSizeHint(self) -> QSize:
        return QSize(60, self._rows * self.row_height)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._update_fonts()
            self._reserved_widths.clear()
            self._widen()
            self._arrange()

    def event(self, event: QEvent) -> bool:
        """Show the meaning of the value below the pointer as a tool tip."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            figure = self.figure_at(event.pos())
            if figure is not None and figure.meaning:
                QToolTip.showText(event.globalPos(), f"{figure.label} {figure.text}\n{figure.meaning}", self)
            else:
                QToolTip.hideText()
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the values, each below its label.

        If a value has a line in the graph, the color of the line is left of the label. Alarming values have the warning
        color unless all values are faded.
        """
        scheme = theme.colors()
        muted, text = QColor(scheme.muted), QColor(scheme.muted if self._faded else scheme.text)
        painter = QPainter(self)
        cells = self._cells()
        ascent = self._label_metrics.ascent()
        painter.setFont(self._label_font)
        painter.setPen(muted)
        for figure, rect in cells:
            left = rect.left()
            if figure.color is not None:
                painter.fillRect(left, rect.top() + ascent // 2 + 1, _MARK, 3, QColor(figure.color()))
                left += _MARK + 4
            painter.drawText(left, rect.top() + ascent, figure.label)
        painter.setFont(self._value_font)
        painter.setPen(text)
        baseline = self._label_metrics.height() + self._value_metrics.ascent()
        for figure, rect in cells:
            if figure.alarming and not self._faded:
                painter.setPen(QColor(scheme.warning))
            painter.drawText(rect.left(), rect.top() + baseline, figure.text)
            if figure.alarming:
                painter.setPen(text)

    def _update_fonts(self) -> None:
        """Derive the fonts of the labels and the values from the widget's font."""
        self._value_font = theme.with_tabular_digits(self.font())
        self._label_font = QFont(self._value_font)
        if self._label_font.pointSizeF() > 0:
            self._label_font.setPointSizeF(_LABEL_SHARE * self._label_font.pointSizeF())
        else:  # the size is set in pixels
            self._label_font.setPixelSize(round(_LABEL_SHARE * self._label_font.pixelSize()))
        self._value_metrics = QFontMetrics(self._value_font)
        self._label_metrics = QFontMetrics(self._label_font)

    def _required_width(self, figure: LabeledValue) -> int:
        """Return the width in pixels that a value and its label need."""
        mark_width = 0 if figure.color is None else _MARK + 4
        label = mark_width + self._label_metrics.horizontalAdvance(figure.label)
        return max(label, self._value_metrics.horizontalAdvance(figure.text))

    def _widen(self) -> bool:
        """Reserve more width for values that have become longer, and return True if there are any."""
        has_longer_values = False
        for figure in self.figures:
            width = self._required_width(figure)
            if width > self._reserved_widths.get(figure.id, 0):
                self._reserved_widths[figure.id] = width
                has_longer_values = True
        return has_longer_values

    def _arrange(self) -> None:
        """Compute the columns for as many values as fit, and request another height if the number of rows changes."""
        needed = [self._reserved_widths[figure.id] for figure in self.figures]
        self._visible_count, self._columns = len(needed), []
        while self._visible_count:
            self._columns = compute_column_widths(needed[: self._visible_count], self.width())
            if self._max_rows is None or self._visible_count <= self._max_rows * len(self._columns):
                break
            self._visible_count -= 1
        if self._rows != self._hinted_rows:
            self._hinted_rows = self._rows
            self.updateGeometry()

    @property
    def _rows(self) -> int:
        return -(-self._visible_count // len(self._columns)) if self._columns else 1

    def _cells(self) -> list[tuple[LabeledValue, QRect]]:
        """Return the visible values with their rectangles."""
        lefts = [0, *accumulate(width + GAP for width in self._columns)]
        height = self.row_height
        cells = []
        for number, figure in enumerate(self.visible_figures):
            row, column = divmod(number, len(self._columns))
            cells.append((figure, QRect(lefts[column], row * height, self._columns[column], height)))
        return cells


def compute_column_widths(needed: Sequence[int], width: int) -> list[int]:
    """Return the widths of as many columns as fit into `width` pixels, at least one.

    `needed` contains the required widths of the values, row by row. The remaining width is divided among the columns,
    each of which is widened by at most `GAP`.
    """
    columns: list[int] = []
    for count in range(len(needed), 0, -1):
        columns = [max(needed[column::count]) for column in range(count)]
        if sum(columns) + GAP * (count - 1) <= width:
            break
    spare_width = width - sum(columns) - GAP * (len(columns) - 1)
    return [column + max(0, min(GAP, spare_width // len(columns))) for column in columns]
