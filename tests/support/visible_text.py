"""Text of the labels that a user sees."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel, QWidget


def visible_text(widget: QWidget) -> str:
    """Return the texts of the visible labels in `widget`, one per line."""
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisible())
