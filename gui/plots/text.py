"""Cached texts that are drawn in every frame."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import Qt
from PySide6.QtGui import QStaticText


@lru_cache(maxsize=1024)
def laid_out(text: str) -> QStaticText:
    """Return `text` laid out once, since that is most of the cost of drawing it."""
    static_text = QStaticText(text)
    static_text.setTextFormat(Qt.TextFormat.PlainText)
    return static_text
