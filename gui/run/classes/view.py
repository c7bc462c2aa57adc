"""Metrics of the classes at any validation of a run."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from gui.run.classes.figures_view import ClassFiguresView
from gui.run.validation_slider import ValidationSlider
from gui.sources.run_data import RunData
from gui.sources.run_series import ClassFigures
from gui.translation import tr
from gui.widgets.empty_state import EmptyState
from gui.widgets.layouts import vbox


class ClassesView(QWidget):
    """Metrics of the classes at the validation chosen by a slider, refreshed while visible.

    Signals:
        message(str, str): outcome of saving; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._data = RunData()
        self._is_active = False
        self._shown: tuple[object, ...] = ()
        self.validation_slider = ValidationSlider()
        self.shown = ClassFiguresView("class")
        self.shown.message.connect(self.message)
        self._empty = EmptyState()
        self._stack = QStackedWidget()
        self._lay_out()
        self.validation_slider.moved.connect(lambda _position: self._show_figures())

    def restart(self) -> None:
        """Prepare for another run."""
        self._data, self._shown = RunData(), ()
        self.validation_slider.restart()
        self.shown.restart()

    def show_data(self, data: RunData, is_active: bool) -> None:
        """Show the metrics of the classes in `data`; more may follow if the run `is_active`."""
        self._data, self._is_active = data, is_active
        if self.isVisible():
            self._refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def _refresh(self) -> None:
        figures = self._data.validation_details.classes
        self._stack.setCurrentIndex(1 if figures else 0)
        self._empty.setText(_empty_text(self._data, self._is_active))
        best = self._data.checkpoints.get("best")
        newest = figures[-1] if figures else None
        state = (len(figures), id(newest), best.step if best is not None else None, self._data.plan is not None)
        if figures and state != self._shown:
            self._shown = state
            if self.validation_slider.show_validations(figures, self._data):
                self._show_figures()

    def figures(self) -> ClassFigures | None:
        """Return the figures on screen."""
        figures, position = self._data.validation_details.classes, self.validation_slider.position
        return figures[position] if 0 <= position < len(figures) else None

    def _classes(self) -> tuple[str, ...]:
        return self._data.plan.classes if self._data.plan is not None else ()

    def _show_figures(self) -> None:
        self.shown.show_figures(self._classes(), self.figures())

    def _lay_out(self) -> None:
        body = QWidget()
        body.setLayout(vbox(self.validation_slider, (self.shown, 1)))
        self._stack.addWidget(self._empty)
        self._stack.addWidget(body)
        self.setLayout(vbox(self._stack))


def _empty_text(data: RunData, is_active: bool) -> str:
    if is_active:
        return tr("No per-class metrics yet.\n\nThey appear here after the first validation.")
    if data.validations.step.values.size:
        return tr("This run has no per-class metrics.\n\nIts task may not compute any.")
    return tr("This run ended before its first validation, so it has no per-class metrics.")
