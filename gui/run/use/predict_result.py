"""Result of a prediction: a list of the first results, one of them large."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QLabel, QListWidget, QPushButton, QSplitter, QWidget

from engine.contract.inference.prediction import PREDICTED, Predicted, PredictedRow
from engine.contract.problems import Problem
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.format import duration
from engine.system.plain_text import shortened
from gui.actions import Action, bind
from gui.format import counted, localised
from gui.run.predictions.image_pane import ImagePane, Zoom
from gui.sources.background import describe_error, in_background
from gui.sources.dataset_images import read_image
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.file_dialogs import reveal
from gui.widgets.labels import ProblemLabel, caption
from gui.widgets.layouts import hbox, vbox

_MAX_SKIPPED_NAMES = 5
_MAX_SIDE = 2048
"""Longest side of a decoded image, in pixels."""


class PredictResult(QWidget):
    """Result of a prediction.

    Signals:
        more_requested(): the user wants to predict for other files.
    """

    more_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._predicted: Predicted | None = None
        self._shown: PredictedRow | None = None
        self.heading = styled(QLabel(wordWrap=True), "heading")
        self.files = caption()
        self.skipped = ProblemLabel()
        self.list = styled(QListWidget(), name=tr("Results"))
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.setSpacing(2)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.zoom = Zoom(self)
        self.image = ImagePane(tr("Result"), self.zoom)
        self.caption = QLabel(wordWrap=True, alignment=Qt.AlignmentFlag.AlignHCenter)
        self.open = Action(
            self, "open_predictions", tr("Open folder"), tr("Opens the results' folder in the file manager")
        )
        self.more = Action(self, "predict_more", tr("Predict more …"), tr("Predicts for other files"))
        self._lay_out()
        self.open.on_trigger(self._reveal)
        self.more.on_trigger(self.more_requested.emit)
        self.list.currentRowChanged.connect(self._on_row_chosen)

    def show_file(self, path: str) -> None:
        """Read the summary in `path` on a thread and show it."""
        in_background(partial(_read, Path(path)), self, self._show_result, self._show_error)

    def _show_result(self, predicted: Predicted) -> None:
        self._predicted = predicted
        rate = f" ({localised(predicted.images_per_second, 1)} images/s)" if predicted.images_per_second else ""
        self.heading.setText(
            tr("Predicted for {predicted} in {seconds}{rate}").format(
                predicted=counted(predicted.predicted, "sample"), seconds=duration(predicted.seconds), rate=rate
            )
        )
        names = ", ".join(f"{each.path} ({counted(each.count, 'file')})" for each in predicted.files)
        self.files.setText(shortened(f"{predicted.order.out}: {names}"))
        self.skipped.show_problems(tuple(_skipped(predicted)))
        self.list.clear()
        self.list.addItems([shortened(f"{Path(row.path).name}: {row.text}") for row in predicted.rows])
        for number, row in enumerate(predicted.rows):
            self.list.item(number).setToolTip(shortened(row.path))
        self.list.setCurrentRow(0)
        self.list.setFocus()

    def _show_error(self, error: Exception) -> None:
        self.heading.setText(tr("Couldn't read the results"))
        self.skipped.show_problems((Problem("", f"{describe_error(error)}.", tr("Predict again.")),))

    def _on_row_chosen(self, number: int) -> None:
        predicted = self._predicted
        self._shown = row = (
            predicted.rows[number] if predicted is not None and 0 <= number < len(predicted.rows) else None
        )
        self.caption.setText(shortened(row.text) if row is not None else "")
        if row is None or predicted is None:
            return
        self.zoom.reset()
        drawn = row.overlay or row.mask
        file = Path(predicted.order.out, drawn) if drawn else Path(row.path)
        in_background(partial(read_image, file, _MAX_SIDE), self, partial(self._show_image, row), lambda error: None)

    def _show_image(self, row: PredictedRow, image: QImage | str) -> None:
        if row is self._shown:
            self.image.show_image(image, row.text)

    def _reveal(self) -> None:
        if self._predicted is not None:
            reveal(Path(self._predicted.order.out))

    def _lay_out(self) -> None:
        top = hbox((self.heading, 1), *(bind(QPushButton(), action) for action in (self.more, self.open)))
        shown = QWidget()
        shown.setLayout(vbox((self.image, 1), self.caption))
        splitter = QSplitter()
        splitter.setChildrenCollapsible(False)
        splitter.addWidget(self.list)
        splitter.addWidget(shown)
        splitter.setStretchFactor(0, 1)
        splitter.setStretchFactor(1, 2)
        self.setLayout(vbox(top, self.files, self.skipped, (splitter, 1)))


def _read(file: Path) -> Predicted:
    try:
        return PREDICTED.decode(read_file(file, MAX_RESULT_BYTES))
    except NOT_DECODED as error:
        raise OSError(f"{file} is damaged: {error}") from error


def _skipped(predicted: Predicted) -> list[Problem]:
    if not predicted.skipped_count:
        return []
    named = "; ".join(f"{each.path}: {each.reason}" for each in predicted.skipped[:_MAX_SKIPPED_NAMES])
    more = predicted.skipped_count - min(_MAX_SKIPPED_NAMES, len(predicted.skipped))
    rest = f"; and {localised(more)} more" if more else ""
    return [
        Problem(
            "",
            tr("Skipped {skipped_count}: {named}{rest}.").format(
                skipped_count=counted(predicted.skipped_count, "file"), named=named, rest=rest
            ),
            severity="warning",
        )
    ]
