"""Page that measures a model's segments. The user can move the boundaries between its pipeline stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from PySide6.QtWidgets import QWidget

from engine.contract.catalogue import load_catalogue
from engine.contract.cut import PLANNING, Cut
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.parallel.cut import CannotCut, choose_cuts, compute_stages
from gui.cut.view import CutView
from gui.sources.json_lines import RequestProcess
from gui.titles import SCHEDULES, model_title, rank_titles, strategy_title
from gui.translation import tr
from gui.widgets.layouts import scroll_panel, working_page
from gui.widgets.trial_page import TrialPage

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
"""Job fields that affect the measured times and sizes of a model's segments."""
OTHER_CUTS = Problem(
    "cuts",
    tr("The job's cuts don't fit this model and its stages. The automatic cut is shown instead."),
    tr("Use this cut, or reset Cuts in the form."),
    "warning",
)
_TITLE = tr("The cut of the model")
_MEASURING = tr("Measuring the model")
_LINE_LIMIT_BYTES = 16 << 20


class CutPage(TrialPage):
    """Page that shows the pipeline stages of the job's model. It measures the model on request.

    The values of `used` are the cuts, or () for automatic ones. `found` is the visible Cut.
    """

    stale = Problem(
        "cuts",
        tr("The job has changed since it was measured; these figures and cuts may be out of date."),
        tr("Press Measure again."),
        "warning",
    )
    remedy = tr("Measure again, or let the run choose the cut.")

    def __init__(self) -> None:
        self._names: Mapping[str, str] = {}  # titles of devices by id
        super().__init__(
            planner(), _TITLE, EMPTY, leave="leave_cut", back=tr("Back from the cut"), retry=tr("Measure again")
        )

    def show_job(self, job: Job | None, problems: Sequence[Problem], names: Mapping[str, str] | None = None) -> None:
        """Show the pipeline stages of `job`'s model, which is measured first if necessary."""
        self._names = names or {}
        super().show_job(job, problems)

    def set_job(self, job: Job | None) -> None:
        """Set the job in the form and show whether it differs from the measured one."""
        super().set_job(job)
        self.view.use.setEnabled(self.found is None or not self._is_stale)

    def build_request(self, job: Job) -> Job:
        # The job's cuts are applied afterwards, so that a cut can be shown even if they are impossible.
        return job.with_fields(cuts=())

    def depends_on(self, field: str) -> bool:
        return field in MEASURED_BY

    def covers(self, job: Job, tried: Job) -> bool:
        return all(job.value(name) == tried.value(name) for name in MEASURED_BY)

    def trying_page(self) -> QWidget:
        self.cancel.setAccessibleName(tr("Cancel measuring"))
        return working_page(self.activity, self.progress, self.cancel, _MEASURING)

    def result_page(self) -> QWidget:
        self.view = CutView()
        self.view.measure_again.clicked.connect(self._request_job)
        self.view.automatic.clicked.connect(self._use_automatic)
        self.view.diagram.automatic_requested.connect(self._use_automatic)
        self.view.diagram.cut_moved.connect(self._show_cut)
        self.view.use.clicked.connect(self._use)
        return scroll_panel(self.view)

    def show_result(self) -> None:
        """Show the model that was just measured, divided at the cuts of the job if it has any."""
        self._show_cut(self.found if self._tried_job is None else self._with_job_cuts(self.found, self._tried_job))

    def show_again(self, job: Job) -> None:
        """Show the measured model again, divided into stages at the cuts of `job`."""
        self._show_cut(self._with_job_cuts(self.found, job))
        super().show_again(job)

    def focus_result(self) -> None:
        """Focus the first handle, so that arrow keys move it."""
        if self.view.diagram.handles:
            self.view.diagram.handles[0].setFocus()

    def _show_cut(self, cut: Cut) -> None:
        """Show the stages of `cut`, and update the tab order if their number has changed."""
        self.found = cut
        titles = rank_titles(cut.devices, self._names)
        previous_count = len(self.view.diagram.handles)
        self.view.show_cut(cut, titles)
        if len(self.view.diagram.handles) != previous_count:
            self.view.order_tabs(after=self.back)
        self._show_titles(self._tried_job, cut)

    def _show_titles(self, job: Job | None, cut: Cut) -> None:
        """Show in the page's heading the model, strategy, devices, schedule and microbatches of `job`."""
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
        """Show why the model has no stages."""
        self.title.setText(_TITLE)
        self.subtitle.setText("")
        super()._show_failure(problems)

    def _use_automatic(self) -> None:
        """Show the automatic cut, or why there is none."""
        if self.found is None:
            return
        try:
            self._show_cut(choose_cuts(self.found))
        except CannotCut as reason:
            self.notice.show_problems(
                (Problem("cuts", tr("There is no automatic cut: {reason}.").format(reason=reason), reason.remedy),)
            )

    def _use(self) -> None:
        """Request to put the visible cuts into the form, and leave the page."""
        if self.found is not None:
            self.used.emit({"cuts": () if self.found.chosen else self.found.cuts})
            self.closed.emit()

    def _with_job_cuts(self, cut: Cut, job: Job) -> Cut:
        """Return the measured model `cut`, divided at the cuts of `job` or, if these don't fit, automatically."""
        if job.parallel.cuts:
            with_cuts = msgspec.structs.replace(cut, cuts=job.parallel.cuts, chosen=False)
            try:
                compute_stages(with_cuts)
            except ValueError:
                self.notice.show_problems((OTHER_CUTS,))
            else:
                return with_cuts
        return cut if cut.chosen else choose_cuts(cut)


def planner() -> RequestProcess:
    """Create a child process that measures the models of jobs, and returns a `Cut` for each."""
    return RequestProcess("engine.advisor.planning", _MEASURING, PLANNING.decode, line_limit_bytes=_LINE_LIMIT_BYTES)
