"""Slider that selects a validation of a run, and base class of the views with it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLabel, QSlider, QStackedWidget, QToolButton, QWidget

from engine.contract.events import Predicted
from gui.format import localized
from gui.sources.run_data import RunData
from gui.sources.run_series import ClassMetrics
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled, tool_button
from gui.widgets.labels import EmptyState
from gui.widgets.layouts import hbox, vbox

_KEYS = tr("Left and Right step through the validations; Home and End go to the first and the newest")


class ValidationSlider(QWidget):
    """Slider that selects a validation of a run.

    Signals:
        moved(int): the index of the selected validation.

    Attributes:
        position: Index of the selected validation, or -1 if there is none.
    """

    moved = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.position = -1
        self._validations: Sequence[ClassMetrics | Predicted] = ()
        self._planned_epochs = 0  # 0 if unknown
        self._best_position: int | None = None
        self.previous = create_step_button("◂", tr("Previous validation"))
        self.next = create_step_button("▸", tr("Next validation"))
        self.best = QToolButton()
        self.best.setText(tr("Best"))
        self.best.setToolTip(tr("Show the validation of the best checkpoint (B)"))
        self.best.setAccessibleName(tr("Show the validation of the best checkpoint"))
        self.slider = styled(QSlider(Qt.Orientation.Horizontal), name=tr("Validation"), tip=_KEYS)
        self.slider.setMinimumWidth(90)
        self.label = QLabel()
        self.label.setFont(theme.with_tabular_digits(self.label.font()))
        self.setLayout(hbox(self.previous, (self.slider, 1), self.next, self.best, self.label, spacing=6))
        self.previous.clicked.connect(lambda: self.step(-1))
        self.next.clicked.connect(lambda: self.step(1))
        self.best.clicked.connect(self.show_best)
        self.slider.valueChanged.connect(self._on_moved)

    def reset(self) -> None:
        """Forget the selected validation, so that the next call of `show_validations` selects the newest one."""
        self.position, self._validations, self._best_position = -1, (), None

    def show_validations(self, validations: Sequence[ClassMetrics | Predicted], data: RunData) -> bool:
        """Offer these validations of a run. If the newest one was selected, select the newest one again.

        `data` is the data of the run, with the planned epochs and the best checkpoint. Returns True if another
        validation is selected afterwards, which the caller should show.
        """
        previous = self._selected()
        is_at_end = self.position in (-1, self.slider.maximum())
        # Copy the list, because the session extends and truncates it.
        self._validations = tuple(validations)
        self._planned_epochs = data.plan.epochs if data.plan is not None else 0
        saved = data.checkpoints.get("best")
        steps = [validation.step for validation in self._validations]
        self._best_position = steps.index(saved.step) if saved is not None and saved.step in steps else None
        last = len(self._validations) - 1
        self.position = last if is_at_end else min(self.position, last)
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, max(0, last))
            self.slider.setValue(max(0, self.position))
        self._show_position()
        return self._selected() is not previous

    def step(self, count: int) -> None:
        """Move by `count` validations, but not beyond the first and the last."""
        self.slider.setValue(self.slider.value() + count)

    def show_best(self) -> None:
        if self._best_position is not None:
            self.slider.setValue(self._best_position)

    def _selected(self) -> ClassMetrics | Predicted | None:
        """Return the selected validation, or None if there is none."""
        return self._validations[self.position] if 0 <= self.position < len(self._validations) else None

    def _on_moved(self, position: int) -> None:
        self.position = position
        self._show_position()
        self.moved.emit(position)

    def _show_position(self) -> None:
        """Describe the selected validation, and enable the buttons that lead to another one."""
        validation = self._selected()
        last = len(self._validations) - 1
        self.previous.setEnabled(self.position > 0)
        self.next.setEnabled(self.position < last)
        self.best.setEnabled(self._best_position is not None and self.position != self._best_position)
        if validation is None:
            self.label.setText("")
            return
        places = ((tr("newest"), last), (tr("best"), self._best_position))
        marks = [mark for mark, position in places if position == self.position]
        text = (
            tr("Epoch {epoch} of {epochs} · step {step}") if self._planned_epochs else tr("Epoch {epoch} · step {step}")
        ).format(epoch=validation.epoch, epochs=self._planned_epochs, step=localized(validation.step))
        if marks:
            text += f" ({', '.join(marks)})"
        self.label.setText(text)
        self.slider.setAccessibleDescription(text)


class ValidationsView(QWidget):
    """Base class of the views that show one of a run's validations, which a slider selects.

    Subclasses add the widget for a validation to `_stack`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._data = RunData()
        self._is_active = False
        self._displayed_state: tuple[object, ...] = ()  # state at the last refresh
        self.validation_slider = ValidationSlider()
        self._empty = EmptyState()
        self._stack = QStackedWidget()
        self._stack.addWidget(self._empty)
        self.setLayout(vbox(self._stack))
        self.validation_slider.moved.connect(lambda _position: self._show_validation())

    def reset(self) -> None:
        """Forget the validations and the selected one, before another run is shown."""
        self._data, self._displayed_state = RunData(), ()
        self.validation_slider.reset()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def show_data(self, data: RunData, is_active: bool) -> None:
        """Show the validations in `data`. More may follow if the run `is_active`."""
        self._data, self._is_active = data, is_active
        if self.isVisible():
            self._refresh()

    def _refresh(self) -> None:
        """Update the slider and the visible validation if the run's data has changed, or show why there is none."""
        validations, best = self._validations(), self._data.checkpoints.get("best")
        self._stack.setCurrentIndex(1 if validations else 0)
        self._empty.setText(self._empty_text())
        if not validations:
            return
        best_step = best.step if best is not None else None
        # The plan contains the names of the classes.
        state = (len(validations), id(validations[-1]), best_step, self._data.plan is not None, self._data.rollbacks)
        if state != self._displayed_state:
            self._displayed_state = state
            if self.validation_slider.show_validations(validations, self._data):
                self._show_validation()

    def _validations(self) -> Sequence[ClassMetrics | Predicted]:
        """Return the validations of the run, the newest last."""
        raise NotImplementedError

    def _empty_text(self) -> str:
        """Explain why there are no validations to show."""
        raise NotImplementedError

    def _show_validation(self) -> None:
        """Show the validation that the slider selects."""
        raise NotImplementedError


def create_step_button(arrow: str, name: str, tip: str = "") -> QToolButton:
    """Create a button that repeats while it is held. It displays `arrow`, and its tool tip is `tip` or else `name`."""
    button = tool_button(text=arrow, name=name, tip=tip or name)
    button.setAutoRepeat(True)
    return button
