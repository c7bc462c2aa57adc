"""How a model does on each class at one time: a table of measures beside the confusion matrix."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QItemSelection, QRegularExpression, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QSplitter,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from gui.actions import Action
from gui.format import localised
from gui.run.classes.confusion_matrix import ConfusionMatrix
from gui.run.classes.table import ClassTable, ConfusionCsv, MeasuresCsv
from gui.sources.background import in_background
from gui.sources.export import Table, write_csv
from gui.sources.run_series import ClassFigures
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.file_dialogs import choose_target
from gui.widgets.menu_button import make_menu_button
from gui.widgets.scroll_panel import scroll_panel

_FILTERED_FROM = 12
"""Classes from which on there is a filter."""
_SIDE_BY_SIDE = 1000
"""Pixels of width from which on the matrix is beside the table."""
_LOWEST = 3


class ClassFiguresView(QWidget):
    """Shows `ClassFigures` of one time; the class and the cell that are chosen stay.

    Signals: message(str, str) - in plain words, what came of saving; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self, name: str, *parts: QWidget, parent: QWidget | None = None) -> None:
        """`name` tells its commands from those of others; `parts` stand between the table and the matrix."""
        super().__init__(parent)
        self._name = name
        self._classes: tuple[str, ...] = ()
        self._figures: ClassFigures | None = None
        self.headline = ElidedLabel()
        self.headline.setObjectName("heading")
        self.filter = QLineEdit(clearButtonEnabled=True)
        self.filter.setAccessibleName("Filter classes")
        self.filter.setMaximumWidth(150)
        self._filter_label = QLabel("Filter")
        self._filter_label.setObjectName("muted")
        self._filter_label.setBuddy(self.filter)
        self.table = ClassTable()
        self.matrix = ConfusionMatrix()
        self.cell = ElidedLabel()
        self.cell.setObjectName("muted")
        self.save = self._save_button()
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._lay_out(parts)
        self.filter.textChanged.connect(self._filter)
        self.table.selectionModel().selectionChanged.connect(self._class_chosen)
        self.matrix.cell_chosen.connect(self._cell_chosen)

    def restart(self) -> None:
        """Figures of something else are to be shown."""
        self._classes, self._figures = (), None
        self.matrix.cell = None
        self.filter.clear()
        self.cell.setText("")

    def show_figures(self, classes: tuple[str, ...], figures: ClassFigures | None) -> None:
        """Shows `figures`, or none."""
        self._classes, self._figures = classes, figures
        self.table.show_figures(classes, figures)
        confusion = figures.confusion if figures is not None else None
        self.matrix.show_counts(classes, confusion)
        self._matrix_area.setVisible(confusion is not None)
        self._confusion_action.allow("" if confusion is not None else "No confusion matrix")
        for widget in (self._filter_label, self.filter):
            widget.setVisible(len(self.table.model_.names) >= _FILTERED_FROM)
        text = _headline(classes, figures)
        self.headline.setText(text)
        self.headline.setToolTip(text)
        self._say_cell()

    def figures(self) -> ClassFigures | None:
        """Those on screen."""
        return self._figures

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide = self.width() >= _SIDE_BY_SIDE
        self._splitter.setOrientation(Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical)

    def _say_cell(self) -> None:
        cell = self.matrix.cell
        worst = self.matrix.most_confused() if cell is None else None
        if cell is not None:
            text = self.matrix.words(*cell)
        else:
            text = f"Confused most often: {self.matrix.words(*worst)}" if worst is not None else ""
        self.cell.setText(text)
        self.cell.setToolTip(text)

    def _class_chosen(self, chosen: QItemSelection, _before: QItemSelection) -> None:
        position = self.table.chosen()
        if (
            not chosen.isEmpty()
            and position is not None
            and (self.matrix.cell is None or self.matrix.cell[0] != position)
        ):
            self.matrix.choose(position, position)

    def _cell_chosen(self, row: int, _column: int, _words: str) -> None:
        self.table.choose(row)
        self._say_cell()

    def _filter(self, text: str) -> None:
        self.table.rows.setFilterRegularExpression(
            QRegularExpression(
                QRegularExpression.escape(text.strip()), QRegularExpression.PatternOption.CaseInsensitiveOption
            )
        )

    # Saving

    def save_measures(self, path: Path) -> None:
        """Writes the measures on screen as CSV."""
        if self._figures is not None:
            self._write(path, MeasuresCsv(self._classes, self._figures))

    def save_confusion(self, path: Path) -> None:
        """Writes the confusion matrix on screen as CSV."""
        if self._figures is not None:
            self._write(path, ConfusionCsv(self._classes, self._figures))

    def _write(self, path: Path, table: Table) -> None:
        in_background(
            lambda: write_csv(path, table),
            self,
            lambda written: self.message.emit(f"The table was saved to {written}.", "info"),
            lambda error: self.message.emit(str(error), "warning"),
        )

    def _ask(self, what: str, chosen: Callable[[Path], None]) -> None:
        name = f"footplate-{time.strftime('%Y-%m-%d-%H%M%S')}-{what}.csv"
        choose_target(self, "Save as CSV", name, chosen)

    def _save_button(self) -> QToolButton:
        button = QToolButton()
        button.setText("Save")
        button.setAccessibleName("Save")
        button.setToolTip("Saves the displayed data as CSV")
        make_menu_button(button)
        menu = QMenu(button)
        measures = Action(self, f"save_{self._name}_measures", "Metrics per class as CSV …")
        measures.on_trigger(lambda: self._ask("classes", self.save_measures))
        self._confusion_action = Action(self, f"save_{self._name}_confusion", "Confusion matrix as CSV …")
        self._confusion_action.on_trigger(lambda: self._ask("confusion", self.save_confusion))
        menu.addActions([measures, self._confusion_action])
        button.setMenu(menu)
        return button

    def _lay_out(self, parts: tuple[QWidget, ...]) -> None:
        self._matrix_area = QWidget()
        below = QVBoxLayout(self._matrix_area)
        below.setContentsMargins(6, 6, 0, 0)
        below.setSpacing(4)
        for part in parts:
            below.addWidget(part)
        below.addWidget(self.cell)
        below.addWidget(scroll_panel(self.matrix), 1)
        self._matrix_area.setMinimumHeight(150)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.addWidget(self.table)
        self._splitter.addWidget(self._matrix_area)
        self._splitter.setStretchFactor(0, 2)
        self._splitter.setStretchFactor(1, 3)
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.headline, 1)
        top.addWidget(self._filter_label)
        top.addWidget(self.filter)
        top.addWidget(self.save)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addWidget(self._splitter, 1)


def _headline(classes: tuple[str, ...], figures: ClassFigures | None) -> str:
    """ "Lowest IoU: sign 12.0 %, pole 20.1 %, fence 33.4 %"; of the first measure."""
    if figures is None or not figures.measures:
        return ""
    title, values = next(iter(figures.measures.items()))
    told = sorted((value, position) for position, value in enumerate(values.tolist()) if not math.isnan(value))
    if not told:
        return f"No class has a value for {title}"
    named = [f"{classes[p] if p < len(classes) else f'class {p}'} {localised(100 * v, 1)} %" for v, p in told[:_LOWEST]]
    return f"Lowest {title}: {', '.join(named)}"
