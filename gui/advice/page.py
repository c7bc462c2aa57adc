"""Advisor page, which tries candidates, shows the answer, and applies the selected candidate to the job."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDoubleSpinBox, QSpinBox, QWidget

from engine.contract.advice import (
    ADVISING,
    BUDGET_S,
    Advice,
    AdviceProgress,
    AdviceRequest,
    Candidate,
    Network,
    apply_candidate,
)
from engine.contract.job import FIELDS, Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from gui.actions import HERE, Action
from gui.advice import advice_format
from gui.advice.answer_view import AnswerView
from gui.advice.table import AdviceTable
from gui.finders.page import TRYING, WITHOUT_EFFECT, FinderPage, are_equal
from gui.format import locale, localized
from gui.sources.json_lines import RequestProcess
from gui.titles import describe_devices, model_title
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.editors import ComboBox, fill_combo_box, indent_text
from gui.widgets.labels import labeled, muted_label
from gui.widgets.layouts import FlowLayout, hbox, scroll_panel, vbox, with_layout
from gui.widgets.trial_page import EMPTY

NOTHING_YET = tr(
    "No advice yet.\n\n"
    "Press Advise… next to Strategy in the form: short trials on the checked devices show which\nstrategy, how many "
    "devices and which settings train this job fastest. Nothing is saved."
)


class AdvicePage(FinderPage):
    """Finder page that suggests a strategy, devices and settings."""

    varied = frozenset({"strategy", "devices", "accumulation"}) | {
        name for name, field in FIELDS.items() if field.group == "parallel"
    }
    stale = Problem(
        "",
        tr("The job has changed since this was measured; the advice may be out of date."),
        tr("Measure again."),
        "warning",
    )

    def __init__(self) -> None:
        child = RequestProcess("engine.advisor.advice", TRYING, ADVISING.decode, cleans_up=True)
        super().__init__("strategy", tr("Advice on how to train"), NOTHING_YET, child)
        self._request: AdviceRequest | None = None
        self._should_remeasure = False  # True if the next request ignores saved measurements
        self._is_stopping = False  # True after the user has pressed Stop, until the next trial
        self.repeat.setText(tr("Measure again"))
        self.repeat.clicked.disconnect()  # the base class would use saved measurements
        self.repeat.clicked.connect(lambda: self._request_job(should_remeasure=True))
        self.options.ask.clicked.connect(self._ask_with_options)
        self.options.changed.connect(self._update_ask_button)
        self._stack.currentChanged.connect(lambda _index: self._update_ask_button())
        self._update_ask_button()

    def build_request(self, job: Job) -> AdviceRequest:
        """Return the advisor's request for `job` with the options that are set on the page.

        Also store the request as the last one, and let later requests use saved measurements again.
        """
        self._request = self.options.build_request(job, should_remeasure=self._should_remeasure)
        self._should_remeasure = False
        return self._request

    def covers(self, job: Job, tried: Job) -> bool:
        """Return True if `job` is the job that was tried, with or without the changes of a candidate.

        Differences in the fields `WITHOUT_EFFECT` are ignored, except in the number of epochs.
        """
        ignored = WITHOUT_EFFECT - {"epochs"}  # the answer contains the duration of all epochs
        covered_jobs = [tried]
        if self.found is not None:
            covered_jobs += [apply_candidate(tried, candidate) for candidate in self.found.table]
        return any(are_equal(job, covered, ignored) for covered in covered_jobs)

    def create_top_widgets(self) -> tuple[QWidget, ...]:
        """Create the option fields, which are always visible above the trial and its results."""
        self.options = AdviceOptions()
        return (self.options,)

    def create_trying_page(self) -> QWidget:
        """Create the page for running trials: activity, progress, remaining time and the candidates so far."""
        self.cancel.setText(tr("Stop"))
        self.cancel.setToolTip(tr("End the trials and show the results so far"))
        self.cancel.setAccessibleName(tr("Stop trying"))
        self.progress.setRange(0, 100)
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(10)
        self.progress.setAccessibleName(tr("Time used for trials"))
        self.activity.setObjectName("heading")
        self.activity.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self.remaining = muted_label(word_wrap=True)
        self.tried_so_far = AdviceTable(tr("Candidates tried so far"))
        self.tried_so_far.setSelectionMode(AdviceTable.SelectionMode.NoSelection)
        top = hbox((self.activity, 1), self.cancel, spacing=6)
        return with_layout(vbox(top, self.progress, self.remaining, self.tried_so_far, 1, spacing=6))

    def create_results(self) -> QWidget:
        """Create the page for the advisor's answer, in which a double click or Enter uses a candidate."""
        self.view = AnswerView()
        table = self.view.table
        table.selectionModel().selectionChanged.connect(lambda _now, _before: self.show_choice())
        table.doubleClicked.connect(lambda _index: self.use.click())
        use_action = Action(table, "use_advice", tr("Use this candidate"), "", "Return", "Enter", context=HERE)
        use_action.on_trigger(self.use.click)
        return scroll_panel(self.view)

    def show_found(self, found: Advice) -> None:
        """Show the advisor's answer to the last request."""
        self.view.show_answer(found, self._request.machines if self._request is not None else 1)

    def chosen(self) -> Candidate | None:
        """Return the selected candidate if it was measured, otherwise None."""
        candidate = self.view.table.chosen() if self.found is not None else None
        return candidate if candidate is not None and candidate.images_per_second is not None else None

    def values(self) -> dict[str, Any]:
        """Return the selected candidate's values for all fields that any candidate changes.

        A field that only other candidates change has its original value, so that applying the values undoes an earlier
        selection.
        """
        candidate = self.chosen()
        if candidate is None or self._tried_job is None:
            return {}
        names = {name for each in self.found.table for name in each.changes}
        job = apply_candidate(self._tried_job, candidate)
        return {name: job.value(name) for name in FIELDS if name in names}

    def show_choice(self) -> None:
        """Show the details of the selected candidate, and allow using it if it was measured."""
        candidate = self.chosen()
        self.view.show_details()
        self.use.setText(tr("Use this"))
        self.use.setEnabled(candidate is not None)
        if candidate is None:
            tip = tr("Choose a row that was measured")
        elif candidate.changes:
            tip = tr("Set {row} in the form").format(row=advice_format.describe_changes(candidate))
        else:
            tip = tr("This is your current job")
        self.use.setToolTip(tip)

    # Trials

    def _request_job(self, *, should_remeasure: bool = False) -> None:
        """Request advice. If `should_remeasure`, saved measurements are ignored."""
        self._should_remeasure = should_remeasure
        super()._request_job()

    def _ask_with_options(self) -> None:
        """Request advice with the changed options.

        Saved measurements are ignored only if the time limit has changed, since longer trials are more reliable.
        """
        has_new_limit = self._request is not None and self.options.time.currentData() != self._request.seconds
        self._request_job(should_remeasure=has_new_limit)

    def _update_ask_button(self) -> None:
        """Show the button that requests advice before the first request, and after a change of options."""
        can_request_first = self._stack.currentIndex() == EMPTY and self._job is not None
        have_options_changed = self._request is not None and self.options.differ_from(self._request)
        self.options.ask.setVisible(can_request_first or have_options_changed)

    def _start_trial(self, job: Job) -> None:
        """Reset the page that shows running trials, and start the trials for `job`."""
        self._is_stopping = False
        self.cancel.setText(tr("Stop"))
        self.cancel.setEnabled(True)
        self.remaining.setText("")
        self.tried_so_far.hide()
        super()._start_trial(job)
        batch_size, devices = localized(job.training.batch_size), describe_devices(job.parallel.devices)
        self.subtitle.setText(
            tr("{model}, batch size {batch_size}, {devices}").format(
                model=model_title(job.model.name), batch_size=batch_size, devices=devices
            )
        )
        self._update_ask_button()

    def _on_progress(self, message: Progress) -> None:
        """Show the activity, the remaining time, and the candidates that have been tried."""
        super()._on_progress(message)
        if isinstance(message, AdviceProgress):
            self.activity.setText(f"{message.what}…")
            self.remaining.setText(advice_format.describe_progress(message))
            self.tried_so_far.setVisible(bool(message.table))
            self.tried_so_far.show_candidates(message.table)

    def end(self) -> None:
        """Ask the advisor to end the trials. It then answers with the results so far, or fails if there are none."""
        self._is_stopping = True
        self.cancel.setText(tr("Stopping…"))
        self.cancel.setEnabled(False)
        self.child.stop()

    def _on_failed(self, reason: str) -> None:
        """Show why there is no answer. After a stop before the first trial, return to the empty page."""
        if self._is_stopping:  # after the first trial, a stop has a result and doesn't fail
            self._stack.setCurrentIndex(EMPTY)
        else:
            super()._on_failed(reason)


TIMES = {30: tr("30 seconds"), 60: tr("1 minute"), 120: tr("2 minutes"), 300: tr("5 minutes"), 900: tr("15 minutes")}
GIGABIT = 1e9


class AdviceOptions(QWidget):
    """Row of option fields, with a button that requests advice with these options.

    Signals:
        changed(): a field has changed.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.time = styled(ComboBox(), tip=tr("Time for all trials; longer trials give more reliable results"))
        fill_combo_box(self.time, ((title, seconds) for seconds, title in TIMES.items()), int(BUDGET_S))
        self.machines = indent_text(QSpinBox(minimum=1, maximum=1024))
        self.machines.setToolTip(
            tr("With more than one, the answer also predicts the speed on several machines like this one")
        )
        self.network = indent_text(QDoubleSpinBox(minimum=0.1, maximum=3200, value=10, decimals=1, suffix=" Gbit/s"))
        self.network.setLocale(locale())
        self.network.setToolTip(tr("Network speed between the machines, in each direction"))
        self.ask = push_button(tr("Ask again"), tip=tr("Ask with these settings"))
        layout = FlowLayout(self, spacing=14, line_spacing=6)
        layout.addWidget(labeled(tr("&Time for trials"), self.time))
        layout.addWidget(labeled(tr("&Machines"), self.machines))
        self._network = labeled(tr("&Network"), self.network)
        layout.addWidget(self._network)
        layout.addWidget(self.ask)
        self._network.hide()
        self.time.currentIndexChanged.connect(lambda _index: self.changed.emit())
        self.network.valueChanged.connect(lambda _value: self.changed.emit())
        self.machines.valueChanged.connect(self._on_machines_changed)

    def build_request(self, job: Job, *, should_remeasure: bool = False) -> AdviceRequest:
        """Return a request to the advisor about `job`. If `should_remeasure`, saved measurements are ignored."""
        machines = self.machines.value()
        network = Network(self.network.value() * GIGABIT) if machines > 1 else None
        return AdviceRequest(
            job=job,
            seconds=float(self.time.currentData()),
            remeasure=should_remeasure,
            machines=machines,
            network=network,
        )

    def differ_from(self, request: AdviceRequest) -> bool:
        """Return True if the options aren't those of an earlier request."""
        current = self.build_request(request.job, should_remeasure=request.remeasure)
        return current != request

    def _on_machines_changed(self, machines: int) -> None:
        """Show the network speed for several machines, and emit `changed`."""
        self._network.setVisible(machines > 1)
        self.changed.emit()
