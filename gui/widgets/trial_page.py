"""Base class of the pages that run a child process for the job in the form, and show its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QStackedWidget, QWidget

from engine.checks.node_checks import remote_device_problems
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem, errors
from engine.system.format import duration
from gui.actions import bind, create_back_action
from gui.sources.json_lines import RequestProcess
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import EmptyState, ProblemLabel, heading_label, muted_label
from gui.widgets.layouts import create_failure_page, lay_out_page

EMPTY, WORKING, FAILURE, RESULT = range(4)


class TrialPage(QWidget):
    """Base of the pages that measure the job in the form by a short trial in a child process.

    The user requests the trial. The page then shows its progress and its result.

    Signals:
        closed(): the user wants to return to the previous page.
        used(dict): the user wants to put these values into the form, by field.
        job_requested(): the user wants to try the current job. The owner calls `show_job`.
    """

    closed = Signal()
    used = Signal(object)
    job_requested = Signal()
    stale: Problem
    """Warning that the job in the form has changed since the trial."""
    remedy: str
    """Remedy for a trial that ended without a result."""

    def __init__(self, child: RequestProcess, title: str, empty: str, *, leave: str, back: str, retry: str) -> None:
        """Create the page.

        Args:
            child: Process that runs the trials.
            title: Title of the page.
            empty: Text that is shown before the first trial.
            leave: Id of the action that leaves the page.
            back: Accessible name of the button that leaves the page.
            retry: Text of the button for another trial after a failure.
        """
        super().__init__()
        styled(self, "panel", name=tr("{title} page").format(title=title))
        self.child = child
        child.setParent(self)
        self.found: Any = None
        """Visible result, or None if there is none."""
        self._job: Job | None = None  # job in the form
        self._tried_job: Job | None = None  # job of the last trial
        self.leave = create_back_action(self, leave)
        self.back = bind(QPushButton(), self.leave, back)
        self.title = heading_label(title)
        self.subtitle = muted_label(word_wrap=True)
        self.notice = ProblemLabel()
        self.activity = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.progress = QProgressBar()
        self.cancel = QPushButton(tr("Cancel"))
        self.failure = ProblemLabel()
        self.retry = QPushButton(retry)
        self._stack = QStackedWidget()
        pages = (
            EmptyState(empty),
            self.create_trying_page(),
            create_failure_page(self.failure, self.retry),
            self.create_result_page(),
        )
        for page in pages:
            self._stack.addWidget(page)
        lay_out_page(self, self.back, self.title, self.subtitle, *self.create_top_widgets(), self.notice, self._stack)
        self.leave.on_trigger(self._close)
        self.cancel.clicked.connect(self.end)
        self.retry.clicked.connect(self._request_job)
        child.progress.connect(self._on_progress)
        child.done.connect(self._on_done)
        child.refused.connect(self._show_failure)
        child.failed.connect(self._on_failed)

    def close_work(self) -> None:
        """End the child process."""
        self.child.close()

    def show_job(self, job: Job | None, problems: Sequence[Problem]) -> None:
        """Show the result for `job` (None if the form is invalid). Without a valid result, start a trial first.

        A running trial continues if its result will be valid for `job`. Problems prevent a trial and end a running one.
        """
        self.set_job(job)
        blockers = [problem for problem in errors(problems) if self.depends_on(problem.field)]
        blockers += remote_device_problems(job.parallel.devices) if job is not None else []
        if job is None or blockers:
            self.child.cancel()
            self._show_failure(blockers or [Problem("", tr("The job is invalid."), tr("Correct the marked fields."))])
        elif self.found is not None and not self._is_stale:
            self.show_again(job)
        elif not self.child.running or self._is_stale:
            self._start_trial(job)

    def set_job(self, job: Job | None) -> None:
        """Set the job in the form. If it has changed, mark the result as outdated."""
        self._job = job
        self.notice.show_problems((self.stale,) if self.found is not None and self._is_stale else ())

    # To be implemented

    def build_request(self, job: Job) -> object:
        """Return the request for a trial of `job` that the child process executes."""
        raise NotImplementedError

    def depends_on(self, field: str) -> bool:
        """Return True if problems with this field of the job prevent a trial."""
        raise NotImplementedError

    def covers(self, job: Job, tried: Job) -> bool:
        """Return True if the result for the `tried` job is also valid for `job`."""
        raise NotImplementedError

    def create_trying_page(self) -> QWidget:
        """Create the page that is visible during a trial. Called once."""
        raise NotImplementedError

    def create_result_page(self) -> QWidget:
        """Create the page that shows results. Called once."""
        raise NotImplementedError

    def create_top_widgets(self) -> tuple[QWidget, ...]:
        """Create the widgets above the trial and the results. Called once."""
        return ()

    def show_result(self) -> None:
        """Show the new result of a trial, which is stored in `found`."""
        raise NotImplementedError

    def focus_result(self) -> None:
        """Focus the first widget of the result."""
        raise NotImplementedError

    def show_again(self, job: Job) -> None:
        """Show the previous result, which is also valid for `job`."""
        self._stack.setCurrentIndex(RESULT)
        self.focus_result()

    def end(self) -> None:
        """End the trial when the Cancel button is pressed."""
        self._close()

    # Trials

    def _request_job(self) -> None:
        """Discard the result, and request the current job to try it."""
        self.found = None
        self.job_requested.emit()

    def _start_trial(self, job: Job) -> None:
        """Discard the result, start a trial for `job`, and show its progress."""
        self.found = None
        self._tried_job = job
        self.notice.show_problems(())
        self._stack.setCurrentIndex(WORKING)
        self.child.start(self.build_request(job))
        self.cancel.setFocus()

    def _on_progress(self, message: Progress) -> None:
        if message.seconds_left is None:
            text = f"{message.what}…"
        else:
            text = tr("{activity}, {time} left").format(activity=message.what, time=duration(message.seconds_left))
        self.activity.setText(text)
        self.progress.setValue(round(100 * message.fraction))

    def _on_done(self, found: Any) -> None:
        """Show `found`, the result of the trial."""
        self.found = found
        self.set_job(self._job)  # shows a notice if the job has changed during the trial
        self.show_result()
        self._stack.setCurrentIndex(RESULT)
        if self.isVisible():
            self.focus_result()

    def _on_failed(self, reason: str) -> None:
        self._show_failure([Problem("", reason, self.remedy)])

    def _show_failure(self, problems: Sequence[Problem]) -> None:
        """Show why there is no result. If Cancel or no widget had the focus, move it to the button that retries."""
        self.found = None
        self.notice.show_problems(())
        self.failure.show_problems(tuple(problems))
        self._stack.setCurrentIndex(FAILURE)
        if self.cancel.hasFocus() or self.window().focusWidget() is None:
            self.retry.setFocus()

    def _close(self) -> None:
        """Leave the page, and cancel a running trial."""
        if self.child.running:
            self.child.cancel()
            self._stack.setCurrentIndex(EMPTY)
        self.closed.emit()

    @property
    def _is_stale(self) -> bool:
        """True if the visible result isn't valid for the job in the form."""
        return self._job is None or self._tried_job is None or not self.covers(self._job, self._tried_job)
