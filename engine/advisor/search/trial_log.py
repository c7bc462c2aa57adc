"""Incremental reader of the log of a trial's run."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite

import msgspec

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
from engine.contract.search import PARAMETERS, SECONDS, Goal, Trial, TrialRow, TrialState
from engine.runs.folder import RunFolder
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import complete_lines, open_file

_RELEVANT = (RunStarted, Waiting, PhaseChanged, Planned, Validation, Failed, Restarting, RunFinished)
_PREFIXES = tuple(f'{{"type":"{kind.__struct_config__.tag}"'.encode() for kind in _RELEVANT)
_OUTCOMES: dict[str, TrialState] = {"completed": "completed", "paused": "paused", "stopped": "stopped"}


class TrialLog:
    """Log of a trial's run, evaluated by the search's `goals`; `epochs` are those of its job."""

    def __init__(self, run: RunFolder, goals: tuple[Goal, ...], epochs: int) -> None:
        self.finished: RunFinished | None = None
        """End of the last execution; None while one is running."""
        self._run = run
        self._goals = goals
        self._epochs = epochs
        self._offset = 0
        self._measures: dict[int, dict[str, float]] = {}
        self._parameters: int | None = None
        self._planned_at: float | None = None
        self._seconds_before = self._seconds = 0.0
        self._waiting = False
        self._cause = ""

    def read(self) -> bool:
        """Read new events; return True if there are any."""
        start = self._offset
        with suppress(OSError), open_file(self._run.events_file) as stream:
            stream.seek(self._offset)
            for line in complete_lines(stream):
                self._offset += len(line)
                if line.startswith(_PREFIXES):
                    with suppress(*NOT_DECODED):
                        self._add(EVENT.decode(line))
        return self._offset > start

    def row(self, trial: Trial, alive: bool) -> TrialRow:
        """Return the trial's row; `alive` is True if its run's supervisor is alive or may be starting."""
        row = TrialRow(
            number=trial.number,
            run_id=self._run.run_id,
            state=self._state(trial, alive),
            params=trial.params,
            values=self._values(),
            reported=self._reported(),
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
        match event:
            case RunStarted():
                self.finished, self._planned_at, self._cause = None, None, ""
            case Waiting():
                self._waiting = True
            case PhaseChanged():
                self._waiting = False
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

    def _state(self, trial: Trial, alive: bool) -> TrialState:
        if self.finished is None:
            return "interrupted" if not alive else "waiting" if self._waiting else "running"
        state = _OUTCOMES.get(self.finished.outcome, "failed")
        return "pruned" if trial.pruned and state == "stopped" else state

    def _reported(self) -> dict[int, float]:
        """Return the finite values of the first goal by epoch."""
        first = self._goals[0].measure
        return {epoch: m[first] for epoch, m in self._measures.items() if first in m and isfinite(m[first])}

    def _values(self) -> tuple[float | None, ...]:
        best: dict[str, float] = {}
        goal = next((goal for goal in self._goals if goal.measure not in (SECONDS, PARAMETERS)), None)
        if goal is not None:
            finite = [m for m in self._measures.values() if goal.measure in m and isfinite(m[goal.measure])]
            best = (max if goal.higher_is_better else min)(finite, key=lambda m: m[goal.measure], default={})
        costs = {SECONDS: self._seconds or None, PARAMETERS: self._parameters}
        values = (costs[each.measure] if each.measure in costs else best.get(each.measure) for each in self._goals)
        return tuple(float(value) if value is not None and isfinite(value) else None for value in values)
