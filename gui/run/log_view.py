"""A run's log, newest line at the bottom."""

from __future__ import annotations

from PySide6.QtGui import QColor, QFontDatabase, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPlainTextEdit, QToolButton, QVBoxLayout, QWidget

from gui.sources.run_data import Line, LineKind
from gui.style import theme

LONGEST = 20_000
"""Lines that are kept on screen; the files in the run's folder keep all."""

_AT_ONCE = 400
"""Lines added per update, so that the window stays responsive."""

_WORDS: dict[LineKind, str] = {"warning": "Warning: ", "error": "Error: "}


class LogView(QWidget):
    """A log that follows its end unless it has been scrolled up."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown = 0
        self._following = True
        heading = QLabel("&Log")
        heading.setObjectName("heading")
        self.text = QPlainTextEdit(readOnly=True)
        self.text.setObjectName("log")
        self.text.setAccessibleName("Log")
        self.text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.text.setMaximumBlockCount(LONGEST)
        self.text.setPlaceholderText("The run's log appears here.")
        self.text.setTabChangesFocus(True)
        self.text.setUndoRedoEnabled(False)
        heading.setBuddy(self.text)
        self._newest = QToolButton()
        self._newest.setText("Newest")
        self._newest.setToolTip("Scroll to the newest line and stay there")
        self._newest.setAccessibleName("Scroll to the newest line")
        self._newest.clicked.connect(self.scroll_to_newest)
        policy = self._newest.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self._newest.setSizePolicy(policy)
        self._newest.hide()
        top = QHBoxLayout()
        top.addWidget(heading)
        top.addStretch(1)
        top.addWidget(self._newest)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(top)
        layout.addWidget(self.text, 1)
        bar = self.text.verticalScrollBar()
        bar.valueChanged.connect(self._scrolled)
        bar.rangeChanged.connect(self._grown)

    def clear(self) -> None:
        self._shown = 0
        self._following = True
        self.text.clear()

    def show_lines(self, lines: list[Line]) -> bool:
        """Adds those of `lines` that are not shown yet; True where some are left for the next call."""
        self._shown = max(self._shown, len(lines) - LONGEST)
        fresh = lines[self._shown : self._shown + _AT_ONCE]
        if not fresh:
            return False
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.beginEditBlock()
        for line in fresh:
            if not self.text.document().isEmpty():
                cursor.insertBlock()
            cursor.insertText(_as_text(line), _format(line.kind))
        cursor.endEditBlock()
        self._shown += len(fresh)
        return self._shown < len(lines)

    def scroll_to_newest(self) -> None:
        bar = self.text.verticalScrollBar()
        bar.setValue(bar.maximum())

    def recolor(self, lines: list[Line]) -> None:
        """Writes everything anew in the colours of the present scheme."""
        self.clear()
        self.show_lines(lines)

    def _scrolled(self, value: int) -> None:
        self._following = value >= self.text.verticalScrollBar().maximum()
        self._newest.setVisible(not self._following)

    def _grown(self, _least: int, most: int) -> None:
        if self._following:
            self.text.verticalScrollBar().setValue(most)


def _as_text(line: Line) -> str:
    whole = max(0, int(line.seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}  {_WORDS.get(line.kind, '')}{line.text}"


def _format(kind: LineKind) -> QTextCharFormat:
    scheme = theme.colors()
    color = {"warning": scheme.warning, "error": scheme.error, "debug": scheme.muted}.get(kind, scheme.text)
    result = QTextCharFormat()
    result.setForeground(QColor(color))
    return result
