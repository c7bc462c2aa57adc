"""What a run's model is worth: its evaluations, of which one is on screen, and how another is made."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.evaluations import KeptEvaluation, evaluations_of
from engine.runs.folder import RunFolder
from gui.run.model.bar import EvaluationBar
from gui.run.model.deleting import DeletingBar
from gui.run.model.order_form import EvaluateForm
from gui.run.model.result import ResultView
from gui.run.order_pages import FORM, READING, RESULT, WORKING, OrderPages
from gui.sources.background import describe_error, in_background
from gui.sources.evaluations import OpenedEvaluation, open_evaluation


class ModelView(QWidget):
    """Shows the evaluations of the run that it is given, and makes others. One that is being made goes on when
    another run is looked at.

    Signals: message(str, str) - in plain words, what came of something; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self._evaluations: list[KeptEvaluation] = []
        self._wanted = ""
        self._stale = True
        self.bar = EvaluationBar()
        self.deleting = DeletingBar()
        self.form = EvaluateForm()
        self.result = ResultView()
        self.pages = OrderPages(
            "The evaluation",
            self.form,
            self.result,
            first=self.form.checkpoint,
            reading="Reading the evaluations …",
        )
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.bar)
        layout.addWidget(self.deleting)
        layout.addWidget(self.pages, 1)
        self.bar.hide()
        self._connect()

    def show_run(self, run: RunFolder | None) -> None:
        """Shows the evaluations of `run`, once it is in sight."""
        if run is self._run:
            return
        self._run, self._evaluations, self._stale = run, [], True
        self.deleting.hide()
        self.pages.show_run(run, READING)
        if self.isVisible():
            self._look()

    def set_gpus(self, names: dict[str, str]) -> None:
        """What this machine's GPUs are called, by their UUIDs."""
        self.form.devices.set_gpus(names)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._look()

    def close_work(self) -> None:
        """Ends what goes on, for the end of the window."""
        self.pages.close_work()
        self.deleting.close_work()
        self.result.close_work()

    # What there is

    def _look(self, chosen: str = "") -> None:
        """Looks which evaluations there are; others may have been made from the terminal."""
        if self._run is not None:
            in_background(
                partial(_read, self._run),
                self,
                partial(self._listed, self._run, chosen),
                partial(self._unread, self._run),
            )

    def _listed(self, run: RunFolder, chosen: str, found: _Found) -> None:
        if run is not self._run:
            return
        fresh, self._stale = self._stale, False
        if fresh:
            job = found.job
            self.form.show_run(
                run,
                job.parallel.devices if job is not None else (),
                Path(job.data.dataset).name if job is not None else "",
            )
        before, self._evaluations = self._evaluations, found.evaluations
        self.form.offer_back(bool(found.evaluations))
        if self.pages.working:
            self.pages.setCurrentIndex(WORKING)
        elif not found.evaluations:
            self.pages.setCurrentIndex(FORM)
        elif fresh or chosen or [k.folder for k in before] != [k.folder for k in found.evaluations]:
            self._wanted = ""
            self.bar.show_list(found.evaluations, chosen)
        elif self.pages.currentIndex() == READING:
            self.pages.setCurrentIndex(RESULT)

    def _unread(self, run: RunFolder, error: Exception) -> None:
        if run is self._run:
            self.pages.fail(Problem("", f"The evaluations can't be read: {describe_error(error)}."))

    def _open(self, kept: KeptEvaluation) -> None:
        self._wanted = str(kept.folder)
        in_background(partial(open_evaluation, kept), self, partial(self._take, kept), partial(self._damaged, kept))

    def _take(self, kept: KeptEvaluation, opened: OpenedEvaluation) -> None:
        if str(kept.folder) != self._wanted:
            return
        self.bar.show_opened(opened)
        self.result.show_evaluation(opened, self.form.devices.value())
        if not self.pages.working:
            self.pages.setCurrentIndex(RESULT)

    def _damaged(self, kept: KeptEvaluation, error: Exception) -> None:
        if str(kept.folder) == self._wanted:
            self.pages.fail(Problem("", f"{error}.", "Evaluate the model again."))

    # Making another

    def _done(self, path: str) -> None:
        self._look(Path(path).parent.name)

    def _ask(self) -> None:
        self.form.checkpoint.look()
        self.pages.ask()

    def _back(self) -> None:
        if self._evaluations:
            self.bar.show_list(self._evaluations)

    def _connect(self) -> None:
        self.bar.chosen.connect(self._open)
        self.bar.new_wanted.connect(self._ask)
        self.bar.delete_wanted.connect(self.deleting.delete)
        self.deleting.changed.connect(self._look)
        self.form.wanted.connect(self.pages.begin)
        self.form.closed.connect(self._back)
        self.pages.again.clicked.connect(self.form.checkpoint.look)
        self.pages.currentChanged.connect(lambda page: self.bar.setVisible(page == RESULT))
        self.pages.done.connect(self._done)
        for source in (self.bar, self.result, self.pages):
            source.message.connect(self.message)


class _Found(NamedTuple):
    evaluations: list[KeptEvaluation]
    job: Job | None


def _read(run: RunFolder) -> _Found:
    return _Found(evaluations_of(run.path), run.job())
