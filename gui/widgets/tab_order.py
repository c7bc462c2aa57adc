"""The order in which Tab goes through the window: as it is read, whatever was made when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

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
    order = {part: index for index, part in enumerate(parts)}
    placed = [(index, widget) for widget in chain if (index := _position(widget, order)) is not None]
    ordered = [widget for _, widget in sorted(placed, key=itemgetter(0))]
    for before, after in pairwise(ordered):
        QWidget.setTabOrder(before, after)


def _position(widget: QWidget | None, order: Mapping[QWidget, int]) -> int | None:
    """The index of the part that `widget` is or is in."""
    while widget is not None and widget not in order:
        widget = widget.parentWidget()
    return None if widget is None else order[widget]
