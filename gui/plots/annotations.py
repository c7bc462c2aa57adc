"""Annotations of a plot: thresholds as horizontal lines, and marks in time as vertical lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontInfo, QFontMetricsF, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from gui.plots.group import Mark
from gui.plots.text import laid_out
from gui.plots.view_box import ViewBox
from gui.style import theme

_FONT_SHARE = 0.85
_FLAG = 5.0
"""Pixels that the triangle at the top of a mark is wide and high."""
_PAD = 3.0
_PADDING = QPointF(_PAD, 0)
_GROUND_ALPHA = 200


@dataclass(frozen=True)
class Level:
    """A threshold at `value`, in the vertical axis's unit. `color` is asked anew when the scheme changes."""

    value: float
    label: str
    color: Callable[[], str]


@dataclass(frozen=True)
class _Drawn:
    """A line and its label as they are painted; `flag` is a mark's, `room` where the label has some."""

    line: QLineF
    pen: QPen
    flag: QPolygonF | None = None
    label: str = ""
    room: QRectF | None = None


class Annotations(QGraphicsItem):
    """Draws the crosshair, levels and marks over the curves of a box; those out of its range are left out, and so are
    labels that would lie on others. A mark's flag points the way that time went on: to the right where something began,
    back where it ended.

    `named` are the marks that carry their labels here.
    """

    def __init__(self, box: ViewBox, font: QFont) -> None:
        super().__init__(box)
        self.levels: tuple[Level, ...] = ()
        self.marks: tuple[Mark, ...] = ()
        self.named: frozenset[Mark] = frozenset()
        self.log = False
        self._cursor: float | None = None
        self._box = box
        self._font = theme.tabular(font)
        self._font.setPixelSize(round(_FONT_SHARE * QFontInfo(font).pixelSize()))
        self._metrics = QFontMetricsF(self._font)
        self._drawn_levels: list[_Drawn] | None = None
        self._drawn_marks: list[_Drawn] | None = None
        box.geometryChanged.connect(self._resized)
        box.up_changed.connect(self._renew_levels)
        box.across_changed.connect(self._renew_marks)
        self.recolor()

    def recolor(self) -> None:
        """Takes on the colours of the present scheme."""
        scheme = theme.colors()
        self._ground = QColor(scheme.panel)
        self._ground.setAlpha(_GROUND_ALPHA)
        self._cursor_pen = QPen(QColor(scheme.text), 1, Qt.PenStyle.DotLine)
        self._renew()

    def show_cursor(self, x: float | None) -> None:
        """Draws the crosshair at `x` on the horizontal axis; None puts it away."""
        if x != self._cursor:
            self._cursor = x
            self.update()

    def show_levels(self, levels: Sequence[Level]) -> None:
        self.levels = tuple(sorted(levels, key=lambda level: -level.value))
        self._renew_levels()

    def show_marks(self, marks: tuple[Mark, ...], named: frozenset[Mark]) -> None:
        """`named` are those of them that carry their labels here."""
        if (marks, named) != (self.marks, self.named):
            self.marks, self.named = marks, named
            self._renew_marks()

    def mark_at(self, x: float, within_px: float) -> Mark | None:
        """The mark that is nearest to `x` on the horizontal axis, None where none is so close."""
        within = self._box.x_at(within_px) - self._box.x_at(0)
        near = min(self.marks, key=lambda mark: abs(mark.x - x), default=None)
        return near if near is not None and abs(near.x - x) <= within else None

    def boundingRect(self) -> QRectF:
        return self._box.rect()

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._drawn_levels is None:
            self._drawn_levels = list(self._lay_out_levels(self.boundingRect()))
        if self._drawn_marks is None:
            self._drawn_marks = list(self._lay_out_marks(self.boundingRect()))
        if not self._drawn_levels and not self._drawn_marks and self._cursor is None:
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        if self._cursor is not None:
            x = round(self._box.pixel_across(self._cursor))
            painter.setPen(self._cursor_pen)
            painter.drawLine(QLineF(x, 0, x, self._box.height))
        painter.setFont(self._font)
        for drawn in (*self._drawn_levels, *self._drawn_marks):
            painter.setPen(drawn.pen)
            painter.drawLine(drawn.line)
            if drawn.flag is not None:
                painter.setBrush(drawn.pen.color())
                painter.drawPolygon(drawn.flag)
            if drawn.room is not None:
                painter.fillRect(drawn.room, self._ground)
                painter.drawStaticText(drawn.room.topLeft() + _PADDING, laid_out(drawn.label))

    def _renew_levels(self) -> None:
        if self._drawn_levels or self.levels:
            self._drawn_levels = None
            self.update()

    def _renew_marks(self) -> None:
        if self._drawn_marks or self.marks:
            self._drawn_marks = None
            self.update()

    def _lay_out_levels(self, rect: QRectF) -> Iterator[_Drawn]:
        low, high = self._box.up
        taken: list[QRectF] = []
        for level in self.levels:
            value = math.log10(level.value) if self.log and level.value > 0 else level.value
            if not low <= value <= high:
                continue
            y = round(self._box.pixel_down(value))
            room = self._room(level.label)
            room.moveLeft(rect.left() + _PAD)  # the newest is at the right
            # The highest stands above its line and the others below, so that two that are close keep apart.
            room.moveBottom(y - 1)
            if taken or room.top() < rect.top():
                room.moveTop(y + 1)
            line = QLineF(rect.left(), y, rect.right(), y)
            pen = QPen(QColor(level.color()), 1, Qt.PenStyle.DashLine)
            yield _Drawn(line, pen, label=level.label, room=_free(room, taken))

    def _lay_out_marks(self, rect: QRectF) -> Iterator[_Drawn]:
        low, high = self._box.across
        taken: list[QRectF] = []
        seen = [mark for mark in self.marks if low <= mark.x <= high]
        for mark in sorted(seen, key=lambda mark: -mark.x):  # the newest has the first choice of room
            x = round(self._box.pixel_across(mark.x))
            top, tip = rect.top(), -_FLAG if mark.ends else _FLAG
            flag = QPolygonF([QPointF(x, top), QPointF(x + tip, top + _FLAG / 2), QPointF(x, top + _FLAG)])
            line = QLineF(x, top, x, rect.bottom())
            room = _free(self._beside(mark, x, rect), taken) if mark in self.named else None
            yield _Drawn(line, QPen(QColor(mark.color()), 1), flag, mark.label, room)

    def _beside(self, mark: Mark, x: float, rect: QRectF) -> QRectF:
        """Where the label of a mark at `x` is to stand."""
        room = self._room(mark.label)
        room.moveTopLeft(QPointF(x + _FLAG + 1, rect.top()))
        if room.right() > rect.right() or (mark.ends and x - room.width() > rect.left()):
            room.moveRight(x - _FLAG - 1)
        return room

    def _room(self, text: str) -> QRectF:
        return QRectF(0, 0, self._metrics.horizontalAdvance(text) + 2 * _PAD, self._metrics.height())

    def _resized(self) -> None:
        self.prepareGeometryChange()
        self._renew()

    def _renew(self) -> None:
        """Lays everything out anew when it is next painted."""
        self._renew_levels()
        self._renew_marks()


def _free(room: QRectF, taken: list[QRectF]) -> QRectF | None:
    """`room`, which then is taken, unless something stands there."""
    if any(room.intersects(other) for other in taken):
        return None
    taken.append(room)
    return room
