"""The page on which a model's cut is measured, shown and moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QStackedWidget, QWidget

from engine.checks.node_checks import here_only
from engine.contract.catalogue import load_catalogue
from engine.contract.cut import Cut
from engine.contract.job import Job
from engine.contract.planning import PlanningProgress
from engine.contract.problems import Problem
from engine.parallel.cut import CannotCut, automatic, stages
from gui.actions import back_action, bind
from gui.cut.planner import Planner
from gui.cut.view import CutView
from gui.titles import SCHEDULES, model_title, rank_titles, strategy_title
from gui.widgets.empty_state import EmptyState
from gui.widgets.page_layout import fault_page, lay_out_page, working_page
from gui.widgets.problem_label import ProblemLabel
from gui.widgets.scroll_panel import scroll_panel

EMPTY = (
    "No cut to show yet.\n\n"
    "Choose a model, devices and a strategy that cuts the model (such as a pipeline),\n"
    "then press Show partition… under Strategy options."
)
MEASURED_BY = (
    "dataset", "task", "model", "model_file_sha256", "strategy", "devices", "batch_size", "optimizer", "accumulation",
    "ema_decay", "image_size", "precision", "freeze_epochs", "activation_checkpointing", "replicas",
    "pipeline_schedule", "microbatches", "stages_per_device",
)  # fmt: skip
"""The fields on which the measured figures depend."""
STALE = Problem(
    "cuts",
    "The job has changed since it was measured; these figures and cuts may be out of date.",
    "Press Measure again.",
    "warning",
)
NOT_ITS_PLACES = Problem(
    "cuts",
    "The job's cuts do not fit this model and these stages. The automatic cut is shown instead.",
    "Use this cut, or reset Cuts in the form.",
    "warning",
)


class CutPage(QWidget):
    """Measures the job's model when asked, and lets its cut be moved.

    Signals: closed() - back to where one came from; used(object) - the cuts to train with, () for automatic ones;
    wanted() - the cut of the job as it now stands is to be measured: `show_job` is the answer.

    Attributes: cut - the Cut on screen, None where there is none.
    """

    closed = Signal()
    used = Signal(object)
    wanted = Signal()

    def __init__(self, planner: Planner | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName("Cut of the model page")
        self.planner = planner or Planner(self)
        self.cut: Cut | None = None
        self._job: Job | None = None
        self._measured: Job | None = None
        self._names: dict[str, str] = {}
        self.leave = back_action(self, "leave_cut")
        self.back = bind(QPushButton(), self.leave, "Back from the cut")
        self.title = QLabel("The cut of the model")
        self.title.setObjectName("heading")
        self.subtitle = QLabel(wordWrap=True)
        self.subtitle.setObjectName("muted")
        self.notice = ProblemLabel()
        self.view = CutView()
        self.what = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.progress = QProgressBar()
        self.cancel = QPushButton("Cancel")
        self.fault = ProblemLabel()
        self.again = QPushButton("Measure again")
        self._stack = QStackedWidget()
        self._lay_out()
        self._connect()

    def close_work(self) -> None:
        """End the child process that measures the model."""
        self.planner.close()

    def show_job(self, job: Job | None, problems: Sequence[Problem], names: Mapping[str, str]) -> None:
        """Shows the cut of `job`: at once where it has been measured, else after measuring.

        `problems` are all of the job's, of which those at other fields than the cut depends on do not matter here;
        `names` are what devices are called, by their ids.
        """
        self._names = dict(names)
        self.set_job(job)
        wrong = [problem for problem in problems if problem.severity == "error" and problem.field in MEASURED_BY]
        wrong += here_only(job.parallel.devices) if job is not None else []
        if job is None or wrong:
            self.planner.cancel()
            self._show_fault(wrong or [Problem("", "The job is invalid.", "Correct the marked fields.")])
        elif self.cut is not None and not self._stale():
            self._show_cut(self._as_in_the_job(self.cut, job))
            self._focus_first_cut()
        elif not self.planner.running or self._stale():
            self._measure(job)

    def set_job(self, job: Job | None) -> None:
        """The job in the form, which may have moved on from the one that was measured."""
        self._job = job
        stale = self.cut is not None and self._stale()
        self.notice.show_problems((STALE,) if stale else ())
        self.view.use.setEnabled(not stale)

    # Making it

    def _lay_out(self) -> None:
        empty = EmptyState(EMPTY)
        self.cancel.setAccessibleName("Cancel measuring")
        measuring = working_page(self.what, self.progress, self.cancel, "Measuring the model")
        self._shown = scroll_panel(self.view)
        for page in (empty, measuring, fault_page(self.fault, self.again), self._shown):
            self._stack.addWidget(page)
        lay_out_page(self, self.back, self.title, self.subtitle, self.notice, self._stack)

    def _connect(self) -> None:
        self.leave.on_trigger(self._close)
        self.cancel.clicked.connect(self._close)
        self.again.clicked.connect(self._ask)
        self.view.measure_again.clicked.connect(self._ask)
        self.view.automatic.clicked.connect(self._automatic)
        self.view.image.automatic_wanted.connect(self._automatic)
        self.view.image.cut_moved.connect(self._show_cut)
        self.view.use.clicked.connect(self._use)
        self.planner.progress.connect(self._show_progress)
        self.planner.done.connect(self._done)
        self.planner.refused.connect(lambda problem: self._show_fault([problem]))
        self.planner.failed.connect(
            lambda text: self._show_fault([Problem("", text, "Measure again, or let the run choose the cut.")])
        )

    # What happens

    def _ask(self) -> None:
        self.cut = None
        self.wanted.emit()

    def _measure(self, job: Job) -> None:
        self.cut = None
        self._measured = job
        self.notice.show_problems(())
        self._stack.setCurrentIndex(1)
        # Its own cuts are put in afterwards: where they no longer fit the model, there is still something to show.
        self.planner.start(job.with_fields(cuts=()))
        self.cancel.setFocus()

    def _show_progress(self, progress: PlanningProgress) -> None:
        self.what.setText(f"{progress.what} …")
        self.progress.setValue(round(100 * progress.fraction))

    def _done(self, cut: Cut) -> None:
        self.cut = cut
        self.set_job(self._job)
        self._show_cut(cut if self._measured is None else self._as_in_the_job(cut, self._measured))
        if self.isVisible():
            self._focus_first_cut()

    def _focus_first_cut(self) -> None:
        if self.view.image.handles:
            self.view.image.handles[0].setFocus()

    def _show_cut(self, cut: Cut) -> None:
        self.cut = cut
        titles = rank_titles(cut.devices, self._names)
        before = len(self.view.image.handles)
        self.view.show_cut(cut, titles)
        if len(self.view.image.handles) != before:
            self.view.order_tabs(after=self.back)
        self._show_titles(self._measured, cut)
        self._stack.setCurrentWidget(self._shown)

    def _show_titles(self, job: Job | None, cut: Cut) -> None:
        if job is None:
            return
        strategy = load_catalogue().strategy(job.parallel.strategy)
        schedule = (
            f"{SCHEDULES[job.parallel.pipeline_schedule]}, " if strategy is not None and strategy.schedules else ""
        )
        batches = f"{cut.microbatches} microbatches of {cut.microbatch_size} images"
        if cut.microbatches == 1:
            batches = f"whole batches of {cut.microbatch_size} images"
        self.title.setText(f"The cut of {model_title(job.model.name)}")
        self.subtitle.setText(
            f"{strategy_title(job.parallel.strategy)}, {len(cut.stage_ranks)} stages on {len(cut.devices)} devices · "
            f"{schedule}{batches}"
        )

    def _show_fault(self, problems: Sequence[Problem]) -> None:
        self.cut = None
        self.title.setText("The cut of the model")
        self.subtitle.setText("")
        self.notice.show_problems(())
        self.fault.show_problems(tuple(problems))
        self._stack.setCurrentIndex(2)
        if self.cancel.hasFocus() or self.window().focusWidget() is None:
            self.again.setFocus()

    def _automatic(self) -> None:
        if self.cut is None:
            return
        try:
            self._show_cut(automatic(self.cut))
        except CannotCut as reason:
            self.notice.show_problems((Problem("cuts", f"There is no automatic cut: {reason}.", reason.remedy),))

    def _use(self) -> None:
        if self.cut is not None:
            self.used.emit(() if self.cut.chosen else self.cut.cuts)
            self.closed.emit()

    def _close(self) -> None:
        """Nobody waits for what is still being measured."""
        if self.planner.running:
            self.planner.cancel()
            self._stack.setCurrentIndex(0)
        self.closed.emit()

    def _stale(self) -> bool:
        if self._job is None or self._measured is None:
            return True
        return any(self._job.value(name) != self._measured.value(name) for name in MEASURED_BY)

    def _as_in_the_job(self, cut: Cut, job: Job) -> Cut:
        """`cut` with the job's own cuts where it has some that are possible, else with the automatic ones."""
        if job.parallel.cuts:
            own = msgspec.structs.replace(cut, cuts=job.parallel.cuts, chosen=False)
            try:
                stages(own)
            except ValueError:
                self.notice.show_problems((NOT_ITS_PLACES,))
            else:
                return own
        return cut if cut.chosen else automatic(cut)
