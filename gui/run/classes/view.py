"""How a run does on each class: a table of measures and the confusion matrix, of any of its validations."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QItemSelection, QRegularExpression, Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QScrollArea,
    QSplitter,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from gui.actions import Action
from gui.run.classes.confusion_matrix import ConfusionMatrix
from gui.run.classes.table import ClassTable, ConfusionCsv, MeasuresCsv
from gui.run.validation_slider import ValidationSlider
from gui.sources.background import in_background
from gui.sources.export import Table, write_csv
from gui.sources.run_data import RunData
from gui.sources.run_series import ClassFigures
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.file_dialogs import choose_target

_FILTERED_FROM = 12
"""Classes from which on there is a filter."""
_SIDE_BY_SIDE = 1000
"""Pixels of width from which on the matrix is beside the table."""
_LOWEST = 3


class ClassesView(QWidget):
    """Shows `ClassFigures` of a run. Renewed while it is in sight.

    Signals: message(str, str) - in plain words, what came of saving; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._data = RunData()
        self._active = False
        self._shown: tuple[object, ...] = ()
        self.validation_slider = ValidationSlider()
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
        self._empty = QLabel(wordWrap=True)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setObjectName("muted")
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._stack = QStackedWidget()
        self._lay_out()
        self.validation_slider.moved.connect(lambda _position: self._show_figures())
        self.filter.textChanged.connect(self._filter)
        self.table.selectionModel().selectionChanged.connect(self._class_chosen)
        self.matrix.cell_chosen.connect(self._cell_chosen)

    def restart(self) -> None:
        """Another run is to be shown."""
        self._data, self._shown = RunData(), ()
        self.validation_slider.restart()
        self.matrix.cell = None
        self.filter.clear()
        self.cell.setText("")

    def show_data(self, data: RunData, active: bool) -> None:
        """Shows what the run has said of its classes; `active` where more may come."""
        self._data, self._active = data, active
        if self.isVisible():
            self._refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide = self.width() >= _SIDE_BY_SIDE
        self._splitter.setOrientation(Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical)

    # Showing

    def _refresh(self) -> None:
        told = self._data.looks.classes
        self._stack.setCurrentIndex(1 if told else 0)
        self._empty.setText(_why_empty(self._data, self._active))
        best = self._data.checkpoints.get("best")
        newest = told[-1] if told else None
        now = (len(told), id(newest), best.step if best is not None else None, self._data.plan is not None)
        if told and now != self._shown:
            self._shown = now
            if self.validation_slider.show_moments(told, self._data):
                self._show_figures()

    def figures(self) -> ClassFigures | None:
        """Those on screen."""
        told, position = self._data.looks.classes, self.validation_slider.position
        return told[position] if 0 <= position < len(told) else None

    def _classes(self) -> tuple[str, ...]:
        return self._data.plan.classes if self._data.plan is not None else ()

    def _show_figures(self) -> None:
        figures = self.figures()
        self.table.show_figures(self._classes(), figures)
        confusion = figures.confusion if figures is not None else None
        self.matrix.show_counts(self._classes(), confusion)
        self._matrix_area.setVisible(confusion is not None)
        self._confusion_action.allow("" if confusion is not None else "No confusion matrix")
        for widget in (self._filter_label, self.filter):
            widget.setVisible(len(self.table.model_.names) >= _FILTERED_FROM)
        text = _headline(self._classes(), figures)
        self.headline.setText(text)
        self.headline.setToolTip(text)
        self._say_cell()

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
        figures = self.figures()
        if figures is not None:
            self._write(path, MeasuresCsv(self._classes(), figures))

    def save_confusion(self, path: Path) -> None:
        """Writes the confusion matrix on screen as CSV."""
        figures = self.figures()
        if figures is not None:
            self._write(path, ConfusionCsv(self._classes(), figures))

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
        button.setText("Save ▾")
        button.setAccessibleName("Save")
        button.setToolTip("Saves the displayed data as CSV")
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(button)
        measures = Action(self, "save_class_measures", "Metrics per class as CSV …")
        measures.on_trigger(lambda: self._ask("classes", self.save_measures))
        self._confusion_action = Action(self, "save_confusion", "Confusion matrix as CSV …")
        self._confusion_action.on_trigger(lambda: self._ask("confusion", self.save_confusion))
        menu.addActions([measures, self._confusion_action])
        button.setMenu(menu)
        return button

    def _lay_out(self) -> None:
        scroll = QScrollArea(widgetResizable=True)
        scroll.setObjectName("panel")
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(self.matrix)
        self._matrix_area = QWidget()
        below = QVBoxLayout(self._matrix_area)
        below.setContentsMargins(6, 6, 0, 0)
        below.setSpacing(4)
        below.addWidget(self.cell)
        below.addWidget(scroll, 1)
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
        body = QWidget()
        layout = QVBoxLayout(body)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.validation_slider)
        layout.addLayout(top)
        layout.addWidget(self._splitter, 1)
        self._stack.addWidget(self._empty)
        self._stack.addWidget(body)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self._stack)


def _headline(classes: tuple[str, ...], figures: ClassFigures | None) -> str:
    """ "Lowest IoU: sign 12.0 %, pole 20.1 %, fence 33.4 %"; of the first measure."""
    if figures is None or not figures.measures:
        return ""
    title, values = next(iter(figures.measures.items()))
    told = sorted((value, position) for position, value in enumerate(values.tolist()) if not math.isnan(value))
    if not told:
        return f"No class has a value for {title}"
    named = [f"{classes[p] if p < len(classes) else f'class {p}'} {100 * v:.1f} %" for v, p in told[:_LOWEST]]
    return f"Lowest {title}: {', '.join(named)}"


def _why_empty(data: RunData, active: bool) -> str:
    if active:
        return "No per-class metrics yet.\n\nThey appear here after the first validation."
    if data.validations.step.values.size:
        return "This run has no per-class metrics.\n\nIts task may not compute any."
    return "This run ended before its first validation, so it has no per-class metrics."
