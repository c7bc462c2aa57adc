"""The row above a plot: its title, its unit, and what its lines say at the crosshair or now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QHBoxLayout, QLabel, QWidget

from gui.format import localised
from gui.plots.axes import elapsed
from gui.plots.group import PlotGroup
from gui.plots.line import Line
from gui.style import theme
from gui.widgets.rich_label import RichLabel, Span

_FIGURE_SPACE = "\u2007"
_NO_BREAK_SPACE = "\u00a0"
_SMALL = 420
"""Pixels at 100 per cent; over a wider plot the readout may take two rows."""
_WHOLE = 24
"""Longer labels, of so many letters, may be broken between words."""
_GAP = Span(f"{_NO_BREAK_SPACE}{_NO_BREAK_SPACE} ")


class Readout(QWidget):
    """Names the lines and reads their values; a number keeps the room that its longest form took."""

    def __init__(self, title: str, unit: str, scale: float, write: Callable[[float], str]) -> None:
        super().__init__()
        self._scale = scale
        self._write = write
        self._unit = unit
        self._longest: dict[str, int] = {}
        self._read: list[tuple[Line, float | None]] = []
        self._x = ""
        self._heading = QLabel(title)
        self._heading.setObjectName("heading")
        units = QLabel(unit)
        units.setObjectName("muted")
        self._values = RichLabel(wordWrap=True)
        self._values.setFont(theme.tabular(self._values.font()))
        self._values.setMinimumWidth(1)  # no name makes the page wider than the window
        self._values.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 10, 0)
        self._row.addWidget(self._heading)
        self._row.addWidget(units)
        self._row.addWidget(self._values, 1)

    @property
    def text(self) -> str:
        """The readout as rich text."""
        return self._values.text()

    def add_button(self, button: QAbstractButton) -> None:
        self._row.addWidget(button)

    def set_title(self, title: str) -> None:
        self._heading.setText(title)

    def show_values(self, lines: Iterable[Line], cursor: float | None, x: str) -> None:
        """Reads the lines at `cursor`, which is `x` in words, or their newest values where it is None."""
        self._read = [(line, line.latest if cursor is None else line.value_at(cursor)) for line in lines]
        self._x = x
        self._show()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show()

    def _show(self) -> None:
        """A small plot, over which the names would take several rows, has the values alone; its tool tip has the
        names.
        """
        spans = self._spans(named=True)
        font = QFont(self._values.font())
        font.setBold(True)
        needed = QFontMetrics(font).horizontalAdvance("".join(span.text for span in spans))
        whole = needed <= self._values.width() or self.width() > theme.scaled(_SMALL)
        self._values.show_spans(spans if whole else self._spans(named=False))
        self._values.setToolTip("" if whole else self._told(self._read))

    def _spans(self, *, named: bool) -> list[Span]:
        spans = [Span(self._x, bold=True)] if self._x else []
        for line, value in self._read:
            spans += [_GAP] if spans else []
            spans += self._entry(line, value, named)
        return spans

    def describe(self, lines: Iterable[Line], cursor: float | None, x: str) -> str:
        """The newest values in words, and those at the crosshair where there is one; "" where there are none."""
        lines = list(lines)
        latest = self._told((line, line.latest) for line in lines)
        if not latest:
            return ""
        at_cursor = "" if cursor is None else self._told((line, line.value_at(cursor)) for line in lines)
        return f"Latest: {latest}" + (f". At {x}: {at_cursor}" if at_cursor else "")

    def _told(self, values: Iterable[tuple[Line, float | None]]) -> str:
        return ", ".join(f"{line.style.label} {self.write(line, value)}" for line, value in values if value is not None)

    def write(self, line: Line, value: float | None) -> str:
        """A line's value in words; a dash where there is none."""
        if value is None:
            return "–"
        own = line.style.write
        return own(value) if own is not None else self._write(value * self._scale)

    def _entry(self, line: Line, value: float | None, named: bool) -> list[Span]:
        """The line's mark, its label if `named`, and its value, between which no line is broken."""
        written = self.write(line, value)
        label = line.style.label
        longest = self._longest[label] = max(self._longest.get(label, 0), len(written))
        mark = "╍" if line.style.markers or line.style.dashed else "━"
        if not named:
            bare = written.removesuffix(f" {self._unit}")
            return [Span(mark, color=line.style.color()), Span(_NO_BREAK_SPACE), Span(_unbroken(bare), bold=True)]
        return [
            Span(mark, color=line.style.color()),
            Span(_NO_BREAK_SPACE + (label if len(label) > _WHOLE else _unbroken(label)) + _NO_BREAK_SPACE),
            Span(_unbroken(written.rjust(longest, _FIGURE_SPACE)), bold=True),
        ]


def _unbroken(text: str) -> str:
    return text.replace(" ", _NO_BREAK_SPACE)


def x_words(group: PlotGroup, x: float) -> str:
    """A position on the horizontal axis, as the axis counts."""
    if group.axis == "count":
        return f"step {localised(x)}"
    if group.axis == "epochs":
        return f"epoch {localised(x, 2)}"
    if group.axis == "elapsed":
        return elapsed(x)
    moment, now = time.localtime(x + group.origin), time.localtime()
    another_day = (moment.tm_year, moment.tm_yday) != (now.tm_year, now.tm_yday)
    return time.strftime("%a %H:%M:%S" if another_day else "%H:%M:%S", moment)
