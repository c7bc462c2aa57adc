"""Work with a run's model as people see it: what is asked for, how far it has come, why it failed, and what came of
it.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from engine.contract.inference.messages import Order, Progress
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from gui.sources.inference_child import InferenceChild, progress_words
from gui.widgets.page_layout import fault_page, working_page
from gui.widgets.problem_label import ProblemLabel

FORM, WORKING, FAULT, RESULT, READING = range(5)
_WARNINGS = 5
"""Warnings of work that goes on which are shown, the last ones."""


class OrderPages(QStackedWidget):
    """Does one kind of work at a time, and shows its form, its progress, its fault or its result. Work on one run
    goes on while another is looked at.

    Signals: done(str) - the path of the file that tells what came of the work on the run on screen, whose result is
    to be shown; message(str, str) - in plain words, what came of the work; "info" or "warning".
    """

    done = Signal(str)
    message = Signal(str, str)

    def __init__(self, title: str, form: QWidget, result: QWidget, *, first: QWidget, reading: str = "") -> None:
        """`title` names the work, as in "The prediction". `first` of the form gets the focus when the form is come
        back to; `reading` is what the page READING says.
        """
        super().__init__()
        self._title = title
        self._first = first
        self._run: RunFolder | None = None
        self.child = InferenceChild(title, self)
        self.what = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.progress = QProgressBar()
        self.warnings = ProblemLabel()
        self.cancel = QPushButton("Cancel")
        self.cancel.setAccessibleName(f"Cancel {title[0].lower()}{title[1:]}")
        self.fault = ProblemLabel()
        self.again = QPushButton("Change and try again")
        working = working_page(self.what, self.progress, self.cancel, f"{title}: progress")
        column = working.layout()
        assert isinstance(column, QVBoxLayout)
        column.insertWidget(column.count() - 1, self.warnings)
        wait = QLabel(reading, alignment=Qt.AlignmentFlag.AlignCenter)
        wait.setObjectName("muted")
        for page in (form, working, fault_page(self.fault, self.again), result, wait):
            self.addWidget(page)
        self.cancel.clicked.connect(self._cancel)
        self.again.clicked.connect(self.ask)
        self.child.progress.connect(self._tell)
        self.child.done.connect(self._done)
        self.child.refused.connect(self._refused)
        self.child.failed.connect(lambda text: self._refused((Problem("", text, "Try again."),)))

    def show_run(self, run: RunFolder | None, page: int = FORM) -> None:
        """Shows the work on `run`: that which goes on, else `page`."""
        self._run = run
        self.setCurrentIndex(WORKING if self.working else page)

    @property
    def working(self) -> bool:
        """Whether there is work on the run on screen."""
        return self.child.running and self._of_run(self.child.order)

    def begin(self, order: Order) -> None:
        """Begins with `order`, where no other run is worked on."""
        if self.child.running and not self.working:
            self.message.emit(
                f"{self._title} of another run is still going on. Wait for it, or cancel it there.", "warning"
            )
            return
        self.warnings.show_problems(())
        self.child.start(order)
        self.setCurrentIndex(WORKING)
        self.cancel.setFocus()

    def ask(self) -> None:
        """Shows the form."""
        self.setCurrentIndex(FORM)
        self._first.setFocus()

    def fail(self, *problems: Problem) -> None:
        """Shows what stands in the way."""
        self.fault.show_problems(problems)
        self.setCurrentIndex(FAULT)
        if self.cancel.hasFocus() or self.window().focusWidget() is None:
            self.again.setFocus()

    def close_work(self) -> None:
        """Ends what goes on, for the end of the window."""
        self.child.close()

    def _of_run(self, order: Order | None) -> bool:
        return order is not None and self._run is not None and Path(order.run) == self._run.path.absolute()

    def _tell(self, progress: Progress) -> None:
        self.what.setText(progress_words(progress))
        self.progress.setValue(round(100 * progress.fraction))
        if progress.warnings:
            told = [Problem("", text, severity="warning") for text in progress.warnings]
            self.warnings.show_problems(tuple(told[-_WARNINGS:]))

    def _done(self, path: str) -> None:
        order = self.child.order
        assert order is not None
        if self._of_run(order):
            self.done.emit(path)
        self.message.emit(f"{self._title} of {Path(order.run).name} is done.", "info")

    def _cancel(self) -> None:
        self.child.cancel()
        self.ask()

    def _refused(self, problems: tuple[Problem, ...]) -> None:
        if self._of_run(self.child.order):
            self.fail(*problems)
        else:
            self.message.emit(" ".join(map(str, problems)), "warning")
