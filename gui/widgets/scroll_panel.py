"""Panels that scroll, and stacks of pages."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QStackedWidget, QWidget


class _ScrollPanel(QScrollArea):
    """Scroll area that calls `setWidget` at its first polish, so that the content is styled only once."""

    def __init__(self, inside: QWidget) -> None:
        super().__init__(widgetResizable=True)
        self.inside = inside
        inside.setParent(self.viewport())

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Polish and self.widget() is None:
            self.setWidget(self.inside)
        return super().event(event)


class _MinimumWidth(_ScrollPanel):
    """Scroll area that is at least as wide as its content, up to `widest` pixels."""

    def __init__(self, inside: QWidget, widest: int) -> None:
        super().__init__(inside)
        self._widest = widest

    def minimumSizeHint(self) -> QSize:
        width = min(self.inside.minimumSizeHint().width(), self._widest) + self.verticalScrollBar().sizeHint().width()
        return QSize(width, super().minimumSizeHint().height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


def scroll_panel(inside: QWidget, *, min_content_width: int = 0) -> QScrollArea:
    """Return a scroll area with a panel's background and no keyboard focus.

    It can't be narrower than `inside`, up to `min_content_width` pixels.
    """
    scroll = _MinimumWidth(inside, min_content_width) if min_content_width else _ScrollPanel(inside)
    scroll.setObjectName("panel")
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return scroll


def scroll_column(inside: QWidget) -> QScrollArea:
    """Return a vertical scroll area with `inside` in the middle."""
    middle = QWidget()
    row = QHBoxLayout(middle)
    row.setContentsMargins(0, 0, 0, 0)
    row.addStretch(1)
    row.addWidget(inside, 100)
    row.addStretch(1)
    return scroll_panel(middle)


class PageScroll(QScrollArea):
    """Scroll area filled by `pages`; the current page scrolls if it needs more room.

    A resizable QScrollArea would use the ideal height of wrapped texts, and the room of the largest page.
    """

    def __init__(self, pages: QStackedWidget) -> None:
        super().__init__()
        self._pages = pages
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWidget(pages)
        pages.currentChanged.connect(self._fit)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self._fit()
        return super().eventFilter(watched, event)

    def _fit(self) -> None:
        page = self._pages.currentWidget()
        minimum = page.minimumSizeHint() if page is not None else QSize()
        room = self.maximumViewportSize()
        if minimum.width() > room.width():
            room.setHeight(room.height() - self.horizontalScrollBar().sizeHint().height())
        if minimum.height() > room.height():
            room.setWidth(room.width() - self.verticalScrollBar().sizeHint().width())
        self._pages.resize(room.expandedTo(minimum))


class FrontStack(QStackedWidget):
    """Stack that needs only the room of its current page, not that of the largest one."""

    def __init__(self) -> None:
        super().__init__()
        self.currentChanged.connect(self.updateGeometry)

    def minimumSizeHint(self) -> QSize:
        page = self.currentWidget()
        return page.minimumSizeHint() if page is not None else super().minimumSizeHint()
