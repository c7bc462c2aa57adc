"""Annotations of a plot: thresholds as horizontal lines, and marks as vertical lines at points in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontInfo, QFontMetricsF, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from gui.plots.group import Mark
from gui.plots.view_box import ViewBox, static_text
from gui.style import theme

_FONT_SHARE = 0.85
_FLAG = 5.0
"""Width and height in pixels of the flag at the top of a mark."""
_PAD = 3.0
_PADDING = QPointF(_PAD, 0)
_BACKGROUND_ALPHA = 200


@dataclass(frozen=True)
class Threshold:
    """Horizontal line at `value`, in the unit of the vertical axis.

    `color` is called after each change of the color scheme.
    """

    value: float
    label: str
    color: Callable[[], str]


@dataclass(frozen=True)
class _LaidOutLine:
    """Line with its label, ready to be painted.

    `flag` is set only for marks. `label_rect` is None if the label doesn't fit.
    """

    line: QLineF
    pen: QPen
    flag: QPolygonF | None = None
    label: str = ""
    label_rect: QRectF | None = None


class Annotations(QGraphicsItem):
    """Graphics item that draws the crosshair, thresholds and marks on top of the curves.

    Annotations outside of the visible range are left out, and so are labels that would overlap. The flag of a mark
    points to the right if something starts there, and to the left if something ends.

    Attributes:
        named: Marks whose labels this plot shows.
    """

    def __init__(self, box: ViewBox, font: QFont) -> None:
        super().__init__(box)
        self.thresholds: tuple[Threshold, ...] = ()
        self.marks: tuple[Mark, ...] = ()
        self.named: frozenset[Mark] = frozenset()  # marks with a label
        self.log = False  # True if the vertical axis is logarithmic
        self._cursor: float | None = None
        self._box = box
        self._threshold_items: list[_LaidOutLine] | None = None  # None: must be laid out
        self._mark_items: list[_LaidOutLine] | None = None  # None: must be laid out
        self.set_font(font)
        box.geometryChanged.connect(self._resized)
        box.y_range_changed.connect(self._invalidate_thresholds)
        box.x_range_changed.connect(self._invalidate_marks)
        self.recolor()

    def set_font(self, font: QFont) -> None:
        """Use a smaller size of `font` for labels."""
        self._font = theme.tabular(font)
        self._font.setPixelSize(round(_FONT_SHARE * QFontInfo(font).pixelSize()))
        self._metrics = QFontMetricsF(self._font)
        self._invalidate()

    def recolor(self) -> None:
        """Apply the current color scheme."""
        scheme = theme.colors()
        self._label_background = QColor(scheme.panel)
        self._label_background.setAlpha(_BACKGROUND_ALPHA)
        self._cursor_pen = QPen(QColor(scheme.text), 1, Qt.PenStyle.DotLine)
        self._invalidate()

    def show_cursor(self, x: float | None) -> None:
        """Show the crosshair at position `x`, or hide it if `x` is None."""
        if x != self._cursor:
            self._cursor = x
            self.update()

    def show_thresholds(self, thresholds: Sequence[Threshold]) -> None:
        self.thresholds = tuple(sorted(thresholds, key=lambda threshold: -threshold.value))
        self._invalidate_thresholds()

    def show_marks(self, marks: tuple[Mark, ...], named: frozenset[Mark]) -> None:
        """Show `marks`. Only the marks in `named` get labels."""
        if (marks, named) != (self.marks, self.named):
            self.marks, self.named = marks, named
            self._invalidate_marks()

    def mark_at(self, x: float, within_px: float) -> Mark | None:
        """Return the mark that is nearest to `x`, or None if it is more than `within_px` pixels away."""
        within = self._box.pixel_to_x(within_px) - self._box.pixel_to_x(0)
        nearest = min(self.marks, key=lambda mark: abs(mark.x - x), default=None)
        return nearest if nearest is not None and abs(nearest.x - x) <= within else None

    def boundingRect(self) -> QRectF:
        return self._box.rect()

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Draw the cursor, thresholds and marks. Lay out thresholds and marks first if they have changed."""
        if self._threshold_items is None:
            self._threshold_items = list(self._lay_out_thresholds(self.boundingRect()))
        if self._mark_items is None:
            self._mark_items = list(self._lay_out_marks(self.boundingRect()))
        if not self._threshold_items and not self._mark_items and self._cursor is None:
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        if self._cursor is not None:
            x = round(self._box.x_to_pixel(self._cursor))
            painter.setPen(self._cursor_pen)
            painter.drawLine(QLineF(x, 0, x, self._box.height))
        painter.setFont(self._font)
        for drawn in (*self._threshold_items, *self._mark_items):
            painter.setPen(drawn.pen)
            painter.drawLine(drawn.line)
            if drawn.flag is not None:
                painter.setBrush(drawn.pen.color())
                painter.drawPolygon(drawn.flag)
            if drawn.label_rect is not None:
                painter.fillRect(drawn.label_rect, self._label_background)
                painter.drawStaticText(drawn.label_rect.topLeft() + _PADDING, static_text(drawn.label))

    def _invalidate_thresholds(self) -> None:
        if self._threshold_items or self.thresholds:
            self._threshold_items = None
            self.update()

    def _invalidate_marks(self) -> None:
        if self._mark_items or self.marks:
            self._mark_items = None
            self.update()

    def _lay_out_thresholds(self, rect: QRectF) -> Iterator[_LaidOutLine]:
        """Yield the thresholds in the visible range, with labels that don't overlap."""
        low, high = self._box.y_range
        occupied: list[QRectF] = []
        for threshold in self.thresholds:
            value = math.log10(threshold.value) if self.log and threshold.value > 0 else threshold.value
            if not low <= value <= high:
                continue
            y = round(self._box.y_to_pixel(value))
            label_rect = self._label_size(threshold.label)
            label_rect.moveLeft(rect.left() + _PAD)  # keep clear of the newest data, which are at the right
            # The highest label is above its line and the others are below, so that close ones don't overlap.
            label_rect.moveBottom(y - 1)
            if occupied or label_rect.top() < rect.top():
                label_rect.moveTop(y + 1)
            line = QLineF(rect.left(), y, rect.right(), y)
            pen = QPen(QColor(threshold.color()), 1, Qt.PenStyle.DashLine)
            yield _LaidOutLine(line, pen, label=threshold.label, label_rect=_claim(label_rect, occupied))

    def _lay_out_marks(self, rect: QRectF) -> Iterator[_LaidOutLine]:
        """Yield the marks in the visible range, with labels that don't overlap."""
        low, high = self._box.x_range
        occupied: list[QRectF] = []
        visible = [mark for mark in self.marks if low <= mark.x <= high]
        for mark in sorted(visible, key=lambda mark: -mark.x):  # newer marks get their space first
            x = round(self._box.x_to_pixel(mark.x))
            top, tip = rect.top(), -_FLAG if mark.ends else _FLAG
            flag = QPolygonF([QPointF(x, top), QPointF(x + tip, top + _FLAG / 2), QPointF(x, top + _FLAG)])
            line = QLineF(x, top, x, rect.bottom())
            label_rect = _claim(self._label_rect(mark, x, rect), occupied) if mark in self.named else None
            yield _LaidOutLine(line, QPen(QColor(mark.color()), 1), flag, mark.label, label_rect)

    def _label_rect(self, mark: Mark, x: float, rect: QRectF) -> QRectF:
        label_rect = self._label_size(mark.label)
        label_rect.moveTopLeft(QPointF(x + _FLAG + 1, rect.top()))
        if label_rect.right() > rect.right() or (mark.ends and x - label_rect.width() > rect.left()):
            label_rect.moveRight(x - _FLAG - 1)
        return label_rect

    def _label_size(self, text: str) -> QRectF:
        return QRectF(0, 0, self._metrics.horizontalAdvance(text) + 2 * _PAD, self._metrics.height())

    def _resized(self) -> None:
        self.prepareGeometryChange()
        self._invalidate()

    def _invalidate(self) -> None:
        """Lay out all annotations again at the next paint."""
        self._invalidate_thresholds()
        self._invalidate_marks()


def _claim(rect: QRectF, occupied: list[QRectF]) -> QRectF | None:
    """Return `rect` and add it to `occupied`, or return None if it overlaps a rectangle in `occupied`."""
    if any(rect.intersects(other) for other in occupied):
        return None
    occupied.append(rect)
    return rect
