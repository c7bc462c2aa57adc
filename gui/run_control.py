"""Starts, pauses, resumes and stops runs, as the form, the status bar and the pages ask, and says how runs stand."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal

from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem
from engine.runs.folder import ENDED, RunFolder, RunSummary
from gui.actions import Actions
from gui.form.panel import JobPanel
from gui.header import Header
from gui.sources.active_runs import ask_to_stop
from gui.sources.background import in_background
from gui.sources.launcher import Launcher
from gui.sources.prefill import Prefill
from gui.sources.resume_fork import to_follow
from gui.sources.run_list import RunsRead
from gui.status_bar import StatusBar
from gui.titles import run_title
from gui.workspace import Workspace

_NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


class RunControl(QObject):
    """Signals:
    started(RunFolder): that run has just been started.
    run_wanted(RunFolder): that run is to be shown.
    form_wanted(): what has been put into the form is to be seen.
    message(str, str): in plain words, what was done or why not; "info" or "warning".
    """

    started = Signal(object)
    run_wanted = Signal(object)
    form_wanted = Signal()
    message = Signal(str, str)

    def __init__(
        self,
        window: QObject,
        *,
        acts: Actions,
        job_panel: JobPanel,
        header: Header,
        status: StatusBar,
        workspace: Workspace,
    ) -> None:
        super().__init__(window)
        self._acts, self._job_panel, self._header, self._status = acts, job_panel, header, status
        self._workspace, self._launcher, self._store = workspace, workspace.launcher, workspace.store
        self._runs: tuple[RunSummary, ...] = ()
        status.other_wanted.connect(lambda run: self.run_wanted.emit(RunFolder(run.folder)))
        acts.pause.on_trigger(self._pause_or_resume)
        acts.stop.on_trigger(self._store.stop)
        job_panel.train_requested.connect(self._train)
        job_panel.resume_requested.connect(self._resume)
        job_panel.user_edited.connect(self._launcher.touch)
        job_panel.changed.connect(self.show_status)
        self._launcher.started.connect(self._started)
        self._launcher.failed.connect(self._not_started)
        self._store.changed.connect(self.show_status)
        workspace.run_list.complete.connect(self._show_runs)
        workspace.run_list.complete.connect(self._show_first_run, Qt.ConnectionType.SingleShotConnection)
        workspace.run_list.failed.connect(self._no_runs)
        workspace.monitor.stop_run.connect(self._stop_other)
        workspace.runs.resume_wanted.connect(self._resume)
        workspace.runs.prefill_requested.connect(self._prefill)
        workspace.run.next_time_wanted.connect(self._use_next_time)
        workspace.run.changes_requested.connect(self._prefill_changed)

    def show_status(self) -> None:
        """Says at the bottom how the run on screen stands, or whether one can be started."""
        if self._launcher.busy:
            return
        if self._workspace.has_run and (self._store.active or not self._job_panel.form.checking):
            self._status.show_run(self._store.status, self._title())
        elif self._job_panel.form.checking:
            self._status.show_idle("Checking · inspecting the dataset folder")
        else:
            self._status.show_idle(
                f"Idle · {'ready to train' if self._acts.train.ready else 'the job is not ready yet'}"
            )

    def _title(self) -> str:
        """What the run on screen is called, by its id until the list of runs knows it."""
        shown = self._store.run.run_id if self._store.run is not None else ""
        return next((run_title(run) for run in self._runs if run.run_id == shown), shown)

    def _show_runs(self, read: RunsRead) -> None:
        self._runs = read.runs
        shown = self._store.run.run_id if self._store.run is not None else ""
        self._status.show_others([run for run in read.runs if run.state not in ENDED and run.run_id != shown])
        self.show_status()
        self._status.say_besides("")
        self._header.show_running(*read.count())
        self._job_panel.form.set_queued_runs(read.ahead)

    def _no_runs(self, why: str) -> None:
        self._status.say_besides(f"the list of runs can't be read: {why}")

    def _show_first_run(self, read: RunsRead) -> None:
        run = read.to_show()
        if run is not None and not self._workspace.has_run and not self._launcher.busy:
            self._workspace.open_run(run)

    def _train(self, job: Job) -> None:
        launcher = self._free_launcher()
        if launcher is not None:
            launcher.start(job)

    def _resume(self, run: RunFolder, changes: Mapping[str, Any] = _NO_CHANGES) -> None:
        launcher = self._free_launcher()
        if launcher is not None:
            launcher.resume(run, changes)

    def _free_launcher(self) -> Launcher | None:
        """What starts a run, after it has been said that one is made ready; None while another one is."""
        if self._launcher.busy:
            return None
        self._job_panel.form.set_starting(True)
        self._status.show_idle("Starting · preparing the run")
        return self._launcher

    def _started(self, run: RunFolder) -> None:
        self._job_panel.on_started()
        self.started.emit(run)
        self._store.mark_starting()

    def _not_started(self, problems: list[Problem]) -> None:
        if not self._job_panel.on_start_failed(problems):
            self.message.emit(" ".join(map(str, problems)), "warning")
        self.show_status()

    def _pause_or_resume(self) -> None:
        """Whichever of the two the action offers."""
        run = self._store.run
        if run is not None and self._store.status.resumable:
            self._resume(run)
        else:
            self._store.pause()

    def _stop_other(self, run_id: str) -> None:
        """Asks a run to stop that need not be the one on screen."""
        in_background(
            lambda: ask_to_stop(run_id),
            self,
            lambda run: self.message.emit(f"{run.run_id} stops after the current step.", "info"),
            lambda error: self.message.emit(f"Could not stop {run_id}: {error}", "warning"),
        )

    # What is put into the form

    def _prefill(self, prefill: Prefill) -> None:
        """Another run's job, to go on with or forked."""
        self.form_wanted.emit()
        self._job_panel.begin_prefill(prefill)

    def _prefill_changed(self, run: RunFolder, changes: Mapping[str, Any], further: bool) -> None:
        """Put the job of a run that has ended into the form, with the changes that its page suggested."""
        in_background(
            lambda: to_follow(run.summary(), changes, further=further),
            self,
            self._prefill,
            lambda error: self.message.emit(f"The job of {run.run_id} can't be put into the form: {error}", "warning"),
        )

    def _use_next_time(self, field: str, value: object) -> None:
        if field in FIELDS:
            self._job_panel.set_field(field, value)
            self.form_wanted.emit()
            self.message.emit(f"{FIELDS[field].label} is set to {value} in the form for the next run.", "info")
