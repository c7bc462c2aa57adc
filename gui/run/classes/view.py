"""How a run does on each class: a table of measures and the confusion matrix, of any of its validations."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QStackedWidget, QVBoxLayout, QWidget

from gui.run.classes.figures_view import ClassFiguresView
from gui.run.validation_slider import ValidationSlider
from gui.sources.run_data import RunData
from gui.sources.run_series import ClassFigures
from gui.widgets.empty_state import EmptyState


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
        self.shown = ClassFiguresView("class")
        self.shown.message.connect(self.message)
        self._empty = EmptyState()
        self._stack = QStackedWidget()
        self._lay_out()
        self.validation_slider.moved.connect(lambda _position: self._show_figures())

    def restart(self) -> None:
        """Another run is to be shown."""
        self._data, self._shown = RunData(), ()
        self.validation_slider.restart()
        self.shown.restart()

    def show_data(self, data: RunData, active: bool) -> None:
        """Shows what the run has said of its classes; `active` where more may come."""
        self._data, self._active = data, active
        if self.isVisible():
            self._refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    # Showing

    def _refresh(self) -> None:
        told = self._data.validation_details.classes
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
        told, position = self._data.validation_details.classes, self.validation_slider.position
        return told[position] if 0 <= position < len(told) else None

    def _classes(self) -> tuple[str, ...]:
        return self._data.plan.classes if self._data.plan is not None else ()

    def _show_figures(self) -> None:
        self.shown.show_figures(self._classes(), self.figures())

    def _lay_out(self) -> None:
        body = QWidget()
        layout = QVBoxLayout(body)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.validation_slider)
        layout.addWidget(self.shown, 1)
        self._stack.addWidget(self._empty)
        self._stack.addWidget(body)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self._stack)


def _why_empty(data: RunData, active: bool) -> str:
    if active:
        return "No per-class metrics yet.\n\nThey appear here after the first validation."
    if data.validations.step.values.size:
        return "This run has no per-class metrics.\n\nIts task may not compute any."
    return "This run ended before its first validation, so it has no per-class metrics."
