"""Tab order of the window: the reading order, whatever was created when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QWidget

_BY_TAB = (Qt.FocusPolicy.TabFocus, Qt.FocusPolicy.StrongFocus, Qt.FocusPolicy.WheelFocus)


def order_tabs(window: QWidget, parts: Sequence[QWidget]) -> None:
    """Let Tab go through `parts` one after the other, each in its own order."""
    order = {part: index for index, part in enumerate(parts)}
    placed = [(index, widget) for widget in _chain(window) if (index := _position(widget, order)) is not None]
    ordered = [widget for _, widget in sorted(placed, key=itemgetter(0))]
    for before, after in pairwise(ordered):
        QWidget.setTabOrder(before, after)


def tab(window: QWidget, parts: Sequence[QWidget], forward: bool) -> bool:
    """Move the focus as Tab or Shift+Tab would, through `parts`; return False without a target.

    Widgets created later have their position at once. Qt's own chain would put them last, and a field whose editor is its
    focus proxy would end the cycle there.
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
    """Scroll `widget` into view; Qt does so only if the focus stays within a scroll area."""
    parent = widget.parentWidget()
    while parent is not None:
        if isinstance(parent, QScrollArea):
            parent.ensureWidgetVisible(widget)
        parent = parent.parentWidget()


def _next_in(part: QWidget, chain: Iterable[QWidget]) -> QWidget | None:
    return next((each for each in chain if part.isAncestorOf(each) and each.isVisible() and each.isEnabled()), None)


def _chain(window: QWidget, after: QWidget | None = None, forward: bool = True) -> Iterator[QWidget]:
    """Yield the widgets that take the focus by Tab behind `after`, or before it, hidden ones included."""
    widget: QWidget | None = after or window
    while widget is not None:
        widget = widget.nextInFocusChain() if forward else widget.previousInFocusChain()
        if widget is None or widget is window:
            return
        # Qt would take a container for all that is in it.
        if widget.focusPolicy() in _BY_TAB and widget.focusProxy() is None:
            yield widget


def _position(widget: QWidget | None, order: Mapping[QWidget, int]) -> int | None:
    """Return the index of the part that contains `widget`, None without one."""
    while widget is not None and widget not in order:
        widget = widget.parentWidget()
    return None if widget is None else order[widget]
