"""Labels that several pages share."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget


def muted_label(text: str = "", *, word_wrap: bool = False) -> QLabel:
    """Return a label in the muted color."""
    label = QLabel(text, wordWrap=word_wrap)
    label.setObjectName("muted")
    return label


def labelled(text: str, control: QWidget, *after: QWidget, spacing: int = 6) -> QWidget:
    """Return a row with a muted label, which is the buddy of `control`, the control, and the widgets after it."""
    together = QWidget()
    row = QHBoxLayout(together)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(spacing)
    label = muted_label(text)
    label.setBuddy(control)
    for widget in (label, control, *after):
        row.addWidget(widget)
    return together
