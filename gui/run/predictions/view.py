"""View of ground truth and predictions for some samples at any validation of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QImage, QKeyEvent, QPainter, QPen, QPixmap
from PySide6.QtWidgets import (
    QGridLayout,
    QListView,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from engine.contract.events import Predicted, PredictedSample
from engine.contract.images import LegendEntry
from gui.run.predictions.image_pane import ImagePane, Zoom, read_image
from gui.run.validation_slider import ValidationsView
from gui.sources.background import SingleFlight, reraise
from gui.sources.run_data import RunData
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import reserve_space, styled, tool_button
from gui.widgets.column_model import Index
from gui.widgets.labels import ElidedLabel, heading_label
from gui.widgets.layouts import vbox
from gui.widgets.legend import Legend

_HELP = tr(
    "On an image: Left and Right step through the validations, Up and Down through the samples; wheel or + and − "
    "zoom, drag or Shift+arrows pan"
)


class _SampleImages(NamedTuple):
    """Sample with the images of its truth and its prediction, or with the reasons why they can't be read."""

    sample: PredictedSample
    truth: QImage | str
    prediction: QImage | str


class PredictionsView(ValidationsView):
    """View of the images in a run's `Predicted` events, at the validation that a slider selects."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path()
        self._rollbacks = 0  # number of rollbacks of the run at the last refresh
        self._legend: tuple[LegendEntry, ...] = ()
        self.zoom = Zoom(self)
        self.truth = ImagePane(tr("Truth"), self.zoom)
        self.prediction = ImagePane(tr("Prediction"), self.zoom)
        self.name = styled(ElidedLabel(), "muted")
        self.truth_words, self.prediction_words = ElidedLabel(), ElidedLabel()
        self.legend = Legend()
        self.reset_zoom = tool_button(
            self.zoom.reset, text=tr("Whole image"), style="flat", tip=tr("Zoom out to the whole image (0)")
        )
        self.strip = SampleStrip()
        self._reading = SingleFlight(self, self._next_read, self._show_images, reraise)
        self._lay_out()
        self.strip.sample_chosen.connect(lambda _position: self._show_sample())
        self.zoom.changed.connect(lambda: self.reset_zoom.setVisible(self.zoom.is_changed))

    def reset(self) -> None:
        super().reset()
        self._reading.abandon()
        self.zoom.reset()
        self.strip.clear_cache()
        self.strip.setCurrentRow(0 if self.strip.count() else -1)

    def show_run(self, folder: Path, data: RunData, is_active: bool) -> None:
        """Show the predictions of the run in `folder`. More may follow if the run `is_active`."""
        self._folder = folder
        self.show_data(data, is_active)

    def close_work(self) -> None:
        """Stop background work when the window closes."""
        self._reading.finish()
        self.strip.close_work()

    def sample(self) -> PredictedSample | None:
        """Return the visible sample, or None if there is none."""
        return self.strip.sample(self.strip.currentRow())

    def _refresh(self) -> None:
        if self._data.rollbacks != self._rollbacks:
            self._rollbacks = self._data.rollbacks
            self.strip.clear_cache()  # the resumed run overwrites the images
        super()._refresh()

    def _validations(self) -> Sequence[Predicted]:
        return self._data.validation_details.predicted

    def _show_validation(self) -> None:
        predicted, position = self._validations(), self.validation_slider.position
        if 0 <= position < len(predicted):
            self._legend = predicted[position].legend
            self.strip.show_samples(self._folder, predicted[position].samples)
            self._show_sample()

    def _empty_text(self) -> str:
        job = self._data.started.job if self._data.started is not None else None
        if job is not None and job.checkpoints.predictions == 0:
            return tr(
                "This run saves no predictions.\n\nSet Predictions kept, under Checkpoints, to save some in the next run."
            )
        if self._is_active:
            return tr(
                "No predictions yet.\n\nPredictions for some validation samples appear here after the first validation."
            )
        if self._data.validations.step.values.size:
            return tr("This run saved no predictions.")
        return tr("This run ended before its first validation, so it has no predictions.")

    def _show_sample(self) -> None:
        """Show the texts and the legend of the selected sample, and read its images."""
        sample = self.sample()
        if sample is None:
            return
        self.name.setText(
            tr("{name} · sample {number} of {count}").format(
                name=sample.name, number=self.strip.currentRow() + 1, count=self.strip.count()
            )
        )
        self.name.setToolTip(sample.name)
        for label, text in ((self.truth_words, sample.truth_words), (self.prediction_words, sample.prediction_words)):
            label.setText(text)
            label.setVisible(bool(sample.truth_words or sample.prediction_words))
        self.legend.show_legend(self._legend, sample.legend)
        for pane in (self.truth, self.prediction):
            pane.show_image("", "")
        self._reading.request()
        self._reading.wait_briefly()

    def _next_read(self) -> Callable[[], _SampleImages] | None:
        """Return a function that reads the images of the selected sample, or None if there is no sample."""
        sample = self.sample()
        return partial(_read_sample, self._folder, sample) if sample is not None else None

    def _show_images(self, images: _SampleImages) -> None:
        """Show the images of a sample, unless another one has been selected meanwhile."""
        sample = images.sample
        if sample is self.sample():
            self.truth.show_image(images.truth, sample.truth_words or sample.name)
            self.prediction.show_image(images.prediction, sample.prediction_words or sample.name)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Select the validation with Left, Right, Home, End or B (the best one), and the sample with Up and Down."""
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
        body = styled(QWidget(), tip=_HELP)
        reserve_space(self.reset_zoom)
        self.reset_zoom.hide()
        grid = QGridLayout()
        grid.setHorizontalSpacing(10)
        grid.setVerticalSpacing(3)
        for column, (title, pane, caption) in enumerate(
            ((tr("Truth"), self.truth, self.truth_words), (tr("Prediction"), self.prediction, self.prediction_words))
        ):
            grid.addWidget(heading_label(title), 0, column)
            grid.addWidget(pane, 1, column)
            grid.addWidget(caption, 2, column)
            grid.setColumnStretch(column, 1)
        grid.addWidget(self.reset_zoom, 0, 1, Qt.AlignmentFlag.AlignRight)
        grid.setRowStretch(1, 1)
        body.setLayout(vbox(self.validation_slider, (grid, 1), self.legend, self.name, self.strip))
        self._stack.addWidget(body)

    def sizeHint(self) -> QSize:
        return QSize(600, 560)


def _read_sample(folder: Path, sample: PredictedSample) -> _SampleImages:
    """Return the sample with its ground-truth and prediction images, or the reasons why they can't be read.

    The paths of the images are relative to the run folder `folder`.
    """
    return _SampleImages(sample, read_image(folder, sample.truth_png), read_image(folder, sample.prediction_png))


SIDE, GAP, PAD = 62, 3, 5
_BATCH_SIZE = 8
"""Number of thumbnails that are read before the strip is drawn again."""
_CACHE_SIZE = 1024
"""Maximum number of cached thumbnails: enough for 16 samples at 60 validations."""


class SampleStrip(QListWidget):
    """Horizontal list of samples, each with the thumbnails of its ground truth and its prediction.

    Signals:
        sample_chosen(int): the index of the selected sample.
    """

    sample_chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path()
        self._samples: tuple[PredictedSample, ...] = ()
        self._thumbnails: dict[str, QPixmap] = {}  # by file name, null if unreadable
        self._pending: list[str] = []  # file names to read
        self.setAccessibleName(tr("Samples"))
        self.setFlow(QListView.Flow.LeftToRight)
        self.setWrapping(False)
        self.setUniformItemSizes(True)
        self.setHorizontalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFixedHeight(2 * SIDE + GAP + 2 * PAD + 14)
        self.setItemDelegate(_PairDelegate(self))
        self._reading = SingleFlight(self, self._next_batch, self._on_read, reraise)
        self.currentRowChanged.connect(self._on_row_changed)

    def clear_cache(self) -> None:
        """Remove all thumbnails, because the files may have changed. They are read again when they are drawn."""
        self._thumbnails.clear()
        self._pending.clear()
        self._reading.abandon()

    def close_work(self) -> None:
        """Stop reading when the window closes."""
        self._pending.clear()
        self._reading.finish()

    def show_samples(self, folder: Path, samples: tuple[PredictedSample, ...]) -> None:
        """Show `samples` of the run in `folder`. The selected row stays selected. By default, select the first one."""
        if folder != self._folder:
            self.clear_cache()
        self._folder, self._samples = folder, samples
        while self.count() > len(samples):
            self.takeItem(self.count() - 1)
        while self.count() < len(samples):
            self.addItem(QListWidgetItem())
        for number, sample in enumerate(samples):
            item = self.item(number)
            text = describe_sample(sample)
            item.setToolTip(text)
            item.setData(Qt.ItemDataRole.AccessibleTextRole, text)
        if samples and self.currentRow() < 0:
            self.setCurrentRow(0)
        self._pending.clear()
        self.viewport().update()

    def sample(self, number: int) -> PredictedSample | None:
        """Return the sample at the index `number`, or None if there is none."""
        return self._samples[number] if 0 <= number < len(self._samples) else None

    def thumbnail(self, name: str) -> QPixmap | None:
        """Return the thumbnail of the image file `name`, or a null pixmap if the file can't be read.

        If the file hasn't been read, return None and request a read, after which the strip is drawn again.
        """
        if name in self._thumbnails:
            return self._thumbnails[name]
        if name not in self._pending:
            self._pending.append(name)
            self._reading.request()
        return None

    def _next_batch(self) -> Callable[[], dict[str, QImage]] | None:
        """Return a function that reads some of the pending thumbnails, or None if no thumbnail is pending."""
        names = self._pending[:_BATCH_SIZE]
        side = round(SIDE * self.devicePixelRatioF())
        return partial(_read_thumbnails, self._folder, names, side) if names else None

    def _on_read(self, images: dict[str, QImage]) -> None:
        """Cache thumbnails, draw the strip again, and read the next batch. The oldest thumbnails leave the cache."""
        for name, image in images.items():
            thumbnail = QPixmap.fromImage(image)
            thumbnail.setDevicePixelRatio(self.devicePixelRatioF())
            while len(self._thumbnails) >= _CACHE_SIZE:
                del self._thumbnails[next(iter(self._thumbnails))]
            self._thumbnails[name] = thumbnail
        self._pending = [name for name in self._pending if name not in images]
        self._reading.request()
        self.viewport().update()

    def _on_row_changed(self, number: int) -> None:
        if number >= 0:
            self.sample_chosen.emit(number)


def _read_thumbnails(folder: Path, names: Sequence[str], side: int) -> dict[str, QImage]:
    """Read images in `folder` and shrink them to `side` pixels. Unreadable images become null images."""
    thumbnails = {}
    for name in names:
        image = read_image(folder, name)
        if isinstance(image, str):
            thumbnails[name] = QImage()
        else:
            smooth = Qt.TransformationMode.SmoothTransformation
            thumbnails[name] = image.scaled(side, side, Qt.AspectRatioMode.KeepAspectRatio, smooth)
    return thumbnails


class _PairDelegate(QStyledItemDelegate):
    """Delegate that draws the ground truth above the prediction, and a cross in place of an unreadable image."""

    def __init__(self, strip: SampleStrip) -> None:
        super().__init__(strip)
        self._strip = strip

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(SIDE + 2 * PAD, 2 * SIDE + GAP + 2 * PAD)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draw truth above prediction. A thumbnail that hasn't been read is blank; an unreadable one is a cross."""
        sample = self._strip.sample(index.row())
        if sample is None:
            return
        scheme = theme.colors()
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        for number, name in enumerate((sample.truth_png, sample.prediction_png)):
            square = QRect(rect.left() + PAD, rect.top() + PAD + number * (SIDE + GAP), SIDE, SIDE)
            painter.fillRect(square, QColor(scheme.raised))
            thumbnail = self._strip.thumbnail(name)
            if thumbnail is not None and thumbnail.isNull():
                painter.setPen(QColor(scheme.error))
                painter.drawText(square, Qt.AlignmentFlag.AlignCenter, "✖")
            elif thumbnail is not None:
                size = thumbnail.deviceIndependentSize().toSize()
                corner = square.center() - QRect(0, 0, size.width(), size.height()).center()
                painter.drawPixmap(corner, thumbnail)
        if state & QStyle.StateFlag.State_Selected:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(scheme.accent), 2))
            painter.drawRect(rect.adjusted(2, 2, -2, -2))


def describe_sample(sample: PredictedSample) -> str:
    """Describe a sample by name, ground truth and prediction."""
    parts = [sample.name]
    if sample.truth_words:
        parts.append(tr("Truth: {truth_words}").format(truth_words=sample.truth_words))
    if sample.prediction_words:
        parts.append(tr("Prediction: {prediction_words}").format(prediction_words=sample.prediction_words))
    return "\n".join(parts)
