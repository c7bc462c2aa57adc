"""Wall of thumbnails, which are read on a worker thread when they scroll into view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QAbstractListModel, QObject, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem

from gui.sources.inspector import Thumbnails
from gui.style import theme
from gui.translation import tr
from gui.widgets.column_model import NOTHING, Index

SIDE, PAD, CAPTION_LINES = 132, 6, 2
CAPTION = int(Qt.ItemDataRole.UserRole)
_ROLES = (
    Qt.ItemDataRole.DisplayRole,
    Qt.ItemDataRole.AccessibleTextRole,
    Qt.ItemDataRole.ToolTipRole,
    CAPTION,
)


class SampleModel(QAbstractListModel):
    """Model of samples in an evaluation.

    Attributes:
        rows: Row of each sample in the evaluation.
        marked: Rows of the marked samples. Call `emit_marks_changed` after a change.
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
        """Show the samples at `rows`.

        Args:
            rows: Rows of the evaluation.
            file: Returns the file of a row.
            caption: Returns two short lines about a row. Called only for visible samples.
        """
        self.beginResetModel()
        self.rows, self._file, self._caption = list(rows), file, caption
        self.endResetModel()

    def file(self, position: int) -> Path:
        return self._file(self.rows[position])

    def emit_marks_changed(self) -> None:
        """Emit `dataChanged` for all samples, which repaints their marks."""
        if self.rows:
            self.dataChanged.emit(self.index(0), self.index(len(self.rows) - 1))

    def rowCount(self, parent: Index = NOTHING) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return the texts of a sample: its description, tool tip, or the two lines of its caption."""
        if not index.isValid() or role not in _ROLES:
            return None
        row = self.rows[index.row()]
        first, second = self._caption(row)
        if role == CAPTION:
            return first, second
        path, is_marked = self._file(row), row in self.marked
        caption = f"{first}, {second}" if second else first
        if role == Qt.ItemDataRole.ToolTipRole:
            return (
                tr("{file}\n{caption}\nMarked").format(file=path, caption=caption)
                if is_marked
                else f"{path}\n{caption}"
            )
        return (
            tr("{file}: {caption}, marked").format(file=path.name, caption=caption)
            if is_marked
            else f"{path.name}: {caption}"
        )


class SampleWall(QListView):
    """Wall of thumbnails.

    Signals:
        opened(int): the user has opened the sample at this position with a double click or Enter.
        mark_requested(int): the user has pressed Space to mark the sample at this position.

    Attributes:
        samples: Model of the samples in the wall.
    """

    opened = Signal(int)
    mark_requested = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.samples = SampleModel(self)
        self.thumbnails = Thumbnails(2 * SIDE, self)
        self.thumbnails.loaded.connect(self.viewport().update)
        self.setModel(self.samples)
        self.setAccessibleName(tr("Samples"))
        self.setToolTip(tr("Enter opens a sample, Space marks it"))
        self.setViewMode(QListView.ViewMode.IconMode)
        self.setMovement(QListView.Movement.Static)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setUniformItemSizes(True)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setMinimumHeight(SIDE)
        self.setItemDelegate(_SampleDelegate(self))
        self.doubleClicked.connect(lambda index: self.opened.emit(index.row()))

    def current(self) -> int:
        """Return the position of the current sample, or -1 if there is none."""
        return self.currentIndex().row()

    def choose(self, position: int) -> None:
        """Select the sample at a position, and scroll to it. Do nothing if there is none."""
        index = self.samples.index(position)
        if index.isValid():
            self.setCurrentIndex(index)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        position = self.current()
        if position >= 0 and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit(position)
        elif position >= 0 and event.key() == Qt.Key.Key_Space:
            self.mark_requested.emit(position)
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Distribute the width among the columns."""
        width = self.viewport().width() - 2
        columns = max(1, width // (SIDE + 2 * PAD))
        self.setGridSize(QSize(width // columns, self._height()))
        super().resizeEvent(event)

    def _height(self) -> int:
        """Return the height of an item in pixels: thumbnail, caption and padding."""
        return SIDE + 3 * PAD + CAPTION_LINES * self.fontMetrics().height()


class _SampleDelegate(QStyledItemDelegate):
    """Delegate that draws a thumbnail above two lines of text, with a badge if the sample is marked."""

    def __init__(self, wall: SampleWall) -> None:
        super().__init__(wall)
        self._wall = wall

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return self._wall.gridSize()

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draw the thumbnail or a placeholder, the caption, a badge if marked, and a frame if selected."""
        scheme = theme.colors()
        rect: QRect = option.rect
        square = QRect(rect.center().x() - SIDE // 2, rect.top() + PAD, SIDE, SIDE)
        painter.fillRect(square, QColor(scheme.raised))
        image = self._wall.thumbnails.image(self._wall.samples.file(index.row()))
        if image is None or image.isNull():
            painter.setPen(QColor(scheme.muted))
            painter.drawText(square, Qt.AlignmentFlag.AlignCenter, "…" if image is None else tr("no preview"))
        else:
            size = image.size().scaled(square.size(), Qt.AspectRatioMode.KeepAspectRatio)
            target = QRect(0, 0, size.width(), size.height())
            target.moveCenter(square.center())
            # Images that are enlarged at least twice keep sharp pixels.
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, 2 * image.width() > size.width())
            painter.drawImage(target, image)
        self._draw_lines(painter, rect, square.bottom() + PAD // 2, index)
        state: QStyle.StateFlag = option.state
        if self._wall.samples.rows[index.row()] in self._wall.samples.marked:
            self._draw_badge(painter, square)
        if state & QStyle.StateFlag.State_Selected:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(scheme.accent), 2))
            painter.drawRect(rect.adjusted(2, 2, -2, -2))

    def _draw_lines(self, painter: QPainter, rect: QRect, top: int, index: Index) -> None:
        """Draw the two lines of the caption below `top` in the item's rectangle `rect`, elided in the middle."""
        scheme, metrics = theme.colors(), painter.fontMetrics()
        for number, text in enumerate(index.data(CAPTION)):
            painter.setPen(QColor(scheme.muted if number else scheme.text))
            line = QRect(rect.left() + PAD, top + number * metrics.height(), rect.width() - 2 * PAD, metrics.height())
            elided = metrics.elidedText(text, Qt.TextElideMode.ElideMiddle, line.width())
            painter.drawText(line, Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignVCenter, elided)

    def _draw_badge(self, painter: QPainter, square: QRect) -> None:
        """Draw a check mark in the upper right corner of the thumbnail, which fills `square`."""
        scheme = theme.colors()
        corner = QRect(square.right() - 25, square.top() + 4, 22, 22)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(scheme.accent_text), 1))
        painter.setBrush(QColor(scheme.accent))
        painter.drawEllipse(corner)
        painter.drawText(corner, Qt.AlignmentFlag.AlignCenter, "✓")
        painter.restore()
