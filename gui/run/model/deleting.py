"""Undoable deletion of an evaluation."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.runs.evaluations import KeptEvaluation
from gui.run.model.evaluation_format import evaluation_title
from gui.sources.background import Background, describe_error, in_background
from gui.sources.trash import Trashed, put_back, trash_folder
from gui.widgets.question_bar import QuestionBar


class DeletingBar(QuestionBar):
    """Banner that moves an evaluation to the trash and offers to restore it.

    Signals:
        changed(): an evaluation was moved or restored.
    """

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Deleting an evaluation", parent)
        self._trashed: Trashed | None = None
        self._work: Background | None = None
        self.yes.clicked.connect(self._restore)
        self.no.clicked.connect(self.hide)

    def delete(self, saved: KeptEvaluation) -> None:
        """Move `saved` to the trash at once, since it can be restored."""
        if self._work is None:
            moved = partial(self._on_trashed, evaluation_title(saved.evaluation))
            self._work = in_background(partial(trash_folder, saved.folder), self, moved, self._show_error)

    def close_work(self) -> None:
        """Wait for the running move."""
        if self._work is not None:
            self._work.finish()

    def _on_trashed(self, title: str, moved: Trashed) -> None:
        self._work, self._trashed = None, moved
        where = "the desktop's trash" if moved.desktop else f"{moved.location.parent}"
        self.say(f"Moved the evaluation {title} to {where}.", "ok", "Restore", "Close")
        self.yes.setFocus()
        self.changed.emit()

    def _restore(self) -> None:
        if self._work is None and self._trashed is not None:
            self._work = in_background(partial(put_back, self._trashed), self, self._on_restored, self._show_error)

    def _on_restored(self, _nothing: object) -> None:
        self._work, self._trashed = None, None
        self.hide()
        self.changed.emit()

    def _show_error(self, error: Exception) -> None:
        self._work = None
        self.say(str(error) or describe_error(error), "warning", "", "Close")
