"""Page that measures a model's segments. The user can move the boundaries between its pipeline stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from PySide6.QtWidgets import QWidget

from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.model_split import PLANNING, ModelSplit
from engine.contract.problems import Problem
from engine.parallel.split_points import CannotSplit, choose_points, compute_stages
from gui.format import counted
from gui.sources.json_lines import RequestProcess
from gui.split_points.view import SplitPointsView
from gui.titles import SCHEDULES, model_title, rank_titles, strategy_title
from gui.translation import tr
from gui.widgets.layouts import create_working_page, scroll_panel
from gui.widgets.trial_page import TrialPage

EMPTY = tr(
    "No split points to show yet.\n\n"
    "Choose a model, devices and a strategy that splits the model (such as a pipeline),\n"
    "then press Show split points… under Strategy options."
)
MEASURED_BY = (
    "dataset", "task", "model", "model_file_sha256", "strategy", "devices", "batch_size", "optimizer", "accumulation",
    "ema_decay", "image_size", "precision", "freeze_epochs", "activation_checkpointing", "replicas",
    "pipeline_schedule", "microbatches", "stages_per_device",
)  # fmt: skip
"""Job fields that affect the measured times and sizes of a model's segments."""
OTHER_SPLIT_POINTS = Problem(
    "split_points",
    tr("The job's split points don't fit this model and its stages. The automatic ones are shown instead."),
    tr("Use these split points, or reset Split points in the form."),
    "warning",
)
_TITLE = tr("Split points of the model")
_MEASURING = tr("Measuring the model")
_LINE_LIMIT_BYTES = 16 << 20
"""Maximum length of a line. It is large, because a split has several values for each segment and rank."""


class SplitPointsPage(TrialPage):
    """Page that shows the pipeline stages of the job's model. It measures the model on request.

    The signal `used` sends the split points, or () for automatic ones. The attribute `found` is the measured model
    with the split points that are visible.
    """

    stale = Problem(
        "split_points",
        tr("The job has changed since it was measured; these figures and split points may be out of date."),
        tr("Press Measure again."),
        "warning",
    )
    remedy = tr("Measure again, or let the run choose the split points.")

    def __init__(self) -> None:
        super().__init__(
            make_planner(),
            _TITLE,
            EMPTY,
            leave="leave_split_points",
            back=tr("Back from the split points"),
            retry=tr("Measure again"),
        )
        self._names: Mapping[str, str] = {}  # titles of devices by id

    def show_job(self, job: Job | None, problems: Sequence[Problem], names: Mapping[str, str] | None = None) -> None:
        """Show the pipeline stages of `job`'s model. Measure the model first, unless its measurements fit `job`.

        `names` maps ids of devices to their names.
        """
        self._names = names or {}
        super().show_job(job, problems)

    def set_job(self, job: Job | None) -> None:
        """Set the job in the form. If it differs from the measured job, say so and disable the button "Use"."""
        super().set_job(job)
        self.view.use.setEnabled(self.found is None or not self._is_stale)

    def build_request(self, job: Job) -> Job:
        # The job's split points are applied afterwards, so that stages can be shown even if they are impossible.
        return job.with_fields(split_points=())

    def depends_on(self, field: str) -> bool:
        return field in MEASURED_BY

    def covers(self, job: Job, tried: Job) -> bool:
        return all(job.value(name) == tried.value(name) for name in MEASURED_BY)

    def create_trying_page(self) -> QWidget:
        self.cancel.setAccessibleName(tr("Cancel measuring"))
        return create_working_page(self.activity, self.progress, self.cancel, _MEASURING)

    def create_result_page(self) -> QWidget:
        """Create the view of the stages in `view`, and connect its buttons."""
        self.view = SplitPointsView()
        self.view.measure_again.clicked.connect(self._request_job)
        self.view.automatic.clicked.connect(self._use_automatic)
        self.view.diagram.automatic_requested.connect(self._use_automatic)
        self.view.diagram.split_point_moved.connect(self._show_split)
        self.view.use.clicked.connect(self._use)
        return scroll_panel(self.view)

    def show_result(self) -> None:
        """Show the model that was just measured, divided at the split points of the job if it has any."""
        self._show_split(self.found if self._tried_job is None else self._apply_job(self.found, self._tried_job))

    def show_again(self, job: Job) -> None:
        """Show the measured model again, divided into stages at the split points of `job`."""
        self._show_split(self._apply_job(self.found, job))
        super().show_again(job)

    def focus_result(self) -> None:
        """Focus the first handle, so that arrow keys move it."""
        if self.view.diagram.handles:
            self.view.diagram.handles[0].setFocus()

    def _show_split(self, split: ModelSplit) -> None:
        """Show the stages of `split`, and update the tab order if their number has changed."""
        self.found = split
        titles = rank_titles(split.devices, self._names)
        previous_count = len(self.view.diagram.handles)
        self.view.show_split(split, titles)
        if len(self.view.diagram.handles) != previous_count:
            self.view.order_tabs(after=self.back)
        self._show_titles(self._tried_job, split)

    def _show_titles(self, job: Job | None, split: ModelSplit) -> None:
        """Show in the page's heading the model, strategy, devices, schedule and microbatches of `job`."""
        if job is None:
            return
        strategy = load_catalogue().strategy(job.resolved_strategy)
        schedule = SCHEDULES[job.parallel.pipeline_schedule] if strategy is not None and strategy.has_schedule else ""
        batches = tr("{microbatches} of {images}").format(
            microbatches=counted(split.microbatches, "microbatch"), images=counted(split.microbatch_size, "image")
        )
        if split.microbatches == 1:
            batches = tr("whole batches of {images}").format(images=counted(split.microbatch_size, "image"))
        self.title.setText(tr("Split points of {name}").format(name=model_title(job.model.name)))
        self.subtitle.setText(
            tr("{strategy}, {stages} stages on {devices} devices · {schedule}").format(
                strategy=strategy_title(job.resolved_strategy),
                stages=len(split.stage_ranks),
                devices=len(split.devices),
                schedule=", ".join(filter(None, (schedule, batches))),
            )
        )

    def _show_failure(self, problems: Sequence[Problem]) -> None:
        """Show why the model has no stages."""
        self.title.setText(_TITLE)
        self.subtitle.setText("")
        super()._show_failure(problems)

    def _use_automatic(self) -> None:
        """Show the automatic split points, or why there are none."""
        if self.found is None:
            return
        try:
            self._show_split(choose_points(self.found))
        except CannotSplit as reason:
            message = tr("There are no automatic split points: {reason}.").format(reason=reason)
            self.notice.show_problems((Problem("split_points", message, reason.remedy),))

    def _use(self) -> None:
        """Request to put the visible split points into the form, and leave the page."""
        if self.found is not None:
            self.used.emit({"split_points": () if self.found.chosen else self.found.split_points})
            self.closed.emit()

    def _apply_job(self, split: ModelSplit, job: Job) -> ModelSplit:
        """Return the measured `split` with the split points of `job` or, if these don't fit, with automatic ones.

        Split points that don't fit are also shown as a problem.
        """
        if job.parallel.split_points:
            requested = msgspec.structs.replace(split, split_points=job.parallel.split_points, chosen=False)
            try:
                compute_stages(requested)
            except ValueError:
                self.notice.show_problems((OTHER_SPLIT_POINTS,))
            else:
                return requested
        return split if split.chosen else choose_points(split)


def make_planner() -> RequestProcess:
    """Create a child process that measures the models of jobs, and returns a `ModelSplit` for each."""
    return RequestProcess("engine.advisor.planning", _MEASURING, PLANNING.decode, line_limit_bytes=_LINE_LIMIT_BYTES)
