"""Which of a run's validations is looked at: a slider through all of them, which stays with the newest while it is
there.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSlider, QToolButton, QWidget

from engine.contract.events import Predicted
from gui.format import localised
from gui.sources.run_data import RunData
from gui.sources.run_series import ClassFigures
from gui.style import theme

_KEYS = "Left and Right step through the validations; Home and End go to the first and the newest"


class ValidationSlider(QWidget):
    """Signals: moved(int) - another validation is looked at, by its place among those shown.

    Attributes: position - of the one looked at, from 0; -1 while there is none.
    """

    moved = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.position = -1
        self._moments: Sequence[ClassFigures | Predicted] = ()
        self._epochs = 0
        self._best: int | None = None
        self.back = _button("◂", "Previous validation")
        self.forth = _button("▸", "Next validation")
        self.best = QToolButton()
        self.best.setText("Best")
        self.best.setToolTip("Goes to the validation of the best checkpoint (B)")
        self.best.setAccessibleName("Go to the validation of the best checkpoint")
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName("Validation")
        self.slider.setToolTip(_KEYS)
        self.slider.setMinimumWidth(90)
        self.slider.setPageStep(10)
        self.words = QLabel()
        self.words.setFont(theme.tabular(self.words.font()))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        row.addWidget(self.back)
        row.addWidget(self.slider, 1)
        row.addWidget(self.forth)
        row.addWidget(self.best)
        row.addWidget(self.words)
        self.back.clicked.connect(lambda: self.go(-1))
        self.forth.clicked.connect(lambda: self.go(1))
        self.best.clicked.connect(self.go_to_best)
        self.slider.valueChanged.connect(self._move)

    def restart(self) -> None:
        """Another run is to be shown."""
        self.position, self._moments, self._best = -1, (), None

    def show_moments(self, validation_slider: Sequence[ClassFigures | Predicted], data: RunData) -> bool:
        """Offers `validation_slider`, those of `data`; true where another one is looked at than before."""
        before = self._moment()
        at_end = self.position in (-1, self.slider.maximum())
        # A copy: what is handed on goes on growing, and is cut.
        self._moments = tuple(validation_slider)
        self._epochs = data.plan.epochs if data.plan is not None else 0
        saved = data.checkpoints.get("best")
        steps = [moment.step for moment in self._moments]
        self._best = steps.index(saved.step) if saved is not None and saved.step in steps else None
        last = len(self._moments) - 1
        self.position = last if at_end else min(self.position, last)
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, max(0, last))
            self.slider.setValue(max(0, self.position))
        self._say()
        return self._moment() is not before

    def go(self, by: int) -> None:
        """Moves on by so many validations, as far as there are any."""
        self.slider.setValue(self.slider.value() + by)

    def go_to_best(self) -> None:
        if self._best is not None:
            self.slider.setValue(self._best)

    def _moment(self) -> ClassFigures | Predicted | None:
        return self._moments[self.position] if 0 <= self.position < len(self._moments) else None

    def _move(self, position: int) -> None:
        self.position = position
        self._say()
        self.moved.emit(position)

    def _say(self) -> None:
        moment = self._moment()
        last = len(self._moments) - 1
        self.back.setEnabled(self.position > 0)
        self.forth.setEnabled(self.position < last)
        self.best.setEnabled(self._best is not None and self.position != self._best)
        if moment is None:
            self.words.setText("")
            return
        of = f" of {self._epochs}" if self._epochs else ""
        marks = [
            mark for mark, there in (("newest", self.position == last), ("best", self.position == self._best)) if there
        ]
        text = f"Epoch {moment.epoch}{of} · step {localised(moment.step)}" + (f" ({', '.join(marks)})" if marks else "")
        self.words.setText(text)
        self.slider.setAccessibleDescription(text)


def _button(text: str, meaning: str) -> QToolButton:
    button = QToolButton()
    button.setText(text)
    button.setToolTip(meaning)
    button.setAccessibleName(meaning)
    button.setAutoRepeat(True)
    return button
