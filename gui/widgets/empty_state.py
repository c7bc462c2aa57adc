"""What stands where there is nothing to show yet, and what to do about it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

_MARGIN = 16


def empty_state(text: str = "") -> QLabel:
    """A muted message in the middle of its room, which wraps at any width."""
    label = QLabel(text, wordWrap=True)
    label.setObjectName("muted")
    label.setAlignment(Qt.AlignmentFlag.AlignCenter)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setContentsMargins(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
    return label
