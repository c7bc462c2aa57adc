"""Tab order of the window, which follows the layout instead of the order of creation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from weakref import WeakKeyDictionary

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget
from shiboken6 import isValid

_BY_TAB = (Qt.FocusPolicy.TabFocus, Qt.FocusPolicy.StrongFocus, Qt.FocusPolicy.WheelFocus)


def order_tabs(window: QWidget, areas: Sequence[QWidget]) -> None:
    """Set the tab order so that `areas` follow one another. The order within an area doesn't change."""
    area_indices = {area: index for index, area in enumerate(areas)}
    widgets_by_area: list[list[QWidget]] = [[] for _ in areas]
    for widget in _iterate_chain(window):
        index = _find_area_index(widget, area_indices)
        if index is not None:
            widgets_by_area[index].append(widget)
    for before, after in pairwise(chain.from_iterable(widgets_by_area)):
        QWidget.setTabOrder(before, after)


def keep_tab_order(area: QWidget) -> None:
    """Order the widgets in `area` after the widgets that precede it. Qt puts widgets that are created later at the end."""
    window = area.window()
    previous_widgets = _iterate_chain(window, area, forward=False)
    before = next((widget for widget in previous_widgets if not area.isAncestorOf(widget)), None)
    # The lists of combo boxes are windows.
    inside = [child for child in area.findChildren(QWidget) if _can_take_tab(child) and child.window() is window]
    for first, second in pairwise([before, *inside] if before is not None else inside):
        QWidget.setTabOrder(first, second)


def move_focus(window: QWidget, areas: Sequence[QWidget], forward: bool) -> bool:
    """Move the focus through `areas` as Tab or Shift+Tab would. Return False if no widget can take it.

    Qt's own tab order is not used between areas, because it puts widgets that are created later at the end, and stops at
    a field whose editor is its focus proxy.
    """
    focused = window.focusWidget()
    ordered_areas = list(areas if forward else reversed(areas))
    target = None
    for position, area in enumerate(ordered_areas):
        if focused is not None and area.isAncestorOf(focused):
            # Try the rest of the current area, then the areas after it, and finally the current area from its start.
            target = _find_next(area, _iterate_chain(window, focused, forward))
            ordered_areas = [*ordered_areas[position + 1 :], *ordered_areas[: position + 1]]
            break
    for area in ordered_areas:
        if target is None and area.isVisibleTo(window):
            target = _find_next(area, _iterate_chain(window, window, forward))
    if target is not None:
        target.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
        _scroll_into_view(target)
    return target is not None


class PaneFocus:
    """Keyboard focus that jumps between the panes of a window.

    A pane is each widget that `areas` returns. If such a widget, or its current page if it is a stack, has an attribute
    `panes`, the widgets in it are panes too.
    """

    def __init__(self, window: QWidget, areas: Callable[[], Iterable[QWidget]]) -> None:
        self._window, self._areas = window, areas
        self._last_focused: WeakKeyDictionary[QWidget, QWidget] = WeakKeyDictionary()  # by pane

    def move(self, forward: bool) -> None:
        """Focus the next or previous pane: the widget that had the focus there last, or the first one."""
        panes = [pane for area in self._areas() for pane in _iterate_panes(area)]
        focused = self._window.focusWidget()
        current = -1 if forward else len(panes)  # index of the current pane, or the position before the first to try
        for index, pane in enumerate(panes):
            if focused is not None and pane.isAncestorOf(focused):
                current = index  # the last one, because an inner pane follows the pane around it
        if focused is not None and 0 <= current < len(panes):
            self._last_focused[panes[current]] = focused
        if forward:
            candidates = panes[current + 1 :] + panes[: current + 1]
        else:
            candidates = panes[:current][::-1] + panes[current:][::-1]
        for pane in candidates:
            inner = [other for other in panes if other is not pane and pane.isAncestorOf(other)]
            target = self._find_target(pane, inner)
            if target is not None:
                target.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
                _scroll_into_view(target)
                return

    def _find_target(self, pane: QWidget, inner: Sequence[QWidget]) -> QWidget | None:
        """Return the widget of `pane` that had the focus last or, if it can't take the focus, the pane's first widget.

        Widgets in its `inner` panes don't count. Returns None if no widget can take the focus.
        """
        widgets = list(_iterate_chain(self._window))
        last = self._last_focused.get(pane)
        if last is not None and isValid(last) and _can_take_tab(last):
            widgets.insert(0, last)
        outside_inner = (widget for widget in widgets if not any(other.isAncestorOf(widget) for other in inner))
        return _find_next(pane, outside_inner)


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


def _find_next(area: QWidget, widgets: Iterable[QWidget]) -> QWidget | None:
    """Return the first of `widgets` that is in `area`, visible and enabled, or None."""
    for widget in widgets:
        if area.isAncestorOf(widget) and widget.isVisible() and widget.isEnabled():
            return widget
    return None


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


def _find_area_index(widget: QWidget, area_indices: Mapping[QWidget, int]) -> int | None:
    """Return the index of the innermost area that contains `widget` or is it, or None if there is none."""
    ancestor: QWidget | None = widget
    while ancestor is not None and ancestor not in area_indices:
        ancestor = ancestor.parentWidget()
    return None if ancestor is None else area_indices[ancestor]
