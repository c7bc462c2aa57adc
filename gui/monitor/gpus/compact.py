"""Overview of many GPUs with one row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QScrollArea, QSizePolicy, QWidget

from engine.contract.devices import Gpu
from engine.gpus.quantities import BY_ID
from gui.format import measured, size_of
from gui.monitor.gpus.watched_gpu import WatchedGpu
from gui.sources.devices.device_format import joined
from gui.style import fills, theme
from gui.translation import tr
from gui.widgets.layouts import vbox
from gui.widgets.tab_order import order_tabs

ROW = 40
_HEAD = 22
_PAD = 8
_BAR = 5


@dataclass(frozen=True)
class Column:
    """Column with a `share` of the width.

    Functions return its text, a `short` text, and the bar's fraction (None: no bar).
    """

    title: str
    share: float
    text: Callable[[Gpu], str]
    short: Callable[[Gpu], str]
    filled: Callable[[Gpu], float | None]

    def fitting(self, gpu: Gpu, fits: Callable[[str], bool]) -> str:
        """Return the longest text that fits."""
        text = self.text(gpu)
        return text if fits(text) else self.short(gpu)


def _share(quantity: str) -> Callable[[Gpu], float | None]:
    kind = BY_ID[quantity]

    def share(gpu: Gpu) -> float | None:
        value, highest = kind.read(gpu), kind.highest(gpu)
        return value / highest if value is not None and highest else None

    return share


def _value_text(quantity: str) -> Callable[[Gpu], str]:
    kind = BY_ID[quantity]

    def text(gpu: Gpu) -> str:
        value = kind.read(gpu)
        return "" if value is None else measured(kind, value)

    return text


def _use(gpu: Gpu) -> str:
    """Return the utilization, or the activity of the multiprocessors for MIG instances, which report none."""
    return _value_text("utilization_percent")(gpu) or _value_text("sm_active_percent")(gpu)


def _used_share(gpu: Gpu) -> float | None:
    share = _share("utilization_percent")(gpu)
    return _share("sm_active_percent")(gpu) if share is None else share


def _memory(gpu: Gpu) -> str:
    return "" if gpu.memory_used_bytes is None else size_of(gpu.memory_used_bytes, gpu.memory_total_bytes)


def _power(gpu: Gpu) -> str:
    if gpu.power_w is None or gpu.power_limit_w is None:
        return _value_text("power_w")(gpu)
    return f"{gpu.power_w:.0f} of {gpu.power_limit_w:.0f} W"


COLUMNS = (
    Column(tr("Use"), 0.12, _use, _use, _used_share),
    Column(tr("Memory"), 0.19, _memory, _value_text("memory_used_bytes"), _share("memory_used_bytes")),
    Column(tr("Power"), 0.16, _power, _value_text("power_w"), _share("power_w")),
    Column(tr("Core"), 0.09, _value_text("temperature_c"), _value_text("temperature_c"), _share("temperature_c")),
)
_NAME_SHARE = 0.16


def column_spans(width: float) -> list[tuple[float, float]]:
    """Return the left edge and width of the name, of each of `COLUMNS`, and of the state."""
    found = []
    left = float(_PAD)
    room = width - _PAD
    shares = [_NAME_SHARE, *(column.share for column in COLUMNS)]
    for share in (*shares, 1 - sum(shares)):
        found.append((left, share * room - 2 * _PAD))
        left += share * room
    return found


class CompactRow(QWidget):
    """Row of one GPU.

    Signals:
        opened(str): the user wants the detail of the GPU of this key.
    """

    opened = Signal(str)

    def __init__(self, key: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.key = key
        self._each: WatchedGpu | None = None
        self.setFixedHeight(ROW)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def show_gpu(self, each: WatchedGpu) -> None:
        if each == self._each:
            return
        self._each = each
        self.setAccessibleName(f"{each.title}, {each.gpu.name}")
        self.setAccessibleDescription(self.describe())
        self.setToolTip("\n".join(filter(None, (each.gpu.name, joined(each.states), each.who))))
        self.update()

    def describe(self) -> str:
        """Describe the row."""
        if self._each is None:
            return ""
        reported = [f"{column.title} {text}" for column in COLUMNS if (text := column.text(self._each.gpu))]
        return ", ".join(filter(None, (joined(self._each.states), *reported, self._each.who)))

    def sizeHint(self) -> QSize:
        return QSize(600, ROW)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit(self.key)
        elif key in (Qt.Key.Key_Down, Qt.Key.Key_Up):
            self.focusNextPrevChild(key == Qt.Key.Key_Down)
        else:
            super().keyPressEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.opened.emit(self.key)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._each is None:
            return
        painter = QPainter(self)
        scheme = theme.colors()
        name, *bars, rest = column_spans(self.width())
        painter.fillRect(0, ROW - 1, self.width(), 1, QColor(scheme.grid))
        painter.fillRect(0, 4, 4, ROW - 9, QColor(theme.device_color(self.key)))
        painter.setFont(theme.tabular(self.font()))
        self._draw_two(painter, name, (self._each.title, scheme.text), (self._each.gpu.name, scheme.muted))
        for span, column in zip(bars, COLUMNS, strict=True):
            self._draw_bar(painter, span, column, self._each)
        found = self._each.states
        alarming = any(state.alarming for state in found)
        lines = [
            (joined(found), scheme.warning if alarming else scheme.muted),
            (self._each.who, scheme.warning if self._each.shared else scheme.muted),
        ]
        reported = [line for line in lines if line[0]]
        self._draw_two(painter, rest, *reported)
        if self.hasFocus():
            painter.setPen(QPen(QColor(scheme.accent), 2))
            painter.drawRect(QRectF(1, 1, self.width() - 2, ROW - 3))

    def _draw_two(self, painter: QPainter, span: tuple[float, float], *lines: tuple[str, str]) -> None:
        """Draw one line of text in the middle, or two lines."""
        left, width = span
        metrics = QFontMetricsF(painter.font())
        height = metrics.height()
        top = (ROW - 1 - len(lines) * height) / 2
        for number, (text, color) in enumerate(lines):
            painter.setPen(QColor(color))
            elided = metrics.elidedText(text, Qt.TextElideMode.ElideRight, width)
            painter.drawText(QPointF(left, top + number * height + metrics.ascent()), elided)

    def _draw_bar(self, painter: QPainter, span: tuple[float, float], column: Column, each: WatchedGpu) -> None:
        left, width = span
        metrics = QFontMetricsF(painter.font())
        text = column.fitting(each.gpu, lambda text: metrics.horizontalAdvance(text) <= width)
        if not text:
            return
        scheme = theme.colors()
        self._draw_two(painter, span, (text, scheme.muted if each.faded else scheme.text), ("", scheme.text))
        filled = column.filled(each.gpu)
        if filled is not None:
            color = scheme.muted if each.faded else theme.device_color(self.key)
            top = ROW - _BAR - 9
            painter.fillRect(QRectF(left, top, width, _BAR), fills.blend(scheme.border, scheme.panel, 0.6))
            painter.fillRect(QRectF(left, top, width * min(1.0, max(0.0, filled)), _BAR), QColor(color))


class _Head(QWidget):
    """Titles of the columns."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(_HEAD)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(QColor(theme.colors().muted))
        titles = ("GPU", *(column.title for column in COLUMNS), tr("State"))
        for (left, width), title in zip(column_spans(self.width()), titles, strict=True):
            painter.drawText(QRectF(left, 0, width, _HEAD), Qt.AlignmentFlag.AlignVCenter, title)


class CompactView(QScrollArea):
    """List of the GPUs.

    Signals:
        opened(str): the user wants the detail of the GPU of this key.
    """

    opened = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.rows: dict[str, CompactRow] = {}
        self._inside = QWidget()
        self._list = vbox(_Head(), 1, spacing=0)
        self._inside.setLayout(self._list)
        self.setWidget(self._inside)

    def show_gpus(self, gpus: Sequence[WatchedGpu]) -> None:
        """Show `gpus` in this order."""
        keys = [each.key for each in gpus]
        if keys != list(self.rows):
            self._arrange(keys)
        for each in gpus:
            self.rows[each.key].show_gpu(each)

    def _arrange(self, keys: list[str]) -> None:
        for key in [key for key in self.rows if key not in keys]:
            self.rows.pop(key).deleteLater()
        for key in keys:
            if key not in self.rows:
                self.rows[key] = CompactRow(key)
                self.rows[key].opened.connect(self.opened)
        self.rows = {key: self.rows[key] for key in keys}
        for index, row in enumerate(self.rows.values()):
            self._list.insertWidget(1 + index, row)
        order_tabs(self._inside, list(self.rows.values()))
