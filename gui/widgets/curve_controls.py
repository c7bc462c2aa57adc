"""How curves are shown: over what, how smooth, and with a logarithmic loss."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QHBoxLayout, QLabel, QSlider, QWidget

from gui.format import localised
from gui.style import theme

_SMOOTHEST = 99
"""The slider's end, in hundredths: a weight of 1 would never move."""


class CurveControls(QWidget):
    """Signals:
    axis_chosen(str): the curves are to be drawn over that one of the axes.
    smoothed(float): the weight of their moving average, from 0 on and below 1.
    log_toggled(bool): whether the loss has a logarithmic axis.
    """

    axis_chosen = Signal(str)
    smoothed = Signal(float)
    log_toggled = Signal(bool)

    def __init__(self, axes: Sequence[tuple[str, str]], *after: QWidget, of: str = "") -> None:
        """`axes` are titles and what `axis_chosen` tells of each; `after` stands at the end of the row; `of` ends the names
        that screen readers tell, such as " of the compared runs"."""
        super().__init__()
        self.axis = QComboBox()
        for title, axis in axes:
            self.axis.addItem(title, axis)
        self.axis.setAccessibleName(f"Horizontal axis{of}")
        self.axis.currentIndexChanged.connect(lambda _index: self.axis_chosen.emit(self.axis.currentData()))
        self.smoothing = QSlider(Qt.Orientation.Horizontal)
        self.smoothing.setRange(0, _SMOOTHEST)
        self.smoothing.setPageStep(10)
        self.smoothing.setMinimumWidth(60)
        self.smoothing.setMaximumWidth(180)
        self.smoothing.setAccessibleName(f"Smoothing{of}")
        self.smoothing.setToolTip("Weight of the exponential moving average; faint curves are unsmoothed")
        self.smoothing.valueChanged.connect(self._smooth)
        self._weight = QLabel("0.00")
        self._weight.setFont(theme.tabular(self._weight.font()))
        self.log_scale = QCheckBox("Log&arithmic loss")
        self.log_scale.setAccessibleName(f"Logarithmic loss{of}")
        self.log_scale.toggled.connect(self.log_toggled)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        for text, control in (("&Over", self.axis), ("S&moothing", self.smoothing)):
            label = QLabel(text)
            label.setObjectName("muted")
            label.setBuddy(control)
            row.addWidget(label)
            row.addWidget(control)
        row.addWidget(self._weight)
        row.addWidget(self.log_scale)
        row.addStretch(1)
        for widget in after:
            row.addWidget(widget)

    def _smooth(self, hundredths: int) -> None:
        self._weight.setText(localised(hundredths / 100, 2))
        self.smoothed.emit(hundredths / 100)
