"""Diagram of a model's pipeline stages: a bar that is divided in proportion to their times."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from engine.contract.model_split import ModelSplit, Segment
from engine.parallel.split_points import Stage, compute_stages, move_point, reachable_points
from gui.format import milliseconds, significant, size
from gui.plots.axes import compute_round_ticks
from gui.split_points import stage_format
from gui.style import fills, theme
from gui.translation import tr

STRIP = 10
"""Height in pixels of the strip in the device's color at the top of a stage."""
TICK, LINE_PAD, MARGIN = 7, 5, 10


class StageDiagram(QWidget):
    """Diagram with the stages, ticks at possible split points, and a handle between each two stages.

    Signals:
        split_point_moved(object): the new ModelSplit after the user has moved a handle.
        automatic_requested(): the user has pressed Home.

    Attributes:
        split: Displayed split, or None if there is none.
        handles: Handles from left to right, or an empty list if `read_only`.
    """

    split_point_moved = Signal(object)
    automatic_requested = Signal()

    def __init__(self, *, read_only: bool = False) -> None:
        super().__init__()
        self.split: ModelSplit | None = None
        self.handles: list[Handle] = []
        self._read_only = read_only
        self._titles: tuple[str, ...] = ()
        self._bar = Bar(stages=(), edges=(0.0, 1.0), spots=(), seconds=0.0)
        self.setAccessibleName(tr("Stages of the model"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_split(self, split: ModelSplit, titles: tuple[str, ...]) -> None:
        """Show `split`. `titles` are the names of its ranks' devices. Raises ValueError for impossible split points.

        The handles are created again if the number of split points has changed.
        """
        self._bar = lay_out(split)
        self.split, self._titles = split, titles
        if not self._read_only and len(self.handles) != len(split.split_points):
            self._make_handles(len(split.split_points))
        for handle in self.handles:
            handle.setAccessibleDescription(self._describe_handle(split, handle.number))
            handle.setToolTip(self._describe_handle(split, handle.number))
        self.setAccessibleDescription(stage_format.describe_split(split, self._bar.stages, titles))
        self.setFixedHeight(self.sizeHint().height())
        self._place_handles()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(500, int(self._compute_transfers_top() + self._line_height() * (1 if self._read_only else 3) + 6))

    def minimumSizeHint(self) -> QSize:
        return QSize(280, self.sizeHint().height())

    def step(self, number: int, by: int) -> None:
        """Move split point `number` by up to `by` positions, but not beyond its neighbors."""
        if self.split is None:
            return
        reachable = reachable_points(self.split, number)
        index = min(max(reachable.index(self.split.split_points[number]) + by, 0), len(reachable) - 1)
        self._move(number, reachable[index])

    def drag(self, number: int, x: float) -> None:
        """Move split point `number` to the position nearest to `x` pixels from the left."""
        if self.split is None:
            return
        reachable = set(reachable_points(self.split, number))
        spots = [spot for spot in self._bar.spots if spot.split_point in reachable]
        self._move(number, min(spots, key=lambda spot: abs(self._to_x(spot.position) - x)).split_point)

    def stage_rect(self, number: int) -> QRectF:
        left, right = self._to_x(self._bar.edges[number]), self._to_x(self._bar.edges[number + 1])
        return QRectF(left, self._compute_top(), right - left, self._bar_height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_handles()

    def event(self, event: QEvent) -> bool:
        """Describe the stage under the pointer in a tool tip."""
        if isinstance(event, QHelpEvent) and self.split is not None:
            point = QPointF(event.pos())
            for number, stage in enumerate(self._bar.stages):
                if self.stage_rect(number).contains(point):
                    title = self._titles[stage.group_rank]
                    text = stage_format.describe_stage(number, self._bar.stages, self.split, title)
                    QToolTip.showText(event.globalPos(), text, self)
                    return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw stages and transfers and, in an editable diagram, ticks and a time axis."""
        if self.split is None:
            return
        painter = QPainter(self)
        painter.setFont(theme.with_tabular_digits(self.font()))
        for number, stage in enumerate(self._bar.stages):
            self._draw_stage(painter, self.split, number, stage)
        if self._read_only:
            painter.setPen(QPen(QColor(theme.colors().text), 2))
            for edge in self._bar.edges[1:-1]:
                painter.drawLine(
                    QPointF(self._to_x(edge), self._compute_top()),
                    QPointF(self._to_x(edge), self._compute_transfers_top()),
                )
        else:
            self._draw_ticks(painter, self.split)
            self._draw_axis(painter)
        self._draw_transfers(painter)

    def _line_height(self) -> int:
        return self.fontMetrics().height()

    def _compute_top(self) -> int:
        """Return the y position of the bar, below the grips of the handles."""
        return 0 if self._read_only else GRIP_HEIGHT

    def _count_lines(self) -> int:
        """Return the number of text lines in a stage."""
        return 2 if self._read_only else 4

    def _bar_height(self) -> int:
        return STRIP + self._count_lines() * self._line_height() + 2 * LINE_PAD

    def _compute_transfers_top(self) -> int:
        """Return the y position of the texts about transfers, below the bar and its ticks."""
        return self._compute_top() + self._bar_height() + (2 if self._read_only else TICK + 4)

    def _to_x(self, fraction: float) -> float:
        """Return the x position for a fraction of the bar's width."""
        return MARGIN + fraction * max(1, self.width() - 2 * MARGIN)

    def _make_handles(self, count: int) -> None:
        """Replace the handles by `count` new ones, which can be reached by Tab from left to right."""
        for handle in self.handles:
            handle.hide()
            handle.deleteLater()
        self.handles = []
        for number in range(count):
            handle = Handle(number, self)
            handle.setAccessibleName(tr("Split point {number} of {count}").format(number=number + 1, count=count))
            handle.stepped.connect(lambda by, number=number: self.step(number, by))
            handle.dragged.connect(lambda x, number=number: self.drag(number, x))
            handle.automatic_requested.connect(self.automatic_requested)
            handle.active_changed.connect(self.update)
            handle.show()
            if self.handles:
                QWidget.setTabOrder(self.handles[-1], handle)
            self.handles.append(handle)

    def _place_handles(self) -> None:
        """Move the handles to the edges between their stages."""
        for handle in self.handles:
            handle.setFixedHeight(self._compute_top() + self._bar_height() + TICK)
            handle.move(round(self._to_x(self._bar.edges[handle.number + 1]) - WIDTH / 2), 0)

    def _move(self, number: int, split_point: str) -> None:
        """Move split point `number` to `split_point` and emit `split_point_moved`, unless it is already there."""
        if self.split is not None and split_point != self.split.split_points[number]:
            self.show_split(move_point(self.split, number, split_point), self._titles)
            self.split_point_moved.emit(self.split)

    def _draw_stage(self, painter: QPainter, split: ModelSplit, number: int, stage: Stage) -> None:
        """Draw the box of a stage in its device's color, with the longest texts that fit."""
        scheme = theme.colors()
        rect = self.stage_rect(number)
        color = theme.device_color(stage.device)
        painter.fillRect(rect, fills.lighten(color))
        strip = QRectF(rect.left(), rect.top(), rect.width(), STRIP)
        painter.fillRect(strip, QColor(color))
        painter.fillRect(strip, fills.make_worker_pattern(stage.group_rank, stage.device))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(scheme.error), 3) if stage.over_memory else QPen(QColor(scheme.panel), 1))
        painter.drawRect(rect.adjusted(1, 1, -1, -1) if stage.over_memory else rect)
        inside = rect.adjusted(LINE_PAD, STRIP + LINE_PAD, -LINE_PAD, 0)
        painter.setPen(QColor(scheme.text))
        for index, line in enumerate(self._list_stage_lines(split, number, stage)):
            font = painter.font()
            font.setBold(line.is_bold)
            painter.setFont(font)
            metrics = painter.fontMetrics()
            fitting = next((text for text in line.texts if metrics.horizontalAdvance(text) <= inside.width()), "")
            top = inside.top() + index * self._line_height()
            area = QRectF(inside.left(), top, inside.width(), self._line_height())
            painter.drawText(area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, fitting)
            font.setBold(False)
            painter.setFont(font)

    def _list_stage_lines(self, split: ModelSplit, number: int, stage: Stage) -> list[_StageLine]:
        """Return the lines of text in the box of a stage. Tool tip and table contain the full texts."""
        fraction, needed = stage_format.format_fraction(stage), size(stage.memory_bytes)
        count = stage_format.format_count(stage.parameters)
        title = _StageLine((f"{number} · {self._titles[stage.group_rank]}", str(number)), is_bold=True)
        time = _StageLine((f"{fraction} · {milliseconds(stage.seconds)}", fraction))
        sign = "⚠ " if stage.over_memory else ""
        memory_texts = (sign + stage_format.format_memory(stage, split), sign + needed, sign)
        memory = _StageLine(memory_texts, is_bold=stage.over_memory)
        if self._read_only:
            return [title, memory if stage.over_memory else time]
        return [title, time, _StageLine((tr("{count} parameters").format(count=count), count)), memory]

    def _draw_ticks(self, painter: QPainter, split: ModelSplit) -> None:
        """Draw a tick at each possible split point. Points that the active handle can reach are emphasized."""
        scheme = theme.colors()
        active = next((handle.number for handle in self.handles if handle.is_active), None)
        reachable = set(reachable_points(split, active)) if active is not None else set()
        top = self._compute_top() + self._bar_height() + 1
        for spot in self._bar.spots:
            is_reachable = spot.split_point in reachable
            painter.setPen(QPen(QColor(scheme.accent if is_reachable else scheme.muted), 2 if is_reachable else 1))
            x = self._to_x(spot.position)
            painter.drawLine(QPointF(x, top), QPointF(x, top + (TICK if is_reachable else TICK - 3)))

    def _draw_transfers(self, painter: QPainter) -> None:
        """Write the amount of data that is transferred at each split point below the bar, in one or two rows.

        Texts that don't fit are left out.
        """
        scheme = theme.colors()
        metrics = painter.fontMetrics()
        painter.setPen(QColor(scheme.text))
        # X position after the last text of each row. `sizeHint` reserves less height for a read-only diagram.
        row_ends = [0.0] * (1 if self._read_only else 2)
        for number in range(len(self._bar.stages) - 1):
            sent = stage_format.format_transfer(self._bar.stages, number)
            # Without an arrow if nothing is sent, because both stages are on one device: `sent` is then "stays".
            text = f"{sent} →" if stage_format.compute_sent_bytes(self._bar.stages, number) else sent
            width = metrics.horizontalAdvance(text)
            left = min(max(self._to_x(self._bar.edges[number + 1]) - width / 2, 0.0), self.width() - width - 1.0)
            row = next((row for row, end in enumerate(row_ends) if left >= end), None)
            if row is not None:
                top = self._compute_transfers_top() + row * self._line_height()
                painter.drawText(QPointF(left, top + metrics.ascent()), text)
                row_ends[row] = left + width + 8

    def _draw_axis(self, painter: QPainter) -> None:
        """Draw the time scale below the transfers, in milliseconds."""
        scheme = theme.colors()
        metrics = painter.fontMetrics()
        painter.setPen(QColor(scheme.muted))
        top = self._compute_transfers_top() + 2 * self._line_height() + 2
        total_ms = 1000 * self._bar.seconds
        if total_ms <= 0:
            return
        for tick in compute_round_ticks(total_ms, self.width() // 110):
            x = self._to_x(tick / total_ms)
            text = f"{significant(tick)} ms" if tick else "0"
            width = metrics.horizontalAdvance(text)
            painter.drawText(QPointF(min(x - width / 2, self.width() - width - 1.0), top + metrics.ascent()), text)

    def _describe_handle(self, split: ModelSplit, number: int) -> str:
        """Describe a split point for its tool tip: modules next to it, transfer between their devices, and keys."""
        left_stage, right_stage = self._bar.stages[number], self._bar.stages[number + 1]
        sender, receiver = self._titles[left_stage.group_rank], self._titles[right_stage.group_rank]
        sent = size(stage_format.compute_sent_bytes(self._bar.stages, number))
        transfer = tr(
            "Each microbatch sends {sent} from {sender} to {receiver}, and gradients of the same size come back."
        ).format(sent=sent, sender=sender, receiver=receiver)
        if left_stage.group_rank == right_stage.group_rank:
            transfer = tr("Nothing is sent, since both stages are on {sender}.").format(sender=sender)
        return tr(
            "After {last_module}, before {first_module}. {transfer} Left and Right move the split point by "
            "one position; Home resets to the automatic split points."
        ).format(last_module=left_stage.last_module, first_module=right_stage.first_module, transfer=transfer)


class _StageLine(NamedTuple):
    """Line of text in the box of a stage: alternatives from long to short, of which the first that fits is drawn."""

    texts: tuple[str, ...]
    is_bold: bool = False


class Spot(NamedTuple):
    """Position at which one stage can end and the next begin."""

    split_point: str
    position: float  # from 0 (left) to 1 (right)


class Bar(NamedTuple):
    """Layout of the bar that shows the stages of a pipeline.

    Attributes:
        stages: Stages from left to right.
        edges: Positions of the edges between the stages, including both ends, from 0 (left) to 1 (right).
        spots: Possible split points.
        seconds: Total time of all stages for a microbatch.
    """

    stages: tuple[Stage, ...]
    edges: tuple[float, ...]
    spots: tuple[Spot, ...]
    seconds: float


def lay_out(split: ModelSplit) -> Bar:
    """Compute the layout of the bar for `split`. Raises ValueError for impossible split points.

    The width of a stage is proportional to its time. Within a stage, the distance between two possible split points is
    proportional to the compute time of the segment (part of the model) between them.
    """
    stages = compute_stages(split)
    total_s = sum(stage.seconds for stage in stages)
    fractions = [stage.seconds / total_s if total_s else 1 / len(stages) for stage in stages]
    edges = (0.0, *itertools.accumulate(fractions[:-1]), 1.0)
    segment_numbers = {segment.split_point: number for number, segment in enumerate(split.segments[:-1])}
    # Index of the last segment before the first stage (-1), and of the last one in each stage.
    last_segments = [-1, *(segment_numbers[split_point] for split_point in split.split_points), len(split.segments) - 1]
    spots = []  # possible split points, at the ends of the segments
    for number, stage in enumerate(stages):
        segments = split.segments[last_segments[number] + 1 : last_segments[number + 1] + 1]
        seconds = [_compute_seconds(split, segment, stage.group_rank) for segment in segments]
        stage_s = sum(seconds)
        fraction = 0.0  # of the stage, up to the end of the segment
        for segment, segment_s in zip(segments, seconds, strict=True):
            fraction += segment_s / stage_s if stage_s else 1 / len(segments)
            position = edges[number] + (edges[number + 1] - edges[number]) * min(1.0, fraction)
            if segment is not split.segments[-1]:
                spots.append(Spot(segment.split_point, position))
    return Bar(stages, edges, tuple(spots), total_s)


def _compute_seconds(split: ModelSplit, segment: Segment, group_rank: int) -> float:
    """Return the compute time in seconds of a segment on the device with index `group_rank` in its replica.

    It is the time of the backward pass and of the forward pass, which counts twice if activations are recomputed.
    """
    return (2 if split.recomputed else 1) * segment.forward_s[group_rank] + segment.backward_s[group_rank]


WIDTH, GRIP_HEIGHT = 18, 22


class Handle(QWidget):
    """Handle on the bar that moves the boundary between two stages.

    Signals:
        stepped(int): the user wants to move the split point by one position, to the right (1) or left (-1).
        dragged(float): x position of the mouse in the parent, in pixels.
        automatic_requested(): the user wants to return to the automatic split points.
        active_changed(): focus or mouse grab has changed.
    """

    stepped = Signal(int)
    dragged = Signal(float)
    automatic_requested = Signal()
    active_changed = Signal()

    def __init__(self, number: int, parent: QWidget) -> None:
        super().__init__(parent)
        self.number = number
        self.is_grabbed = False
        self.setFixedWidth(WIDTH)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.SplitHCursor)

    @property
    def is_active(self) -> bool:
        """True while the handle is grabbed or has the keyboard focus."""
        return self.is_grabbed or self.hasFocus()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the split point with Left and Right, or request the automatic ones with Home."""
        match event.key():
            case Qt.Key.Key_Left:
                self.stepped.emit(-1)
            case Qt.Key.Key_Right:
                self.stepped.emit(1)
            case Qt.Key.Key_Home:
                self.automatic_requested.emit()
            case _:
                super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._set_grabbed(True)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self.is_grabbed:
            self.dragged.emit(self.mapToParent(event.position()).x())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._set_grabbed(False)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.active_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.active_changed.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw a vertical line with a grip at the top, emphasized while it is active."""
        scheme = theme.colors()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        middle = WIDTH / 2
        painter.setPen(QPen(QColor(scheme.accent if self.is_active else scheme.text), 3 if self.is_active else 2))
        painter.drawLine(QPointF(middle, GRIP_HEIGHT), QPointF(middle, self.height()))
        painter.setPen(QPen(QColor(scheme.accent if self.is_active else scheme.muted), 2 if self.is_active else 1))
        painter.setBrush(QColor(scheme.raised))
        painter.drawRoundedRect(QRectF(1.5, 1.5, WIDTH - 3, GRIP_HEIGHT - 2), 4, 4)
        painter.setPen(QPen(QColor(scheme.accent if self.is_active else scheme.muted), 1.5))
        for x in (middle - 2.5, middle + 2.5):
            painter.drawLine(QPointF(x, 7), QPointF(x, GRIP_HEIGHT - 6))

    def _set_grabbed(self, is_grabbed: bool) -> None:
        """Store if the mouse holds the handle, draw it accordingly, and emit `active_changed`."""
        self.is_grabbed = is_grabbed
        self.update()
        self.active_changed.emit()
