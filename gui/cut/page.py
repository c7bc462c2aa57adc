"""Page that measures a model's segments. The user can move the boundaries between its pipeline stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QStackedWidget, QWidget

from engine.checks.node_checks import remote_device_problems
from engine.contract.catalogue import load_catalogue
from engine.contract.cut import PLANNING, Cut
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.parallel.cut import CannotCut, choose_cuts, compute_stages
from gui.actions import back_action, bind
from gui.cut.view import CutView
from gui.sources.json_lines import JsonLinesProcess
from gui.titles import SCHEDULES, model_title, rank_titles, strategy_title
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import EmptyState, ProblemLabel, heading_label, muted_label
from gui.widgets.layouts import fault_page, lay_out_page, scroll_panel, working_page

EMPTY = tr(
    "No cut to show yet.\n\n"
    "Choose a model, devices and a strategy that cuts the model (such as a pipeline),\n"
    "then press Show partition… under Strategy options."
)
MEASURED_BY = (
    "dataset", "task", "model", "model_file_sha256", "strategy", "devices", "batch_size", "optimizer", "accumulation",
    "ema_decay", "image_size", "precision", "freeze_epochs", "activation_checkpointing", "replicas",
    "pipeline_schedule", "microbatches", "stages_per_device",
)  # fmt: skip
"""Job fields that affect the measurement."""
STALE = Problem(
    "cuts",
    tr("The job has changed since it was measured; these figures and cuts may be out of date."),
    tr("Press Measure again."),
    "warning",
)
OTHER_CUTS = Problem(
    "cuts",
    tr("The job's cuts don't fit this model and its stages. The automatic cut is shown instead."),
    tr("Use this cut, or reset Cuts in the form."),
    "warning",
)


class CutPage(QWidget):
    """Page that shows the pipeline stages of the job's model. It measures the model on request.

    Signals:
        closed(): the user wants to return to the previous page.
        used(dict): the user wants to put the cuts into the form. The dict maps job fields to values, () for automatic
            cuts.
        job_requested(): the user wants to measure the current job. The owner calls `show_job`.

    Attributes:
        cut: Visible Cut, or None if there is none.
    """

    closed = Signal()
    used = Signal(object)
    job_requested = Signal()

    def __init__(self, planner: Planner | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        styled(self, "panel", name=tr("Cut of the model page"))
        self.planner = planner or Planner(self)
        self.cut: Cut | None = None
        self._job: Job | None = None
        self._measured: Job | None = None  # job that the cut was measured for
        self._names: dict[str, str] = {}  # device names by id
        self.leave = back_action(self, "leave_cut")
        self.back = bind(QPushButton(), self.leave, tr("Back from the cut"))
        self.title = heading_label(tr("The cut of the model"))
        self.subtitle = muted_label(word_wrap=True)
        self.notice = ProblemLabel()
        self.view = CutView()
        self.activity = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.progress = QProgressBar()
        self.cancel = QPushButton(tr("Cancel"))
        self.failure = ProblemLabel()
        self.retry = QPushButton(tr("Measure again"))
        self._stack = QStackedWidget()
        self._lay_out()
        self._connect()

    def close_work(self) -> None:
        """End the child process that measures the model."""
        self.planner.close()

    def show_job(self, job: Job | None, problems: Sequence[Problem], names: Mapping[str, str]) -> None:
        """Show the cut of `job`. Measure the model first if necessary.

        Args:
            job: Job in the form, or None if it is invalid.
            problems: All problems with the job. Only problems of fields that affect the cut are relevant.
            names: Titles of devices by id.
        """
        self._names = dict(names)
        self.set_job(job)
        errors = [problem for problem in problems if problem.severity == "error" and problem.field in MEASURED_BY]
        errors += remote_device_problems(job.parallel.devices) if job is not None else []
        if job is None or errors:
            self.planner.cancel()
            self._show_failure(errors or [Problem("", tr("The job is invalid."), tr("Correct the marked fields."))])
        elif self.cut is not None and not self._is_stale():
            self._show_cut(self._with_job_cuts(self.cut, job))
            self._focus_first_cut()
        elif not self.planner.running or self._is_stale():
            self._measure(job)

    def set_job(self, job: Job | None) -> None:
        """Set the job in the form and show whether it differs from the measured one."""
        self._job = job
        is_stale = self.cut is not None and self._is_stale()
        self.notice.show_problems((STALE,) if is_stale else ())
        self.view.use.setEnabled(not is_stale)

    def _lay_out(self) -> None:
        empty = EmptyState(EMPTY)
        self.cancel.setAccessibleName(tr("Cancel measuring"))
        measuring = working_page(self.activity, self.progress, self.cancel, tr("Measuring the model"))
        self._cut_panel = scroll_panel(self.view)
        for page in (empty, measuring, fault_page(self.failure, self.retry), self._cut_panel):
            self._stack.addWidget(page)
        lay_out_page(self, self.back, self.title, self.subtitle, self.notice, self._stack)

    def _connect(self) -> None:
        """Connect the buttons, the diagram, and the process that measures the model."""
        self.leave.on_trigger(self._close)
        self.cancel.clicked.connect(self._close)
        self.retry.clicked.connect(self._measure_again)
        self.view.measure_again.clicked.connect(self._measure_again)
        self.view.automatic.clicked.connect(self._use_automatic)
        self.view.diagram.automatic_requested.connect(self._use_automatic)
        self.view.diagram.cut_moved.connect(self._show_cut)
        self.view.use.clicked.connect(self._use)
        self.planner.progress.connect(self._show_progress)
        self.planner.done.connect(self._on_measured)
        self.planner.refused.connect(self._show_failure)
        self.planner.failed.connect(
            lambda text: self._show_failure([Problem("", text, tr("Measure again, or let the run choose the cut."))])
        )

    def _measure_again(self) -> None:
        """Discard the measurement, and request the current job to measure it."""
        self.cut = None
        self.job_requested.emit()

    def _measure(self, job: Job) -> None:
        """Measure the model for `job`, and show the progress."""
        self.cut = None
        self._measured = job
        self.notice.show_problems(())
        self._stack.setCurrentIndex(1)
        # The job's cuts are applied afterwards, so that a cut can be shown even if they are impossible.
        self.planner.start(job.with_fields(cuts=()))
        self.cancel.setFocus()

    def _show_progress(self, progress: Progress) -> None:
        self.activity.setText(f"{progress.what}…")
        self.progress.setValue(round(100 * progress.fraction))

    def _on_measured(self, cut: Cut) -> None:
        """Show the measured cut, with the cuts of the job if it has any."""
        self.cut = cut
        self.set_job(self._job)
        self._show_cut(cut if self._measured is None else self._with_job_cuts(cut, self._measured))
        if self.isVisible():
            self._focus_first_cut()

    def _focus_first_cut(self) -> None:
        """Focus the first handle, so that arrow keys move it."""
        if self.view.diagram.handles:
            self.view.diagram.handles[0].setFocus()

    def _show_cut(self, cut: Cut) -> None:
        """Show the stages of `cut`, and update the tab order if their number has changed."""
        self.cut = cut
        titles = rank_titles(cut.devices, self._names)
        previous_count = len(self.view.diagram.handles)
        self.view.show_cut(cut, titles)
        if len(self.view.diagram.handles) != previous_count:
            self.view.order_tabs(after=self.back)
        self._show_titles(self._measured, cut)
        self._stack.setCurrentWidget(self._cut_panel)

    def _show_titles(self, job: Job | None, cut: Cut) -> None:
        """Show model, strategy, devices, schedule and microbatches of the measured job."""
        if job is None:
            return
        strategy = load_catalogue().strategy(job.resolved_strategy)
        schedule = (
            f"{SCHEDULES[job.parallel.pipeline_schedule]}, " if strategy is not None and strategy.schedules else ""
        )
        batches = f"{cut.microbatches} microbatches of {cut.microbatch_size} images"
        if cut.microbatches == 1:
            batches = f"whole batches of {cut.microbatch_size} images"
        self.title.setText(tr("The cut of {name}").format(name=model_title(job.model.name)))
        self.subtitle.setText(
            f"{strategy_title(job.resolved_strategy)}, {len(cut.stage_ranks)} stages on {len(cut.devices)} devices · "
            f"{schedule}{batches}"
        )

    def _show_failure(self, problems: Sequence[Problem]) -> None:
        """Show why the model has no stages. The button for another try gets the focus if nothing else has it."""
        self.cut = None
        self.title.setText(tr("The cut of the model"))
        self.subtitle.setText("")
        self.notice.show_problems(())
        self.failure.show_problems(tuple(problems))
        self._stack.setCurrentIndex(2)
        if self.cancel.hasFocus() or self.window().focusWidget() is None:
            self.retry.setFocus()

    def _use_automatic(self) -> None:
        """Show the automatic cut, or why there is none."""
        if self.cut is None:
            return
        try:
            self._show_cut(choose_cuts(self.cut))
        except CannotCut as reason:
            self.notice.show_problems(
                (Problem("cuts", tr("There is no automatic cut: {reason}.").format(reason=reason), reason.remedy),)
            )

    def _use(self) -> None:
        """Request to put the visible cuts into the form, and leave the page."""
        if self.cut is not None:
            self.used.emit({"cuts": () if self.cut.chosen else self.cut.cuts})
            self.closed.emit()

    def _close(self) -> None:
        """Stop measuring and leave the page."""
        if self.planner.running:
            self.planner.cancel()
            self._stack.setCurrentIndex(0)
        self.closed.emit()

    def _is_stale(self) -> bool:
        """Return True if the measurement doesn't fit the job in the form, or if nothing has been measured."""
        if self._job is None or self._measured is None:
            return True
        return any(self._job.value(name) != self._measured.value(name) for name in MEASURED_BY)

    def _with_job_cuts(self, cut: Cut, job: Job) -> Cut:
        """Return `cut` with the cuts of `job`, or with automatic cuts if the job has none or they are impossible."""
        if job.parallel.cuts:
            with_cuts = msgspec.structs.replace(cut, cuts=job.parallel.cuts, chosen=False)
            try:
                compute_stages(with_cuts)
            except ValueError:
                self.notice.show_problems((OTHER_CUTS,))
            else:
                return with_cuts
        return cut if cut.chosen else choose_cuts(cut)


_LINE_LIMIT_BYTES = 16 << 20


class Planner(JsonLinesProcess):
    """Child process that measures the models of jobs, one at a time.

    Its progress is a Progress, and its result a Cut.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(
            "engine.advisor.planning",
            tr("Measuring the model"),
            PLANNING.decode,
            parent,
            line_limit_bytes=_LINE_LIMIT_BYTES,
        )

    def start(self, job: Job) -> None:
        """Measure the model of `job` on its devices."""
        self.run(stdin=msgspec.json.encode(job), first=Progress(0.0, tr("Starting to measure")))
