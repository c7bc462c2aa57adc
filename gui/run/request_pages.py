"""Pages for work with a run's model (form, progress, failure and result), and the process that does the work."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QLabel, QProgressBar, QStackedWidget, QVBoxLayout, QWidget

from engine.contract.inference.messages import INFERENCE, InferenceRequest
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.system.format import duration
from gui.format import speed
from gui.sources.background import in_background, reraise
from gui.sources.json_lines import RequestProcess
from gui.titles import title_of
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.labels import ProblemLabel
from gui.widgets.layouts import create_failure_page, create_working_page

FORM, WORKING, FAILURE, RESULT, READING = range(5)
_MAX_WARNINGS = 5
"""Maximum number of warnings that are shown during the work."""


class RequestPages(QStackedWidget):
    """Stack of pages for one kind of work with a run's model.

    One request is executed at a time. It continues if another run is opened.

    Signals:
        done(str): the path of the file with the results for the open run.
        message(str, str): the result of the work if its page is hidden, with the severity "info" or "warning".
    """

    done = Signal(str)
    message = Signal(str, str)

    def __init__(self, title: str, form: QWidget, result: QWidget, *, first: QWidget, reading: str = "") -> None:
        """Create the pages.

        Args:
            title: Name of the work, such as "The prediction".
            form: Page with the settings of the work.
            result: Page that shows the results.
            first: Editor of the form that gets the focus when the form is shown again.
            reading: Text that is visible while the results are being read.
        """
        super().__init__()
        self._title = title
        self._first_editor = first
        self._run: RunFolder | None = None
        self.child = InferenceChild(title, self)
        self.activity = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.progress = QProgressBar()
        self.warnings = ProblemLabel()
        self.cancel = push_button(
            tr("Cancel"), self._cancel, name=tr("Cancel {activity}").format(activity=f"{title[0].lower()}{title[1:]}")
        )
        self.failure = ProblemLabel()
        self.retry = push_button(tr("Change and try again"), self.show_form)
        working = create_working_page(
            self.activity, self.progress, self.cancel, tr("{title}: progress").format(title=title)
        )
        column = working.layout()
        assert isinstance(column, QVBoxLayout)
        column.insertWidget(column.count() - 1, self.warnings)
        wait = styled(QLabel(reading, alignment=Qt.AlignmentFlag.AlignCenter), "muted")
        # In the order of the indices FORM to READING.
        for page in (form, working, create_failure_page(self.failure, self.retry), result, wait):
            self.addWidget(page)
        self.child.progress.connect(self._show_progress)
        self.child.done.connect(self._on_done)
        self.child.refused.connect(self._on_refused)
        self.child.failed.connect(lambda text: self._on_refused((Problem("", text, tr("Try again.")),)))

    def show_run(self, run: RunFolder | None, page: int = FORM) -> None:
        """Set the open run (None for no run).

        Show the progress of the request, such as an evaluation, if one for this run is being worked on, otherwise the
        page at index `page`.
        """
        self._run = run
        self.setCurrentIndex(WORKING if self.is_working else page)

    @property
    def is_working(self) -> bool:
        """True while a request for the open run is being worked on."""
        return self.child.running and self._is_for_run(self.child.request)

    def start(self, request: InferenceRequest) -> None:
        """Start the work that `request` describes, unless work on another run is in progress."""
        if self.child.running and not self.is_working:
            text = tr("{title} of another run is still running. Wait for it, or cancel it there.")
            self.message.emit(text.format(title=self._title), "warning")
            return
        self.warnings.show_problems(())
        self.child.start(request)
        self.setCurrentIndex(WORKING)
        self.cancel.setFocus()

    def show_form(self) -> None:
        self.setCurrentIndex(FORM)
        self._first_editor.setFocus()

    def show_failure(self, *problems: Problem) -> None:
        """Show the problems that stopped the work. The retry button gets the focus if nothing else would have it."""
        self.failure.show_problems(problems)
        self.setCurrentIndex(FAILURE)
        if self.window().focusWidget() is None:
            self.retry.setFocus()

    def close_work(self) -> None:
        """Stop the work when the window closes."""
        self.child.close()

    def _is_for_run(self, request: InferenceRequest | None) -> bool:
        """Return True if `request` is for work on the open run."""
        return request is not None and self._run is not None and Path(request.run) == self._run.path.absolute()

    def _show_progress(self, progress: Progress) -> None:
        self.activity.setText(describe_progress(progress))
        self.progress.setValue(round(100 * progress.fraction))
        if progress.warnings:
            newest = progress.warnings[-_MAX_WARNINGS:]
            self.warnings.show_problems(tuple(Problem("", text, severity="warning") for text in newest))

    def _on_done(self, path: str) -> None:
        """Emit `done` if the work was for the open run. If the result isn't visible, announce the end in a message."""
        request = self.child.request
        assert request is not None
        if self._is_for_run(request):
            self.done.emit(path)
            if self.isVisible():
                return
        in_background(partial(title_of, RunFolder(Path(request.run))), self, self._announce_end, reraise)

    def _announce_end(self, run_title: str) -> None:
        self.message.emit(tr("{title} of “{run}” finished.").format(title=self._title, run=run_title), "info")

    def _cancel(self) -> None:
        """Cancel the work and return to the form."""
        self.child.cancel()
        self.show_form()

    def _on_refused(self, problems: tuple[Problem, ...]) -> None:
        """Show why the work was refused: on the failure page, or in a message if it was for another run."""
        if self._is_for_run(self.child.request):
            self.show_failure(*problems)
        else:
            self.message.emit(" ".join(map(str, problems)), "warning")


class InferenceChild(RequestProcess):
    """Child process that executes requests for work with a model (``python -m engine.inference``).

    Its result is the path of the file with the results. `activity` names the work in messages.
    """

    def __init__(self, activity: str, parent: QObject | None = None) -> None:
        super().__init__("engine.inference", activity, INFERENCE.decode, parent, cleans_up=True)


def describe_progress(progress: Progress) -> str:
    """Describe the progress, as in "Evaluating, 1,840 images/s, 3:12 min left"."""
    parts = [progress.what]
    if rate := progress.images_per_second:
        parts.append(speed(rate))
    if progress.seconds_left is not None:
        parts.append(tr("{time} left").format(time=duration(progress.seconds_left)))
    return ", ".join(parts) if len(parts) > 1 else f"{progress.what}…"
