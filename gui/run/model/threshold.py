"""A probability from which on something counts, to be dragged or typed."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QDoubleSpinBox, QHBoxLayout, QLabel, QSlider, QWidget

from gui.format import locale

_STEPS = 1000


class ThresholdRow(QWidget):
    """Signals: moved(float) - the threshold is another, from 0 to 1."""

    moved = Signal(float)

    def __init__(self, words: str, name: str) -> None:
        """`words` stand before it; `name` is what screen readers call it."""
        super().__init__()
        self._value = 0.0
        self.words = QLabel(words)
        self.words.setObjectName("muted")
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setRange(0, _STEPS)
        self.slider.setSingleStep(_STEPS // 100)
        self.slider.setPageStep(_STEPS // 10)
        self.slider.setMinimumWidth(90)
        self.slider.setAccessibleName(name)
        self.slider.setToolTip("Left and Right move by 0.01, PgUp and PgDown by 0.1")
        self.number = QDoubleSpinBox()
        self.number.setRange(0.0, 1.0)
        self.number.setDecimals(3)
        self.number.setSingleStep(0.01)
        self.number.setLocale(locale())
        self.number.lineEdit().setTextMargins(6, 0, 0, 0)  # a style sheet's left padding has no effect here
        self.number.setAccessibleName(f"{name} as a number")
        self.words.setBuddy(self.number)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(self.words)
        row.addWidget(self.slider, 1)
        row.addWidget(self.number)
        self.slider.valueChanged.connect(lambda value: self.set(value / _STEPS))
        self.number.valueChanged.connect(self.set)

    def value(self) -> float:
        """In full, though less of it is on screen."""
        return self._value

    def set(self, value: float) -> None:
        """Moves it, and tells of it."""
        self._value = value
        with QSignalBlocker(self.slider), QSignalBlocker(self.number):
            self.slider.setValue(round(value * _STEPS))
            self.number.setValue(value)
        self.moved.emit(value)
