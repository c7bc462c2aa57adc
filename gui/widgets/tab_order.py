"""Tab order of the window, which follows the layout instead of the order of creation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QWidget

_BY_TAB = (Qt.FocusPolicy.TabFocus, Qt.FocusPolicy.StrongFocus, Qt.FocusPolicy.WheelFocus)


def order_tabs(window: QWidget, areas: Sequence[QWidget]) -> None:
    """Set the tab order so that `areas` follow one another. The order within an area doesn't change."""
    order = {area: index for index, area in enumerate(areas)}
    placed = [(index, widget) for widget in _chain(window) if (index := _position(widget, order)) is not None]
    ordered = [widget for _, widget in sorted(placed, key=itemgetter(0))]
    for before, after in pairwise(ordered):
        QWidget.setTabOrder(before, after)


def keep_tab_order(area: QWidget) -> None:
    """Order the widgets in `area` after the widgets that precede it. Qt puts widgets that are created later at the end."""
    window = area.window()
    before = next((each for each in _chain(window, area, forward=False) if not area.isAncestorOf(each)), None)
    # The lists of combo boxes are windows.
    inside = [child for child in area.findChildren(QWidget) if _takes_tab(child) and child.window() is window]
    for first, second in pairwise((before, *inside) if before is not None else inside):
        QWidget.setTabOrder(first, second)


def move_focus(window: QWidget, areas: Sequence[QWidget], forward: bool) -> bool:
    """Move the focus through `areas` as Tab or Shift+Tab would. Return False without a target.

    Widgets that are created later have their correct position. In Qt's own chain, they would be last, and a field whose
    editor is its focus proxy would end the cycle.
    """
    focused = window.focusWidget()
    current = next(
        (index for index, area in enumerate(areas) if focused is not None and area.isAncestorOf(focused)), None
    )
    candidates = areas if forward else areas[::-1]
    if current is not None and focused is not None:
        # Try the rest of the current area, then the areas after it, and finally the current area from its start.
        position = current if forward else len(areas) - 1 - current
        candidates = [*candidates[position + 1 :], *candidates[: position + 1]]
        target = _next_in(areas[current], _chain(window, focused, forward))
    else:
        target = None
    for area in candidates:
        target = target or (_next_in(area, _chain(window, window, forward)) if area.isVisibleTo(window) else None)
    if target is not None:
        target.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
        _scroll_into_view(target)
    return target is not None


def _scroll_into_view(widget: QWidget) -> None:
    """Scroll `widget` into view. Qt does this only if the focus stays within a scroll area."""
    parent = widget.parentWidget()
    while parent is not None:
        if isinstance(parent, QScrollArea):
            parent.ensureWidgetVisible(widget)
        parent = parent.parentWidget()


def _next_in(area: QWidget, chain: Iterable[QWidget]) -> QWidget | None:
    """Return the first widget in `chain` that is in `area` and can take the focus, or None."""
    return next((each for each in chain if area.isAncestorOf(each) and each.isVisible() and each.isEnabled()), None)


def _chain(window: QWidget, after: QWidget | None = None, forward: bool = True) -> Iterator[QWidget]:
    """Yield the widgets that Tab reaches after the widget `after`, or that Shift+Tab does if `forward` is False.

    If `after` is None, all widgets of the window are yielded. Hidden widgets are included.
    """
    widget: QWidget | None = after or window
    while widget is not None:
        widget = widget.nextInFocusChain() if forward else widget.previousInFocusChain()
        if widget is None or widget is window:
            return
        if _takes_tab(widget):
            yield widget


def _takes_tab(widget: QWidget) -> bool:
    """Return True if Tab can reach the widget. Containers are excluded: Qt would move their contents along with them."""
    return widget.focusPolicy() in _BY_TAB and widget.focusProxy() is None


def _position(widget: QWidget | None, order: Mapping[QWidget, int]) -> int | None:
    """Return the index of the area that contains `widget`, or None if there is none."""
    while widget is not None and widget not in order:
        widget = widget.parentWidget()
    return None if widget is None else order[widget]
