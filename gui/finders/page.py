"""Base class of the finder pages, which try a job and show the results."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QWidget

from engine.contract.advice import FINDING
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem
from gui.format import localized, significant
from gui.sources.json_lines import RequestProcess
from gui.titles import model_title, strategy_title
from gui.translation import tr
from gui.widgets.buttons import push_button
from gui.widgets.layouts import create_working_page, hbox, vbox, with_layout
from gui.widgets.trial_page import TrialPage

WITHOUT_EFFECT = frozenset(
    {"epochs", "learning_rate", "schedule", "milestones", "final_rate", "patience", "name", "recipe"}
    | {name for name, field in FIELDS.items() if field.group in ("checkpoints", "faults") and name != "resume_from"}
    | {name for name in FIELDS if name.startswith("warmup")}
)
"""Fields of a job that don't affect a trial."""
NOTHING_CHOSEN = tr("Choose a value")
TRYING = tr("Trying the job")


class FinderPage(TrialPage):
    """Page that measures the job in short trials on request, and suggests values for the field `target`.

    Signals:
        refused(tuple): problems that prevent a trial.
    """

    refused = Signal(object)
    varied = frozenset[str]()
    """Fields that the trials vary. Problems with their values don't prevent a trial."""
    stale = Problem(
        "", tr("The job has changed since this trial; the result may be out of date."), tr("Try again."), "warning"
    )
    remedy = tr("Try again.")

    def __init__(self, target: str, title: str, empty: str, child: RequestProcess | None = None) -> None:
        """Create the page.

        Args:
            target: Job field for which the page suggests values.
            title: Title of the page.
            empty: Text that is shown before the first trial.
            child: Process that runs the trials, or None for a new one.
        """
        super().__init__(
            child or RequestProcess("engine.advisor", TRYING, FINDING.decode, cleans_up=True),
            title,
            empty,
            leave=f"leave_{target}",
            back=tr("Back from {title}").format(title=title.lower()),
            retry=tr("Try again"),
        )
        self.target = target
        self.child.refused.connect(self.refused)

    def create_results(self) -> QWidget:
        """Create the widget that shows the result of a trial. Called once."""
        raise NotImplementedError

    def show_found(self, found: Any) -> None:
        """Show `found`, the result of the last trial."""
        raise NotImplementedError

    def chosen(self) -> Any:
        """Return the value that the Use button applies, or None if nothing is selected."""
        raise NotImplementedError

    def values(self) -> dict[str, Any]:
        """Return the values that the Use button applies, by field."""
        return {self.target: self.chosen()}

    def depends_on(self, field: str) -> bool:
        return field not in self.varied

    def covers(self, job: Job, tried: Job) -> bool:
        return are_equal(job, tried, WITHOUT_EFFECT | {self.target})

    def create_trying_page(self) -> QWidget:
        self.cancel.setAccessibleName(tr("Cancel trying"))
        return create_working_page(self.activity, self.progress, self.cancel, TRYING)

    def create_result_page(self) -> QWidget:
        """Create the page with the results, and buttons that use the selected value or start another trial."""
        self.repeat = QPushButton(tr("Try again"))
        self.repeat.clicked.connect(self._request_job)
        self.use = push_button(NOTHING_CHOSEN, self._apply_choice, style="primary")
        return with_layout(vbox((self.create_results(), 1), hbox(1, self.repeat, self.use, spacing=6), spacing=6))

    def show_result(self) -> None:
        """Show the result in `found`, and the value that is selected at first."""
        self.show_found(self.found)
        self.show_choice()

    def focus_result(self) -> None:
        """Focus the Use button or, while no value is selected, the button for another trial."""
        (self.use if self.use.isEnabled() else self.repeat).setFocus()

    def show_choice(self) -> None:
        """Show the selected value on the Use button."""
        value = self.chosen()
        self.use.setEnabled(value is not None)
        if value is None:
            self.use.setText(NOTHING_CHOSEN)
        else:
            self.use.setText(tr("Use {value}").format(value=significant(value, 2) if value < 1 else localized(value)))

    def _start_trial(self, job: Job) -> None:
        """Start a trial, and show its model, strategy and devices."""
        super()._start_trial(job)
        text = tr("{model}, {strategy} on {count} devices") if len(job.parallel.devices) > 1 else "{model}, {strategy}"
        self.subtitle.setText(
            text.format(
                model=model_title(job.model.name),
                strategy=strategy_title(job.resolved_strategy),
                count=len(job.parallel.devices),
            )
        )

    def _apply_choice(self) -> None:
        """Put the selected values into the form, and leave the page."""
        self.used.emit(self.values())
        self.closed.emit()


def are_equal(first: Job, second: Job, ignored: Set[str]) -> bool:
    """Return True if two jobs are equal, apart from the fields in `ignored`."""
    return first.with_fields(**{name: second.value(name) for name in ignored}) == second
