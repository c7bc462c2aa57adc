"""Creation and start of runs in the background, with a preloaded process for the next run."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QSocketNotifier, QTimer, Signal

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder, create_run
from engine.runs.launch import Preloader, start_supervisor
from engine.runs.resume import job_to_resume, save_next_job
from engine.system import paths
from gui.sources.background import Background, in_background
from gui.translation import tr

log = logging.getLogger("footplate.window")

IDLE_MS = 15 * 60 * 1000
"""Milliseconds without a change in the form after which the preloaded process is ended."""

PATIENCE_MS = 15_000
"""Maximum milliseconds to wait for the preloaded process. A run then starts without it."""


class Launcher(QObject):
    """Launcher that creates or resumes runs and starts their supervisors.

    `preload` starts a preloaded process: a process that imports the engine in advance, so that it can start a
    supervisor without delay. It is ended if it isn't used within `IDLE_MS` after the last call.

    Signals:
        started(RunFolder): a run has been started.
        failed(list[Problem]): a run could not be created or started.

    Attributes:
        busy: True while a run is being created or waits for the preloaded process.
        is_closing: True once the window closes.
    """

    started = Signal(object)
    failed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.busy = False  # True while a run is being created or waits for its start
        self._preloader: Preloader | None = None
        self._notifier: QSocketNotifier | None = None
        self._idle_timer = QTimer(self, singleShot=True, interval=IDLE_MS)  # ends a preloaded process that isn't used
        self._idle_timer.timeout.connect(self._end_preloader)
        self.is_closing = False
        self._creation: Background | None = None  # creation of a run in the background
        self._waiting_run: RunFolder | None = None  # run that waits for the preloaded process
        # Starts the waiting run without the preloaded process.
        self._patience_timer = QTimer(self, singleShot=True, interval=PATIENCE_MS)
        self._patience_timer.timeout.connect(self._start_created_run)

    @property
    def ready(self) -> bool:
        """True if the preloaded process can start a run without delay."""
        return self._preloader is not None and self._preloader.ready

    def preload(self) -> None:
        """Start the preloaded process or, if it is already running, prolong the time until it is ended as unused."""
        self._idle_timer.start()
        if self._preloader is not None and self._preloader.alive:
            return
        self._close_preloader()
        preloader = Preloader()
        try:
            preloader.start()
        except OSError as error:
            log.warning("could not pre-start the parent process: %s", error)
            return
        self._preloader = preloader
        if preloader.fileno() >= 0:
            self._notifier = QSocketNotifier(preloader.fileno(), QSocketNotifier.Type.Read, self)
            self._notifier.activated.connect(self._on_preloader_ready)

    def start(self, job: Job) -> None:
        """Create a run for `job` and start it."""
        self._create(partial(create_run, with_absolute_paths(job)))

    def resume(self, run: RunFolder, changes: Mapping[str, Any]) -> None:
        """Resume `run`. `changes` override values of its job."""
        self._create(partial(_save_job, run, changes))

    def close(self) -> None:
        """Start a requested run that has not started yet, and end the preloaded process. Runs outlive the window.

        If the run is not created in time, emit `failed`.
        """
        self.is_closing = True
        if self._creation is not None:
            self._creation.finish()
        if self._creation is not None:
            self._creation.done.disconnect(self._on_created)  # `failed` promises that the run does not start
            message = tr("The run you requested was not started: the disk did not respond before the window closed.")
            self.failed.emit([Problem("run", message, tr("Start it again."))])
        self._start_created_run()
        self._idle_timer.stop()
        try:
            self._close_preloader()
        except OSError as error:
            self.failed.emit([make_creation_problem(error)])

    def _create(self, create: Callable[[], RunFolder]) -> None:
        """Call `create` on a worker thread, then start the run that it returns."""
        self.busy = True
        self._creation = in_background(create, self, self._on_created, self._on_failed)

    def _on_created(self, run: RunFolder) -> None:
        """Start the created run with the preloaded process, as soon as that has finished its imports."""
        self._creation = None
        if not self.is_closing:
            self.preload()
        self._waiting_run = run
        if self.ready or self._notifier is None:  # the process is ready, or there is none to wait for
            self._start_created_run()
        else:
            # The preloaded process has done part of its imports, so waiting for it is faster than a new supervisor.
            self._patience_timer.start()

    def _start_created_run(self) -> None:
        """Start the created run with the preloaded process, or without it if it isn't available."""
        self._patience_timer.stop()
        run, self._waiting_run = self._waiting_run, None
        if run is None:
            return
        self.busy = False
        try:
            if self._preloader is not None:
                self._preloader.start_run(run)
            else:
                start_supervisor(run)
        except OSError as error:
            self.failed.emit([make_creation_problem(error)])
            return
        self.started.emit(run)

    def _on_failed(self, error: Exception) -> None:
        """Report why a run couldn't be created. Unexpected errors are raised."""
        self._creation = None
        self.busy = False
        if isinstance(error, OSError | _CannotResume):
            self.failed.emit(error.problems if isinstance(error, _CannotResume) else [make_creation_problem(error)])
            return
        self.failed.emit([Problem("run", tr("Could not create the run."), tr("See the window's log for details."))])
        raise error

    def _on_preloader_ready(self) -> None:
        """Start the waiting run if the preloaded process is ready, or without that process if it has ended."""
        preloader = self._preloader
        if preloader is not None:
            preloader.poll()
            if not preloader.alive:
                self._close_preloader()
            if preloader.ready or self._preloader is None:
                self._start_created_run()

    def _end_preloader(self) -> None:
        """End the unused preloaded process on a worker thread, because waiting for its exit may take a moment."""
        preloader = self._detach_preloader()
        if preloader is not None:
            in_background(preloader.close, self, lambda _none: None, lambda error: log.warning("%s", error))

    def _close_preloader(self) -> None:
        """End the preloaded process. Requested runs that it has not started are started directly."""
        preloader = self._detach_preloader()
        if preloader is not None:
            preloader.close()

    def _detach_preloader(self) -> Preloader | None:
        """Stop waiting for the preloaded process, and return it, or None if there is none."""
        preloader, self._preloader = self._preloader, None
        if self._notifier is not None:
            self._notifier.setEnabled(False)
            self._notifier.deleteLater()
            self._notifier = None
        return preloader


class _CannotResume(Exception):  # noqa: N818  (the user's mistake, not an error)
    """Raised when a run can't be resumed because of `problems`."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(*map(str, problems))
        self.problems = problems


def _save_job(run: RunFolder, changes: Mapping[str, Any]) -> RunFolder:
    """Save `changes` to the job of `run` for its next execution. Raises _CannotResume, OSError.

    Returns `run`.
    """
    job, problems = job_to_resume(run, changes)
    if job is None:
        raise _CannotResume(problems)
    save_next_job(run, with_absolute_paths(job))
    return run


def with_absolute_paths(job: Job) -> Job:
    """Return `job` with absolute paths, because its supervisor has another working directory."""
    return job.with_fields(
        dataset=_absolute(job.data.dataset),
        model=_absolute(job.model.name) if job.model_is_file else job.model.name,
        weights_file=_absolute(job.model.weights_file) if job.model.weights_file else "",
        resume_from=_absolute(job.checkpoints.resume_from) if job.checkpoints.resume_from else "",
    )


def make_creation_problem(error: OSError) -> Problem:
    """Return a problem that explains an error that occurred while a run was being created."""
    path = str(error.filename or paths.runs_folder())
    elsewhere = tr("set FOOTPLATE_HOME to another folder")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Problem(
            "run",
            tr("No permission to write to {where}.").format(where=path),
            tr("Grant write access, or {elsewhere} and restart.").format(elsewhere=elsewhere),
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem(
            "run",
            tr("The disk with {where} is full.").format(where=path),
            tr("Free up space, or {elsewhere} and restart.").format(elsewhere=elsewhere),
        )
    return Problem(
        "run",
        tr("Could not create the run in {where}: {strerror}.").format(where=path, strerror=error.strerror),
        tr("Fix this, or {elsewhere}.").format(elsewhere=elsewhere),
    )


def _absolute(path: str) -> str:
    """Return the absolute form of a path, in which ~ is replaced by the home folder."""
    return str(Path(path).expanduser().absolute())
