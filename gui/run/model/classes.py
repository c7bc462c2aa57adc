"""Metrics of each class with intervals, and the confusion matrix above a confidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.contract.inference.evaluation import Evaluation, Interval
from gui.run.classes.figures_view import ClassFiguresView
from gui.run.model.threshold import ThresholdRow
from gui.sources.columns import Floats
from gui.sources.evaluations import OpenedEvaluation, confusion_at
from gui.sources.run_series import ClassFigures
from gui.translation import tr
from gui.widgets.layouts import vbox
from gui.widgets.tab_order import order_tabs


class ClassesPage(QWidget):
    """Classes of an evaluation.

    Signals:
        cell_opened(int, int): true and predicted class index whose samples to show.
    """

    cell_opened = Signal(int, int)

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self.threshold = ThresholdRow(tr("Minimum confidence"), tr("Minimum confidence of predictions"))
        self.threshold.setToolTip(tr("Predictions below it count as none of the classes"))
        self.figures = ClassFiguresView("evaluated_class", self.threshold)
        self.setLayout(vbox(self.figures))
        order_tabs(self, (self.figures.filter, self.figures.table, self.threshold, self.figures.matrix))
        self.threshold.changed.connect(lambda _value: self._show())
        self.figures.matrix.cell_opened.connect(self._on_cell_opened)
        self.figures.save.hide()  # the evaluation bar saves it
        self.figures.matrix.setToolTip(tr("Click a cell or press Enter to show its samples"))

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        self._opened = opened
        self.figures.restart()
        self.threshold.setVisible(confusion_at(opened.samples, 0, 0.0) is not None)
        self.threshold.set(0.0)

    def _show(self) -> None:
        if self._opened is None:
            return
        evaluation = self._opened.evaluation
        confusion = _confusion(evaluation)
        threshold = self.threshold.value()
        if threshold > 0:
            confusion = confusion_at(self._opened.samples, len(evaluation.classes), threshold)
        measures = {title: _values(column) for title, column in evaluation.per_class.items()}
        intervals = {title: _bounds(column) for title, column in evaluation.per_class.items()}
        self.figures.show_figures(evaluation.classes, ClassFigures(0, 0, measures, confusion, intervals))

    def _on_cell_opened(self, row: int, column: int) -> None:
        if self._opened is not None:
            self.cell_opened.emit(row, column)


def has_classes(evaluation: Evaluation) -> bool:
    """Return True if the evaluation has metrics per class or a confusion matrix."""
    return bool(evaluation.per_class or evaluation.confusion)


def _confusion(evaluation: Evaluation) -> np.ndarray | None:
    width = len(evaluation.confusion)
    square = width > 0 and all(len(row) == width for row in evaluation.confusion)
    return np.array(evaluation.confusion, np.int64) if square else None


def _values(column: Sequence[Interval | None]) -> Floats:
    return np.array([np.nan if each is None else each.value for each in column], np.float64)


def _bounds(column: Sequence[Interval | None]) -> Floats:
    nan = float("nan")
    rows = [
        (nan, nan) if each is None or each.low is None or each.high is None else (each.low, each.high)
        for each in column
    ]
    return np.array(rows, np.float64).reshape(-1, 2)
