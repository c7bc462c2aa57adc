"""Log of a run, with the newest line at the bottom."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QColor, QKeyEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from gui.sources.run_data import Line, LineKind
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import reserve_space, styled, tool_button
from gui.widgets.labels import heading_label
from gui.widgets.layouts import hbox, vbox

MAX_LINES = 20_000
"""Maximum number of visible lines. The log file contains all."""

_BATCH = 400
"""Maximum number of lines per update, so that the window stays responsive."""

_PREFIXES: dict[LineKind, str] = {"warning": tr("Warning: "), "error": tr("Error: ")}


class LogView(QWidget):
    """Log, with a button that scrolls to the newest line if the user has scrolled up."""

    def __init__(self) -> None:
        super().__init__()
        self._line_count = 0  # lines that have been added, or skipped as too old
        heading = heading_label(tr("&Log"))
        self.text = styled(_LogText(), "code", name=tr("Log"))
        self.text.setMaximumBlockCount(MAX_LINES)
        self.text.setPlaceholderText(tr("The run's log appears here."))
        self.text.setTabChangesFocus(True)
        self.text.setUndoRedoEnabled(False)
        heading.setBuddy(self.text)
        name, tip = tr("Scroll to the newest line"), tr("Scroll to the newest line and stay there")
        self._newest = tool_button(self.text.scroll_to_end, text=tr("Newest"), name=name, tip=tip)
        reserve_space(self._newest)
        self._newest.hide()
        self.setLayout(vbox(hbox(heading, 1, self._newest), (self.text, 1), spacing=4))
        self.text.following_changed.connect(self._newest.setHidden)

    def clear(self) -> None:
        self._line_count = 0
        self.text.clear()
        self.text.scroll_to_end()

    def show_lines(self, lines: list[Line]) -> bool:
        """Append the lines that aren't in the view, at most one batch per call.

        `lines` contains all lines of the log. If the log is too long, its oldest lines aren't shown. Returns True if
        some lines remain for the next call.
        """
        self._line_count = max(self._line_count, len(lines) - MAX_LINES)  # skip lines that would be removed at once
        batch = lines[self._line_count : self._line_count + _BATCH]
        if not batch:
            return False
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.beginEditBlock()
        for line in batch:
            if not self.text.document().isEmpty():
                cursor.insertBlock()
            cursor.insertText(_format_line(line), _char_format(line.kind))
        cursor.endEditBlock()
        self._line_count += len(batch)
        return self._line_count < len(lines)

    def recolor(self, lines: list[Line]) -> bool:
        """Write all lines again in the current colors. Return True if some remain for `show_lines`."""
        self.clear()
        return self.show_lines(lines)


class _LogText(QPlainTextEdit):
    """Text that stays scrolled to its end when it changes, unless the user has scrolled up.

    Signals:
        following_changed(bool): whether the text stays at its end. It may be emitted without a change.
    """

    following_changed = Signal(bool)

    def __init__(self) -> None:
        super().__init__(readOnly=True)
        self._is_following = True
        bar = self.verticalScrollBar()
        bar.actionTriggered.connect(self._update_following)
        # When lines wrap differently, Qt keeps the topmost line in place instead of the last one.
        bar.valueChanged.connect(self._follow)
        bar.rangeChanged.connect(self._follow)

    def scroll_to_end(self) -> None:
        """Scroll to the end and stay there."""
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())
        self._update_following()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        self._is_following = False  # since some keys scroll without an action of the scroll bar
        super().keyPressEvent(event)
        self._update_following()

    def _update_following(self) -> None:
        """Follow the end if the text is scrolled there."""
        bar = self.verticalScrollBar()
        self._is_following = bar.sliderPosition() >= bar.maximum()
        self.following_changed.emit(self._is_following)

    def _follow(self) -> None:
        if self._is_following:
            self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())


def _format_line(line: Line) -> str:
    """Format a line, as in "0:12:03  Warning: …". The time is relative to the start of the run."""
    seconds = max(0, int(line.seconds))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}  {_PREFIXES.get(line.kind, '')}{line.text}"


def _char_format(kind: LineKind) -> QTextCharFormat:
    """Return the text format in the color for a kind of line."""
    scheme = theme.colors()
    color = {"warning": scheme.warning, "error": scheme.error, "debug": scheme.muted}.get(kind, scheme.text)
    result = QTextCharFormat()
    result.setForeground(QColor(color))
    return result
