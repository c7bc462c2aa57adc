"""Helpers for tests of widgets: fixture types, and functions that find texts and buttons."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from PySide6.QtCore import QAbstractItemModel, QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QContextMenuEvent, QHelpEvent, QWheelEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QWidget

from gui.main_window import MainWindow

W = TypeVar("W", bound=QWidget)

OpenWindow = Callable[[], MainWindow]
"""Type of the fixture `open_window`."""


class ShowWidget(Protocol):
    """Type of the fixture `show_widget`: function that shows a widget until the end of the test, and returns it.

    Without `width` and `height`, the widget has its preferred size. `close` is called with the widget before the widget
    is closed, to end its background work.
    """

    def __call__(
        self, widget: W, width: int = 0, height: int = 0, *, close: Callable[[W], object] | None = None
    ) -> W: ...


class HoldCalls(Protocol):
    """Type of the fixture `hold_calls`: function that replaces the function `name` of a module or class by a slow one.

    Calls whose arguments fulfill `condition` wait until the returned event is set. They then raise `error`, if there is
    one. All other calls are passed on.
    """

    def __call__(
        self, owner: object, name: str, condition: Callable[..., bool] = ..., error: Exception | None = None
    ) -> threading.Event: ...


@contextmanager
def suspend_style_sheet(app: QApplication) -> Iterator[None]:
    """Remove the application's style sheet while the block builds widgets, and restore it afterwards.

    Footplate builds its window in the same way. Otherwise, Qt would style each part of a window whenever its parent
    changes, and building the window would take three times as long.
    """
    sheet = app.styleSheet()
    app.setStyleSheet("")
    try:
        yield
    finally:
        app.setStyleSheet(sheet)


def join_visible_texts(widget: QWidget) -> str:
    """Return the texts of the visible labels in `widget`, one per line."""
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisible())


def find_button(widget: QWidget, name: str) -> QAbstractButton:
    """Return the first visible button whose accessible name or text starts with `name`."""
    buttons = (each for each in widget.findChildren(QAbstractButton) if each.isVisible())
    return next(each for each in buttons if (each.accessibleName() or each.text().replace("&", "")).startswith(name))


def request_context_menu(widget: QWidget) -> bool:
    """Send a request for a context menu to a widget, and return True if the widget or one of its parents accepts it."""
    position = QPoint(5, 5)
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, position, widget.mapToGlobal(position))
    QApplication.sendEvent(widget, event)
    return event.isAccepted()


def request_tool_tip(widget: QWidget, position: QPoint) -> None:
    """Send a widget the event that requests a tool tip for `position`."""
    QApplication.sendEvent(widget, QHelpEvent(QEvent.Type.ToolTip, position, widget.mapToGlobal(position)))


def is_right_of(widget: QWidget, other: QWidget) -> bool:
    """Return True if `widget` is completely to the right of `other`."""
    return widget.mapToGlobal(QPoint()).x() > other.mapToGlobal(other.rect().topRight()).x()


def list_column_texts(model: QAbstractItemModel, column: int) -> list[str]:
    """Return the texts of a column from top to bottom."""
    return [model.index(row, column).data() for row in range(model.rowCount())]


def scroll(viewport: QWidget, place: QPointF, notches: int) -> bool:
    """Send `viewport` a wheel event at position `place`, and return True if it or one of its parents accepts it.

    Positive `notches` turn the wheel away from the user.
    """
    event = QWheelEvent(
        place,
        QPointF(viewport.mapToGlobal(place.toPoint())),
        QPoint(),
        QPoint(0, 120 * notches),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(viewport, event)
    return event.isAccepted()
