"""Control of a trial's run by the driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from engine.advisor.search.study import KnownTrial
from engine.advisor.search.trial_log import TrialLog
from engine.contract.protocol import Command
from engine.contract.search import Search, Trial
from engine.runs.connection import send
from engine.runs.folder import ENDED, START_GRACE_S, RunFolder
from engine.runs.resume import job_to_resume, save_next_job
from engine.runs.trials import save_trial

_ALIVE_POLL_S = 1.0
"""Seconds between checks that a silent run is alive."""
_RETRY_S = 2.0
"""Seconds before a command that could not be sent is retried."""


class TrialHandle:
    """Trial of a search with its run."""

    def __init__(self, search: Search, run: RunFolder, trial: Trial) -> None:
        job = run.job()
        self.run = run
        self.trial = trial
        self.devices = job.parallel.devices if job is not None else None
        """Devices of its job; None if that can't be read, which fails the trial."""
        self.restarts_left = job.faults.restarts if job is not None else 0
        self.pruning_epoch = 0
        """Last epoch after which early stopping was decided."""
        self.is_cleared = False
        """True if its checkpoints have been deleted since it ended."""
        self._log = TrialLog(run, search.goals, job.training.epochs if job is not None else 0)
        self._poll_at = self._send_at = 0.0
        self._last_sent: Command | None = None
        self._is_alive = True
        self._failure = ""
        self.row = self._log.row(trial, alive=True)
        self.poll()

    @property
    def known(self) -> KnownTrial:
        return KnownTrial(self.trial, self.row)

    @property
    def ended(self) -> bool:
        return self.row.ended

    @property
    def is_active(self) -> bool:
        """True if the trial has its devices, or waits for them."""
        return self.row.state in ("running", "waiting")

    def poll(self) -> bool:
        """Read new events; return True if the trial's row changed."""
        has_news = self._log.read()
        now = time.monotonic()
        if has_news:
            self._is_alive = True
        elif self._log.finished is None and now > self._poll_at:
            self._poll_at = now + _ALIVE_POLL_S
            self._is_alive = self.run.state() not in ENDED
            if not self._is_alive:
                self._log.read()  # its last events may have been written between the two reads
        before, self.row = self.row, self._log.row(self.trial, self._is_alive)
        if self.devices is None:
            self._failure = "Its job can't be read."
        if self._failure:
            self.row = msgspec.structs.replace(self.row, state="failed", cause=self._failure)
        return self.row != before

    def send(self, command: Command) -> None:
        """Send its run a command once; a second one would end it without a last checkpoint."""
        now = time.monotonic()
        if command == self._last_sent or now < self._send_at:
            return
        self._send_at = now + _RETRY_S
        with suppress(OSError):  # it is still starting, or has just ended, which the next poll shows
            send(self.run, command)
            self._last_sent = command

    def save(self, trial: Trial) -> None:
        """Save a changed trial to the disk. Raises OSError."""
        if trial != self.trial:
            save_trial(self.run, trial)
            self.trial = trial

    def resume(self, devices: tuple[str, ...], start: Callable[[RunFolder], None]) -> None:
        """Resume its run from the last checkpoint on `devices`.

        Gives up if the run was interrupted too often. Raises OSError.
        """
        if self.row.state == "interrupted":
            if not self.restarts_left:
                self._failure = "Its run was interrupted too often."
                return
            self.restarts_left -= 1
        job, problems = job_to_resume(self.run, {"devices": list(devices)})
        if job is None:
            self._failure = str(problems[0])
            return
        save_next_job(self.run, job)
        start(self.run)
        self.devices = devices
        self._last_sent = self._log.finished = None
        self._is_alive, self._poll_at = True, time.monotonic() + START_GRACE_S
        self.poll()

    def clear(self) -> None:
        """Delete its checkpoints once its supervisor has ended."""
        supervisor = self.run.supervisor()
        if supervisor is not None and supervisor.alive():
            return
        for file in self.run.checkpoints.glob("*.pt"):
            with suppress(OSError):
                file.unlink()
        self.is_cleared = True
