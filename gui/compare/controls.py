"""How the curves of compared runs are shown, and what can be saved of them."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QLabel, QMenu, QPushButton, QSlider, QToolButton, QWidget

from gui.compare.compared_run import Over
from gui.compare.curves import CompareCurves
from gui.style import theme
from gui.widgets.flow_layout import FlowLayout

_OVER: tuple[tuple[str, Over], ...] = (("Steps", "step"), ("Epochs", "epoch"), ("Time", "time"))
_SMOOTHEST = 99
"""The slider's end, in hundredths: a weight of 1 would never move."""


class CompareControls(QWidget):
    """Acts on the curves that it is given. `whole` and `save` are for whoever makes it to place.

    Signals: curves_wanted(), table_wanted(), image_wanted() - to be saved.
    """

    curves_wanted = Signal()
    table_wanted = Signal()
    image_wanted = Signal()

    def __init__(self, curves: CompareCurves, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._curves = curves
        self.over = QComboBox()
        self.over.addItems([title for title, _ in _OVER])
        self.over.setAccessibleName("Horizontal axis of the compared runs")
        self.over.currentIndexChanged.connect(lambda index: curves.set_over(_OVER[index][1]))
        self.smoothing = QSlider(Qt.Orientation.Horizontal)
        self.smoothing.setRange(0, _SMOOTHEST)
        self.smoothing.setPageStep(10)
        self.smoothing.setFixedWidth(120)
        self.smoothing.setAccessibleName("Smoothing of the compared runs")
        self.smoothing.setToolTip("Weight of the exponential moving average; the faint curves are the unsmoothed ones")
        self.smoothing.valueChanged.connect(self._smooth)
        self._weight = QLabel("0.00")
        self._weight.setFont(theme.tabular(self._weight.font()))
        self.log_scale = QCheckBox("Log&arithmic loss")
        self.log_scale.setAccessibleName("Logarithmic loss of the compared runs")
        self.log_scale.toggled.connect(curves.set_log)
        self.whole = QPushButton("Show whole runs")
        self.whole.setToolTip("Shows the curves from their beginning to their end again (Home)")
        self.whole.setEnabled(False)
        self.whole.clicked.connect(curves.group.follow)
        curves.group.following_changed.connect(lambda following: self.whole.setEnabled(not following))
        self.save = self._save_button()
        row = FlowLayout(self, spacing=8, line_spacing=4)
        row.addWidget(_label("&Over", self.over))
        row.addWidget(self.over)
        row.addWidget(_label("S&moothing", self.smoothing))
        for widget in (self.smoothing, self._weight, self.log_scale):
            row.addWidget(widget)

    def _save_button(self) -> QToolButton:
        button = QToolButton()
        button.setText("Save ▾")
        button.setAccessibleName("Save the comparison")
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(button)
        for text, wanted in (
            ("&Curves as CSV …", self.curves_wanted),
            ("&Table as CSV …", self.table_wanted),
            ("&Image as PNG …", self.image_wanted),
        ):
            menu.addAction(text).triggered.connect(wanted)
        button.setMenu(menu)
        return button

    def _smooth(self, hundredths: int) -> None:
        self._weight.setText(f"{hundredths / 100:.2f}")
        self._curves.set_smoothing(hundredths / 100)


def _label(text: str, of: QWidget) -> QLabel:
    label = QLabel(text)
    label.setObjectName("muted")
    label.setBuddy(of)
    return label
