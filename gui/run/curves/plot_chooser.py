"""Popup that selects and orders a run's plots."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QDialog, QLabel, QListWidget, QListWidgetItem, QWidget

from gui.run.curves.plot_rows import PlotRows
from gui.translation import tr
from gui.widgets.layouts import vbox

_NAME = Qt.ItemDataRole.UserRole


class PlotList(QListWidget):
    """Check boxes that can be dragged, or moved with Alt+Up and Alt+Down.

    Signals:
        chosen(list, set): names of all plots in their order, and of the checked ones.
    """

    chosen = Signal(list, set)

    def __init__(self, rows: PlotRows) -> None:
        super().__init__()
        self.setAccessibleName(tr("Plots shown"))
        self.setDragDropMode(QAbstractItemView.DragDropMode.InternalMove)
        for name in rows.order:
            item = QListWidgetItem(rows.plots[name].title, self)
            item.setData(_NAME, name)
            item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsDropEnabled | Qt.ItemFlag.ItemIsUserCheckable)
            item.setCheckState(Qt.CheckState.Checked if name in rows.chosen else Qt.CheckState.Unchecked)
        self.setCurrentRow(0)
        self.setFixedHeight(self.count() * self.sizeHintForRow(0) + 2 * self.frameWidth() + 4)
        self.itemChanged.connect(lambda _item: self._emit_choice())
        self.model().rowsMoved.connect(lambda *_moved: self._emit_choice())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
        if step is not None and event.modifiers() & Qt.KeyboardModifier.AltModifier:
            self._move(step)
        else:
            super().keyPressEvent(event)

    def _move(self, step: int) -> None:
        row = self.currentRow()
        if 0 <= row + step < self.count():
            item = self.takeItem(row)
            self.insertItem(row + step, item)
            self.setCurrentItem(item)
            self._emit_choice()

    def _emit_choice(self) -> None:
        items = [self.item(row) for row in range(self.count())]
        checked = {item.data(_NAME) for item in items if item.checkState() == Qt.CheckState.Checked}
        self.chosen.emit([item.data(_NAME) for item in items], checked)


class PlotChooser(QDialog):
    """Popup below a button; a click elsewhere or Esc closes it."""

    def __init__(self, rows: PlotRows, below: QWidget) -> None:
        super().__init__(below, Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Plots"))
        self.list = PlotList(rows)
        self.list.chosen.connect(rows.choose)
        hint = QLabel(tr("Drag to reorder (Alt+Up, Alt+Down)"))
        hint.setObjectName("muted")
        self.setLayout(vbox(self.list, hint, spacing=6, margins=(8, 8, 8, 8)))
        self.adjustSize()
        corner = below.mapToGlobal(below.rect().bottomRight())
        self.move(corner.x() - self.width(), corner.y() + 2)
