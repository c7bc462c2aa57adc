"""Placeholder for empty views."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QScrollArea

from gui.widgets.labels import muted_label

_MARGIN = 16


class EmptyState(QScrollArea):
    """Muted message in the middle of its room, which wraps, and scrolls if it is too high."""

    def __init__(self, text: str = "") -> None:
        super().__init__(widgetResizable=True)
        self._label = muted_label(text, word_wrap=True)
        self._label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setContentsMargins(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
        self.setObjectName("panel")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWidget(self._label)

    def text(self) -> str:
        return self._label.text()

    def setText(self, text: str) -> None:
        self._label.setText(text)
