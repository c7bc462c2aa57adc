"""Labels that several pages share."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel, QWidget

from gui.widgets.layouts import hbox


def muted_label(text: str = "", *, word_wrap: bool = False) -> QLabel:
    """Return a label in the muted color."""
    label = QLabel(text, wordWrap=word_wrap)
    label.setObjectName("muted")
    return label


def caption(text: str = "", style: str = "muted") -> QLabel:
    """Return a label that wraps, with an object name that the style sheet knows."""
    label = QLabel(text, wordWrap=True)
    label.setObjectName(style)
    return label


def field_label(text: str, field: QWidget) -> QLabel:
    """Return a muted label whose mnemonic leads to `field`."""
    label = muted_label(text)
    label.setBuddy(field)
    return label


def labelled(text: str, control: QWidget, *after: QWidget, spacing: int = 6) -> QWidget:
    """Return a row with a muted label, which is the buddy of `control`, the control, and the widgets after it."""
    together = QWidget()
    together.setLayout(hbox(field_label(text, control), control, *after, spacing=spacing))
    return together
