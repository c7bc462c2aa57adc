"""Editor of a threshold from 0 to 1: a slider and a number."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QDoubleSpinBox, QSlider, QWidget

from gui.format import locale
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import field_label
from gui.widgets.layouts import hbox

_STEPS = 1000


class ThresholdRow(QWidget):
    """Editor of a threshold from 0 to 1.

    Signals:
        changed(float): the new threshold.
    """

    changed = Signal(float)

    def __init__(self, text: str, name: str) -> None:
        """Create a row with a label `text` and an accessible name."""
        super().__init__()
        self._value = 0.0
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setRange(0, _STEPS)
        self.slider.setSingleStep(_STEPS // 100)
        self.slider.setPageStep(_STEPS // 10)
        self.slider.setMinimumWidth(90)
        self.slider.setAccessibleName(name)
        self.slider.setToolTip(tr("Left and Right change it by 0.01, PgUp and PgDown by 0.1"))
        self.number = styled(QDoubleSpinBox(), name=f"{name} as a number")
        self.number.setRange(0.0, 1.0)
        self.number.setDecimals(3)
        self.number.setSingleStep(0.01)
        self.number.setLocale(locale())
        self.number.lineEdit().setTextMargins(6, 0, 0, 0)  # a style sheet's left padding has no effect here
        self.setLayout(hbox(field_label(text, self.number), (self.slider, 1), self.number))
        self.slider.valueChanged.connect(lambda value: self.set(value / _STEPS))
        self.number.valueChanged.connect(self.set)

    def value(self) -> float:
        """Return the threshold at full precision, beyond the displayed digits."""
        return self._value

    def set(self, value: float) -> None:
        """Set the threshold and emit `changed`."""
        self._value = value
        with QSignalBlocker(self.slider), QSignalBlocker(self.number):
            self.slider.setValue(round(value * _STEPS))
            self.number.setValue(value)
        self.changed.emit(value)
