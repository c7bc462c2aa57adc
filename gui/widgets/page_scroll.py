"""Scroll area for a stack of pages."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QScrollArea, QStackedWidget


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
