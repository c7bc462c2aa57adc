"""Samples as a wall of small images, the worst first: their images are read in the background as they come into
sight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from gui.sources.dataset_images import Thumbnails
from gui.style import theme

SIDE, PAD, LINES = 132, 6, 2
_Index = QModelIndex | QPersistentModelIndex
_NOTHING = QModelIndex()
CAPTION = int(Qt.ItemDataRole.UserRole)
_TOLD = (
    Qt.ItemDataRole.DisplayRole,
    Qt.ItemDataRole.AccessibleTextRole,
    Qt.ItemDataRole.ToolTipRole,
    CAPTION,
)


class SampleModel(QAbstractListModel):
    """The samples at some rows of an evaluation. Attributes: rows - the number of each; marked - the rows that are
    marked.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[int] = []
        self.marked: set[int] = set()
        self._file: Callable[[int], Path] = lambda _row: Path()
        self._caption: Callable[[int], tuple[str, str]] = lambda _row: ("", "")

    def show_rows(
        self, rows: Sequence[int], file: Callable[[int], Path], caption: Callable[[int], tuple[str, str]]
    ) -> None:
        """Shows samples by their rows. `file` gives the file of a row, and `caption` two short lines on it, once they
        are in sight.
        """
        self.beginResetModel()
        self.rows, self._file, self._caption = list(rows), file, caption
        self.endResetModel()

    def file(self, position: int) -> Path:
        """The file of the sample at that position."""
        return self._file(self.rows[position])

    def marks_changed(self) -> None:
        if self.rows:
            self.dataChanged.emit(self.index(0), self.index(len(self.rows) - 1))

    def rowCount(self, parent: _Index = _NOTHING) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        if role not in _TOLD:
            return None
        first, second = self._caption(self.rows[index.row()])
        path, marked = self.file(index.row()), self.rows[index.row()] in self.marked
        told = f"{first}, {second}" if second else first
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return f"{path.name}: {told}{', marked' if marked else ''}"
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{path}\n{told}{chr(10) + 'Marked' if marked else ''}"
        return first, second


class SampleWall(QListView):
    """Signals: opened(int) - the sample at that position was asked for, by a double click or Enter; mark_wanted(int)
    - by Space.

    Attributes: shown - its model.
    """

    opened = Signal(int)
    mark_wanted = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.shown = SampleModel(self)
        self.thumbnails = Thumbnails(2 * SIDE, self)
        self.thumbnails.loaded.connect(self.viewport().update)
        self.setModel(self.shown)
        self.setAccessibleName("Samples by how wrong they are")
        self.setToolTip("Enter opens a sample, Space marks it")
        self.setViewMode(QListView.ViewMode.IconMode)
        self.setMovement(QListView.Movement.Static)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setUniformItemSizes(True)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setMinimumHeight(SIDE)
        self.setItemDelegate(_Samples(self))
        self.doubleClicked.connect(lambda index: self.opened.emit(index.row()))

    def current(self) -> int:
        """The position of the sample that is chosen, -1 without one."""
        return self.currentIndex().row()

    def choose(self, position: int) -> None:
        index = self.shown.index(position)
        if index.isValid():
            self.setCurrentIndex(index)
            self.scrollTo(index)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        position = self.current()
        if position >= 0 and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit(position)
        elif position >= 0 and event.key() == Qt.Key.Key_Space:
            self.mark_wanted.emit(position)
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The columns share the whole width."""
        room = self.viewport().width() - 2
        columns = max(1, room // (SIDE + 2 * PAD))
        self.setGridSize(QSize(room // columns, self._height()))
        super().resizeEvent(event)

    def _height(self) -> int:
        return SIDE + 3 * PAD + LINES * self.fontMetrics().height()


class _Samples(QStyledItemDelegate):
    """Draws an image over its two lines; a marked one has a sign in its corner."""

    def __init__(self, wall: SampleWall) -> None:
        super().__init__(wall)
        self._wall = wall

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return self._wall.gridSize()

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        scheme = theme.colors()
        rect: QRect = option.rect
        square = QRect(rect.center().x() - SIDE // 2, rect.top() + PAD, SIDE, SIDE)
        painter.fillRect(square, QColor(scheme.raised))
        image = self._wall.thumbnails.image(self._wall.shown.file(index.row()))
        if image is None or image.isNull():
            painter.setPen(QColor(scheme.muted))
            painter.drawText(square, Qt.AlignmentFlag.AlignCenter, "…" if image is None else "no preview")
        else:
            size = image.size().scaled(square.size(), Qt.AspectRatioMode.KeepAspectRatio)
            target = QRect(0, 0, size.width(), size.height())
            target.moveCenter(square.center())
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, 2 * image.width() > size.width())
            painter.drawImage(target, image)
        self._lines(painter, rect, square.bottom() + PAD // 2, index)
        state: QStyle.StateFlag = option.state
        if self._wall.shown.rows[index.row()] in self._wall.shown.marked:
            self._mark(painter, square)
        if state & QStyle.StateFlag.State_Selected:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(scheme.accent), 2))
            painter.drawRect(rect.adjusted(2, 2, -2, -2))

    def _lines(self, painter: QPainter, rect: QRect, top: int, index: _Index) -> None:
        scheme, metrics = theme.colors(), painter.fontMetrics()
        for number, text in enumerate(index.data(CAPTION)):
            painter.setPen(QColor(scheme.muted if number else scheme.text))
            line = QRect(rect.left() + PAD, top + number * metrics.height(), rect.width() - 2 * PAD, metrics.height())
            elided = metrics.elidedText(text, Qt.TextElideMode.ElideMiddle, line.width())
            painter.drawText(line, Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignVCenter, elided)

    def _mark(self, painter: QPainter, square: QRect) -> None:
        scheme = theme.colors()
        corner = QRect(square.right() - 25, square.top() + 4, 22, 22)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(scheme.accent_text), 1))
        painter.setBrush(QColor(scheme.accent))
        painter.drawEllipse(corner)
        painter.drawText(corner, Qt.AlignmentFlag.AlignCenter, "✓")
        painter.restore()
