"""One sample of an evaluation, large: its image, its truth, what the model makes of it, and what it looks at."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QImage, QKeyEvent, Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from gui.actions import WITHIN, Action, bind
from gui.format import localised
from gui.run.model.samples.captions import full_caption, predicted_class
from gui.run.model.samples.drawings import Drawing, Drawings
from gui.run.model.samples.heat_maps import HeatMaps
from gui.run.model.samples.work_line import WorkLine
from gui.run.predictions.image_pane import ImagePane, Zoom
from gui.sources.background import in_background, reraise
from gui.sources.dataset_images import read_image
from gui.sources.evaluations import OpenedEvaluation
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.legend import Legend
from gui.widgets.tab_order import order_tabs

_MOST_SIDE = 2048
"""Pixels of an image's longer side that are decoded at most."""


class TitledPane(QWidget):
    """An image below its title."""

    def __init__(self, name: str, zoom: Zoom) -> None:
        super().__init__()
        self.title = ElidedLabel(name)
        self.title.setObjectName("heading")
        self.pane = ImagePane(name, zoom)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(3)
        layout.addWidget(self.title)
        layout.addWidget(self.pane, 1)

    def show_image(self, title: str, image: QImage | str, words: str) -> None:
        self.title.setText(title)
        self.title.setToolTip(title)
        self.pane.show_image(image, words)


class SampleDetail(QWidget):
    """Shows one sample of an evaluation.

    Signals:
        closed(): back to all samples.
        moved(int): another is wanted, so many further on.
        mark_wanted(): it is to be marked, or not any more.
    """

    closed = Signal()
    moved = Signal(int)
    mark_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._file = Path()
        self._words = ""
        self.zoom = Zoom(self)
        self.image = TitledPane("Image", self.zoom)
        self.truth, self.prediction = TitledPane("Truth", self.zoom), TitledPane("Prediction", self.zoom)
        self.heat = [TitledPane(name, self.zoom) for name in ("Heat map", "Second heat map")]
        self.maps = HeatMaps()
        self.drawings = Drawings(self)
        self.drawing = WorkLine("Drawing truth and prediction")
        self.legend = Legend()
        self.name, self.words = ElidedLabel(), QLabel(wordWrap=True)
        self.name.setObjectName("muted")
        self.marked = QCheckBox("Marked")
        self.marked.setToolTip("Marks the sample (Space)")
        self.leave = Action(self, "leave_sample", "← All samples", "Back to all samples", "Esc", context=WITHIN)
        self.back = bind(QPushButton(), self.leave, "Back to all samples")
        self.previous, self.next = _step("◂", "Previous sample"), _step("▸", "Next sample")
        self._lay_out()
        self.leave.on_trigger(self.closed.emit)
        self.previous.clicked.connect(lambda: self.moved.emit(-1))
        self.next.clicked.connect(lambda: self.moved.emit(1))
        self.marked.clicked.connect(lambda _on: self.mark_wanted.emit())
        self.maps.changed.connect(self._show_maps)
        self.drawings.child.progress.connect(self.drawing.tell)
        self.drawings.drawn.connect(self._show_drawing)
        self.drawings.failed.connect(lambda problems: self.drawing.rest(*problems))

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        self._opened = opened
        self.maps.show_evaluation(opened, devices)
        self.drawings.show_evaluation(opened, devices)

    def show_sample(self, rows: Sequence[int], position: int, file: Path) -> None:
        """Shows the sample at that position of `rows`, the numbers of samples in the evaluation; `file` is its own."""
        if self._opened is None:
            return
        row, count = rows[position], len(rows)
        self._file = file
        path = self._opened.samples.paths[row]
        self.name.setText(f"{path} · {localised(position + 1)} of {localised(count)}")
        self.name.setToolTip(str(file))
        self._words = full_caption(self._opened, row)
        self.words.setText(self._words)
        self.previous.setEnabled(position > 0)
        self.next.setEnabled(position < count - 1)
        self.zoom.reset()
        in_background(partial(read_image, file, _MOST_SIDE), self, partial(self._take, file), reraise)
        self.maps.show_sample(file, predicted_class(self._opened, row))
        self._show_drawing(None)
        self.drawing.rest()
        self.drawings.want(rows[position:])

    def show_marked(self, marked: bool) -> None:
        self.marked.setChecked(marked)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Those that the panes leave."""
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1}
        key = Qt.Key(event.key())
        if key in steps:
            self.moved.emit(steps[key])
        elif key == Qt.Key.Key_Space:
            self.mark_wanted.emit()
        elif key == Qt.Key.Key_H:
            self.maps.on.toggle()
        else:
            super().keyPressEvent(event)

    def _take(self, file: Path, image: QImage | str) -> None:
        if file == self._file:
            self.image.show_image("Image", image, self._words)

    def _show_maps(self) -> None:
        nothing = ("", "")
        for pane, (title, image) in zip(self.heat, [*self.maps.maps, nothing, nothing], strict=False):
            if title:
                pane.show_image(title, image, title)
            pane.setVisible(bool(title))

    def _show_drawing(self, drawing: Drawing | None) -> None:
        """In place of the plain image."""
        there = drawing is not None
        focused = any(each.pane.hasFocus() for each in (self.image, self.truth, self.prediction))
        for pane in (self.truth, self.prediction):
            pane.setVisible(there)
        self.image.setVisible(not there)
        if focused:
            (self.truth if there else self.image).pane.setFocus()
        self.legend.setVisible(there and bool(self.drawings.legend))
        if drawing is None:
            return
        self.drawing.rest()
        told = drawing.told
        self.truth.show_image("Truth", drawing.truth, told.truth_words or self._words)
        self.prediction.show_image("Prediction", drawing.prediction, told.prediction_words or self._words)
        self.legend.show_legend(self.drawings.legend, told.legend)
        if self._opened is not None:
            self.words.setText(full_caption(self._opened, told.number, told.truth_words, told.prediction_words))

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.drawings.stop()

    def close_work(self) -> None:
        """Ends what is being made, for the end of the window."""
        self.maps.close_work()
        self.drawings.close_work()

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.back)
        top.addWidget(self.name, 1)
        for widget in (self.previous, self.next, self.marked):
            top.addWidget(widget)
        panes = QHBoxLayout()
        panes.setSpacing(10)
        for pane in (self.image, self.truth, self.prediction, *self.heat):
            panes.addWidget(pane, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addLayout(panes, 1)
        layout.addWidget(self.legend)
        layout.addWidget(self.words)
        layout.addWidget(self.drawing)
        layout.addWidget(self.maps)
        self._show_drawing(None)
        self._show_maps()
        order_tabs(
            self,
            (
                self.back,
                self.previous,
                self.next,
                self.marked,
                self.image,
                self.truth,
                self.prediction,
                *self.heat,
                self.maps,
            ),
        )


def _step(text: str, meaning: str) -> QToolButton:
    button = QToolButton()
    button.setText(text)
    button.setToolTip(f"{meaning} ({'Left' if text == '◂' else 'Right'})")
    button.setAccessibleName(meaning)
    button.setAutoRepeat(True)
    return button
