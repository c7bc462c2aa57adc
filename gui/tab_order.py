"""The order in which Tab goes through the window: as it is read, whatever was made when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget


def order_tabs(window: QWidget, parts: Sequence[QWidget]) -> None:
    """Makes Tab go through `parts` one after the other, each in its own order."""
    chain: list[QWidget] = []
    widget = window.nextInFocusChain()
    while widget is not None and widget is not window:
        # Qt would take a container for all that is in it.
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus and widget.focusProxy() is None:
            chain.append(widget)
        widget = widget.nextInFocusChain()
    ordered = [widget for part in parts for widget in chain if part is widget or part.isAncestorOf(widget)]
    for before, after in pairwise(ordered):
        QWidget.setTabOrder(before, after)
