"""Annotations of a plot: thresholds as horizontal lines, and marks as vertical lines at points in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontInfo, QFontMetricsF, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from gui.plots.group import Mark
from gui.plots.view_box import ViewBox, lay_out_text
from gui.style import theme

_FONT_SHARE = 0.85
"""Font size of labels as a fraction of the plot's font size."""
_FLAG = 5.0
"""Width and height in pixels of the flag at the top of a mark."""
_PAD = 3.0
"""Space in pixels on the left and the right of a label's text."""
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

    `sections` are the parts of the line that no label covers. `flag` is the triangle at the top of a mark's line, or
    None for thresholds and if a label covers the flag. `label_rect` is None if the label doesn't fit.
    """

    sections: list[QLineF]
    pen: QPen
    flag: QPolygonF | None = None
    label: str = ""
    label_rect: QRectF | None = None


class Annotations(QGraphicsItem):
    """Graphics item that draws the crosshair, thresholds and marks on top of the curves.

    Annotations outside of the visible range are left out, and so are labels that would overlap. No line crosses a
    label. The flag of a mark points to the right if something starts there, and to the left if something ends.

    Attributes:
        named: Marks whose labels this plot shows.
    """

    def __init__(self, box: ViewBox, font: QFont) -> None:
        super().__init__(box)
        self.thresholds: tuple[Threshold, ...] = ()
        self.marks: tuple[Mark, ...] = ()
        self.named: frozenset[Mark] = frozenset()
        self.log = False  # True if the vertical axis is logarithmic
        self._cursor: float | None = None
        self._box = box
        self._laid_out_lines: list[_LaidOutLine] | None = None  # None if they must be laid out
        self.set_font(font)
        box.geometryChanged.connect(self._resized)
        box.y_range_changed.connect(self._invalidate)
        box.x_range_changed.connect(self._invalidate)
        self.recolor()

    def set_font(self, font: QFont) -> None:
        """Use a smaller size of `font` for labels."""
        self._font = theme.with_tabular_digits(font)
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
        self._invalidate()

    def show_marks(self, marks: tuple[Mark, ...], named: frozenset[Mark]) -> None:
        """Show `marks`. Only the marks in `named` get labels."""
        if (marks, named) != (self.marks, self.named):
            self.marks, self.named = marks, named
            self._invalidate()

    def find_mark(self, x: float, within_px: float) -> Mark | None:
        """Return the mark that is nearest to `x`, or None if it is more than `within_px` pixels away."""
        max_distance = self._box.pixel_to_x(within_px) - self._box.pixel_to_x(0)
        nearest = min(self.marks, key=lambda mark: abs(mark.x - x), default=None)
        return nearest if nearest is not None and abs(nearest.x - x) <= max_distance else None

    def boundingRect(self) -> QRectF:
        return self._box.rect()

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Draw the cursor, thresholds and marks. Lay out thresholds and marks first if they have changed."""
        if self._laid_out_lines is None:
            label_rects: list[QRectF] = []
            thresholds = self._lay_out_thresholds(self.boundingRect(), label_rects)
            # The labels of marks leave out the space of those of thresholds.
            self._laid_out_lines = thresholds + self._lay_out_marks(self.boundingRect(), label_rects)
        if not self._laid_out_lines and self._cursor is None:
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        if self._cursor is not None:
            x = round(self._box.x_to_pixel(self._cursor))
            painter.setPen(self._cursor_pen)
            painter.drawLine(QLineF(x, 0, x, self._box.height))
        painter.setFont(self._font)
        for line in self._laid_out_lines:
            painter.setPen(line.pen)
            painter.drawLines(line.sections)
            if line.flag is not None:
                painter.setBrush(line.pen.color())
                painter.drawPolygon(line.flag)
            if line.label_rect is not None:
                painter.fillRect(line.label_rect, self._label_background)
                painter.drawStaticText(line.label_rect.topLeft() + QPointF(_PAD, 0), lay_out_text(line.label))

    def _lay_out_thresholds(self, rect: QRectF, label_rects: list[QRectF]) -> list[_LaidOutLine]:
        """Return the lines of the thresholds in the visible range. `rect` is the area of the plot in pixels.

        The rectangles of their labels are appended to `label_rects`. A label that would overlap one of these is left
        out.
        """
        low, high = self._box.y_range
        lines = []
        for threshold in self.thresholds:
            value = math.log10(threshold.value) if self.log and threshold.value > 0 else threshold.value
            if not low <= value <= high:
                continue
            y = round(self._box.y_to_pixel(value))
            label_rect = self._label_size(threshold.label)
            label_rect.moveLeft(rect.left() + _PAD)  # keep clear of the newest data, which are at the right
            # The highest label is above its line and the others are below, so that close ones don't overlap.
            label_rect.moveBottom(y - 1)
            if label_rects or label_rect.top() < rect.top():
                label_rect.moveTop(y + 1)
            lines.append(
                _LaidOutLine(
                    [QLineF(rect.left(), y, rect.right(), y)],
                    QPen(QColor(threshold.color()), 1, Qt.PenStyle.DashLine),
                    label=threshold.label,
                    label_rect=_claim_free_rect([label_rect] if threshold.label else [], label_rects),
                )
            )
        return lines

    def _lay_out_marks(self, rect: QRectF, label_rects: list[QRectF]) -> list[_LaidOutLine]:
        """Return the lines of the marks in the visible range, interrupted at the labels in `label_rects`.

        `rect` is the area of the plot in pixels. The rectangles of the marks' labels are appended to `label_rects`. A
        label that would overlap one of these is left out.
        """
        low, high = self._box.x_range
        # Newer marks get their space first.
        marks = sorted((mark for mark in self.marks if low <= mark.x <= high), key=lambda mark: -mark.x)
        positions = [round(self._box.x_to_pixel(mark.x)) for mark in marks]
        # Place all labels before any line, because each line is interrupted at all labels that it crosses.
        mark_label_rects = [
            self._place_label(mark, x, positions, rect, label_rects) for mark, x in zip(marks, positions, strict=True)
        ]
        lines = []
        for mark, x, label_rect in zip(marks, positions, mark_label_rects, strict=True):
            crossed_labels = [label for label in label_rects if label.left() <= x <= label.right()]
            tip = -_FLAG if mark.ends else _FLAG
            corners = ((0.0, 0.0), (tip, _FLAG / 2), (0.0, _FLAG))
            flag = QPolygonF([QPointF(x + dx, rect.top() + dy) for dx, dy in corners])
            is_covered = any(label.intersects(flag.boundingRect()) for label in label_rects)
            lines.append(
                _LaidOutLine(
                    _split_line(x, rect, crossed_labels),
                    QPen(QColor(mark.color()), 1),
                    None if is_covered else flag,
                    mark.label,
                    label_rect,
                )
            )
        return lines

    def _place_label(
        self, mark: Mark, x: float, positions: list[int], rect: QRectF, label_rects: list[QRectF]
    ) -> QRectF | None:
        """Return a free rectangle for the label of a mark at `x` pixels, and append the rectangle to `label_rects`.

        Returns None if the mark has no label in this plot, or if the label would overlap one of `label_rects` on both
        sides of the mark's line.

        Args:
            mark: Mark with the label.
            x: Position of the mark in pixels.
            positions: Positions of all visible marks in pixels.
            rect: Area of the plot in pixels.
            label_rects: Rectangles of the labels that have been placed.
        """
        if mark not in self.named or not mark.label:
            return None
        candidates = self._list_label_rects(mark, x, rect)
        # A label on the side without lines is better than one that splits a line.
        candidates.sort(key=lambda side: any(side.left() <= position <= side.right() for position in positions))
        return _claim_free_rect(candidates, label_rects)

    def _list_label_rects(self, mark: Mark, x: float, rect: QRectF) -> list[QRectF]:
        """Return the rectangles within `rect` where the label of a mark at `x` pixels fits, preferred side first.

        A label that fits on neither side is on the left, where `rect` cuts off its start.
        """
        right, left = self._label_size(mark.label), self._label_size(mark.label)
        right.moveTopLeft(QPointF(x + _FLAG + 1, rect.top()))
        left.moveTopRight(QPointF(x - _FLAG - 1, rect.top()))
        sides = [left, right] if mark.ends else [right, left]
        return [side for side in sides if rect.left() <= side.left() and side.right() <= rect.right()] or [left]

    def _label_size(self, text: str) -> QRectF:
        return QRectF(0, 0, self._metrics.horizontalAdvance(text) + 2 * _PAD, self._metrics.height())

    def _resized(self) -> None:
        self.prepareGeometryChange()
        self._invalidate()

    def _invalidate(self) -> None:
        """Discard the layout, so that the next paint lays out all annotations again."""
        if self._laid_out_lines or self.thresholds or self.marks:
            self._laid_out_lines = None
            self.update()


def _claim_free_rect(rects: list[QRectF], occupied: list[QRectF]) -> QRectF | None:
    """Return the first of `rects` that overlaps none of `occupied`, and append it to `occupied`.

    Returns None if all of `rects` overlap.
    """
    for rect in rects:
        if not any(rect.intersects(other) for other in occupied):
            occupied.append(rect)
            return rect
    return None


def _split_line(x: float, rect: QRectF, labels: list[QRectF]) -> list[QLineF]:
    """Return the sections of the vertical line at `x` through `rect` that are above, between and below `labels`."""
    sections, top = [], rect.top()
    for label in sorted(labels, key=QRectF.top):
        if label.top() > top:
            sections.append(QLineF(x, top, x, label.top() - 1))
        top = label.bottom()
    return [*sections, QLineF(x, top, x, rect.bottom())]
