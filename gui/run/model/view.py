"""View of a run's evaluations: the open one, and a form for a new one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.evaluations import SavedEvaluation, read_evaluations
from engine.runs.folder import RunFolder
from gui.run.model.bar import EvaluateForm, EvaluationBar
from gui.run.model.result import ResultView
from gui.run.model.widgets import evaluation_title
from gui.run.request_pages import FORM, READING, RESULT, WORKING, RequestPages
from gui.sources.background import describe_error, in_background
from gui.sources.evaluations import OpenedEvaluation, open_evaluation
from gui.sources.trash import trash_folder
from gui.translation import tr
from gui.widgets.layouts import vbox
from gui.widgets.trash_bar import TrashBar


class ModelView(QWidget):
    """View of a run's evaluations. A running evaluation continues if another run is opened.

    Signals:
        message(str, str): the result of background work, with the severity "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._run: RunFolder | None = None
        self._evaluations: list[SavedEvaluation] = []
        self._requested_folder = ""  # folder of the evaluation that is shown or being read
        self._is_unlisted = True  # True until the evaluations of the run have been listed
        self._samples_due: Literal["", "when_read", "when_evaluated"] = ""  # when the page of samples will be opened
        self.bar = EvaluationBar()
        self.deleting = TrashBar(tr("Deleting an evaluation"))
        self.form = EvaluateForm()
        self.result = ResultView()
        self.pages = RequestPages(
            tr("The evaluation"),
            self.form,
            self.result,
            first=self.form.checkpoint,
            reading=tr("Reading the evaluations…"),
        )
        self.setLayout(vbox(self.bar, self.deleting, (self.pages, 1)))
        self.bar.hide()
        self._connect()

    def show_run(self, run: RunFolder | None) -> None:
        """Show the evaluations of `run` (None for no run). They are read once the view is visible."""
        if run is self._run:
            return
        self._run, self._evaluations, self._is_unlisted, self._samples_due = run, [], True, ""
        self.deleting.hide()
        self.pages.show_run(run, READING)
        if self.isVisible():
            self.reload()

    def show_mistakes(self) -> None:
        """Show the samples of the newest evaluation, worst first. If there is none, evaluate the model."""
        self._samples_due = "when_read"
        self.reload()

    def set_gpus(self, names: dict[str, str]) -> None:
        """Set the titles of this machine's GPUs, by UUID."""
        self.form.devices.set_gpus(names)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.reload()

    def close_work(self) -> None:
        """Stop background work when the window closes."""
        self.pages.close_work()
        self.deleting.close_work()
        self.result.close_work()

    def reload(self, chosen: str = "") -> None:
        """Read and show the list of evaluations, which other programs may have changed. A worker thread reads it.

        `chosen` is the folder of the evaluation to select, or "" to keep the selection.
        """
        if self._run is not None:
            in_background(
                partial(_find_evaluations, self._run),
                self,
                partial(self._show_list, self._run, chosen),
                partial(self._show_error, self._run),
            )

    def _show_list(self, run: RunFolder, chosen: str, found: _FoundEvaluations) -> None:
        """Show the evaluations that were found for `run`. Does nothing if another run is shown now.

        `chosen` is the folder of the evaluation to select, or "" to keep the selection. If `show_mistakes` has requested
        the samples, they are shown, too.
        """
        if run is not self._run:
            return
        is_first, self._is_unlisted = self._is_unlisted, False
        if is_first:
            job = found.job
            self.form.show_run(
                run,
                job.parallel.devices if job is not None else (),
                Path(job.data.dataset).name if job is not None else "",
            )
        previous_folders = [saved.folder for saved in self._evaluations]
        has_changed = previous_folders != [saved.folder for saved in found.evaluations]
        self._evaluations = found.evaluations
        self.form.set_has_results(bool(found.evaluations))
        if found.evaluations and not self.pages.is_working and (is_first or chosen or has_changed):
            self.bar.show_list(found.evaluations, chosen)  # `_open` then reads the selected one, and shows its page
        else:
            self._update_page()
        if self._samples_due == "when_read" and not self.pages.is_working:  # requested before they were read
            self._show_samples(found)

    def _update_page(self) -> None:
        """Select the page: the progress of a running evaluation, or else the form if there are no evaluations.

        Otherwise, the open evaluation replaces the page that was shown while evaluations were read.
        """
        if self.pages.is_working:
            self.pages.setCurrentIndex(WORKING)
        elif not self._evaluations:
            self.pages.setCurrentIndex(FORM)
        elif self.pages.currentIndex() == READING:
            self.pages.setCurrentIndex(RESULT)

    def _show_samples(self, found: _FoundEvaluations) -> None:
        """Show the samples of the open evaluation. If no evaluation was `found`, start one, and show them later."""
        request = self.form.build_request()
        if not found.evaluations and request is not None:
            self._samples_due = "when_evaluated"
            self.pages.start(request)
        elif self.result.opened is not None and self.pages.currentIndex() == RESULT:
            self._samples_due = ""
            self.result.show_all_samples()

    def _show_error(self, run: RunFolder, error: Exception) -> None:
        """Show why the evaluations of `run` can't be read, unless another run is now shown."""
        if run is self._run:
            self.pages.show_failure(
                Problem("", tr("Couldn't read the evaluations: {error}.").format(error=describe_error(error)))
            )

    def _open(self, saved: SavedEvaluation) -> None:
        """Read `saved`, which was selected in the bar, on a worker thread, and show it."""
        self._requested_folder = str(saved.folder)
        in_background(
            partial(open_evaluation, saved), self, partial(self._show_opened, saved), partial(self._show_damage, saved)
        )

    def _show_opened(self, saved: SavedEvaluation, opened: OpenedEvaluation) -> None:
        """Show an evaluation that has been read, unless another one has been requested since."""
        if str(saved.folder) != self._requested_folder:
            return
        self.bar.show_opened(opened)
        self.result.show_evaluation(opened, self.form.devices.value())
        if not self.pages.is_working:
            self.pages.setCurrentIndex(RESULT)
        if self._samples_due:
            self._samples_due = ""
            self.result.show_all_samples()

    def _show_damage(self, saved: SavedEvaluation, error: Exception) -> None:
        """Show why the evaluation can't be read, unless another one has been requested since."""
        if str(saved.folder) == self._requested_folder:
            self.pages.show_failure(Problem("", f"{error}.", tr("Evaluate the model again.")))

    def _on_evaluated(self, path: str) -> None:
        """Show the evaluation that has just ended. `path` is the file with its summary."""
        self.reload(Path(path).parent.name)

    def _show_form(self) -> None:
        """Show the form for a new evaluation, with the current checkpoints."""
        self.form.checkpoint.refresh()
        self.pages.show_form()

    def _delete(self, saved: SavedEvaluation) -> None:
        """Move an evaluation to the trash on a worker thread. A banner then offers to undo it."""
        self.deleting.start(
            tr("the evaluation {evaluation}").format(evaluation=evaluation_title(saved.evaluation)),
            trash_folder,
            [saved.folder],
        )

    def _show_results(self) -> None:
        """Return from the form to the evaluation that was open, if there is any."""
        if self._evaluations:
            self.bar.show_list(self._evaluations)

    def _connect(self) -> None:
        self.bar.chosen.connect(self._open)
        self.bar.evaluate_requested.connect(self._show_form)
        self.bar.delete_requested.connect(self._delete)
        self.deleting.changed.connect(self.reload)
        self.form.submitted.connect(self.pages.start)
        self.form.closed.connect(self._show_results)
        self.pages.retry.clicked.connect(self.form.checkpoint.refresh)
        self.pages.currentChanged.connect(lambda page: self.bar.setVisible(page == RESULT))
        self.pages.done.connect(self._on_evaluated)
        for source in (self.bar, self.result, self.pages):
            source.message.connect(self.message)


class _FoundEvaluations(NamedTuple):
    """Saved evaluations of a run, and its job, or None if that can't be read."""

    evaluations: list[SavedEvaluation]
    job: Job | None


def _find_evaluations(run: RunFolder) -> _FoundEvaluations:
    """Read the evaluations and the job of a run. Called on a worker thread. Raises OSError."""
    return _FoundEvaluations(read_evaluations(run.path), run.job())
