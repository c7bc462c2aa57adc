"""Title row of a plot: its title, its unit, and the values of its lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QWidget

from gui.format import localized
from gui.plots.axes import format_elapsed
from gui.plots.group import PlotGroup
from gui.plots.line import Line
from gui.style import theme
from gui.translation import tr
from gui.widgets.labels import RichLabel, Span, heading_label, muted_label
from gui.widgets.layouts import hbox

_FIGURE_SPACE = "\u2007"
_NO_BREAK_SPACE = "\u00a0"
_UNLIMITED_FROM = 420
"""Minimum width of a plot, in pixels at a text size of 100%, for a readout with any number of rows."""
_MAX_ROWS = 1.8
"""Maximum number of rows of a readout with names in a smaller plot."""
_BREAK_FROM = 24
"""Minimum length of a label in characters for wrapping it between words."""
_GAP = Span(f"{_NO_BREAK_SPACE}{_NO_BREAK_SPACE} ")


class Readout(QWidget):
    """Title row of a plot, with the names and values of its lines.

    The space for a value never shrinks, so that a change of one value doesn't move the others.
    """

    def __init__(self, title: str, unit: str, scale: float, write: Callable[[float], str], meaning: str = "") -> None:
        """Create a readout.

        Args:
            title: Title of the plot.
            unit: Unit of the plot.
            scale: Factor that converts values to `unit`.
            write: Formats a value in `unit`.
            meaning: Tool tip of the title.
        """
        super().__init__()
        self._scale = scale
        self._write = write
        self._unit = unit
        self._max_lengths: dict[str, int] = {}  # most characters of each line's value, so that texts don't jump
        self._line_values: list[tuple[Line, float | None]] = []  # value of each line at the cursor, or the latest
        self._position_text = ""  # text for the cursor's position
        self._heading = heading_label(title)
        self._heading.setToolTip(meaning)
        units = muted_label(unit)
        self._values = RichLabel()
        self._values.setFont(theme.with_tabular_digits(self._values.font()))
        self._values.setMinimumWidth(1)  # long names must not make the page wider than the window
        self._values.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._row = hbox(self._heading, units, (self._values, 1), spacing=6, margins=(0, 0, 10, 0))
        self.setLayout(self._row)

    @property
    def text(self) -> str:
        """Names and values of the lines, as rich text."""
        return self._values.text()

    def add_button(self, button: QAbstractButton) -> None:
        self._row.addWidget(button)

    def set_title(self, title: str) -> None:
        self._heading.setText(title)

    def show_values(self, lines: Iterable[Line], cursor: float | None, position_text: str) -> None:
        """Show `position_text` and the values of `lines` at the x position `cursor`.

        If `cursor` is None, show the newest values.
        """
        self._line_values = [(line, line.latest if cursor is None else line.value_at(cursor)) for line in lines]
        self._position_text = position_text
        self._update_text()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._update_text()

    def _update_text(self) -> None:
        """Show the names and values of the lines. If they don't fit into one row, leave out the unit of each value.

        If they need too many rows in a small plot, leave out the names, which the tool tip then has.
        """
        spans = self._make_spans()
        if self._width_of(spans) > self._values.width():
            spans = self._make_spans(with_unit=False)
        is_large = self.width() > theme.scale_pixels(_UNLIMITED_FROM)
        has_names = is_large or self._width_of(spans) <= _MAX_ROWS * self._values.width()
        self._values.show_spans(spans if has_names else self._make_spans(with_unit=False, with_names=False))
        self._values.setToolTip("" if has_names else self._join_values(self._line_values))

    def _width_of(self, spans: Iterable[Span]) -> int:
        font = QFont(self._values.font())
        font.setBold(True)
        return QFontMetrics(font).horizontalAdvance("".join(span.text for span in spans))

    def _make_spans(self, *, with_unit: bool = True, with_names: bool = True) -> list[Span]:
        """Return the text of the readout: the position of the crosshair, if there is one, and the value of each line.

        The unit and the names of the lines are only included if `with_unit` and `with_names` are True.
        """
        spans = [Span(self._position_text, bold=True)] if self._position_text else []
        for line, value in self._line_values:
            spans += [_GAP] if spans else []
            spans += self._make_value_spans(line, value, with_unit, with_names)
        return spans

    def describe(self, lines: Sequence[Line], cursor: float | None, position_text: str) -> str:
        """Describe the newest values of `lines`, and their values at the x position `cursor` of the crosshair.

        `position_text` is the text for this position. Returns "" if there are no values.
        """
        latest = self._join_values((line, line.latest) for line in lines)
        if not latest:
            return ""
        at_cursor = "" if cursor is None else self._join_values((line, line.value_at(cursor)) for line in lines)
        text = tr("Latest: {latest}. At {position}: {values}") if at_cursor else tr("Latest: {latest}")
        return text.format(latest=latest, position=position_text, values=at_cursor)

    def _join_values(self, values: Iterable[tuple[Line, float | None]]) -> str:
        """Join the names and values of lines as plain text. Lines without a value are left out."""
        return ", ".join(f"{line.style.label} {self.write(line, value)}" for line, value in values if value is not None)

    def write(self, line: Line, value: float | None) -> str:
        """Format a line's value, or return a dash for None."""
        if value is None:
            return "–"
        write = line.style.write
        return write(value) if write is not None else self._write(value * self._scale)

    def _make_value_spans(self, line: Line, value: float | None, with_unit: bool, with_name: bool) -> list[Span]:
        """Return the spans of a line: its symbol, name and value, which stay together when the text wraps.

        The unit and the name are only included if `with_unit` and `with_name` are True. A value with a name is padded
        to the length of the line's longest value so far. Updates this length in `_max_lengths`.
        """
        text = self.write(line, value)
        label = line.style.label
        padded_length = self._max_lengths[label] = max(self._max_lengths.get(label, 0), len(text))
        if self._unit and not with_unit:
            number = text.removesuffix(self._unit).rstrip()
            padded_length -= len(text) - len(number)
            text = number
        symbol = Span("╍" if line.style.markers or line.style.dashed else "━", color=line.style.color())
        if not with_name:
            return [symbol, Span(_NO_BREAK_SPACE), Span(_unbroken(text), bold=True)]
        name = label if len(label) > _BREAK_FROM else _unbroken(label)
        return [
            symbol,
            Span(_NO_BREAK_SPACE + name + _NO_BREAK_SPACE),
            Span(_unbroken(text.rjust(padded_length, _FIGURE_SPACE)), bold=True),
        ]


def _unbroken(text: str) -> str:
    """Return `text` with spaces at which lines don't break."""
    return text.replace(" ", _NO_BREAK_SPACE)


def format_position(group: PlotGroup, x: float) -> str:
    """Format a position on the horizontal axis: a step, an epoch, the elapsed time, or the time of day."""
    if group.axis == "count":
        return tr("step {step}").format(step=localized(x))
    if group.axis == "epochs":
        return tr("epoch {epoch}").format(epoch=localized(x, 2))
    if group.axis == "elapsed":
        return format_elapsed(x)
    moment, now = time.localtime(x + group.origin), time.localtime()
    another_day = (moment.tm_year, moment.tm_yday) != (now.tm_year, now.tm_yday)
    return time.strftime("%a %H:%M:%S" if another_day else "%H:%M:%S", moment)
