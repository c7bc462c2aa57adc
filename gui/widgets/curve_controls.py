"""Controls for curves: horizontal axis, smoothing, and logarithmic loss."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QLabel, QSlider, QWidget

from gui.format import localized
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.editors import ComboBox
from gui.widgets.labels import labeled
from gui.widgets.layouts import FlowLayout

_SMOOTHEST = 99
"""Maximum of the smoothing slider, in hundredths. With a weight of 1, the average would never change."""


class CurveControls(QWidget):
    """Row of controls for curves.

    Signals:
        axis_chosen(str): the user has selected a horizontal axis.
        smoothed(float): the user has set the weight of the moving average, at least 0 and less than 1.
        log_toggled(bool): the user has switched the logarithmic loss on or off.
    """

    axis_chosen = Signal(str)
    smoothed = Signal(float)
    log_toggled = Signal(bool)

    def __init__(self, axes: Sequence[tuple[str, str]], *, name_pattern: str = "{control}") -> None:
        """Create the row of controls.

        Args:
            axes: Title of each horizontal axis, and the value that `axis_chosen` sends for it.
            name_pattern: Pattern of the accessible names, such as “{control} of the compared runs”.
        """
        super().__init__()
        self.axis = ComboBox()
        for title, axis in axes:
            self.axis.addItem(title, axis)
        self.axis.setAccessibleName(name_pattern.format(control=tr("Horizontal axis")))
        self.axis.currentIndexChanged.connect(lambda _index: self.axis_chosen.emit(self.axis.currentData()))
        self.smoothing = QSlider(Qt.Orientation.Horizontal)
        self.smoothing.setRange(0, _SMOOTHEST)
        self.smoothing.setPageStep(10)
        self.smoothing.setMinimumWidth(60)
        self.smoothing.setMaximumWidth(180)
        self.smoothing.setAccessibleName(name_pattern.format(control=tr("Smoothing")))
        self.smoothing.setToolTip(tr("Weight of the exponential moving average; faint curves are unsmoothed"))
        self.smoothing.valueChanged.connect(self._on_smoothing_changed)
        self._weight = QLabel("0.00")
        self._weight.setFont(theme.with_tabular_digits(self._weight.font()))
        self.log_scale = styled(
            QCheckBox(tr("Log&arithmic loss")), name=name_pattern.format(control=tr("Logarithmic loss"))
        )
        self.log_scale.toggled.connect(self.log_toggled)
        flow = FlowLayout(self, spacing=12, line_spacing=4)
        flow.addWidget(labeled(tr("&Over"), self.axis, spacing=8))
        flow.addWidget(labeled(tr("S&moothing"), self.smoothing, self._weight, spacing=8))
        flow.addWidget(self.log_scale)

    def _on_smoothing_changed(self, hundredths: int) -> None:
        """Show the weight of the moving average and emit it. The slider's value is in hundredths."""
        self._weight.setText(localized(hundredths / 100, 2))
        self.smoothed.emit(hundredths / 100)
