"""Tab order of the window, which follows the layout instead of the order of creation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from weakref import WeakKeyDictionary

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget
from shiboken6 import isValid

_BY_TAB = (Qt.FocusPolicy.TabFocus, Qt.FocusPolicy.StrongFocus, Qt.FocusPolicy.WheelFocus)


def order_tabs(window: QWidget, areas: Sequence[QWidget]) -> None:
    """Set the tab order so that `areas` follow one another. The order within an area doesn't change."""
    order = {area: index for index, area in enumerate(areas)}
    placed = [
        (index, widget) for widget in _iterate_chain(window) if (index := _find_area_index(widget, order)) is not None
    ]
    ordered = [widget for _, widget in sorted(placed, key=itemgetter(0))]
    for before, after in pairwise(ordered):
        QWidget.setTabOrder(before, after)


def keep_tab_order(area: QWidget) -> None:
    """Order the widgets in `area` after the widgets that precede it. Qt puts widgets that are created later at the end."""
    window = area.window()
    before = next((each for each in _iterate_chain(window, area, forward=False) if not area.isAncestorOf(each)), None)
    # The lists of combo boxes are windows.
    inside = [child for child in area.findChildren(QWidget) if _can_take_tab(child) and child.window() is window]
    for first, second in pairwise((before, *inside) if before is not None else inside):
        QWidget.setTabOrder(first, second)


def move_focus(window: QWidget, areas: Sequence[QWidget], forward: bool) -> bool:
    """Move the focus through `areas` as Tab or Shift+Tab would. Return False if no widget can take it.

    Qt's own tab order is not used between areas, because it puts widgets that are created later at the end, and stops at
    a field whose editor is its focus proxy.
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
        target = _find_next(areas[current], _iterate_chain(window, focused, forward))
    else:
        target = None
    for area in candidates:
        target = target or (
            _find_next(area, _iterate_chain(window, window, forward)) if area.isVisibleTo(window) else None
        )
    if target is not None:
        target.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
        _scroll_into_view(target)
    return target is not None


class PaneFocus:
    """Keyboard focus that jumps between panes.

    The panes are `areas()`, and the widgets in the attribute `panes` of an area, or of a page in an area.
    """

    def __init__(self, window: QWidget, areas: Callable[[], Iterable[QWidget]]) -> None:
        self._window, self._areas = window, areas
        self._left: WeakKeyDictionary[QWidget, QWidget] = WeakKeyDictionary()  # last focused widget, by pane

    def move(self, forward: bool) -> None:
        """Focus the next or previous pane: the widget that had the focus there last, or the first one."""
        panes = [pane for area in self._areas() for pane in _iterate_panes(area)]
        focused = self._window.focusWidget()
        holders = [number for number, pane in enumerate(panes) if focused is not None and pane.isAncestorOf(focused)]
        if focused is None or not holders:
            current = -1 if forward else len(panes)
        else:
            current = holders[-1]  # an inner pane follows the pane around it
            self._left[panes[current]] = focused
        candidates = (
            panes[current + 1 :] + panes[: current + 1] if forward else panes[:current][::-1] + panes[current:][::-1]
        )
        for pane in candidates:
            inner = [each for each in panes if each is not pane and pane.isAncestorOf(each)]
            target = self._find_target(pane, inner)
            if target is not None:
                target.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
                _scroll_into_view(target)
                return

    def _find_target(self, pane: QWidget, inner: Sequence[QWidget]) -> QWidget | None:
        """Return the widget to focus in `pane` but not in its `inner` panes, or None if there is none."""
        last = self._left.get(pane)
        chain = [last] if last is not None and isValid(last) and _can_take_tab(last) else []
        outside = (
            each for each in (*chain, *_iterate_chain(self._window)) if not any(p.isAncestorOf(each) for p in inner)
        )
        return _find_next(pane, outside)


def _iterate_panes(area: QWidget) -> Iterator[QWidget]:
    """Yield an area, followed by the panes inside it."""
    yield area
    page = area.currentWidget() if isinstance(area, QStackedWidget) else area
    for pane in getattr(page, "panes", ()):
        yield from _iterate_panes(pane)


def _scroll_into_view(widget: QWidget) -> None:
    """Scroll `widget` into view. Qt does this only if the focus stays within a scroll area."""
    parent = widget.parentWidget()
    while parent is not None:
        if isinstance(parent, QScrollArea):
            parent.ensureWidgetVisible(widget)
        parent = parent.parentWidget()


def _find_next(area: QWidget, chain: Iterable[QWidget]) -> QWidget | None:
    """Return the first widget in `chain` that is in `area` and can take the focus, or None."""
    return next((each for each in chain if area.isAncestorOf(each) and each.isVisible() and each.isEnabled()), None)


def _iterate_chain(window: QWidget, after: QWidget | None = None, forward: bool = True) -> Iterator[QWidget]:
    """Yield the widgets that Tab reaches after the widget `after`, or that Shift+Tab does if `forward` is False.

    If `after` is None, all widgets of the window are yielded. Hidden widgets are included.
    """
    widget: QWidget | None = after or window
    while widget is not None:
        widget = widget.nextInFocusChain() if forward else widget.previousInFocusChain()
        if widget is None or widget is window:
            return
        if _can_take_tab(widget):
            yield widget


def _can_take_tab(widget: QWidget) -> bool:
    """Return True if Tab can reach the widget, and the widget doesn't pass the focus on to another one."""
    # `setTabOrder` would move the contents of a container with a focus proxy along with it.
    return widget.focusPolicy() in _BY_TAB and widget.focusProxy() is None


def _find_area_index(widget: QWidget | None, order: Mapping[QWidget, int]) -> int | None:
    """Return the index of the area that contains `widget`, or None if there is none."""
    while widget is not None and widget not in order:
        widget = widget.parentWidget()
    return None if widget is None else order[widget]
