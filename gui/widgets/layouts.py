"""Layouts, scroll areas, tab bars and menus that the pages use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QLayoutItem,
    QMenu,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QStackedWidget,
    QTabBar,
    QToolButton,
    QVBoxLayout,
    QWidget,
    QWidgetItem,
)

from gui.actions import Action
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import make_menu_button, tool_button

Item = QWidget | QLayout | int | tuple[QWidget | QLayout, int] | tuple[QWidget, int, Qt.AlignmentFlag]
Margins = tuple[int, int, int, int]
NO_MARGINS = (0, 0, 0, 0)
_Box = TypeVar("_Box", bound=QBoxLayout)


def hbox(*items: Item, spacing: int = 8, margins: Margins = NO_MARGINS) -> QHBoxLayout:
    """Create a horizontal layout. See `vbox` for the arguments."""
    return _add_items(QHBoxLayout(), items, spacing, margins)


def vbox(*items: Item, spacing: int = 8, margins: Margins = NO_MARGINS) -> QVBoxLayout:
    """Create a vertical layout with `margins` in pixels: left, top, right, bottom.

    An item is a widget, a layout, or a number, which is the stretch factor of an empty space. A tuple adds a stretch
    factor to a widget or layout, and optionally an alignment to a widget.
    """
    return _add_items(QVBoxLayout(), items, spacing, margins)


def with_layout(layout: QLayout) -> QWidget:
    """Create a widget with `layout`."""
    widget = QWidget()
    widget.setLayout(layout)
    return widget


def make_scroll_area(content: QVBoxLayout) -> QScrollArea:
    """Create a scroll area for `content`, with a small gap before the scroll bar."""
    content.setContentsMargins(0, 0, 4, 0)
    return scroll_panel(with_layout(content))


def create_tab_bar(name: str, titles: Sequence[str]) -> QTabBar:
    """Create a tab bar with an accessible name."""
    tabs = QTabBar()
    tabs.setAccessibleName(name)
    tabs.setDrawBase(False)
    tabs.setExpanding(False)
    for title in titles:
        tabs.addTab(title)
    return tabs


def resize_with_text(window: QWidget, width: int, height: int) -> None:
    """Resize a window to a size in pixels that is scaled with the text size, but not beyond the screen."""
    screen = window.screen().availableSize()
    window.resize(
        max(width, min(theme.scale_pixels(width), screen.width())),
        max(height, min(theme.scale_pixels(height), screen.height())),
    )


def create_save_button(name: str, tip: str, actions: Iterable[Action]) -> QToolButton:
    """Create a "Save" button with an accessible name and a menu of `actions`."""
    button = tool_button(text=tr("Save"), name=name, tip=tip)
    make_menu_button(button)
    menu = QMenu(button)
    menu.addActions(list(actions))
    button.setMenu(menu)
    return button


def _add_items(layout: _Box, items: Sequence[Item], spacing: int, margins: Margins) -> _Box:
    """Add the items to a layout and return it. An int is a stretch; a tuple adds stretch and alignment."""
    layout.setContentsMargins(*margins)
    layout.setSpacing(spacing)
    for item in items:
        if isinstance(item, int):
            layout.addStretch(item)
            continue
        content, stretch, *alignment = item if isinstance(item, tuple) else (item, 0)
        if isinstance(content, QWidget):
            layout.addWidget(content, stretch, *alignment)
        else:
            layout.addLayout(content, stretch)
    return layout


def lay_out_page(page: QWidget, back: QPushButton, title: QLabel, subtitle: QLabel, *below: QWidget) -> None:
    """Lay out `page`: back button and titles at the top, then the widgets `below`. The last widget stretches."""
    texts = vbox(1, title, subtitle, 1, spacing=2)
    head = hbox((back, 0, Qt.AlignmentFlag.AlignTop), (texts, 1), spacing=12)
    page.setLayout(vbox(head, *((widget, int(widget is below[-1])) for widget in below), margins=(14, 10, 14, 10)))


def create_working_page(activity: QLabel, progress: QProgressBar, cancel: QPushButton, name: str) -> QWidget:
    """Create a page with the progress of a background task. `name` is the accessible name of the progress bar."""
    progress.setRange(0, 100)
    progress.setFixedSize(320, 14)
    progress.setTextVisible(False)
    progress.setAccessibleName(name)
    return _create_centered_page(activity, progress, cancel)


def create_failure_page(failure: QWidget, retry: QPushButton) -> QWidget:
    """Create a page with the failure of a background task, and a button to retry it."""
    failure.setMaximumWidth(440)
    page = _create_centered_page(retry)
    column = page.layout()
    assert isinstance(column, QVBoxLayout)
    # With an alignment, long sentences would not get enough height.
    column.insertLayout(1, hbox(1, (failure, 100), 1))
    return scroll_panel(page)


def _create_centered_page(*widgets: QWidget) -> QWidget:
    """Create a page with a column of widgets slightly above its center."""
    page = QWidget()
    column = QVBoxLayout(page)
    column.setSpacing(10)
    column.addStretch(1)
    for widget in widgets:
        column.addWidget(widget, 0, Qt.AlignmentFlag.AlignHCenter)
    column.addStretch(2)
    return page


class FlowLayout(QLayout):
    """Layout that places widgets next to each other at their preferred sizes, in as many rows as needed.

    Hidden widgets take no space.
    """

    def __init__(self, parent: QWidget | None = None, *, spacing: int = 8, line_spacing: int | None = None) -> None:
        """Create a layout with `spacing` between widgets and `line_spacing` between rows, by default the same."""
        super().__init__(parent)
        self._line_spacing = spacing if line_spacing is None else line_spacing
        self._items: list[QLayoutItem] = []
        self.setContentsMargins(0, 0, 0, 0)
        self.setSpacing(spacing)

    def addWidget(self, widget: QWidget) -> None:
        """Append a widget to the layout."""
        # Create the item in Python. The wrapper of an item that C++ creates may be left over from another item at the same
        # address, and be deleted with the layout of that item.
        self.addChildWidget(widget)
        self.addItem(QWidgetItem(widget))

    def addItem(self, item: QLayoutItem) -> None:
        self._items.append(item)

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._lay_out(QRect(0, 0, width, 0), move=False)

    def setGeometry(self, rect: QRect) -> None:
        super().setGeometry(rect)
        self._lay_out(rect, move=True)

    def sizeHint(self) -> QSize:
        hints = [item.sizeHint() for item in self._items if not item.isEmpty()]
        width = sum(size.width() for size in hints) + self.spacing() * max(0, len(hints) - 1)
        return QSize(width, max((size.height() for size in hints), default=0))

    def minimumSize(self) -> QSize:
        minimum = QSize()
        for item in self._items:
            if not item.isEmpty():
                minimum = minimum.expandedTo(item.minimumSize())
        return minimum

    def _lay_out(self, rect: QRect, *, move: bool) -> int:
        """Lay out all items in rows within `rect`, or only measure them if `move` is False.

        Returns the required height in pixels.
        """
        left, top, height = rect.left(), rect.top(), 0
        line: list[tuple[QLayoutItem, int]] = []  # items of the current row with their left edges
        for item in (item for item in self._items if not item.isEmpty()):
            size = _compute_item_size(item, rect.width())
            if line and left + size.width() > rect.left() + rect.width():
                if move:
                    self._place_row(line, rect.width(), top, height)
                left, top, height, line = rect.left(), top + height + self._line_spacing, 0, []
            line.append((item, left))
            left += size.width() + self.spacing()
            height = max(height, size.height())
        if move:
            self._place_row(line, rect.width(), top, height)
        return top + height - rect.top()

    @staticmethod
    def _place_row(line: list[tuple[QLayoutItem, int]], width: int, top: int, height: int) -> None:
        """Place the items of a row at their left edges, vertically centered. `width` is that of the layout."""
        for item, left in line:
            size = _compute_item_size(item, width)
            item.setGeometry(QRect(QPoint(left, top + (height - size.height()) // 2), size))


def _compute_item_size(item: QLayoutItem, width: int) -> QSize:
    """Return the preferred size of an item, no wider than `width` if the item can wrap."""
    size = item.sizeHint()
    if size.width() > width > 0 and item.hasHeightForWidth():
        return QSize(width, item.heightForWidth(width))
    return size


class _ScrollPanel(QScrollArea):
    """Scroll area that takes over its content when it is first polished, so that the content is styled only once."""

    def __init__(self, inside: QWidget) -> None:
        super().__init__(widgetResizable=True)
        self.inside = inside
        inside.setParent(self.viewport())

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Polish and self.widget() is None:
            self.setWidget(self.inside)
        return super().event(event)


class _MinimumWidthPanel(_ScrollPanel):
    """Scroll area that can't be narrower than its content, up to a content width of `max_content_width` pixels."""

    def __init__(self, inside: QWidget, max_content_width: int) -> None:
        super().__init__(inside)
        self._max_content_width = max_content_width

    def minimumSizeHint(self) -> QSize:
        content_width = min(self.inside.minimumSizeHint().width(), self._max_content_width)
        width = content_width + self.verticalScrollBar().sizeHint().width()
        return QSize(width, super().minimumSizeHint().height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


def scroll_panel(inside: QWidget, *, min_content_width: int = 0) -> QScrollArea:
    """Create a scroll area with a panel's background, which doesn't take the keyboard focus.

    It can't be narrower than `inside`, up to `min_content_width` pixels.
    """
    scroll = _MinimumWidthPanel(inside, min_content_width) if min_content_width else _ScrollPanel(inside)
    scroll.setObjectName("panel")
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return scroll


def scroll_column(inside: QWidget, *, centered: bool = True) -> QScrollArea:
    """Create a vertical scroll area with `inside` in the middle if `centered`, otherwise at the left."""
    return scroll_panel(with_layout(hbox(*([1] if centered else []), (inside, 100), 1)))


class PageScroll(QScrollArea):
    """Scroll area for the stack `pages`. The current page scrolls if it needs more space.

    A resizable QScrollArea would use the height of texts without wrapping, and the size of the largest page.
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
        """Give the page the size of the viewport, or its minimum size if that is larger."""
        page = self._pages.currentWidget()
        minimum = page.minimumSizeHint() if page is not None else QSize()
        viewport = self.maximumViewportSize()
        if minimum.width() > viewport.width():
            viewport.setHeight(viewport.height() - self.horizontalScrollBar().sizeHint().height())
        if minimum.height() > viewport.height():
            viewport.setWidth(viewport.width() - self.verticalScrollBar().sizeHint().width())
        self._pages.resize(viewport.expandedTo(minimum))


class FrontStack(QStackedWidget):
    """Stacked widget with the size hint of its current page instead of its largest page."""

    def __init__(self) -> None:
        super().__init__()
        self.currentChanged.connect(self.updateGeometry)

    def minimumSizeHint(self) -> QSize:
        page = self.currentWidget()
        return page.minimumSizeHint() if page is not None else super().minimumSizeHint()
