"""What a run's model is worth: its evaluations, of which one is on screen, and how another is made."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.inference.messages import Progress
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.evaluations import KeptEvaluation, evaluations_of
from engine.runs.folder import RunFolder
from gui.run.model.bar import EvaluationBar
from gui.run.model.deleting import DeletingBar
from gui.run.model.order_form import EvaluateForm
from gui.run.model.result import ResultView
from gui.sources.background import in_background, why
from gui.sources.evaluations import OpenedEvaluation, open_evaluation
from gui.sources.inference_child import InferenceChild, progress_words
from gui.widgets.page_layout import fault_page, working_page
from gui.widgets.problem_label import ProblemLabel

READING, FORM, WORKING, FAULT, RESULT = range(5)
_WARNINGS = 5
"""Warnings of work that goes on which are shown, the last ones."""


class ModelView(QWidget):
    """Shows the evaluations of the run that it is given, and makes others. One that is being made goes on when another run is looked at.

    Signals: message(str, str) - in plain words, what came of something; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self._evaluations: list[KeptEvaluation] = []
        self._wanted = ""
        self._stale = True
        self.child = InferenceChild("The evaluation", self)
        self.bar = EvaluationBar()
        self.deleting = DeletingBar()
        self.form = EvaluateForm()
        self.result = ResultView()
        self.what = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.progress = QProgressBar()
        self.warnings = ProblemLabel()
        self.cancel = QPushButton("Cancel")
        self.cancel.setAccessibleName("Cancel the evaluation")
        self.fault = ProblemLabel()
        self.again = QPushButton("Change and try again")
        self.stack = QStackedWidget()
        self._lay_out()
        self._connect()

    def show_run(self, run: RunFolder | None) -> None:
        """Shows the evaluations of `run`, once it is in sight."""
        if run is self._run:
            return
        self._run, self._evaluations, self._stale = run, [], True
        self.deleting.hide()
        self.stack.setCurrentIndex(READING)
        if self.isVisible():
            self._look()

    def set_gpus(self, names: dict[str, str]) -> None:
        """What this machine's GPUs are called, by their UUIDs."""
        self.form.set_gpus(names)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._look()

    def close_work(self) -> None:
        """Ends what goes on, for the end of the window."""
        self.child.close()
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
                run, job.devices if job is not None else (), Path(job.dataset).name if job is not None else ""
            )
        before, self._evaluations = self._evaluations, found.evaluations
        self.form.offer_back(bool(found.evaluations))
        if self._working:
            self._show(WORKING)
        elif not found.evaluations:
            self._show(FORM)
        elif fresh or chosen or [k.folder for k in before] != [k.folder for k in found.evaluations]:
            self._wanted = ""
            self.bar.show_list(found.evaluations, chosen)
        elif self.stack.currentIndex() == READING:
            self._show(RESULT)

    def _unread(self, run: RunFolder, error: Exception) -> None:
        if run is self._run:
            self._fail(Problem("", f"The evaluations can't be read: {why(error)}."))

    def _open(self, kept: KeptEvaluation) -> None:
        self._wanted = str(kept.folder)
        in_background(partial(open_evaluation, kept), self, partial(self._take, kept), partial(self._damaged, kept))

    def _take(self, kept: KeptEvaluation, opened: OpenedEvaluation) -> None:
        if str(kept.folder) != self._wanted:
            return
        self.bar.show_opened(opened)
        self.result.show_evaluation(opened, self.form.chosen_devices())
        if not self._working:
            self._show(RESULT)

    def _damaged(self, kept: KeptEvaluation, error: Exception) -> None:
        if str(kept.folder) == self._wanted:
            self._fail(Problem("", f"{error}.", "Evaluate the model again."))

    # Making another

    @property
    def _working(self) -> bool:
        """Whether an evaluation of the run on screen is being made."""
        order = self.child.order
        return (
            self.child.running
            and order is not None
            and self._run is not None
            and Path(order.run) == self._run.path.absolute()
        )

    def _begin(self, order: EvaluateOrder) -> None:
        if self.child.running and not self._working:
            self.message.emit("Another run is being evaluated. Wait for it, or cancel it there.", "warning")
            return
        self.warnings.show_problems(())
        self.child.start(order)
        self._show(WORKING)
        self.cancel.setFocus()

    def _tell(self, progress: Progress) -> None:
        self.what.setText(progress_words(progress))
        self.progress.setValue(round(100 * progress.fraction))
        if progress.warnings:
            told = [Problem("", text, severity="warning") for text in progress.warnings]
            self.warnings.show_problems(tuple(told[-_WARNINGS:]))

    def _done(self, path: str) -> None:
        folder = Path(path).parent
        order = self.child.order
        if order is not None and self._run is not None and Path(order.run) == self._run.path.absolute():
            self._look(folder.name)
        self.message.emit(f"The evaluation of {Path(order.run).name if order else 'the run'} is done.", "info")

    def _cancel(self) -> None:
        self.child.cancel()
        self._show(FORM)
        self.form.start.setFocus()

    def _refused(self, problems: tuple[Problem, ...]) -> None:
        order = self.child.order
        if order is not None and self._run is not None and Path(order.run) == self._run.path.absolute():
            self._fail(*problems)
        else:
            self.message.emit(" ".join(map(str, problems)), "warning")

    def _fail(self, *problems: Problem) -> None:
        self.fault.show_problems(problems)
        self._show(FAULT)
        if self.cancel.hasFocus() or self.window().focusWidget() is None:
            self.again.setFocus()

    def _ask(self) -> None:
        self.form.look()
        self._show(FORM)
        self.form.checkpoint.setFocus()

    def _back(self) -> None:
        if self._evaluations:
            self.bar.show_list(self._evaluations)

    def _show(self, page: int) -> None:
        self.stack.setCurrentIndex(page)
        self.bar.setVisible(page == RESULT)

    # Making it

    def _connect(self) -> None:
        self.bar.chosen.connect(self._open)
        self.bar.new_wanted.connect(self._ask)
        self.bar.delete_wanted.connect(self.deleting.delete)
        self.deleting.changed.connect(self._look)
        self.form.wanted.connect(self._begin)
        self.form.closed.connect(self._back)
        self.cancel.clicked.connect(self._cancel)
        self.again.clicked.connect(self._ask)
        self.child.progress.connect(self._tell)
        self.child.done.connect(self._done)
        self.child.refused.connect(self._refused)
        self.child.failed.connect(lambda text: self._refused((Problem("", text, "Try again."),)))
        for source in (self.bar, self.result):
            source.message.connect(self.message)

    def _lay_out(self) -> None:
        reading = QLabel("Reading the evaluations …", alignment=Qt.AlignmentFlag.AlignCenter)
        reading.setObjectName("muted")
        working = working_page(self.what, self.progress, self.cancel, "Evaluating the model")
        column = working.layout()
        assert isinstance(column, QVBoxLayout)
        column.insertWidget(column.count() - 1, self.warnings)
        for page in (reading, self.form, working, fault_page(self.fault, self.again), self.result):
            self.stack.addWidget(page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.bar)
        layout.addWidget(self.deleting)
        layout.addWidget(self.stack, 1)
        self.bar.hide()


class _Found(NamedTuple):
    evaluations: list[KeptEvaluation]
    job: Job | None


def _read(run: RunFolder) -> _Found:
    return _Found(evaluations_of(run.path), run.job())
