"""Deleting an evaluation so that it can be had back."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.runs.evaluations import KeptEvaluation
from gui.run.model.words import evaluation_title
from gui.sources.background import Background, describe_error, in_background
from gui.sources.trash import Trashed, put_back, trash_folder
from gui.widgets.question_bar import QuestionBar


class DeletingBar(QuestionBar):
    """Moves an evaluation to the trash, and offers to put it back.

    Signals: changed() - one has gone or come back.
    """

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Deleting an evaluation", parent)
        self._moved: Trashed | None = None
        self._working: Background | None = None
        self.yes.clicked.connect(self._put_back)
        self.no.clicked.connect(self.hide)

    def delete(self, kept: KeptEvaluation) -> None:
        """Moves `kept` to the trash at once, since it can be put back."""
        if self._working is None:
            moved = partial(self._gone, evaluation_title(kept.evaluation))
            self._working = in_background(partial(trash_folder, kept.folder), self, moved, self._failed)

    def close_work(self) -> None:
        """Waits for what is being moved, for the end of the window."""
        if self._working is not None:
            self._working.finish()

    def _gone(self, title: str, moved: Trashed) -> None:
        self._working, self._moved = None, moved
        where = "the desktop's trash" if moved.desktop else f"{moved.location.parent}"
        self.say(f"The evaluation {title} is now in {where}.", "ok", "Put back", "Close")
        self.yes.setFocus()
        self.changed.emit()

    def _put_back(self) -> None:
        if self._working is None and self._moved is not None:
            self._working = in_background(partial(put_back, self._moved), self, self._back, self._failed)

    def _back(self, _nothing: object) -> None:
        self._working, self._moved = None, None
        self.hide()
        self.changed.emit()

    def _failed(self, error: Exception) -> None:
        self._working = None
        self.say(str(error) or describe_error(error), "warning", "", "Close")
