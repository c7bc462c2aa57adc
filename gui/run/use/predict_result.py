"""What came of predicting: a line for each of the first results, the chosen one large, and the folder they lie in."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QHBoxLayout, QLabel, QListWidget, QPushButton, QSplitter, QVBoxLayout, QWidget

from engine.contract.inference.prediction import PREDICTED, Predicted, PredictedRow
from engine.contract.problems import Problem
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import duration
from engine.system.plain_text import shortened
from gui.actions import Action, bind
from gui.format import counted, localised
from gui.run.model.plot import caption
from gui.run.predictions.image_pane import ImagePane, Zoom
from gui.sources.background import describe_error, in_background
from gui.sources.dataset_images import read_image
from gui.widgets.file_dialogs import reveal
from gui.widgets.problem_label import ProblemLabel

_NAMED = 5
"""Files that were left out which are named."""
_SIDE = 2048
"""The longest side of an image on screen, in pixels."""


class PredictResult(QWidget):
    """Signals: more_wanted() - something else is to be predicted."""

    more_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._predicted: Predicted | None = None
        self._shown: PredictedRow | None = None
        self.heading = QLabel(wordWrap=True)
        self.heading.setObjectName("heading")
        self.files = caption()
        self.skipped = ProblemLabel()
        self.list = QListWidget()
        self.list.setAccessibleName("Results")
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.setSpacing(2)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.zoom = Zoom(self)
        self.image = ImagePane("Result", self.zoom)
        self.words = QLabel(wordWrap=True, alignment=Qt.AlignmentFlag.AlignHCenter)
        self.open = Action(self, "open_predictions", "Open folder", "Opens the results' folder in the file manager")
        self.more = Action(self, "predict_more", "Predict more …", "Predicts for other files")
        self._lay_out()
        self.open.on_trigger(self._reveal)
        self.more.on_trigger(self.more_wanted.emit)
        self.list.currentRowChanged.connect(self._choose)

    def show_file(self, path: str) -> None:
        """Shows the summary in the file at `path`, once it has been read."""
        in_background(partial(_read, Path(path)), self, self._show, self._unread)

    def _show(self, predicted: Predicted) -> None:
        self._predicted = predicted
        rate = f" ({localised(predicted.images_per_second, 1)} images/s)" if predicted.images_per_second else ""
        self.heading.setText(
            f"Predicted for {counted(predicted.predicted, 'sample')} in {duration(predicted.seconds)}{rate}"
        )
        names = ", ".join(f"{each.path} ({counted(each.count, 'file')})" for each in predicted.files)
        self.files.setText(shortened(f"{predicted.order.out}: {names}"))
        self.skipped.show_problems(tuple(_skipped(predicted)))
        self.list.clear()
        self.list.addItems([shortened(f"{Path(row.path).name}: {row.words}") for row in predicted.rows])
        for number, row in enumerate(predicted.rows):
            self.list.item(number).setToolTip(shortened(row.path))
        self.list.setCurrentRow(0)
        self.list.setFocus()

    def _unread(self, error: Exception) -> None:
        self.heading.setText("The results can't be read")
        self.skipped.show_problems((Problem("", f"{describe_error(error)}.", "Predict again."),))

    def _choose(self, number: int) -> None:
        predicted = self._predicted
        self._shown = row = (
            predicted.rows[number] if predicted is not None and 0 <= number < len(predicted.rows) else None
        )
        self.words.setText(shortened(row.words) if row is not None else "")
        if row is None or predicted is None:
            return
        self.zoom.reset()
        drawn = row.overlay or row.mask
        file = Path(predicted.order.out, drawn) if drawn else Path(row.path)
        in_background(partial(read_image, file, _SIDE), self, partial(self._draw, row), lambda error: None)

    def _draw(self, row: PredictedRow, image: QImage | str) -> None:
        if row is self._shown:
            self.image.show_image(image, row.words)

    def _reveal(self) -> None:
        if self._predicted is not None:
            reveal(Path(self._predicted.order.out))

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.addWidget(self.heading, 1)
        for action in (self.more, self.open):
            top.addWidget(bind(QPushButton(), action), 0, Qt.AlignmentFlag.AlignTop)
        shown = QWidget()
        column = QVBoxLayout(shown)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.image, 1)
        column.addWidget(self.words)
        splitter = QSplitter()
        splitter.setChildrenCollapsible(False)
        splitter.addWidget(self.list)
        splitter.addWidget(shown)
        splitter.setStretchFactor(0, 1)
        splitter.setStretchFactor(1, 2)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addWidget(self.files)
        layout.addWidget(self.skipped)
        layout.addWidget(splitter, 1)


def _read(file: Path) -> Predicted:
    try:
        return PREDICTED.decode(file.read_bytes())
    except NOT_DECODED as error:
        raise OSError(f"{file} is damaged: {error}") from error


def _skipped(predicted: Predicted) -> list[Problem]:
    if not predicted.skipped_count:
        return []
    named = "; ".join(f"{each.path}: {each.reason}" for each in predicted.skipped[:_NAMED])
    more = predicted.skipped_count - min(_NAMED, len(predicted.skipped))
    rest = f"; and {localised(more)} more" if more else ""
    return [Problem("", f"Skipped {counted(predicted.skipped_count, 'file')}: {named}{rest}.", severity="warning")]
