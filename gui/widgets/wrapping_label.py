"""Label that wraps at any width, within long names too."""

from __future__ import annotations

import re

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QContextMenuEvent, QGuiApplication, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QLabel, QMenu, QSizePolicy

_BREAK = "\u200b"
_LONGEST = 20
"""Characters of a word, or of a piece between separators, that stay on one line."""


class WrappingLabel(QLabel):
    """Plain text that wraps; QLabel clips words that are longer than a line, such as names of files.

    Long words get invisible breaks, which are not copied.
    """

    def __init__(self, text: str = "", name: str = "") -> None:
        """Create a label; the style sheet uses its object name `name`."""
        super().__init__(wordWrap=True)
        self._text = ""
        self.setObjectName(name)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.setText(text)

    def setText(self, text: str) -> None:
        self._text = text
        broken = breakable(text)
        super().setText(broken)
        self.setAccessibleName(text if broken != text else "")

    def text(self) -> str:
        return self._text

    def selectedText(self) -> str:
        return super().selectedText().replace(_BREAK, "")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy) and self.hasSelectedText():
            self._copy()
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if not self.hasSelectedText():
            event.ignore()
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = QAction("&Copy", menu)
        copy.triggered.connect(self._copy)
        menu.addAction(copy)
        menu.popup(event.globalPos())

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.selectedText())


def breakable(text: str) -> str:
    """Return `text` with breaks in long words: behind separators, and anywhere in pieces without them."""
    return re.sub(rf"\S{{{_LONGEST + 1},}}", lambda found: _broken(found[0]), text)


def _broken(word: str) -> str:
    pieces = re.findall(r"[^/\\_.,;-]*[/\\_.,;-]|[^/\\_.,;-]+", word)
    return _BREAK.join(piece if len(piece) <= _LONGEST else _BREAK.join(piece) for piece in pieces)
