"""A trial in the driver's hands: its run, its log, and what is done with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from engine.advisor.search.study import Known
from engine.advisor.search.trial_log import TrialLog
from engine.contract.protocol import Command
from engine.contract.search import Search, Trial
from engine.runs.connection import send
from engine.runs.folder import ENDED, START_GRACE_S, RunFolder
from engine.runs.resume import job_to_resume, save_next_job
from engine.runs.trials import save_trial

_LOOK_S = 1.0
"""How often it is looked whether a silent run is alive."""
_AGAIN_S = 2.0
"""How long after a command that could not be sent it is tried again."""


class Hand:
    """A trial of a search. `devices` are those of its job; None where that can't be read, and then the trial has
    failed.
    """

    def __init__(self, search: Search, run: RunFolder, trial: Trial) -> None:
        job = run.job()
        self.run = run
        self.trial = trial
        self.devices = job.devices if job is not None else None
        self.restarts_left = job.restarts if job is not None else 0
        self.judged = 0
        """The epoch up to which it has been decided whether to stop it early."""
        self.cleared = False
        """Whether its checkpoints have been looked at since it ended."""
        self._log = TrialLog(run, search.goals, job.epochs if job is not None else 0)
        self._look_at = self._send_at = 0.0
        self._told: Command | None = None
        self._alive = True
        self._given_up = ""
        self.row = self._log.row(trial, alive=True)
        self.look()

    @property
    def known(self) -> Known:
        return Known(self.trial, self.row)

    @property
    def ended(self) -> bool:
        return self.row.ended

    @property
    def active(self) -> bool:
        """Whether it has its devices, or waits for them."""
        return self.row.state in ("running", "waiting")

    def look(self) -> bool:
        """Reads what is new; whether the trial stands otherwise than before."""
        news = self._log.read()
        now = time.monotonic()
        if news:
            self._alive = True
        elif self._log.finished is None and now > self._look_at:
            self._look_at = now + _LOOK_S
            self._alive = self.run.state() not in ENDED
            if not self._alive:
                self._log.read()  # its last words may have come between the two looks
        before, self.row = self.row, self._log.row(self.trial, self._alive)
        if self.devices is None:
            self._given_up = "Its job can't be read."
        if self._given_up:
            self.row = msgspec.structs.replace(self.row, state="failed", cause=self._given_up)
        return self.row != before

    def tell(self, command: Command) -> None:
        """Sends its run a command, once: a second one would have it end without its last checkpoint."""
        now = time.monotonic()
        if command == self._told or now < self._send_at:
            return
        self._send_at = now + _AGAIN_S
        with suppress(OSError):  # it does not listen yet, or has just ended, which the next look tells
            send(self.run, command)
            self._told = command

    def keep(self, trial: Trial) -> None:
        """Notes something on the trial, on the disk first. Raises OSError."""
        if trial != self.trial:
            save_trial(self.run, trial)
            self.trial = trial

    def resume(self, devices: tuple[str, ...], start: Callable[[RunFolder], None]) -> None:
        """Has its run go on from its last checkpoint, on `devices`; one that broke off too often is given up. Raises
        OSError.
        """
        if self.row.state == "interrupted":
            if not self.restarts_left:
                self._given_up = "Its run broke off again and again."
                return
            self.restarts_left -= 1
        job, problems = job_to_resume(self.run, {"devices": list(devices)})
        if job is None:
            self._given_up = str(problems[0])
            return
        save_next_job(self.run, job)
        start(self.run)
        self.devices = devices
        self._told = self._log.finished = None
        self._alive, self._look_at = True, time.monotonic() + START_GRACE_S
        self.look()

    def clear(self) -> None:
        """Deletes its checkpoints, once nobody writes there any more."""
        supervisor = self.run.supervisor()
        if supervisor is not None and supervisor.alive():
            return
        for file in self.run.checkpoints.glob("*.pt"):
            with suppress(OSError):
                file.unlink()
        self.cleared = True
