"""View of a sample in an evaluation: image, ground truth, prediction and heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QImage, QKeyEvent, QShowEvent, Qt
from PySide6.QtWidgets import QCheckBox, QLabel, QPushButton, QWidget

from gui.actions import WITHIN, Action, bind
from gui.format import localized
from gui.run.model.samples.drawings import Drawing, Drawings, get_predicted_class, make_full_caption
from gui.run.model.samples.heat_maps import HeatMaps
from gui.run.model.samples.progress_line import ProgressLine
from gui.run.predictions.image_pane import ImagePane, Zoom
from gui.run.validation_slider import create_step_button
from gui.sources.background import in_background, reraise
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.inspector import read_image
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import hbox, vbox
from gui.widgets.legend import Legend
from gui.widgets.tab_order import order_tabs

_MAX_SIDE = 2048
"""Maximum side length of a decoded image in pixels."""


class TitledPane(QWidget):
    """Image pane with a title."""

    def __init__(self, name: str, zoom: Zoom) -> None:
        super().__init__()
        self.title = styled(ElidedLabel(name), "heading")
        self.pane = ImagePane(name, zoom)
        self.setLayout(vbox(self.title, (self.pane, 1), spacing=3))

    def show_image(self, title: str, image: QImage | str, description: str) -> None:
        """Show an image, or the reason why there is none, below `title`. `description` is for screen readers."""
        self.title.setText(title)
        self.pane.show_image(image, description)


class SampleDetail(QWidget):
    """View of a sample in an evaluation.

    Signals:
        closed(): the user wants to return to all samples.
        moved(int): the user wants to see the sample at this distance from the current one.
        mark_requested(): the user wants to mark or unmark the sample.
    """

    closed = Signal()
    moved = Signal(int)
    mark_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        # Of the visible sample. The caption doesn't contain the texts of its drawing.
        self._file = Path()
        self._caption = ""
        self._upcoming_rows: Sequence[int] = ()  # the visible sample and those after it
        self.zoom = Zoom(self)
        self.image = TitledPane(tr("Image"), self.zoom)
        self.truth, self.prediction = TitledPane(tr("Truth"), self.zoom), TitledPane(tr("Prediction"), self.zoom)
        self.heat_panes = [TitledPane(name, self.zoom) for name in (tr("Heat map"), tr("Second heat map"))]
        self.maps = HeatMaps()
        self.drawings = Drawings(self)
        self.drawing_progress = ProgressLine(tr("Drawing truth and prediction"))
        self.legend = Legend()
        self.name, self.caption = styled(ElidedLabel(), "muted"), QLabel(wordWrap=True)
        self.marked = styled(QCheckBox(tr("Marked")), tip=tr("Mark the sample (Space)"))
        self.leave = Action(self, "leave_sample", tr("← All samples"), tr("Back to all samples"), "Esc", context=WITHIN)
        self.back = bind(QPushButton(), self.leave, tr("Back to all samples"))
        self.previous = create_step_button("◂", tr("Previous sample"), tr("Previous sample (Left)"))
        self.next = create_step_button("▸", tr("Next sample"), tr("Next sample (Right)"))
        self._lay_out()
        self.leave.on_trigger(self.closed.emit)
        self.previous.clicked.connect(lambda: self.moved.emit(-1))
        self.next.clicked.connect(lambda: self.moved.emit(1))
        self.marked.clicked.connect(lambda _on: self.mark_requested.emit())
        self.maps.changed.connect(self._show_maps)
        self.drawings.child.progress.connect(self.drawing_progress.show_progress)
        self.drawings.drawn.connect(self._show_drawing)
        self.drawings.failed.connect(lambda problems: self.drawing_progress.end(*problems))

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """Draw and explain samples of this evaluation from now on. Its model runs on `devices`."""
        self._opened = opened
        self.maps.show_evaluation(opened, devices)
        self.drawings.show_evaluation(opened, devices)

    def show_sample(self, rows: Sequence[int], position: int, file: Path) -> None:
        """Show a sample, and request its image, its heat maps and its drawing.

        The sample is stored in `file`. Its row in the evaluation is at `position` among the visible `rows`.
        """
        if self._opened is None:
            return
        row, count = rows[position], len(rows)
        self._file = file
        path = self._opened.samples.paths[row]
        self.name.setText(
            tr("{file} · {number} of {count}").format(file=path, number=localized(position + 1), count=localized(count))
        )
        self.name.setToolTip(str(file))
        self._caption = make_full_caption(self._opened, row)
        self.caption.setText(self._caption)
        self.previous.setEnabled(position > 0)
        self.next.setEnabled(position < count - 1)
        self.zoom.reset()
        in_background(partial(read_image, file, _MAX_SIDE), self, partial(self._show_image, file), reraise)
        self.maps.show_sample(file, get_predicted_class(self._opened, row))
        self._show_drawing(None)  # until the sample has been drawn
        self.drawing_progress.end()
        self._upcoming_rows = rows[position:]
        self.drawings.request(self._upcoming_rows)

    def show_marked(self, marked: bool) -> None:
        """Check the box that marks the sample if `marked`, otherwise uncheck it, without emitting `mark_requested`."""
        self.marked.setChecked(marked)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Show another sample with the arrows, mark it with Space, or switch its heat maps with H."""
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1}
        key = Qt.Key(event.key())
        if key in steps:
            self.moved.emit(steps[key])
        elif key == Qt.Key.Key_Space:
            self.mark_requested.emit()
        elif key == Qt.Key.Key_H:
            self.maps.on.toggle()
        else:
            super().keyPressEvent(event)

    def _show_image(self, file: Path, image: QImage | str) -> None:
        """Show the image of the sample in `file`, unless another sample is now visible."""
        if file == self._file:
            self.image.show_image(tr("Image"), image, self._caption)

    def _show_maps(self) -> None:
        """Show up to two heat maps next to the image, or hide them."""
        for pane, heat_map in zip_longest(self.heat_panes, self.maps.maps[: len(self.heat_panes)]):
            if heat_map is not None:
                title, image = heat_map
                pane.show_image(title, image, title)
            pane.setVisible(heat_map is not None)

    def _show_drawing(self, drawing: Drawing | None) -> None:
        """Show the ground truth and the prediction in `drawing` or, if it is None, the plain image."""
        is_drawn = drawing is not None
        # Hiding a focused pane would move the focus to another widget.
        has_focus = any(each.pane.hasFocus() for each in (self.image, self.truth, self.prediction))
        for pane in (self.truth, self.prediction):
            pane.setVisible(is_drawn)
        self.image.setVisible(not is_drawn)
        if has_focus:
            (self.truth if is_drawn else self.image).pane.setFocus()
        if drawing is None:
            self.legend.hide()
            return
        self.drawing_progress.end()
        sample = drawing.sample
        self.truth.show_image(tr("Truth"), drawing.truth, sample.truth_words or self._caption)
        self.prediction.show_image(tr("Prediction"), drawing.prediction, sample.prediction_words or self._caption)
        self.legend.show_legend(self.drawings.legend, sample.legend)
        if self._opened is not None:
            self.caption.setText(
                make_full_caption(self._opened, sample.number, sample.truth_words, sample.prediction_words)
            )

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self.truth.isHidden():
            self.drawings.request(self._upcoming_rows)  # hiding has cancelled the request

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.drawings.stop()
        self.drawing_progress.end()

    def close_work(self) -> None:
        """Stop background work when the window closes."""
        self.maps.close_work()
        self.drawings.close_work()

    def _lay_out(self) -> None:
        panes = (self.image, self.truth, self.prediction, *self.heat_panes)
        self.setLayout(
            vbox(
                hbox(self.back, (self.name, 1), self.previous, self.next, self.marked),
                (hbox(*((pane, 1) for pane in panes), spacing=10), 1),
                self.legend,
                self.caption,
                self.drawing_progress,
                self.maps,
            )
        )
        self._show_drawing(None)
        self._show_maps()
        order_tabs(self, (self.back, self.previous, self.next, self.marked, *panes, self.maps))
