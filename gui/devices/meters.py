"""Meters of the device cards: a bar for memory, a small graph per quantity."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from gui.devices.sparkline import Sparkline
from gui.format import size_of
from gui.sources.columns import Floats
from gui.style import theme
from gui.translation import tr
from gui.widgets.labels import muted_label
from gui.widgets.layouts import hbox

CARD_SPAN_S = 120.0
"""Seconds shown by a card's small graphs; the Monitor page shows more."""


class _Bar(QWidget):
    """Bar that is filled to a fraction."""

    def __init__(self, color: Callable[[], str]) -> None:
        super().__init__()
        self._color = color
        self._share = 0.0
        self.setFixedHeight(8)

    def set_share(self, share: float | None) -> None:
        """Set the fraction from 0 to 1, None if unknown."""
        self._share = min(1.0, max(0.0, share or 0.0))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        scheme = theme.colors()
        painter.fillRect(self.rect(), QColor(scheme.border))
        color = self._color() if self.isEnabled() else scheme.muted
        painter.fillRect(0, 0, round(self.width() * self._share), self.height(), QColor(color))


class MemoryBar(QWidget):
    """Bar and numbers of a device's memory usage."""

    def __init__(self, color: Callable[[], str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bar = _Bar(color)
        self._text = QLabel()
        self._text.setFont(theme.tabular(self._text.font()))
        self.setLayout(hbox((self._bar, 1), self._text))

    def set_memory(self, used_bytes: int | None, total_bytes: int | None) -> None:
        """Show the memory usage, None for unknown values."""
        self._bar.set_share(used_bytes / total_bytes if used_bytes is not None and total_bytes else None)
        text = size_of(used_bytes, total_bytes)
        self._text.setText(text)
        self._text.setAccessibleName(tr("Memory in use: {text}").format(text=text))


class MiniGraph(QWidget):
    """Caption, latest value and small graph of one quantity."""

    def __init__(self, caption: str, color: Callable[[], str], help_text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._caption = muted_label(caption)
        self.value = QLabel()
        self.value.setFont(theme.tabular(self.value.font()))
        self.value.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.graph = Sparkline(CARD_SPAN_S, color)
        self.setToolTip(f"{help_text} The last {CARD_SPAN_S / 60:.0f} minutes.")
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(4)
        grid.setVerticalSpacing(2)
        grid.addWidget(self._caption, 0, 0)
        grid.addWidget(self.value, 0, 1)
        grid.addWidget(self.graph, 1, 0, 1, 2)
        grid.setColumnStretch(1, 1)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.EnabledChange:
            theme.set_kind(self.value, "" if self.isEnabled() else "muted")

    def show_data(self, device: str, text: str, times: Floats, values: Floats, highest: float | None) -> None:
        """Show the latest value as `text` and the graph up to `highest`, None to follow the data."""
        self.value.setText(text)
        self.graph.set_highest(highest)
        self.graph.set_data(times, values)
        self.graph.set_words(f"{device} {self._caption.text().lower()}", text.strip())
