"""Starting runs without holding up the window, and keeping a warm parent ready for the next."""

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

log = logging.getLogger("footplate.window")

IDLE_MS = 15 * 60 * 1000
"""After so long without a touch of the form the warm parent is given back."""

PATIENCE_MS = 15_000
"""How long a run waits for the warm parent before it is started without."""


class Launcher(QObject):
    """Makes runs, or has one go on, and starts their supervisors.

    Signals: started(object) - the RunFolder of a run that has been started; failed(object) - the list of Problems for
    which none could be.

    Attributes: busy - whether a run is being made at this moment.
    """

    started = Signal(object)
    failed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.busy = False
        self._preloader: Preloader | None = None
        self._notifier: QSocketNotifier | None = None
        self._idle = QTimer(self)
        self._idle.setSingleShot(True)
        self._idle.setInterval(IDLE_MS)
        self._idle.timeout.connect(self._give_back)
        self._closing = False
        self._making: Background | None = None
        self._waiting: RunFolder | None = None
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.setInterval(PATIENCE_MS)
        self._patience.timeout.connect(self._start_waiting)

    @property
    def ready(self) -> bool:
        """Whether a run would start without delay."""
        return self._preloader is not None and self._preloader.ready

    def touch(self) -> None:
        """Has a warm parent stand ready, since a run may follow soon."""
        self._idle.start()
        if self._preloader is not None and self._preloader.alive:
            return
        self._part()
        preloader = Preloader()
        try:
            preloader.start()
        except OSError as error:
            log.warning("could not pre-start the parent process: %s", error)
            return
        self._preloader = preloader
        if preloader.fileno() >= 0:
            self._notifier = QSocketNotifier(preloader.fileno(), QSocketNotifier.Type.Read, self)
            self._notifier.activated.connect(self._heard)

    def start(self, job: Job) -> None:
        """Makes a run of `job` and starts it; the answer comes as a signal."""
        self._make(partial(create_run, resolved(job)))

    def resume(self, run: RunFolder, changes: Mapping[str, Any]) -> None:
        """Has `run` go on in its own folder with `changes` of its job, plain values by field; answers as `start`
        does.
        """
        self._make(partial(_job_written, run, changes))

    def close(self) -> None:
        """Gives the memory of the warm parent back. Runs go on."""
        self._closing = True
        if self._making is not None:
            self._making.finish()
        self._start_waiting()
        self._idle.stop()
        preloader = self._part()
        if preloader is not None:
            preloader.close()

    def _make(self, make: Callable[[], RunFolder]) -> None:
        self.busy = True
        self._making = in_background(make, self, self._made, self._not_made)

    def _made(self, run: RunFolder) -> None:
        self._making = None
        if not self._closing:
            self.touch()
        self._waiting = run
        if self.ready or self._notifier is None:
            self._start_waiting()
        else:
            # The parent is ahead with its imports: waiting for it is sooner than a supervisor that begins anew.
            self._patience.start()

    def _start_waiting(self) -> None:
        self._patience.stop()
        run, self._waiting = self._waiting, None
        if run is None:
            return
        self.busy = False
        try:
            if self._preloader is not None:
                self._preloader.start_run(run)
            else:
                start_supervisor(run)
        except OSError as error:
            self.failed.emit([problem_of(error)])
            return
        self.started.emit(run)

    def _not_made(self, error: Exception) -> None:
        self._making = None
        self.busy = False
        if isinstance(error, OSError | _CannotGoOn):
            self.failed.emit(error.problems if isinstance(error, _CannotGoOn) else [problem_of(error)])
            return
        self.failed.emit([Problem("run", "Could not create the run.", "See the window's log for details.")])
        raise error

    def _heard(self) -> None:
        preloader = self._preloader
        if preloader is not None:
            preloader.poll()
            if not preloader.alive:
                self._part()
            if preloader.ready or self._preloader is None:
                self._start_waiting()

    def _give_back(self) -> None:
        preloader = self._part()
        if preloader is not None:
            # Waiting for its end may take a moment.
            in_background(preloader.close, self, lambda _none: None, lambda error: log.warning("%s", error))

    def _part(self) -> Preloader | None:
        preloader, self._preloader = self._preloader, None
        if self._notifier is not None:
            self._notifier.setEnabled(False)
            self._notifier.deleteLater()
            self._notifier = None
        return preloader


class _CannotGoOn(Exception):  # noqa: N818  (the user's mistake, not an error)
    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(*map(str, problems))
        self.problems = problems


def _job_written(run: RunFolder, changes: Mapping[str, Any]) -> RunFolder:
    """`run`, whose folder says that it goes on with `changes`. Raises _CannotGoOn, or OSError."""
    job, problems = job_to_resume(run, changes)
    if job is None:
        raise _CannotGoOn(problems)
    save_next_job(run, resolved(job))
    return run


def resolved(job: Job) -> Job:
    """The job with whole paths, which mean the same from every folder."""
    return job.with_fields(
        dataset=_whole(job.data.dataset),
        model=_whole(job.model.name) if job.model_is_file else job.model.name,
        weights_file=_whole(job.model.weights_file) if job.model.weights_file else "",
        resume_from=_whole(job.checkpoints.resume_from) if job.checkpoints.resume_from else "",
    )


def problem_of(error: OSError) -> Problem:
    """Why no run could be made, with what to do about it."""
    where = str(error.filename or paths.runs_folder())
    elsewhere = "set FOOTPLATE_HOME to another folder"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Problem(
            "run",
            f"No permission to write to {where}.",
            f"Grant write access, or {elsewhere} and restart.",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem("run", f"The disk with {where} is full.", f"Free up space, or {elsewhere} and restart.")
    return Problem("run", f"Could not create the run in {where}: {error.strerror}.", f"Fix this, or {elsewhere}.")


def _whole(path: str) -> str:
    return str(Path(path).expanduser().absolute())
