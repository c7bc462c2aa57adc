"""Layout that wraps its widgets like words."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget, QWidgetItem


class FlowLayout(QLayout):
    """Widgets side by side at their preferred size, wrapped to as many lines as needed. Hidden ones take no room."""

    def __init__(self, parent: QWidget | None = None, *, spacing: int = 8, line_spacing: int | None = None) -> None:
        """Create a layout with `spacing` between widgets and lines, unless `line_spacing` is given."""
        super().__init__(parent)
        self._line_spacing = spacing if line_spacing is None else line_spacing
        self._items: list[QLayoutItem] = []
        self.setContentsMargins(0, 0, 0, 0)
        self.setSpacing(spacing)

    def addWidget(self, widget: QWidget) -> None:
        # An item that C++ makes has no owner in Python: its wrapper may be one that was left over from another item at the
        # same address, and end with that one's layout.
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

    def _lay_out(self, rect: QRect, move: bool) -> int:
        """Lay out all items and return the required height."""
        left, top, height = rect.left(), rect.top(), 0
        line: list[tuple[QLayoutItem, int]] = []
        for item in (item for item in self._items if not item.isEmpty()):
            size = _size(item, rect.width())
            if line and left + size.width() > rect.left() + rect.width():
                self._settle(line, rect, top, height, move)
                left, top, height, line = rect.left(), top + height + self._line_spacing, 0, []
            line.append((item, left))
            left += size.width() + self.spacing()
            height = max(height, size.height())
        self._settle(line, rect, top, height, move)
        return top + height - rect.top()

    @staticmethod
    def _settle(line: list[tuple[QLayoutItem, int]], rect: QRect, top: int, height: int, move: bool) -> None:
        """Place the items of a finished line, vertically centered."""
        if move:
            for item, left in line:
                size = _size(item, rect.width())
                item.setGeometry(QRect(QPoint(left, top + (height - size.height()) // 2), size))


def _size(item: QLayoutItem, width: int) -> QSize:
    """Return the preferred size, no wider than `width` if the item can wrap."""
    size = item.sizeHint()
    if size.width() > width > 0 and item.hasHeightForWidth():
        return QSize(width, item.heightForWidth(width))
    return size
