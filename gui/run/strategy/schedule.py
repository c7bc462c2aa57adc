"""Diagram of a measured pipeline schedule: a row for each rank, with time from left to right."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QMouseEvent, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from engine.contract.events import Action, ScheduleTraced
from gui.format import localized, milliseconds, significant
from gui.plots.axes import compute_round_ticks
from gui.style import fills, theme
from gui.titles import SCHEDULES
from gui.translation import tr

KINDS = {
    "F": tr("forward"),
    "B": tr("backward"),
    "I": tr("backward for inputs"),
    "W": tr("backward for weights"),
}
LANE, CROWDED_LANE, GAP = 20, 13, 5
"""Heights in pixels of a stage's lane, of a lane among many, and of the gap between ranks."""
CROWD = 8
"""Number of lanes above which each lane is drawn with less height."""
LABEL_PAD, AXIS_HEIGHT, LEGEND_HEIGHT, NUMBER_PAD = 10, 20, 22, 4


def headline(trace: ScheduleTraced) -> str:
    """Return a headline, as in "Bubble 14% measured, 11% in theory (1F1B, 8 microbatches)"."""
    count = len({action.microbatch for actions in trace.ranks for action in actions})
    details = (
        tr("{schedule}, {count} microbatches").format(
            schedule=SCHEDULES.get(trace.schedule, trace.schedule), count=count
        )
        if count > 1
        else tr("whole batches")
    )
    return tr("Bubble {measured:.0f}% measured, {theory:.0f}% in theory ({details})").format(
        measured=100 * trace.bubble, theory=100 * trace.theory, details=details
    )


def describe_trace(trace: ScheduleTraced, titles: Sequence[str]) -> str:
    """Describe the traced step for screen readers: its time, and the busy and idle time of each rank.

    `titles` are the titles of the ranks' devices.
    """
    parts = [
        tr("{trace}. Step {step} took {span_s}.").format(
            trace=headline(trace), step=localized(trace.step), span_s=milliseconds(trace.span_s)
        )
    ]
    for rank, actions in enumerate(trace.ranks):
        busy_s = sum(action.end_s - action.begin_s for action in actions)
        idle_fraction = max(0.0, 1 - busy_s / trace.span_s) if trace.span_s else 0.0
        parts.append(
            tr("{rank}: {count} actions, {busy} busy, {idle:.0f}% idle.").format(
                rank=rank_title(rank, titles), count=len(actions), busy=milliseconds(busy_s), idle=100 * idle_fraction
            )
        )
    return " ".join(parts)


def describe_action(action: Action) -> str:
    """Describe an action, as in "Forward, microbatch 3, stage 1: 12.4 ms (from 3.1 ms to 15.5 ms)"."""
    kind = KINDS[action.kind].capitalize()
    return tr("{kind}, microbatch {microbatch}, stage {stage}: {time} (from {begin} to {end})").format(
        kind=kind,
        microbatch=action.microbatch,
        stage=action.stage,
        time=milliseconds(action.end_s - action.begin_s),
        begin=milliseconds(action.begin_s),
        end=milliseconds(action.end_s),
    )


class ScheduleDiagram(QWidget):
    """Schedule with a row for each rank, a lane for each of its stages, and a rectangle for each action.

    Forward passes are light, backward ones solid, and weight gradients hatched. Gaps are idle time. Rectangles contain
    the number of their microbatch if it fits.
    """

    def __init__(self) -> None:
        super().__init__()
        self._trace: ScheduleTraced | None = None
        self._devices: tuple[str, ...] = ()  # by rank
        self._titles: tuple[str, ...] = ()  # of the devices, by rank
        self._lanes: list[dict[int, int]] = []  # lane of each stage, by rank
        self._drawn: QPixmap | None = None  # finished drawing, or None if it is outdated
        # By rank and lane: the begins of the actions for a binary search, and the actions.
        self._actions_by_lane: dict[tuple[int, int], tuple[list[float], list[Action]]] = {}
        self.setAccessibleName(tr("Schedule of the pipeline"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMouseTracking(True)
        theme.notifier.changed.connect(self.recolor)

    def show_trace(self, trace: ScheduleTraced, devices: tuple[str, ...], titles: tuple[str, ...]) -> None:
        """Show the measured schedule `trace`. `devices` are the devices of the ranks, and `titles` their titles."""
        if trace is self._trace and titles == self._titles:
            return
        self._trace, self._devices, self._titles = trace, devices, titles
        self._lanes = []
        by_lane: dict[tuple[int, int], list[Action]] = defaultdict(list)
        for rank, actions in enumerate(trace.ranks):
            stages = sorted({action.stage for action in actions})
            lanes = {stage: lane for lane, stage in enumerate(stages)}
            self._lanes.append(lanes)
            for action in actions:
                by_lane[rank, lanes[action.stage]].append(action)
        self._actions_by_lane = {}
        for key, lane_actions in by_lane.items():
            lane_actions.sort(key=lambda action: action.begin_s)
            self._actions_by_lane[key] = ([action.begin_s for action in lane_actions], lane_actions)
        self.setAccessibleDescription(describe_trace(trace, titles))
        self.setFixedHeight(self.sizeHint().height())
        self.recolor()

    def action_at(self, point: QPoint) -> Action | None:
        """Return the action whose rectangle is at `point`, or None if there is none."""
        trace = self._trace
        plot = self._plot_rect()
        if trace is None or not plot.contains(QPointF(point)):
            return None
        seconds = (point.x() - plot.left()) / plot.width() * trace.span_s
        for (rank, lane), (begins, actions) in self._actions_by_lane.items():
            top = self._lane_top(rank, lane)
            if top <= point.y() < top + self._lane_height():
                index = bisect_right(begins, seconds) - 1
                if index >= 0 and seconds <= actions[index].end_s:
                    return actions[index]
        return None

    def sizeHint(self) -> QSize:
        rows = sum(max(1, len(lanes)) * self._lane_height() + GAP for lanes in self._lanes)
        return QSize(400, rows + AXIS_HEIGHT + LEGEND_HEIGHT)

    def event(self, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Resize, QEvent.Type.FontChange, QEvent.Type.DevicePixelRatioChange):
            self._drawn = None
        return super().event(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        action = self.action_at(event.position().toPoint())
        if action is None:
            QToolTip.hideText()
        else:
            QToolTip.showText(event.globalPosition().toPoint(), describe_action(action), self)

    def leaveEvent(self, event: QEvent) -> None:
        QToolTip.hideText()
        super().leaveEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Show the diagram, which is drawn once into a pixmap because it may contain thousands of actions."""
        if self._trace is None:
            return
        if self._drawn is None:
            ratio = self.devicePixelRatioF()
            self._drawn = QPixmap(self.size() * ratio)
            self._drawn.setDevicePixelRatio(ratio)
            self._drawn.fill(QColor(theme.colors().panel))
            painter = QPainter(self._drawn)
            painter.setFont(self.font())
            self._draw(painter, self._trace)
            painter.end()
        QPainter(self).drawPixmap(0, 0, self._drawn)

    def recolor(self) -> None:
        self._drawn = None
        self.update()

    def _lane_height(self) -> int:
        """Return the height of a lane in pixels, which is smaller if there are many lanes."""
        return CROWDED_LANE if sum(map(len, self._lanes)) > CROWD else LANE

    def _lane_top(self, rank: int, lane: int) -> int:
        """Return the y position of a lane in the row of a rank. Lane 0 gives the top of the row."""
        above = sum(max(1, len(lanes)) * self._lane_height() + GAP for lanes in self._lanes[:rank])
        return above + lane * self._lane_height()

    def _plot_rect(self) -> QRectF:
        """Return the rectangle of the actions of all ranks, to the right of the row titles."""
        metrics = self.fontMetrics()
        titles = [rank_title(rank, self._titles) for rank in range(len(self._lanes))]
        left = max((metrics.horizontalAdvance(title) for title in titles), default=0) + LABEL_PAD
        left = min(left, self.width() // 3)
        return QRectF(left, 0, max(1, self.width() - left - 2), self._lane_top(len(self._lanes), 0))

    def _draw(self, painter: QPainter, trace: ScheduleTraced) -> None:
        """Draw the axis, a row with a title and actions for each rank, and the legend."""
        scheme = theme.colors()
        plot = self._plot_rect()
        self._draw_axis(painter, plot, trace)
        for rank, lanes in enumerate(self._lanes):
            height = max(1, len(lanes)) * self._lane_height()
            row = QRectF(plot.left(), self._lane_top(rank, 0), plot.width(), height - 1)
            painter.fillRect(row, QColor(scheme.raised))
            painter.setPen(QColor(scheme.text))
            label = QRectF(0, row.top(), plot.left() - LABEL_PAD / 2, row.height())
            title = painter.fontMetrics().elidedText(
                rank_title(rank, self._titles), Qt.TextElideMode.ElideRight, int(label.width())
            )
            painter.drawText(label, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, title)
            if trace.span_s > 0:
                self._draw_row(painter, rank, trace.ranks[rank], plot, trace.span_s)
        self._draw_legend(painter, plot, trace)

    def _draw_row(self, painter: QPainter, rank: int, actions: Iterable[Action], plot: QRectF, span_s: float) -> None:
        """Draw the `actions` of a rank in the rectangle `plot`, which is `span_s` seconds wide.

        Actions are drawn by kind, because this is faster.
        """
        metrics = painter.fontMetrics()
        # By number of digits: width that a block needs for its number.
        number_widths = [metrics.horizontalAdvance("0" * digits) + NUMBER_PAD for digits in range(8)]
        left, per_second, height = plot.left(), plot.width() / span_s, self._lane_height() - 1
        tops = {stage: self._lane_top(rank, lane) for stage, lane in self._lanes[rank].items()}
        blocks: dict[str, list[QRect]] = defaultdict(list)
        numbers: dict[str, list[tuple[QRect, str]]] = defaultdict(list)
        for action in actions:
            start, stop = int(left + action.begin_s * per_second), int(left + action.end_s * per_second)
            # Integer coordinates, and a gap instead of an outline, are several times as fast.
            gap = 1 if stop - start > 4 else 0
            width = max(1, stop - start - gap)
            rect = QRect(start, tops[action.stage], width, height)
            blocks[action.kind].append(rect)
            number = str(action.microbatch)
            if width >= number_widths[len(number)]:
                numbers[action.kind].append((rect, number))
        for kind, rects in blocks.items():
            brushes, text_color = _make_block_fill(kind, rank_color(self._devices, rank))
            painter.setPen(Qt.PenStyle.NoPen)
            for brush in brushes:
                painter.setBrush(brush)
                painter.drawRects(rects)
            painter.setPen(text_color)
            for rect, number in numbers[kind]:
                painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, number)

    def _draw_axis(self, painter: QPainter, plot: QRectF, trace: ScheduleTraced) -> None:
        """Draw vertical grid lines in `plot`, the rectangle of the actions, and their times in milliseconds below.

        Only the last time has the unit.
        """
        scheme = theme.colors()
        metrics = painter.fontMetrics()
        ticks = compute_round_ticks(1000 * trace.span_s, int(plot.width() // 90))
        for tick in ticks:
            x = plot.left() + plot.width() * tick / (1000 * trace.span_s)
            painter.setPen(QColor(scheme.grid))
            painter.drawLine(QPointF(x, 0), QPointF(x, plot.bottom()))
            painter.setPen(QColor(scheme.muted))
            text = f"{significant(tick)} ms" if tick == ticks[-1] else significant(tick)
            left = min(x - metrics.horizontalAdvance(text) / 2, plot.right() - metrics.horizontalAdvance(text))
            painter.drawText(QPointF(max(plot.left(), left), plot.bottom() + metrics.ascent() + 2), text)

    def _draw_legend(self, painter: QPainter, plot: QRectF, trace: ScheduleTraced) -> None:
        """Explain the colors of the actions that occur in the trace, below `plot`, the rectangle of the actions."""
        kinds = {action.kind for actions in trace.ranks for action in actions}
        color = rank_color(self._devices, 0)
        metrics = painter.fontMetrics()
        x, y = 1.0, plot.bottom() + AXIS_HEIGHT + 4
        entries = [(kind, f"{kind}  {KINDS[kind]}") for kind in KINDS if kind in kinds]
        for kind, text in [*entries, ("", tr("idle"))]:
            swatch = QRectF(x, y, 14, 14)
            if kind:
                brushes, _text_color = _make_block_fill(kind, color)
                for brush in brushes:
                    painter.fillRect(swatch, brush)
            else:
                painter.fillRect(swatch, QColor(theme.colors().raised))
            painter.setPen(QColor(theme.colors().border))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(swatch)
            painter.setPen(QColor(theme.colors().muted))
            painter.drawText(QPointF(x + 20, y + 12), text)
            x += 20 + metrics.horizontalAdvance(text) + 16


def _make_block_fill(kind: str, color: str) -> tuple[list[QBrush], QColor]:
    """Return the brushes that fill an action's rectangle one after the other, and the color of its microbatch number.

    `kind` is the kind of the action, one of `KINDS`, and `color` is the color of the device.
    """
    scheme = theme.colors()
    if kind == "F":  # forward
        return [QBrush(fills.lighten(color))], QColor(scheme.text)
    if kind == "W":  # backward for weights
        ground = QBrush(fills.blend(color, scheme.panel, 0.15))
        hatching = QBrush(fills.blend(color, scheme.panel, 0.6), Qt.BrushStyle.BDiagPattern)
        return [ground, hatching], QColor(scheme.text)
    return [QBrush(QColor(color))], fills.choose_text_color(QColor(color))


def rank_color(devices: Sequence[str], rank: int) -> str:
    """Return the color of a rank's device, or the accent color for a rank whose device is unknown."""
    return theme.device_color(devices[rank]) if rank < len(devices) else theme.colors().accent


def rank_title(rank: int, titles: Sequence[str]) -> str:
    """Return the title of a rank and of its device, if that is known, as in "Rank 1 · GPU 0"."""
    return (
        tr("Rank {rank} · {titles}").format(rank=rank, titles=titles[rank])
        if rank < len(titles)
        else tr("Rank {rank}").format(rank=rank)
    )
