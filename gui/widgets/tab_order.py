"""The order in which Tab goes through the window: as it is read, whatever was made when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QWidget

_BY_TAB = (Qt.FocusPolicy.TabFocus, Qt.FocusPolicy.StrongFocus, Qt.FocusPolicy.WheelFocus)


def order_tabs(window: QWidget, parts: Sequence[QWidget]) -> None:
    """Makes Tab go through `parts` one after the other, each in its own order."""
    order = {part: index for index, part in enumerate(parts)}
    placed = [(index, widget) for widget in _chain(window) if (index := _position(widget, order)) is not None]
    ordered = [widget for _, widget in sorted(placed, key=itemgetter(0))]
    for before, after in pairwise(ordered):
        QWidget.setTabOrder(before, after)


def tab(window: QWidget, parts: Sequence[QWidget], forward: bool) -> bool:
    """Moves the keyboard as Tab does, or Shift+Tab, through `parts` one after the other; False where there is nowhere
    to go.

    What is made later has its place at once. Qt's own chain would have it after all else, and where that is a field
    whose editor is its focus proxy, Tab would never come back to the beginning of the window.
    """
    here = window.focusWidget()
    own = next((index for index, part in enumerate(parts) if here is not None and part.isAncestorOf(here)), None)
    around = parts if forward else parts[::-1]
    if own is not None and here is not None:
        at = own if forward else len(parts) - 1 - own
        around = [*around[at + 1 :], *around[: at + 1]]
        there = _next_in(parts[own], _chain(window, here, forward))
    else:
        there = None
    for part in around:
        there = there or (_next_in(part, _chain(window, window, forward)) if part.isVisibleTo(window) else None)
    if there is not None:
        there.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
        _bring_into_sight(there)
    return there is not None


def _bring_into_sight(widget: QWidget) -> None:
    """Qt scrolls only where the keyboard stays in the area that it was in."""
    parent = widget.parentWidget()
    while parent is not None:
        if isinstance(parent, QScrollArea):
            parent.ensureWidgetVisible(widget)
        parent = parent.parentWidget()


def _next_in(part: QWidget, chain: Iterable[QWidget]) -> QWidget | None:
    return next((each for each in chain if part.isAncestorOf(each) and each.isVisible() and each.isEnabled()), None)


def _chain(window: QWidget, after: QWidget | None = None, forward: bool = True) -> Iterator[QWidget]:
    """All that takes the keyboard by itself behind `after`, or before it, up to the end of Qt's chain; shown or not."""
    widget: QWidget | None = after or window
    while widget is not None:
        widget = widget.nextInFocusChain() if forward else widget.previousInFocusChain()
        if widget is None or widget is window:
            return
        # Qt would take a container for all that is in it.
        if widget.focusPolicy() in _BY_TAB and widget.focusProxy() is None:
            yield widget


def _position(widget: QWidget | None, order: Mapping[QWidget, int]) -> int | None:
    """The index of the part that `widget` is or is in."""
    while widget is not None and widget not in order:
        widget = widget.parentWidget()
    return None if widget is None else order[widget]
