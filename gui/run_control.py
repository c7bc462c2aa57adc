"""Commands that start, pause, resume and stop runs, and the state of the open run in the status bar."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QMessageBox

from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem
from engine.runs.folder import ENDED, RunFolder, RunSummary
from gui.context import AppContext
from gui.sources.active_runs import request_stop
from gui.sources.background import in_background
from gui.sources.launcher import Launcher
from gui.sources.resume_fork import Prefill, prefill_with_changes
from gui.sources.run_list import RunListing
from gui.sources.settings import LAST_RUN
from gui.titles import run_title
from gui.translation import tr
from gui.workspace import Workspace

_NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


class RunControl(QObject):
    """Controller that connects form, actions and pages with the launcher and the open run."""

    def __init__(self, context: AppContext, workspace: Workspace) -> None:
        super().__init__(context.window)
        self._context, self._workspace = context, workspace
        self._panel, self._status = context.job_panel, context.status
        self._launcher, self._session = workspace.launcher, workspace.session
        self._runs: tuple[RunSummary, ...] = ()
        self._jobs: dict[str, Job] = {}
        """Jobs of runs that are or were active, by run id."""
        self._starting_job: Job | None = None  # job of the run that is being started
        self._has_tried_to_read_runs = False  # True once the list of runs has been read, or couldn't be read
        self._status.run_requested.connect(lambda run: context.show_run(RunFolder(run.folder)))
        context.actions.pause.on_trigger(self._pause_or_resume)
        context.actions.stop.on_trigger(self._session.stop)
        self._panel.train_requested.connect(self._train)
        self._panel.resume_requested.connect(self._resume)
        self._panel.user_edited.connect(self._launcher.preload)
        self._panel.changed.connect(self.show_status)
        self._launcher.started.connect(self._on_started)
        self._launcher.failed.connect(self._on_start_failed)
        self._session.changed.connect(self.show_status)
        # Reopen the run first, so that the status bar never shows an idle window in between.
        workspace.run_list.complete.connect(self._show_first_run, Qt.ConnectionType.SingleShotConnection)
        workspace.run_list.complete.connect(self._on_runs_read)
        workspace.run_list.failed.connect(self._on_runs_unreadable)
        workspace.monitor.stop_run.connect(self._stop_run)
        workspace.runs.resume_requested.connect(self._resume)
        workspace.runs.prefill_requested.connect(self._prefill)
        workspace.run.setting_requested.connect(self._set_field)
        workspace.run.changes_requested.connect(self._prefill_form)

    def show_status(self) -> None:
        """Show the state of the open run in status bar and title. Without a run, show whether the job is ready."""
        self._context.window.setWindowTitle(self._format_window_title())
        if self._launcher.busy:
            return
        # While a folder is being inspected, this is more interesting than a run that has ended.
        if self._session.run is not None and (self._session.active or not self._panel.form.is_inspecting):
            self._status.show_run(self._session.status, self._find_open_run_title())
        elif not self._has_tried_to_read_runs:
            self._status.show_idle(tr("Starting…"))
        elif self._panel.form.is_inspecting:
            self._status.show_idle(tr("Checking · inspecting the dataset folder"))
        else:
            is_ready = self._context.actions.train.ready
            self._status.show_idle(tr("Idle · ready to train") if is_ready else tr("Idle · the job is not ready"))

    def _format_window_title(self) -> str:
        """Return the program's name, with progress and title of the open run while it trains."""
        status = self._session.status
        if not status.active or status.fraction is None:
            return "Footplate"
        return f"{100 * status.fraction:.0f}% · {self._find_open_run_title()} · Footplate"

    @property
    def _open_run_id(self) -> str:
        """Id of the open run, or "" if no run is open."""
        return self._session.run.run_id if self._session.run is not None else ""

    def _find_open_run_title(self) -> str:
        """Return the title of the open run, or its id until the run list contains it."""
        return next((run_title(run) for run in self._runs if run.run_id == self._open_run_id), self._open_run_id)

    def _on_runs_read(self, listing: RunListing) -> None:
        """Show the active runs in the header and the status bar, and pass all runs to the form."""
        self._runs, self._has_tried_to_read_runs = listing.runs, True
        self._jobs |= listing.active_jobs
        active_runs = [run for run in listing.runs if run.state not in ENDED]
        self._status.show_others([run for run in active_runs if run.run_id != self._open_run_id])
        self.show_status()
        self._status.set_suffix("")  # removes the error of an earlier read
        self._context.header.show_running(*listing.count())
        self._panel.form.set_runs(listing.runs)
        self._panel.form.set_queued_runs(listing.device_queues)

    def _on_runs_unreadable(self, reason: str) -> None:
        """Show in the status bar why the runs can't be read, and stop waiting for the run of the last session."""
        self._has_tried_to_read_runs = True
        self._context.train.stop_waiting()
        self.show_status()
        self._status.set_suffix(tr("the list of runs can't be read: {reason}").format(reason=reason))

    def _show_first_run(self, listing: RunListing) -> None:
        """When the runs are first read, open an active run or the run of the last session.

        Nothing is opened if the user has chosen a job or a run in the meantime. Afterwards, the Train page no longer
        waits for a run.
        """
        run = listing.run_to_open(self._context.settings.text(LAST_RUN))
        is_free = not (self._context.train.is_job_chosen or self._open_run_id or self._launcher.busy)
        if run is not None and is_free:
            self._workspace.open_run(run)
        self._context.train.stop_waiting()

    def _train(self, job: Job) -> None:
        """Start a run of `job`. If an active run has the same job, ask the user first."""
        if any(_is_same_training(job, self._jobs.get(run_id)) for run_id in self._list_active_runs()):
            box = QMessageBox(
                QMessageBox.Icon.Question,
                tr("Same job again"),
                tr("A run of the same job is already active. Train it once more?"),
                QMessageBox.StandardButton.Cancel,
                self._context.window,
            )
            box.addButton(tr("Train again"), QMessageBox.ButtonRole.AcceptRole)
            box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            box.setModal(False)
            box.accepted.connect(lambda: self._start(job))
            box.rejected.connect(lambda: self._panel.on_start_failed([]))
            box.show()
        else:
            self._start(job)

    def _list_active_runs(self) -> set[str]:
        """Return the ids of running and queued runs."""
        ids = {run.run_id for run in self._runs if run.state not in ENDED}
        return ids | {self._open_run_id} if self._session.active else ids

    def _start(self, job: Job) -> None:
        """Create and start a run, unless another run is being started."""
        launcher = self._claim_launcher()
        if launcher is not None:
            self._starting_job = job
            launcher.start(job)

    def _resume(self, run: RunFolder, changes: Mapping[str, Any] = _NO_CHANGES) -> None:
        launcher = self._claim_launcher()
        if launcher is not None:
            launcher.resume(run, changes)

    def _claim_launcher(self) -> Launcher | None:
        """Show that a run is being started, and return the launcher.

        If it is already starting another run, change nothing and return None.
        """
        if self._launcher.busy:
            return None
        self._panel.form.set_starting(True)
        self._status.show_idle(tr("Starting · preparing the run"))
        return self._launcher

    def _on_started(self, run: RunFolder) -> None:
        """Show the run that has just been started, and refresh the list of runs."""
        job, self._starting_job = self._starting_job, None
        if job is not None:
            self._jobs[run.run_id] = job
        self._panel.on_started()
        self._context.show_run(run)
        self._workspace.run.scroll_to_top()
        self._workspace.runs.refresh()
        self._session.mark_starting()

    def _on_start_failed(self, problems: list[Problem]) -> None:
        """Show why a run couldn't be started: next to the form's fields, or else in a message.

        While the window is being closed, the message is saved and shown at its next start.
        """
        self._starting_job = None
        if self._launcher.is_closing or not self._panel.on_start_failed(problems):
            self._context.show_message(" ".join(map(str, problems)))

    def _pause_or_resume(self) -> None:
        """Resume the open run if it has ended early, otherwise pause it."""
        run = self._session.run
        if run is not None and self._session.status.can_resume:
            self._resume(run)
        else:
            self._session.pause()

    def _stop_run(self, run_id: str) -> None:
        """Stop a run, even if it isn't the open run."""
        in_background(
            lambda: request_stop(run_id),
            self,
            lambda run: self._context.show_message(
                tr("{run_id} stops after the current step.").format(run_id=run.run_id), "info"
            ),
            lambda error: self._context.show_message(
                tr("Couldn't stop {run_id}: {error}").format(run_id=run_id, error=error)
            ),
        )

    def _prefill(self, prefill: Prefill) -> None:
        self._context.show_form()
        self._panel.begin_prefill(prefill)

    def _prefill_form(self, run: RunFolder, changes: Mapping[str, Any], continues_run: bool) -> None:
        """Put the job of an ended run into the form, with `changes` that the run's page suggests.

        `continues_run` is True if the run should be continued rather than a new one started.
        """
        in_background(
            lambda: prefill_with_changes(run.summary(), changes, continues_run=continues_run),
            self,
            self._prefill,
            lambda error: self._context.show_message(
                tr("Couldn't put the job of {run_id} into the form: {error}").format(run_id=run.run_id, error=error)
            ),
        )

    def _set_field(self, field: str, value: object) -> None:
        if field in FIELDS:
            self._panel.set_field(field, value)
            self._context.show_message(
                tr("{field} is set to {value} for the next run.").format(field=FIELDS[field].label, value=value), "info"
            )


def _is_same_training(job: Job, other: Job | None) -> bool:
    """Return True if `other` equals `job`, apart from its choice to wait for the devices. None equals no job."""
    return other is not None and job.with_fields(start=other.faults.start) == other
