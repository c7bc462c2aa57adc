"""Ground truth and predictions for some samples, at any validation of a run."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QStackedWidget, QToolButton, QVBoxLayout, QWidget

from engine.contract.events import PredictedSample
from engine.contract.legend import LegendEntry
from gui.run.predictions.image_pane import ImagePane, Zoom, read_image
from gui.run.predictions.sample_strip import SampleStrip
from gui.run.validation_slider import ValidationSlider
from gui.sources.run_data import RunData
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.empty_state import EmptyState
from gui.widgets.legend import Legend

_WAYS = (
    "On an image: Left and Right step through the validations, Up and Down through the samples; wheel or + and − "
    "zoom, drag or Shift+arrows pan"
)


class PredictionsView(QWidget):
    """Shows `Predicted` events of a run with the images in its folder. Renewed while it is in sight."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._data = RunData()
        self._folder = Path()
        self._active = False
        self._shown: tuple[object, ...] = ()
        self._legend: tuple[LegendEntry, ...] = ()
        self.validation_slider = ValidationSlider()
        self.zoom = Zoom(self)
        self.truth = ImagePane("Truth", self.zoom)
        self.prediction = ImagePane("Prediction", self.zoom)
        self.name = ElidedLabel()
        self.name.setObjectName("muted")
        self.truth_words, self.prediction_words = ElidedLabel(), ElidedLabel()
        self.legend = Legend()
        self.whole = QToolButton()
        self.whole.setObjectName("flat")
        self.whole.setText("Whole image")
        self.whole.setToolTip("Zooms out to the whole image (0)")
        self.whole.clicked.connect(self.zoom.reset)
        self.strip = SampleStrip()
        self._empty = EmptyState()
        self._stack = QStackedWidget()
        self._lay_out()
        self.validation_slider.moved.connect(lambda _position: self._show_moment())
        self.strip.sample_chosen.connect(lambda _position: self._show_sample())
        self.zoom.changed.connect(lambda: self.whole.setVisible(self.zoom.factor > 1))

    def restart(self) -> None:
        """Another run is to be shown."""
        self._data, self._shown = RunData(), ()
        self.validation_slider.restart()
        self.zoom.reset()
        self.strip.forget()
        self.strip.setCurrentRow(min(0, self.strip.count() - 1))

    def show_data(self, folder: Path, data: RunData, active: bool) -> None:
        """Shows what the run in `folder` has predicted; `active` where more may come."""
        self._folder, self._data, self._active = folder, data, active
        if self.isVisible():
            self._refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def sample(self) -> PredictedSample | None:
        """The one on screen."""
        return self.strip.sample(self.strip.currentRow())

    # Showing

    def _refresh(self) -> None:
        told = self._data.validation_details.predicted
        self._stack.setCurrentIndex(1 if told else 0)
        self._empty.setText(_why_empty(self._data, self._active))
        best = self._data.checkpoints.get("best")
        now = (len(told), id(told[-1]) if told else 0, best.step if best is not None else None, self._data.cuts)
        if not told or now == self._shown:
            return
        if self._shown and self._data.cuts != self._shown[-1]:
            self.strip.forget()  # files are written anew from there on
        self._shown = now
        if self.validation_slider.show_moments(told, self._data):
            self._show_moment()

    def _show_moment(self) -> None:
        told, position = self._data.validation_details.predicted, self.validation_slider.position
        if 0 <= position < len(told):
            self._legend = told[position].legend
            self.strip.show_samples(self._folder, told[position].samples)
            self._show_sample()

    def _show_sample(self) -> None:
        sample = self.sample()
        if sample is None:
            return
        self.name.setText(f"{sample.name} · sample {self.strip.currentRow() + 1} of {self.strip.count()}")
        self.name.setToolTip(sample.name)
        parts = (
            (self.truth, self.truth_words, sample.truth_png, sample.truth_words),
            (self.prediction, self.prediction_words, sample.prediction_png, sample.prediction_words),
        )
        for pane, label, png, words in parts:
            pane.show_image(read_image(self._folder, png), words or sample.name)
            label.setText(words)
            label.setToolTip(words)
            label.setVisible(bool(sample.truth_words or sample.prediction_words))
        self.legend.show_legend(self._legend, sample.legend)

    # Keys

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Those that the panes leave."""
        key = event.key()
        if key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self.validation_slider.go(1 if key == Qt.Key.Key_Right else -1)
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            slider = self.validation_slider.slider
            slider.setValue(slider.maximum() if key == Qt.Key.Key_End else 0)
        elif key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            row = self.strip.currentRow() + (1 if key == Qt.Key.Key_Down else -1)
            self.strip.setCurrentRow(min(self.strip.count() - 1, max(0, row)))
        elif key == Qt.Key.Key_B:
            self.validation_slider.go_to_best()
        else:
            super().keyPressEvent(event)

    def _lay_out(self) -> None:
        body = QWidget()
        body.setToolTip(_WAYS)
        layout = QVBoxLayout(body)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.validation_slider)
        policy = self.whole.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.whole.setSizePolicy(policy)
        self.whole.hide()
        grid = QGridLayout()
        grid.setHorizontalSpacing(10)
        grid.setVerticalSpacing(3)
        for column, (title, pane, words) in enumerate(
            (("Truth", self.truth, self.truth_words), ("Prediction", self.prediction, self.prediction_words))
        ):
            heading = QLabel(title)
            heading.setObjectName("heading")
            grid.addWidget(heading, 0, column)
            grid.addWidget(pane, 1, column)
            grid.addWidget(words, 2, column)
            grid.setColumnStretch(column, 1)
        grid.addWidget(self.whole, 0, 1, Qt.AlignmentFlag.AlignRight)
        grid.setRowStretch(1, 1)
        layout.addLayout(grid, 1)
        layout.addWidget(self.legend)
        layout.addWidget(self.name)
        layout.addWidget(self.strip)
        self._stack.addWidget(self._empty)
        self._stack.addWidget(body)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self._stack)

    def sizeHint(self) -> QSize:
        return QSize(600, 560)


def _why_empty(data: RunData, active: bool) -> str:
    job = data.started.job if data.started is not None else None
    if job is not None and job.checkpoints.predictions == 0:
        return (
            "This run saves no predictions.\n\nSet Predictions kept, under Checkpoints, to save some in the next run."
        )
    if active:
        return "No predictions yet.\n\nPredictions for some validation samples appear here after the first validation."
    if data.validations.step.values.size:
        return "This run saved no predictions."
    return "This run ended before its first validation, so it has no predictions."
