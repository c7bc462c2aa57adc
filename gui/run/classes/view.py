"""View of the class metrics at any validation of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QItemSelection, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLineEdit, QSplitter, QWidget

from gui.actions import Action
from gui.format import localized
from gui.run.classes.confusion_matrix import ConfusionMatrix
from gui.run.classes.table import ClassTable, class_names, make_class_metric_rows, make_confusion_rows
from gui.run.validation_slider import ValidationsView
from gui.sources.export import Rows, save_in_background, write_csv
from gui.sources.run_series import ClassMetrics
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.file_dialogs import add_timestamp, choose_target
from gui.widgets.labels import ElidedLabel, field_label
from gui.widgets.layouts import create_save_button, hbox, scroll_panel, vbox


class ClassesView(ValidationsView):
    """View of the class metrics at the validation that a slider selects.

    Signals:
        message(str, str): the result of saving a file, with the severity "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.content = ClassMetricsView("class")
        self.content.message.connect(self.message)
        body = QWidget()
        body.setLayout(vbox(self.validation_slider, (self.content, 1)))
        self._stack.addWidget(body)

    def reset(self) -> None:
        super().reset()
        self.content.reset()

    def find_metrics(self) -> ClassMetrics | None:
        """Return the class metrics at the selected validation, or None if there are none."""
        validations, position = self._validations(), self.validation_slider.position
        return validations[position] if 0 <= position < len(validations) else None

    def _validations(self) -> Sequence[ClassMetrics]:
        return self._data.validation_details.classes

    def _show_validation(self) -> None:
        plan = self._data.plan
        self.content.show_metrics(plan.classes if plan is not None else (), self.find_metrics())

    def _empty_text(self) -> str:
        if self._is_active:
            return tr("No per-class metrics yet.\n\nThey appear here after the first validation.")
        if self._data.validations.step.values.size:
            return tr("This run has no per-class metrics.\n\nIts task may not compute any.")
        return tr("This run ended before its first validation, so it has no per-class metrics.")


_FILTERED_FROM = 12
"""Minimum number of classes for offering a filter."""
_SIDE_BY_SIDE = 860
"""Minimum width in pixels, at a text size of 100%, for placing the matrix next to the table."""
_WORST_COUNT = 3


class ClassMetricsView(QWidget):
    """View of the metrics of all classes at one validation or in one evaluation.

    The selected class and cell remain selected if other metrics are shown.

    Signals:
        message(str, str): the result of saving a file, with the severity "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self, name: str, *parts: QWidget) -> None:
        """Create the view. `name` makes its action ids unique, and `parts` are placed above the matrix."""
        super().__init__()
        self._classes: tuple[str, ...] = ()
        self._metrics: ClassMetrics | None = None
        self.headline = styled(ElidedLabel(), "heading")
        self.filter = styled(QLineEdit(clearButtonEnabled=True), name=tr("Filter classes"))
        self.filter.setMaximumWidth(150)
        self._filter_label = field_label(tr("Filter"), self.filter)
        self.table = ClassTable()
        self.matrix = ConfusionMatrix()
        self.cell = styled(ElidedLabel(), "muted")
        metrics = Action(self, f"save_{name}_measures", tr("Metrics per class as CSV…"))
        metrics.on_trigger(lambda: self._choose_file("classes", self.save_metrics))
        self._confusion_action = Action(self, f"save_{name}_confusion", tr("Confusion matrix as CSV…"))
        self._confusion_action.on_trigger(lambda: self._choose_file("confusion", self.save_confusion))
        self.save = create_save_button(
            tr("Save"), tr("Save the displayed data as CSV"), (metrics, self._confusion_action)
        )
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._lay_out(parts)
        self.filter.textChanged.connect(self._on_filter_changed)
        self.table.selectionModel().selectionChanged.connect(self._on_class_chosen)
        self.matrix.cell_chosen.connect(self._on_cell_chosen)

    def reset(self) -> None:
        """Reset the filter and the selection for another run or evaluation."""
        self._classes, self._metrics = (), None
        self.matrix.cell = None
        self.table.clearSelection()
        self.filter.clear()

    def show_metrics(self, classes: tuple[str, ...], metrics: ClassMetrics | None) -> None:
        """Show the metrics of `classes`, or nothing if `metrics` is None.

        The filter is only visible for `_FILTERED_FROM` classes or more.
        """
        self._classes, self._metrics = classes, metrics
        self.table.show_metrics(classes, metrics)
        confusion = metrics.confusion if metrics is not None else None
        self.matrix.show_counts(classes, confusion)
        self._matrix_area.setVisible(confusion is not None)
        self._confusion_action.set_disabled_reason("" if confusion is not None else tr("No confusion matrix"))
        for widget in (self._filter_label, self.filter):
            widget.setVisible(len(self.table.model_.names) >= _FILTERED_FROM)
        text = _describe_worst_classes(classes, metrics)
        self.headline.setText(text)
        self._show_cell()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Place the matrix next to the table in a wide view, otherwise below it."""
        super().resizeEvent(event)
        is_wide = self.width() >= theme.scale_pixels(_SIDE_BY_SIDE)
        self._splitter.setOrientation(Qt.Orientation.Horizontal if is_wide else Qt.Orientation.Vertical)

    def _show_cell(self) -> None:
        """Describe the selected cell of the confusion matrix. If none is selected, describe the most common mistake."""
        cell = self.matrix.cell
        text = self.matrix.describe_cell(*cell) if cell is not None else self.matrix.describe_mistake()
        self.cell.setText(text)

    def _on_class_chosen(self, chosen: QItemSelection, _before: QItemSelection) -> None:
        """Select the cell of the correct predictions of the class that was selected in the table."""
        position = self.table.selected_class()
        if chosen.isEmpty() or position is None:
            return
        if self.matrix.cell is None or self.matrix.cell[0] != position:
            self.matrix.choose(position, position)

    def _on_cell_chosen(self, row: int, _column: int, _text: str) -> None:
        """Select the class of the row in the table, and describe the cell."""
        self.table.choose(row)
        self._show_cell()

    def _on_filter_changed(self, text: str) -> None:
        self.table.rows.setFilterFixedString(text.strip())

    # Saving

    def save_metrics(self, path: Path) -> None:
        """Write the visible metrics to a CSV file."""
        if self._metrics is not None:
            self._save(path, make_class_metric_rows(self._classes, self._metrics))

    def save_confusion(self, path: Path) -> None:
        """Write the visible confusion matrix to a CSV file."""
        if self._metrics is not None and self._metrics.confusion is not None:
            self._save(path, make_confusion_rows(self._classes, self._metrics.confusion))

    def _save(self, path: Path, rows: Rows) -> None:
        save_in_background(partial(write_csv, path, rows), self.message, tr("The table was saved to {path}."), self)

    def _choose_file(self, content: str, save: Callable[[Path], None]) -> None:
        """Open a dialog for a CSV file, and call `save` with its path. `content` is part of the suggested name."""
        choose_target(self, tr("Save as CSV"), add_timestamp(f"{content}.csv"), save)

    def _lay_out(self, above_matrix: tuple[QWidget, ...]) -> None:
        """Lay out the view. The widgets `above_matrix` are in the same area as the confusion matrix."""
        self._matrix_area = QWidget()
        matrix_layout = vbox(*above_matrix, self.cell, (scroll_panel(self.matrix), 1), spacing=4, margins=(6, 6, 0, 0))
        self._matrix_area.setLayout(matrix_layout)
        self._matrix_area.setMinimumHeight(150)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.addWidget(self.table)
        self._splitter.addWidget(self._matrix_area)
        self._splitter.setStretchFactor(0, 2)
        self._splitter.setStretchFactor(1, 3)
        top = hbox((self.headline, 1), self._filter_label, self.filter, self.save)
        self.setLayout(vbox(top, (self._splitter, 1)))


def _describe_worst_classes(classes: tuple[str, ...], metrics: ClassMetrics | None) -> str:
    """Describe the worst classes by the first metric, as in "Lowest IoU: sign 12.0%, pole 20.1%".

    Returns "" if `metrics` is None or contains no values.
    """
    if metrics is None or not metrics.measures:
        return ""
    title, values = next(iter(metrics.measures.items()))
    ranked = sorted((value, position) for position, value in enumerate(values.tolist()) if not math.isnan(value))
    if not ranked:
        return tr("No class has a value for {title}").format(title=title)
    names = class_names(classes, len(values))
    worst = [f"{names[position]} {localized(100 * value, 1)}%" for value, position in ranked[:_WORST_COUNT]]
    return tr("Lowest {title}: {named}").format(title=title, named=", ".join(worst))
