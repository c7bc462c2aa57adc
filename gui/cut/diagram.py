"""A cut as an image: the model from left to right as one bar whose width is time, in stages."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from engine.contract.cut import Cut
from engine.parallel.cut import Stage, moved, reachable
from gui.cut import cut_format
from gui.cut.geometry import Bar, lay_out
from gui.cut.handle import GRIP_HEIGHT, WIDTH, Handle
from gui.format import significant, size
from gui.plots.ticks import round_ticks
from gui.style import fills, theme

STRIP = 10
"""Pixels of the device's full colour along the top of each stage."""
TICK, LINE_PAD, MARGIN = 7, 5, 10


class CutDiagram(QWidget):
    """The stages, the split points at which a cut may stand as ticks, and the cuts as handles.

    Signals: cut_moved(object) - the Cut after the user has moved one; automatic_wanted() - Home was pressed.

    Attributes: cut - what is shown, None for nothing; handles - from the left; none where it is `read_only`.
    """

    cut_moved = Signal(object)
    automatic_wanted = Signal()

    def __init__(self, read_only: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.cut: Cut | None = None
        self.handles: list[Handle] = []
        self._read_only = read_only
        self._titles: tuple[str, ...] = ()
        self._bar = Bar((), (0.0, 1.0), (), 0.0)
        self.setAccessibleName("Cut of the model")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_cut(self, cut: Cut, titles: tuple[str, ...]) -> None:
        """Shows `cut`; `titles` name the devices of its ranks. Raises ValueError where its cuts cannot be."""
        self._bar = lay_out(cut)
        self.cut, self._titles = cut, titles
        if not self._read_only and len(self.handles) != len(cut.cuts):
            self._make_handles(len(cut.cuts))
        for handle in self.handles:
            handle.setAccessibleDescription(self._handle_words(cut, handle.number))
            handle.setToolTip(self._handle_words(cut, handle.number))
        self.setAccessibleDescription(cut_format.describe_cut(cut, self._bar.stages, titles))
        self.setFixedHeight(self.sizeHint().height())
        self._lay_handles()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(500, int(self._sent_top() + self._line() * (1 if self._read_only else 3) + 6))

    def minimumSizeHint(self) -> QSize:
        return QSize(280, self.sizeHint().height())

    def step(self, number: int, by: int) -> None:
        """Moves cut `number` by so many split points, as far as its neighbours let it."""
        if self.cut is None:
            return
        free = reachable(self.cut, number)
        index = min(max(free.index(self.cut.cuts[number]) + by, 0), len(free) - 1)
        self._move(number, free[index])

    def drag(self, number: int, x: float) -> None:
        """Moves cut `number` to the split point nearest to `x` pixels from the left."""
        if self.cut is None:
            return
        free = set(reachable(self.cut, number))
        spots = [spot for spot in self._bar.spots if spot.split_point in free]
        self._move(number, min(spots, key=lambda spot: abs(self._x(spot.at) - x)).split_point)

    def stage_rect(self, number: int) -> QRectF:
        """Where a stage is drawn."""
        left, right = self._x(self._bar.edges[number]), self._x(self._bar.edges[number + 1])
        return QRectF(left, self._top(), right - left, self._bar_height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_handles()

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and self.cut is not None:
            where = QPointF(event.pos())
            for number, stage in enumerate(self._bar.stages):
                if self.stage_rect(number).contains(where):
                    text = cut_format.describe_stage(number, self._bar.stages, self.cut, self._titles[stage.group_rank])
                    QToolTip.showText(event.globalPos(), text, self)
                    return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.cut is None:
            return
        painter = QPainter(self)
        painter.setFont(theme.tabular(self.font()))
        for number, stage in enumerate(self._bar.stages):
            self._draw_stage(painter, self.cut, number, stage)
        if self._read_only:
            painter.setPen(QPen(QColor(theme.colors().text), 2))
            for edge in self._bar.edges[1:-1]:
                painter.drawLine(QPointF(self._x(edge), self._top()), QPointF(self._x(edge), self._sent_top()))
        else:
            self._draw_ticks(painter, self.cut)
            self._draw_axis(painter)
        self._draw_sent(painter)

    # Where things are

    def _line(self) -> int:
        return self.fontMetrics().height()

    def _top(self) -> int:
        return 0 if self._read_only else GRIP_HEIGHT

    def _lines(self) -> int:
        return 2 if self._read_only else 4

    def _bar_height(self) -> int:
        return STRIP + self._lines() * self._line() + 2 * LINE_PAD

    def _sent_top(self) -> int:
        return self._top() + self._bar_height() + (2 if self._read_only else TICK + 4)

    def _x(self, share: float) -> float:
        return MARGIN + share * max(1, self.width() - 2 * MARGIN)

    def _make_handles(self, count: int) -> None:
        for handle in self.handles:
            handle.hide()
            handle.deleteLater()
        self.handles = []
        for number in range(count):
            handle = Handle(number, self)
            handle.setAccessibleName(f"Cut {number + 1} of {count}")
            handle.stepped.connect(lambda by, number=number: self.step(number, by))
            handle.dragged.connect(lambda x, number=number: self.drag(number, x))
            handle.automatic_wanted.connect(self.automatic_wanted)
            handle.noticed.connect(self.update)
            handle.show()
            if self.handles:
                QWidget.setTabOrder(self.handles[-1], handle)
            self.handles.append(handle)

    def _lay_handles(self) -> None:
        for handle in self.handles:
            handle.setFixedHeight(self._top() + self._bar_height() + TICK)
            handle.move(round(self._x(self._bar.edges[handle.number + 1]) - WIDTH / 2), 0)

    def _move(self, number: int, split_point: str) -> None:
        if self.cut is not None and split_point != self.cut.cuts[number]:
            self.show_cut(moved(self.cut, number, split_point), self._titles)
            self.cut_moved.emit(self.cut)

    # What is drawn

    def _draw_stage(self, painter: QPainter, cut: Cut, number: int, stage: Stage) -> None:
        scheme = theme.colors()
        rect = self.stage_rect(number)
        color = theme.device_color(stage.device)
        painter.fillRect(rect, fills.light(color))
        strip = QRectF(rect.left(), rect.top(), rect.width(), STRIP)
        painter.fillRect(strip, QColor(color))
        painter.fillRect(strip, fills.hatch(stage.group_rank, stage.device))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(scheme.error), 3) if stage.over_memory else QPen(QColor(scheme.panel), 1))
        painter.drawRect(rect.adjusted(1, 1, -1, -1) if stage.over_memory else rect)
        inside = rect.adjusted(LINE_PAD, STRIP + LINE_PAD, -LINE_PAD, 0)
        painter.setPen(QColor(scheme.text))
        for line, (texts, bold) in enumerate(self._stage_lines(cut, number, stage)):
            font = painter.font()
            font.setBold(bold)
            painter.setFont(font)
            metrics = painter.fontMetrics()
            shown = next((text for text in texts if metrics.horizontalAdvance(text) <= inside.width()), "")
            area = QRectF(inside.left(), inside.top() + line * self._line(), inside.width(), self._line())
            painter.drawText(area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)
            font.setBold(False)
            painter.setFont(font)

    def _stage_lines(self, cut: Cut, number: int, stage: Stage) -> list[tuple[tuple[str, ...], bool]]:
        """What stands in a stage, line by line: texts of which the first that fits is taken, and whether it is bold.

        What fits nowhere is in the tool tip and in the table.
        """
        share, needed = cut_format.share_words(stage), size(stage.memory_bytes)
        count = cut_format.count_words(stage.parameters)
        title = ((f"{number} · {self._titles[stage.group_rank]}", str(number)), True)
        time = ((f"{share} · {cut_format.milliseconds(stage.seconds)}", share), False)
        over = "⚠ " if stage.over_memory else ""
        memory = ((over + cut_format.memory_words(stage, cut), over + needed, over), stage.over_memory)
        if self._read_only:
            return [title, memory if stage.over_memory else time]
        return [title, time, ((f"{count} parameters", count), False), memory]

    def _draw_ticks(self, painter: QPainter, cut: Cut) -> None:
        scheme = theme.colors()
        active = next((handle.number for handle in self.handles if handle.active), None)
        free = set(reachable(cut, active)) if active is not None else set()
        top = self._top() + self._bar_height() + 1
        for spot in self._bar.spots:
            near = spot.split_point in free
            painter.setPen(QPen(QColor(scheme.accent if near else scheme.muted), 2 if near else 1))
            x = self._x(spot.at)
            painter.drawLine(QPointF(x, top), QPointF(x, top + (TICK if near else TICK - 3)))

    def _draw_sent(self, painter: QPainter) -> None:
        """What travels at each cut, under it; what finds no room in two lines is left to the table."""
        scheme = theme.colors()
        metrics = painter.fontMetrics()
        painter.setPen(QColor(scheme.text))
        free_from = [0.0] * (1 if self._read_only else 2)
        for number in range(len(self._bar.stages) - 1):
            sent = cut_format.sent_words(self._bar.stages, number)
            text = f"{sent} →" if cut_format.travels(self._bar.stages, number) else sent
            width = metrics.horizontalAdvance(text)
            left = min(max(self._x(self._bar.edges[number + 1]) - width / 2, 0.0), self.width() - width - 1.0)
            line = next((line for line, free in enumerate(free_from) if left >= free), None)
            if line is not None:
                painter.drawText(QPointF(left, self._sent_top() + line * self._line() + metrics.ascent()), text)
                free_from[line] = left + width + 8

    def _draw_axis(self, painter: QPainter) -> None:
        scheme = theme.colors()
        metrics = painter.fontMetrics()
        painter.setPen(QColor(scheme.muted))
        top = self._sent_top() + 2 * self._line() + 2
        whole_ms = 1000 * self._bar.seconds
        if whole_ms <= 0:
            return
        for tick in round_ticks(whole_ms, self.width() // 110):
            x = self._x(tick / whole_ms)
            text = f"{significant(tick)} ms" if tick else "0"
            width = metrics.horizontalAdvance(text)
            painter.drawText(QPointF(min(x - width / 2, self.width() - width - 1.0), top + metrics.ascent()), text)

    def _handle_words(self, cut: Cut, number: int) -> str:
        before, after = self._bar.stages[number], self._bar.stages[number + 1]
        here, there = self._titles[before.group_rank], self._titles[after.group_rank]
        sent = size(cut_format.travels(self._bar.stages, number))
        journey = f"Each microbatch sends {sent} from {here} to {there}, and gradients of the same size come back."
        if before.group_rank == after.group_rank:
            journey = f"Nothing is sent, since both stages are on {here}."
        return (
            f"After {before.last_module}, before {after.first_module}. {journey} Left and Right move the cut by one "
            "position; Home resets it to the automatic cut."
        )
