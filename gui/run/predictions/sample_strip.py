"""The samples whose predictions are kept, each as its truth over its prediction, in a row to choose from."""

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

SIDE, GAP, PAD = 62, 3, 5
_SLICE_S = 0.008
"""The longest time spent reading thumbnails before returning to the event loop."""
_KEPT = 1024
"""Small images that are kept: of 16 samples at 60 validations."""


class SampleStrip(QListWidget):
    """Signals: sample_chosen(int) - the sample at that index."""

    sample_chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._folder = Path()
        self._samples: tuple[PredictedSample, ...] = ()
        self._small: dict[str, QPixmap | None] = {}
        self._waiting: list[str] = []
        self.setAccessibleName("Samples")
        self.setFlow(QListView.Flow.LeftToRight)
        self.setWrapping(False)
        self.setUniformItemSizes(True)
        self.setHorizontalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFixedHeight(2 * SIDE + GAP + 2 * PAD + 14)
        self.setItemDelegate(_Pairs(self))
        self._reader = QTimer(self, interval=0)
        self._reader.timeout.connect(self._read_slice)
        self.currentRowChanged.connect(self._chosen)

    def forget(self) -> None:
        """What the files held need not be what they hold now."""
        self._small.clear()
        self._waiting.clear()

    def show_samples(self, folder: Path, samples: tuple[PredictedSample, ...]) -> None:
        """Shows `samples` of the run in `folder`; the one that is chosen stays so."""
        if folder != self._folder:
            self.forget()
        self._folder, self._samples = folder, samples
        while self.count() > len(samples):
            self.takeItem(self.count() - 1)
        while self.count() < len(samples):
            self.addItem(QListWidgetItem())
        for number, sample in enumerate(samples):
            item = self.item(number)
            words = describe(sample)
            item.setToolTip(words)
            item.setData(Qt.ItemDataRole.AccessibleTextRole, words)
        if samples and self.currentRow() < 0:
            self.setCurrentRow(0)
        self._waiting.clear()
        self.viewport().update()

    def sample(self, number: int) -> PredictedSample | None:
        return self._samples[number] if 0 <= number < len(self._samples) else None

    def small(self, name: str) -> QPixmap | None:
        """The image of that name in the strip's size, a null one where it cannot be read; None until it has been."""
        if name in self._small:
            return self._small[name]
        if name not in self._waiting:
            self._waiting.append(name)
            self._reader.start()
        return None

    def _read_slice(self) -> None:
        until = time.monotonic() + _SLICE_S
        while self._waiting and time.monotonic() < until:
            name = self._waiting.pop(0)
            image = read_image(self._folder, name)
            small = QPixmap()
            if not isinstance(image, str):
                ratio = self.devicePixelRatioF()
                side = round(SIDE * ratio)
                fitted = image.scaled(
                    side, side, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
                )
                small = QPixmap.fromImage(fitted)
                small.setDevicePixelRatio(ratio)
            while len(self._small) >= _KEPT:
                del self._small[next(iter(self._small))]
            self._small[name] = small
        if not self._waiting:
            self._reader.stop()
        self.viewport().update()

    def _chosen(self, number: int) -> None:
        if number >= 0:
            self.sample_chosen.emit(number)


class _Pairs(QStyledItemDelegate):
    """Draws a sample's truth over its prediction; what cannot be read has a cross."""

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
            number = QRect(rect.left() + PAD, rect.top() + PAD + part * (SIDE + GAP), SIDE, SIDE)
            painter.fillRect(number, QColor(scheme.raised))
            small = self._strip.small(name)
            if small is not None and small.isNull():
                painter.setPen(QColor(scheme.error))
                painter.drawText(number, Qt.AlignmentFlag.AlignCenter, "✖")
            elif small is not None:
                size = small.deviceIndependentSize().toSize()
                corner = number.center() - QRect(0, 0, size.width(), size.height()).center()
                painter.drawPixmap(corner, small)
        if state & QStyle.StateFlag.State_Selected:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(scheme.accent), 2))
            painter.drawRect(rect.adjusted(2, 2, -2, -2))


def describe(sample: PredictedSample) -> str:
    """A sample in words: its name, its truth and what the model makes of it."""
    parts = [sample.name]
    if sample.truth_words:
        parts.append(f"Truth: {sample.truth_words}")
    if sample.prediction_words:
        parts.append(f"Prediction: {sample.prediction_words}")
    return "\n".join(parts)
