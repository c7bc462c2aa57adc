"""Search for clipped widgets that the user can't scroll into view."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QAbstractSpinBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QTabBar,
    QWidget,
)

from gui.widgets.editors import ComboBox
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import PageScroll
from tests.support.clipping import find_clipped_texts
from tests.support.stage import process_events_until

PADDING = 3
"""Number of pixels that the height of a control may lack without clipping its text."""


def find_clipped_widgets(page: QWidget) -> Iterator[str]:
    """Yield a message for each widget that is too small for its text, or clipped by a parent without scroll bars."""
    for widget in page.findChildren(QWidget):
        if not widget.isVisible() or isinstance(widget.parent(), QAbstractSpinBox | QComboBox | QTabBar):
            continue
        if isinstance(widget, QLabel | QAbstractButton | QComboBox | QLineEdit | QAbstractSpinBox):
            text = widget.currentText() if isinstance(widget, QComboBox) else widget.text()
            name = f"{type(widget).__name__} “{text or widget.accessibleName()}” in {type(widget.parent()).__name__}"
            if is_too_small(widget):
                yield f"{name} is only {widget.width()} x {widget.height()}"
            if is_out_of_reach(widget, page):
                yield f"{name} is not whole to be seen"


def is_too_small(widget: QLabel | QAbstractButton | QComboBox | QLineEdit | QAbstractSpinBox) -> bool:
    gives_way = isinstance(widget, ElidedLabel | QLineEdit | ComboBox)
    minimum = widget.sizeHint() if isinstance(widget, QComboBox) and not gives_way else widget.minimumSizeHint()
    if isinstance(widget, QLabel) and (widget.wordWrap() or not widget.text()):
        return widget.height() < widget.heightForWidth(widget.width())
    if isinstance(widget, QAbstractSpinBox):  # its minimum size is that of its largest number
        return widget.lineEdit().width() < widget.fontMetrics().horizontalAdvance(widget.text())
    return widget.height() < minimum.height() - PADDING or (widget.width() < minimum.width() and not gives_way)


def is_out_of_reach(widget: QWidget, page: QWidget) -> bool:
    """Return True if a parent clips `widget` and the user can't scroll the hidden part into view."""
    visible, holder = widget.geometry(), widget.parentWidget()
    while holder is not None:
        room, area = holder.rect(), holder.parentWidget()
        beyond = [
            visible.left() < 0 or visible.right() > room.right(),
            visible.top() < 0 or visible.bottom() > room.bottom(),
        ]
        if isinstance(area, QAbstractScrollArea) and area.viewport() is holder:
            if (beyond[0] and not area.horizontalScrollBar().maximum()) or (
                beyond[1] and not area.verticalScrollBar().maximum()
            ):
                return True
            visible &= room
            if visible.isEmpty():  # scrolled out of sight
                return False
        elif any(beyond):
            return True
        if holder is page:
            return False
        visible.translate(holder.pos())
        holder = area
    return False


def wait_for_layout(page: QWidget) -> list[str]:
    """Wait until no widget on `page` is clipped, since layouts may still change.

    Returns messages about widgets that are still clipped after ten seconds. A `PageScroll` is left out, because it may
    be narrower than its contents and then scrolls.
    """
    found: list[str] = []

    def none() -> bool:
        messages = (*find_clipped_widgets(page), *find_clipped_texts(page))
        found[:] = [each for each in messages if not each.startswith(PageScroll.__name__)]
        return not found

    QTest.qWait(1)
    with suppress(TimeoutError):
        process_events_until(none, 10.0)
    return found
