"""Strip of samples to choose from, each as its truth above its prediction."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QPainter, QPen, QPixmap
from PySide6.QtWidgets import (
    QListView,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from engine.contract.events import PredictedSample
from gui.run.predictions.image_pane import read_image
from gui.style import theme
from gui.translation import tr

SIDE, GAP, PAD = 62, 3, 5
_SLICE_S = 0.008
"""The longest time spent reading thumbnails before returning to the event loop."""
_CACHE_SIZE = 1024
"""Cached thumbnails, enough for 16 samples at 60 validations."""


class SampleStrip(QListWidget):
    """Strip of samples.

    Signals:
        sample_chosen(int): index of the chosen sample.
    """

    sample_chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._folder = Path()
        self._samples: tuple[PredictedSample, ...] = ()
        self._thumbnails: dict[str, QPixmap | None] = {}
        self._pending: list[str] = []
        self.setAccessibleName(tr("Samples"))
        self.setFlow(QListView.Flow.LeftToRight)
        self.setWrapping(False)
        self.setUniformItemSizes(True)
        self.setHorizontalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFixedHeight(2 * SIDE + GAP + 2 * PAD + 14)
        self.setItemDelegate(_PairDelegate(self))
        self._reader = QTimer(self, interval=0)
        self._reader.timeout.connect(self._read_slice)
        self.currentRowChanged.connect(self._on_row_changed)

    def clear_cache(self) -> None:
        """Forget all thumbnails, since the files may have changed."""
        self._thumbnails.clear()
        self._pending.clear()

    def show_samples(self, folder: Path, samples: tuple[PredictedSample, ...]) -> None:
        """Show `samples` of the run in `folder`; the selection stays."""
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
        return self._samples[number] if 0 <= number < len(self._samples) else None

    def thumbnail(self, name: str) -> QPixmap | None:
        """Return the thumbnail of an image file, a null one if it is unreadable; None until it has been read."""
        if name in self._thumbnails:
            return self._thumbnails[name]
        if name not in self._pending:
            self._pending.append(name)
            self._reader.start()
        return None

    def _read_slice(self) -> None:
        deadline = time.monotonic() + _SLICE_S
        while self._pending and time.monotonic() < deadline:
            name = self._pending.pop(0)
            image = read_image(self._folder, name)
            thumbnail = QPixmap()
            if not isinstance(image, str):
                ratio = self.devicePixelRatioF()
                side = round(SIDE * ratio)
                fitted = image.scaled(
                    side, side, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
                )
                thumbnail = QPixmap.fromImage(fitted)
                thumbnail.setDevicePixelRatio(ratio)
            while len(self._thumbnails) >= _CACHE_SIZE:
                del self._thumbnails[next(iter(self._thumbnails))]
            self._thumbnails[name] = thumbnail
        if not self._pending:
            self._reader.stop()
        self.viewport().update()

    def _on_row_changed(self, number: int) -> None:
        if number >= 0:
            self.sample_chosen.emit(number)


class _PairDelegate(QStyledItemDelegate):
    """Delegate that draws truth above prediction, and a cross for an unreadable image."""

    def __init__(self, strip: SampleStrip) -> None:
        super().__init__(strip)
        self._strip = strip

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(SIDE + 2 * PAD, 2 * SIDE + GAP + 2 * PAD)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        sample = self._strip.sample(index.row())
        if sample is None:
            return
        scheme = theme.colors()
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        for part, name in enumerate((sample.truth_png, sample.prediction_png)):
            square = QRect(rect.left() + PAD, rect.top() + PAD + part * (SIDE + GAP), SIDE, SIDE)
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
    """Describe a sample by its name, truth and prediction."""
    parts = [sample.name]
    if sample.truth_words:
        parts.append(tr("Truth: {truth_words}").format(truth_words=sample.truth_words))
    if sample.prediction_words:
        parts.append(tr("Prediction: {prediction_words}").format(prediction_words=sample.prediction_words))
    return "\n".join(parts)
