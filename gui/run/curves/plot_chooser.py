"""The list in which a run's plots are chosen and put in order."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QDialog, QLabel, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from gui.run.curves.plot_rows import PlotRows

_NAME = Qt.ItemDataRole.UserRole


class PlotList(QListWidget):
    """Check boxes that can be dragged, or moved with Alt+Up and Alt+Down.

    Signals: chosen(list, set) - the names of all plots in their order, and of those that are checked.
    """

    chosen = Signal(list, set)

    def __init__(self, rows: PlotRows) -> None:
        super().__init__()
        self.setAccessibleName("Plots shown")
        self.setDragDropMode(QAbstractItemView.DragDropMode.InternalMove)
        for name in rows.order:
            item = QListWidgetItem(rows.plots[name].title, self)
            item.setData(_NAME, name)
            item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsDropEnabled | Qt.ItemFlag.ItemIsUserCheckable)
            item.setCheckState(Qt.CheckState.Checked if name in rows.chosen else Qt.CheckState.Unchecked)
        self.setCurrentRow(0)
        self.setFixedHeight(self.count() * self.sizeHintForRow(0) + 2 * self.frameWidth() + 4)
        self.itemChanged.connect(lambda _item: self._tell())
        self.model().rowsMoved.connect(lambda *_moved: self._tell())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        by = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
        if by is not None and event.modifiers() & Qt.KeyboardModifier.AltModifier:
            self._move(by)
        else:
            super().keyPressEvent(event)

    def _move(self, by: int) -> None:
        row = self.currentRow()
        if 0 <= row + by < self.count():
            item = self.takeItem(row)
            self.insertItem(row + by, item)
            self.setCurrentItem(item)
            self._tell()

    def _tell(self) -> None:
        items = [self.item(row) for row in range(self.count())]
        checked = {item.data(_NAME) for item in items if item.checkState() == Qt.CheckState.Checked}
        self.chosen.emit([item.data(_NAME) for item in items], checked)


class PlotChooser(QDialog):
    """Hangs below a button while plots are being chosen; a click elsewhere or Esc closes it."""

    def __init__(self, rows: PlotRows, below: QWidget) -> None:
        super().__init__(below, Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Plots")
        self.list = PlotList(rows)
        self.list.chosen.connect(rows.choose)
        how = QLabel("Drag to reorder (Alt+Up, Alt+Down)")
        how.setObjectName("muted")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.addWidget(self.list)
        layout.addWidget(how)
        self.adjustSize()
        place = below.mapToGlobal(below.rect().bottomRight())
        self.move(place.x() - self.width(), place.y() + 2)
