"""Truth and predictions of some samples at any validation of a run."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QStackedWidget, QToolButton, QWidget

from engine.contract.events import PredictedSample
from engine.contract.images import LegendEntry
from gui.run.predictions.image_pane import ImagePane, Zoom, read_image
from gui.run.predictions.sample_strip import SampleStrip
from gui.run.validation_slider import ValidationSlider
from gui.sources.run_data import RunData
from gui.translation import tr
from gui.widgets.empty_state import EmptyState
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import vbox
from gui.widgets.legend import Legend

_HELP = tr(
    "On an image: Left and Right step through the validations, Up and Down through the samples; wheel or + and − "
    "zoom, drag or Shift+arrows pan"
)


class PredictionsView(QWidget):
    """Images of the run's `Predicted` events at the validation chosen by a slider, refreshed while visible."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._data = RunData()
        self._folder = Path()
        self._is_active = False
        self._shown: tuple[object, ...] = ()
        self._legend: tuple[LegendEntry, ...] = ()
        self.validation_slider = ValidationSlider()
        self.zoom = Zoom(self)
        self.truth = ImagePane(tr("Truth"), self.zoom)
        self.prediction = ImagePane(tr("Prediction"), self.zoom)
        self.name = ElidedLabel()
        self.name.setObjectName("muted")
        self.truth_words, self.prediction_words = ElidedLabel(), ElidedLabel()
        self.legend = Legend()
        self.reset = QToolButton()
        self.reset.setObjectName("flat")
        self.reset.setText(tr("Whole image"))
        self.reset.setToolTip(tr("Zooms out to the whole image (0)"))
        self.reset.clicked.connect(self.zoom.reset)
        self.strip = SampleStrip()
        self._empty = EmptyState()
        self._stack = QStackedWidget()
        self._lay_out()
        self.validation_slider.moved.connect(lambda _position: self._show_validation())
        self.strip.sample_chosen.connect(lambda _position: self._show_sample())
        self.zoom.changed.connect(lambda: self.reset.setVisible(self.zoom.factor > 1))

    def restart(self) -> None:
        """Prepare for another run."""
        self._data, self._shown = RunData(), ()
        self.validation_slider.restart()
        self.zoom.reset()
        self.strip.clear_cache()
        self.strip.setCurrentRow(min(0, self.strip.count() - 1))

    def show_data(self, folder: Path, data: RunData, is_active: bool) -> None:
        """Show the predictions of the run in `folder`; more may follow if the run `is_active`."""
        self._folder, self._data, self._is_active = folder, data, is_active
        if self.isVisible():
            self._refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def sample(self) -> PredictedSample | None:
        """Return the sample on screen."""
        return self.strip.sample(self.strip.currentRow())

    def _refresh(self) -> None:
        predicted = self._data.validation_details.predicted
        self._stack.setCurrentIndex(1 if predicted else 0)
        self._empty.setText(_empty_text(self._data, self._is_active))
        best = self._data.checkpoints.get("best")
        state = (
            len(predicted),
            id(predicted[-1]) if predicted else 0,
            best.step if best is not None else None,
            self._data.cuts,
        )
        if not predicted or state == self._shown:
            return
        if self._shown and self._data.cuts != self._shown[-1]:
            self.strip.clear_cache()  # the resumed run writes them again
        self._shown = state
        if self.validation_slider.show_validations(predicted, self._data):
            self._show_validation()

    def _show_validation(self) -> None:
        predicted, position = self._data.validation_details.predicted, self.validation_slider.position
        if 0 <= position < len(predicted):
            self._legend = predicted[position].legend
            self.strip.show_samples(self._folder, predicted[position].samples)
            self._show_sample()

    def _show_sample(self) -> None:
        sample = self.sample()
        if sample is None:
            return
        self.name.setText(f"{sample.name} · sample {self.strip.currentRow() + 1} of {self.strip.count()}")
        self.name.setToolTip(sample.name)
        panes = (
            (self.truth, self.truth_words, sample.truth_png, sample.truth_words),
            (self.prediction, self.prediction_words, sample.prediction_png, sample.prediction_words),
        )
        for pane, label, png, text in panes:
            pane.show_image(read_image(self._folder, png), text or sample.name)
            label.setText(text)
            label.setToolTip(text)
            label.setVisible(bool(sample.truth_words or sample.prediction_words))
        self.legend.show_legend(self._legend, sample.legend)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Handle the keys that the panes ignore."""
        key = event.key()
        if key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self.validation_slider.step(1 if key == Qt.Key.Key_Right else -1)
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            slider = self.validation_slider.slider
            slider.setValue(slider.maximum() if key == Qt.Key.Key_End else 0)
        elif key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            row = self.strip.currentRow() + (1 if key == Qt.Key.Key_Down else -1)
            self.strip.setCurrentRow(min(self.strip.count() - 1, max(0, row)))
        elif key == Qt.Key.Key_B:
            self.validation_slider.show_best()
        else:
            super().keyPressEvent(event)

    def _lay_out(self) -> None:
        body = QWidget()
        body.setToolTip(_HELP)
        policy = self.reset.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(policy)
        self.reset.hide()
        grid = QGridLayout()
        grid.setHorizontalSpacing(10)
        grid.setVerticalSpacing(3)
        for column, (title, pane, words) in enumerate(
            ((tr("Truth"), self.truth, self.truth_words), (tr("Prediction"), self.prediction, self.prediction_words))
        ):
            heading = QLabel(title)
            heading.setObjectName("heading")
            grid.addWidget(heading, 0, column)
            grid.addWidget(pane, 1, column)
            grid.addWidget(words, 2, column)
            grid.setColumnStretch(column, 1)
        grid.addWidget(self.reset, 0, 1, Qt.AlignmentFlag.AlignRight)
        grid.setRowStretch(1, 1)
        body.setLayout(vbox(self.validation_slider, (grid, 1), self.legend, self.name, self.strip))
        self._stack.addWidget(self._empty)
        self._stack.addWidget(body)
        self.setLayout(vbox(self._stack))

    def sizeHint(self) -> QSize:
        return QSize(600, 560)


def _empty_text(data: RunData, is_active: bool) -> str:
    job = data.started.job if data.started is not None else None
    if job is not None and job.checkpoints.predictions == 0:
        return tr(
            "This run saves no predictions.\n\nSet Predictions kept, under Checkpoints, to save some in the next run."
        )
    if is_active:
        return tr(
            "No predictions yet.\n\nPredictions for some validation samples appear here after the first validation."
        )
    if data.validations.step.values.size:
        return tr("This run saved no predictions.")
    return tr("This run ended before its first validation, so it has no predictions.")
