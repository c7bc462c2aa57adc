"""Base class of the finder pages, which try a job and show the results."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import msgspec
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QStackedWidget, QWidget

from engine.checks.node_checks import remote_device_problems
from engine.contract.advice import ADVISING, FINDING, AdviceOrder, FinderOrder
from engine.contract.job import FIELDS, Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem, errors
from engine.system.format import duration
from gui.actions import back_action, bind
from gui.format import localized, significant
from gui.sources.json_lines import JsonLinesProcess
from gui.titles import model_title, strategy_title
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.labels import EmptyState, ProblemLabel, heading_label, muted_label
from gui.widgets.layouts import fault_page, hbox, lay_out_page, vbox, with_layout, working_page

WITHOUT_EFFECT = frozenset(
    {"epochs", "learning_rate", "schedule", "milestones", "final_rate", "patience", "name", "recipe"}
    | {name for name, field in FIELDS.items() if field.group in ("checkpoints", "faults") and name != "resume_from"}
    | {name for name in FIELDS if name.startswith("warmup")}
)
"""Fields of a job that don't affect a trial."""
NOTHING_CHOSEN = tr("Choose a value")

EMPTY, TRYING, FAILURE, FOUND = range(4)


class FinderChild(JsonLinesProcess):
    """Child process (``python -m engine.advisor``) that tries jobs, one at a time. Its progress is a Progress."""

    def __init__(self, parent: QObject | None = None, *, advises: bool = False) -> None:
        """Prepare the process. If `advises`, it takes an AdviceOrder, otherwise a FinderOrder."""
        module = "engine.advisor.advice" if advises else "engine.advisor"
        decode = ADVISING.decode if advises else FINDING.decode
        super().__init__(module, tr("Trying the job"), decode, parent, cleans_up=True)

    def start(self, order: FinderOrder | AdviceOrder) -> None:
        """Try the job in `order` on its devices."""
        self.run(stdin=msgspec.json.encode(order), first=Progress(0.0, tr("Starting")))


class FinderPage(QWidget):
    """Page that tries the job on request, and suggests values for the field `target`.

    Signals:
        closed(): the user wants to return to the previous page.
        used(dict): the user wants to put these values into the form, by field.
        job_requested(): the user wants to try the current job. The owner calls `show_job`.
        refused(tuple): problems that prevent a trial.
    """

    closed = Signal()
    used = Signal(object)
    job_requested = Signal()
    refused = Signal(object)
    varied = frozenset[str]()
    """Fields that the trials vary. Problems with their values don't prevent a trial."""
    stale = Problem(
        "", tr("The job has changed since this trial; the result may be out of date."), tr("Try again."), "warning"
    )

    def __init__(self, target: str, title: str, empty: str, child: FinderChild | None = None) -> None:
        """Create the page.

        Args:
            target: Field that the page suggests values for.
            title: Title of the page.
            empty: Text that is shown before the first trial.
            child: Process that runs the trials, or None to create one.
        """
        super().__init__()
        styled(self, "panel", name=f"{title} page")
        self.child = child or FinderChild(self)
        self.target = target
        self.found: Any = None
        """Visible result, or None if there is none."""
        self._job: Job | None = None
        self._tried_job: Job | None = None  # job that the visible result was measured with
        self.leave = back_action(self, f"leave_{self.target}")
        self.back = bind(QPushButton(), self.leave, tr("Back from {title}").format(title=title.lower()))
        self.title = heading_label(title)
        self.subtitle = muted_label(word_wrap=True)
        self.notice = ProblemLabel()
        self.activity = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.progress = QProgressBar()
        self.cancel = QPushButton(tr("Cancel"))
        self.failure = ProblemLabel()
        self.retry = QPushButton(tr("Try again"))  # on the page of a failed trial
        self.repeat = QPushButton(tr("Try again"))  # on the result page
        self.use = push_button(NOTHING_CHOSEN, style="primary")
        self._stack = QStackedWidget()
        self._lay_out(empty)
        self._connect()

    def close_work(self) -> None:
        """End the child process that runs the trials."""
        self.child.close()

    def show_job(self, job: Job | None, problems: Sequence[Problem]) -> None:
        """Show the result for `job`. If there is none, run a trial first.

        Args:
            job: Job in the form, or None if it is invalid.
            problems: All problems with the job.
        """
        self.set_job(job)
        blockers = [problem for problem in errors(problems) if problem.field not in self.varied]
        blockers += remote_device_problems(job.parallel.devices) if job is not None else []
        if job is None or blockers:
            self.child.cancel()
            self._show_failure(blockers or [Problem("", tr("The job is invalid."), tr("Correct the marked fields."))])
        elif self.found is not None and not self._is_stale:
            self._stack.setCurrentIndex(FOUND)
            self.use.setFocus()
        elif not self.child.running or self._is_stale:
            self._try(job)

    def set_job(self, job: Job | None) -> None:
        """Set the job in the form. If it has changed, mark the result as outdated."""
        self._job = job
        self.notice.show_problems((self.stale,) if self.found is not None and self._is_stale else ())

    def order(self, job: Job) -> FinderOrder | AdviceOrder:
        """Return the order for the child process."""
        raise NotImplementedError

    def results(self) -> QWidget:
        """Create the widget that shows results. Called once."""
        raise NotImplementedError

    def show_found(self, found: Any) -> None:
        """Show the result of a trial."""
        raise NotImplementedError

    def chosen(self) -> Any:
        """Return the value that the Use button applies, or None if nothing is selected."""
        raise NotImplementedError

    def values(self) -> dict[str, Any]:
        """Return the values that the Use button applies, by field."""
        return {self.target: self.chosen()}

    def covers(self, job: Job) -> bool:
        """Return True if the last trial is also valid for `job`."""
        return self._tried_job is not None and are_equal(job, self._tried_job, WITHOUT_EFFECT | {self.target})

    # Layout

    def _lay_out(self, empty: str) -> None:
        nothing = EmptyState(empty)
        for page in (nothing, self.trying_page(), fault_page(self.failure, self.retry), self._result_page()):
            self._stack.addWidget(page)
        lay_out_page(self, self.back, self.title, self.subtitle, *self.above(), self.notice, self._stack)

    def trying_page(self) -> QWidget:
        """Create the page that is visible during a trial. Called once."""
        self.cancel.setAccessibleName(tr("Cancel trying"))
        return working_page(self.activity, self.progress, self.cancel, tr("Trying the job"))

    def above(self) -> tuple[QWidget, ...]:
        """Create the widgets above the trial and the results. Called once."""
        return ()

    def _result_page(self) -> QWidget:
        return with_layout(vbox((self.results(), 1), hbox(1, self.repeat, self.use, spacing=6), spacing=6))

    def _connect(self) -> None:
        self.leave.on_trigger(self._close)
        self.cancel.clicked.connect(self.end)
        for button in (self.retry, self.repeat):
            button.clicked.connect(self._request_job)
        self.use.clicked.connect(self._apply_choice)
        self.child.progress.connect(self._on_progress)
        self.child.done.connect(self._on_done)
        self.child.refused.connect(self._show_failure)
        self.child.refused.connect(self.refused)
        self.child.failed.connect(self._on_failed)

    # Trials

    def _request_job(self) -> None:
        self.found = None
        self.job_requested.emit()

    def _try(self, job: Job) -> None:
        """Forget the result, start a trial for `job`, and show its progress."""
        self.found = None
        self._tried_job = job
        self.notice.show_problems(())
        devices = f" on {len(job.parallel.devices)} devices" if len(job.parallel.devices) > 1 else ""
        self.subtitle.setText(f"{model_title(job.model.name)}, {strategy_title(job.resolved_strategy)}{devices}")
        self._stack.setCurrentIndex(TRYING)
        self.child.start(self.order(job))
        self.cancel.setFocus()

    def _on_progress(self, message: Progress) -> None:
        remaining = f", {duration(message.seconds_left)} left" if message.seconds_left is not None else ""
        self.activity.setText(f"{message.what}{remaining}" if remaining else f"{message.what}…")
        self.progress.setValue(round(100 * message.fraction))

    def _on_done(self, found: Any) -> None:
        """Show the result of the trial."""
        self.found = found
        self.set_job(self._job)  # shows a notice if the job has changed during the trial
        self.show_found(found)
        self.show_choice()
        self._stack.setCurrentIndex(FOUND)
        if self.isVisible():
            (self.use if self.use.isEnabled() else self.repeat).setFocus()

    def show_choice(self) -> None:
        """Show the selected value on the Use button."""
        value = self.chosen()
        self.use.setEnabled(value is not None)
        if value is None:
            self.use.setText(NOTHING_CHOSEN)
        else:
            self.use.setText(f"Use {significant(value, 2) if value < 1 else localized(value)}")

    def _on_failed(self, reason: str) -> None:
        self._show_failure([Problem("", reason, tr("Try again."))])

    def _show_failure(self, problems: Sequence[Problem]) -> None:
        """Show why there is no result. The button that retries gets the focus that Cancel had."""
        self.found = None
        self.notice.show_problems(())
        self.failure.show_problems(tuple(problems))
        self._stack.setCurrentIndex(FAILURE)
        if self.cancel.hasFocus() or self.window().focusWidget() is None:
            self.retry.setFocus()

    def _apply_choice(self) -> None:
        self.used.emit(self.values())
        self.closed.emit()

    def end(self) -> None:
        """End the trial when the Cancel button is pressed."""
        self._close()

    def _close(self) -> None:
        """Leave the page, and cancel a running trial."""
        if self.child.running:
            self.child.cancel()
            self._stack.setCurrentIndex(EMPTY)
        self.closed.emit()

    @property
    def _is_stale(self) -> bool:
        """True if the visible result isn't valid for the job in the form."""
        return self._job is None or not self.covers(self._job)


def are_equal(one: Job, other: Job, ignored: Set[str]) -> bool:
    """Return True if two jobs are equal, apart from the fields in `ignored`."""
    return one.with_fields(**{name: other.value(name) for name in ignored}) == other
