"""Handle for the run of a trial, used by the search's driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from math import isfinite, nan
from operator import itemgetter

import msgspec

from engine.advisor.search.study import KnownTrial
from engine.contract.events import (
    EVENT,
    AnyEvent,
    Failed,
    PhaseChanged,
    Planned,
    Restarting,
    RunFinished,
    RunStarted,
    Validation,
    Waiting,
)
from engine.contract.protocol import Command
from engine.contract.search import PARAMETERS, SECONDS, Goal, Search, Trial, TrialRow, TrialState
from engine.runs.connection import send
from engine.runs.folder import ENDED, START_GRACE_S, RunFolder
from engine.runs.resume import job_to_resume, save_next_job
from engine.runs.searches import save_trial
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import iterate_complete_lines, open_file

_RELEVANT = (RunStarted, Waiting, PhaseChanged, Planned, Validation, Failed, Restarting, RunFinished)
_PREFIXES = tuple(f'{{"type":"{kind.__struct_config__.tag}"'.encode() for kind in _RELEVANT)
_OUTCOMES: dict[str, TrialState] = {"completed": "completed", "paused": "paused", "stopped": "stopped"}


class TrialLog:
    """Log of a trial's run, with the values of the search's `goals`.

    `epochs` is the number of epochs in the run's job.
    """

    def __init__(self, run: RunFolder, goals: tuple[Goal, ...], epochs: int) -> None:
        self.finished: RunFinished | None = None
        """Last event of the last execution, or None while an execution is running."""
        self._run = run
        self._goals = goals
        self._epochs = epochs
        self._offset = 0  # number of bytes of the log that have been read
        self._measures: dict[int, dict[str, float]] = {}  # metrics by epoch
        self._parameters: int | None = None
        self._planned_at: float | None = None  # start of the current execution's training
        # Training time, before the current execution and in total.
        self._seconds_before = self._seconds = 0.0
        self._is_queued = False
        self._cause = ""  # cause of the last failure, restart or end

    def read(self) -> bool:
        """Read new events from the log. Return True if there were any."""
        start = self._offset
        with suppress(OSError), open_file(self._run.events_file) as stream:
            stream.seek(self._offset)
            for line in iterate_complete_lines(stream):
                self._offset += len(line)
                if line.startswith(_PREFIXES):
                    with suppress(*NOT_DECODED):
                        self._add(EVENT.decode(line))
        return self._offset > start

    def create_row(self, trial: Trial, alive: bool) -> TrialRow:
        """Return the trial's row in the search's table of trials.

        `alive` is True if the run's supervisor is alive or may be starting.
        """
        row = TrialRow(
            number=trial.number,
            run_id=self._run.run_id,
            state=self._determine_state(trial, alive),
            params=trial.params,
            values=self._read_values(),
            reported=self._read_reported_values(),
            epoch=max(self._measures, default=0),
            epochs=self._epochs,
            seconds=round(self._seconds, 3),
            cause=self._cause,
            repeat_of=trial.repeat_of,
        )
        missing = [goal for goal, value in zip(self._goals, row.values, strict=True) if value is None]
        if row.state != "completed" or not missing:
            return row
        cause = f"It has no finite value of {missing[0].title}."
        return msgspec.structs.replace(row, state="failed", cause=cause)

    def _add(self, event: AnyEvent) -> None:
        """Update the values of the trial with an event from its log."""
        match event:
            case RunStarted():
                self.finished, self._planned_at, self._cause = None, None, ""
            case Waiting():
                self._is_queued = True
            case PhaseChanged():
                self._is_queued = False
            case Planned():
                self._parameters = event.parameters
                self._planned_at, self._seconds_before = event.time, self._seconds
            case Validation():
                self._measures[event.epoch] = event.measures
                if self._planned_at is not None:
                    self._seconds = self._seconds_before + max(0.0, event.time - self._planned_at)
            case Failed() | Restarting():
                self._cause = event.cause
            case RunFinished():
                self.finished = event
                self._cause = event.cause or self._cause

    def _determine_state(self, trial: Trial, alive: bool) -> TrialState:
        """Return the state of the trial according to the last execution in its log. See `create_row` for the arguments."""
        if self.finished is None and not alive:
            return "interrupted"
        if self.finished is None:
            return "waiting" if self._is_queued else "running"
        state = _OUTCOMES.get(self.finished.outcome, "failed")
        return "pruned" if trial.pruned and state == "stopped" else state

    def _read_reported_values(self) -> dict[int, float]:
        """Return the values of the first goal by epoch, without values that are not finite."""
        first = self._goals[0].measure
        values = {epoch: measures[first] for epoch, measures in self._measures.items() if first in measures}
        return {epoch: value for epoch, value in values.items() if isfinite(value)}

    def _read_values(self) -> tuple[float | None, ...]:
        """Return the trial's value for each goal, or None if it is unknown or not finite.

        Metrics are those of the validation that is best by the first goal that is a metric.
        """
        best_measures: dict[str, float] = {}
        metric_goal = next((goal for goal in self._goals if goal.measure not in (SECONDS, PARAMETERS)), None)
        if metric_goal is not None:
            finite = [each for each in self._measures.values() if isfinite(each.get(metric_goal.measure, nan))]
            choose_best = max if metric_goal.higher_is_better else min
            best_measures = choose_best(finite, key=itemgetter(metric_goal.measure), default={})
        known: dict[str, float | None] = {
            **best_measures, SECONDS: self._seconds or None, PARAMETERS: self._parameters
        }  # fmt: skip
        values = [known.get(goal.measure) for goal in self._goals]
        return tuple(float(value) if value is not None and isfinite(value) else None for value in values)


_ALIVE_POLL_S = 1.0
"""Seconds between checks whether a run without new events is alive."""
_RETRY_S = 2.0
"""Seconds until a command that could not be sent is sent again."""


class TrialHandle:
    """Handle for a trial of a search, which reads the log of its run, sends it commands and resumes it."""

    def __init__(self, search: Search, run: RunFolder, trial: Trial) -> None:
        """Read the job and the log of the trial's run."""
        job = run.job()
        self.run = run
        self.trial = trial
        self.devices = job.parallel.devices if job is not None else None
        """Devices in the job of the run. If the job can't be read, they are None and the trial fails."""
        self.restarts_left = job.faults.restarts if job is not None else 0
        self.pruning_epoch = 0
        """Epoch of the last decision whether to stop the trial early."""
        self.is_cleared = False
        """True if the trial's checkpoints were deleted after it had ended."""
        self._log = TrialLog(run, search.goals, job.training.epochs if job is not None else 0)
        # Earliest times at which to check if the supervisor is alive, and to send the next command.
        self._poll_at = self._send_at = 0.0
        self._last_sent: Command | None = None  # command that the current execution of the run has received
        self._is_alive = True  # False once the supervisor was found to have ended
        self._failure = "" if job is not None else "Its job can't be read."
        self.row = self._log.create_row(trial, alive=True)
        self.poll()

    @property
    def known(self) -> KnownTrial:
        return KnownTrial(self.trial, self.row)

    @property
    def ended(self) -> bool:
        return self.row.ended

    @property
    def is_active(self) -> bool:
        """True if the trial is running on its devices or waits in the queue for them."""
        return self.row.state in ("running", "waiting")

    def poll(self) -> bool:
        """Read new events from the log, and update `row`. Return True if it has changed.

        A run without new events is checked from time to time, since its supervisor may have died.
        """
        has_news = self._log.read()
        now = time.monotonic()
        if has_news:
            self._is_alive = True
        elif self._log.finished is None and now > self._poll_at:
            self._poll_at = now + _ALIVE_POLL_S
            self._is_alive = self.run.state() not in ENDED
            if not self._is_alive:
                self._log.read()  # its last events may have been written between the two reads
        before, self.row = self.row, self._log.create_row(self.trial, self._is_alive)
        if self._failure:
            self.row = msgspec.structs.replace(self.row, state="failed", cause=self._failure)
        return self.row != before

    def send(self, command: Command) -> None:
        """Send a command to the trial's run, unless it is the last command that was sent.

        A repeated command would end the run without a last checkpoint. If the supervisor can't be reached, nothing
        happens, and the caller should call this again later.
        """
        now = time.monotonic()
        if command == self._last_sent or now < self._send_at:
            return
        self._send_at = now + _RETRY_S
        with suppress(OSError):  # it is still starting or has just ended; the next poll shows which
            send(self.run, command)
            self._last_sent = command

    def save(self, trial: Trial) -> None:
        """Replace the trial's description, and save it in the run folder. Raises OSError."""
        if trial != self.trial:
            save_trial(self.run, trial)
            self.trial = trial

    def resume(self, devices: tuple[str, ...], start: Callable[[RunFolder], None]) -> None:
        """Resume the trial's run from its last checkpoint on `devices`, by calling `start` with its folder.

        If the run was interrupted too often, or its job is invalid, the trial fails instead. Raises OSError.
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

    def delete_checkpoints(self) -> None:
        """Delete the trial's checkpoints, unless its supervisor is still alive."""
        if self.run.is_supervised():
            return
        for file in self.run.checkpoints.glob("*.pt"):
            with suppress(OSError):
                file.unlink()
        self.is_cleared = True
