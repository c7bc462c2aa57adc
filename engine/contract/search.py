"""A search over settings: what it is asked, what is kept of it, and how it stands.

A search is a folder, `<home>/searches/<name>`, in which there are:

search.json   what was asked for, a `Search`; replaced as a whole where its budget, devices, pruning or confirmation are changed
state.json    how it stands, a `SearchState`; its driver replaces it as a whole with every change
driver.json   the process that drives it, a `DriverFile`
driver.log    what that process printed

What is asked for is judged by `engine.checks.search_checks.judge_search`, which makes a `Search` of plain values and
tells all that is wrong with them. A page reads the files with `engine.runs.searches`: `list_searches()` for all there
are, `SearchFolder.search()`, `.state()` and `.status()` for one. Reading takes a millisecond and needs neither the
driver nor Optuna; state.json changes at most a few times a second, so that looking at its time of change is enough to
follow a search. The same module starts and stops the driver, and trains the best. Each trial is an ordinary run:
`TrialRow.run_id` leads to its page, its log and its curves, and its tags ("search NAME") to all of them in the list
of runs and in Compare.

The state on the disk is made from the folders of the runs, each of which holds a trial.json (a `Trial`): deleted, it
comes again once the search is continued. So nothing but the runs themselves must survive a fault.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from engine.contract.devices import CPU
from engine.contract.job import FIELDS, Job

SEARCH_FILE, STATE_FILE, DRIVER_FILE, DRIVER_LOG = "search.json", "state.json", "driver.json", "driver.log"
"""In the folder of a search."""
TRIAL_FILE = "trial.json"
"""In the folder of a run that is a trial."""

OPTION = "options."
"""What stands before the name of an option among the fields of a space."""

FIXED = frozenset(
    (
        "dataset",
        "task",
        "devices",
        "recipe",
        "name",
        "resume_from",
        "model_file_sha256",
        "val_fraction",
        "fold",
        "best_by",
    )
) | {name for name, field in FIELDS.items() if field.group in ("checkpoints", "faults")}
"""The job's fields that a search cannot vary: with other data or another validation split values could not be
compared, and where, when and how safely a run trains changes nothing in its result."""
SEARCHABLE = tuple(name for name in FIELDS if name not in FIXED)
"""Those that it can, in the form's order; besides, any option ("options.NAME") of the job's task, model and
strategy."""

Scalar = bool | int | float | str | None
Value = Scalar | tuple[int | str, ...]
"""What a field of a job can be set to."""

Sampler = Literal["tpe", "random", "grid", "nsgaii"]
"""How settings are chosen: the tree-structured Parzen estimator (Bergstra et al. 2011), at random, all combinations
in a random order, or NSGA-II (Deb et al. 2002), which is for several goals."""
Pruner = Literal["hyperband", "halving", "median", "none"]
"""Which trials are stopped early: by Hyperband (Li et al. 2018), by asynchronous successive halving (Li et al. 2020),
those below the median of the others at the same epoch, or none."""

SECONDS, PARAMETERS = "seconds", "parameters"
"""Goals beside the task's measures: how long a run trains, without its start and its time in the queue; how many
parameters its model has. Less of either is better."""

CONFIRMED = 3
"""So many of the best trials are confirmed, besides the one with the job's own settings."""
MOST_REPEATS = 10
"""So often at most."""


class _Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Range(_Told, tag="range", tag_field="kind", frozen=True, kw_only=True):
    """Numbers from `low` to `high`, both included. `log`: each power of ten is as likely as another. `step`: only
    low, low + step, … A field of whole numbers gets whole numbers.
    """

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None


class Choices(_Told, tag="choices", tag_field="kind", frozen=True, kw_only=True):
    """Some values, without an order; None leaves an optional field empty."""

    values: tuple[Value, ...]


Dimension = Range | Choices


class Goal(_Told, frozen=True, kw_only=True):
    """What is to become as good as it can: `measure` is the id of a measure of the task, or SECONDS or PARAMETERS. Of
    a measure a trial's value is that of its best validation, by the first of the goals that is a measure.
    """

    measure: str
    title: str
    higher_is_better: bool
    percent: bool = False


class Budget(_Told, frozen=True, kw_only=True):
    """When no further trial is started: after so many `trials`, `hours` of the search's work, or `epochs` of all
    trials together; whichever comes first. Trials that have begun are finished, and repeats do not count. None for no
    such limit.
    """

    trials: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    hours: Annotated[float, Meta(gt=0, le=10_000)] | None = None
    epochs: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None


class Search(_Told, frozen=True, kw_only=True):
    """What is asked for. `job` is what all trials have in common, `space` what varies: by the job's field, or
    "options.NAME".

    `devices` are shared out to the trials, `devices_per_trial` to each, so that len(devices) / devices_per_trial run
    at once; the CPU counts as often as it is named. `best_epochs` is how long the best is trained in full, None for
    as long as a trial. `seed` is that of the sampler: with it, a trial's settings follow from its number and from
    what was known when it was chosen. Checkpoints of ended trials that are neither the best nor on the Pareto front,
    nor yet to be confirmed, are deleted, unless `keep_checkpoints`.

    `confirm` is how often the best trials, and the one with the job's own settings, are trained again once the budget
    is used up, each time with another seed of the job. The mean of these repeats alone then decides which is the
    best: the first values do not, since the best of many is also the luckiest.
    """

    name: str
    job: Job
    space: dict[str, Dimension]
    goals: tuple[Goal, ...]
    budget: Budget
    sampler: Sampler = "tpe"
    pruner: Pruner = "none"
    confirm: Annotated[int, Meta(ge=0, le=MOST_REPEATS)] = 0
    seed: int = 0
    devices: tuple[str, ...] = (CPU,)
    devices_per_trial: int = 1
    best_epochs: int | None = None
    keep_checkpoints: bool = False


class Trial(_Told, frozen=True, kw_only=True):
    """What makes a run a trial, written before it is started. `search` is the search's name, `number` counts from 0.

    `params` are the fields that were varied. `seed` is the one that the sampler was given, `known` the numbers of the
    trials that had ended by then and `in_hand` of those that had not, from all of which the settings follow. `pruned`
    is whether the search has decided to stop it early. `attrs` are Optuna's own notes on it. `again` is the number of
    the trial that it repeats with another seed of the job, which then stands among its `params`; None where it is one
    of the search's own.
    """

    search: str
    number: int
    params: dict[str, Any]
    seed: int
    known: tuple[int, ...] = ()
    in_hand: tuple[int, ...] = ()
    pruned: bool = False
    attrs: dict[str, Any] = {}
    again: int | None = None


TrialState = Literal["waiting", "running", "paused", "interrupted", "completed", "pruned", "stopped", "failed"]
"""How a trial stands. "waiting": for its device, in the queue. "paused" and "interrupted" ones go on when the search
is continued. "stopped": by the user. Those from "completed" on have ended."""
ENDED_TRIALS: tuple[TrialState, ...] = ("completed", "pruned", "stopped", "failed")


class TrialRow(_Told, frozen=True, kw_only=True):
    """A line of the table of trials. `values` are the best so far by the search's goals, in their order, None where
    there is none yet. `reported` are the values of the first goal by epoch. `epoch` is the last that was validated,
    `epochs` how many there are to be. `seconds` is how long it has trained, `cause` why it failed. `again` is the
    number of the trial that it repeats with another seed. `confirmed` are the values of the first goal that its own
    completed repeats have reached.
    """

    number: int
    run_id: str
    state: TrialState
    params: dict[str, Any]
    values: tuple[float | None, ...]
    reported: dict[int, float] = {}
    epoch: int = 0
    epochs: int
    seconds: float = 0.0
    cause: str = ""
    again: int | None = None
    confirmed: tuple[float, ...] = ()

    @property
    def ended(self) -> bool:
        return self.state in ENDED_TRIALS

    @property
    def title(self) -> str:
        """ "7", or of a repeat "7, seed 2"."""
        return str(self.number) if self.again is None else f"{self.again}, seed {self.params.get('seed')}"

    @property
    def mean(self) -> float | None:
        """The mean that its repeats have reached; None where none was completed."""
        return sum(self.confirmed) / len(self.confirmed) if self.confirmed else None


Status = Literal["running", "completed", "stopped", "failed", "interrupted"]
"""How a search stands: driven by a living process; done with its budget; stopped by its user; unable to go on, for a
`cause`; or its driver has ended without saying so. All but the first go on when the search is started again."""


class SearchState(_Told, frozen=True, kw_only=True):
    """How a search stands, at `time` (seconds since the epoch).

    `ended` is how the driver ended, "" while it is at work. `trials` are by number, repeats among them. `best` is the
    number of the best completed trial: by its own value, and by the mean of its repeats once all of them have ended;
    of several goals None. `front` are the numbers of the Pareto front, of one goal the best alone. `importance` is
    how much each field decides whether a trial is among the better ones by the first goal (PED-ANOVA, Watanabe et al.
    2023), together 1, the largest first; empty below four completed trials. `worked_s` is how long the search has
    worked, `seconds_left` an estimate, None while there is none. `total` is how many trials there will be, as far as
    that is known. `cause` says in a sentence why it failed, or what it waits for.

    `candidates` are the trials that are confirmed, empty until the budget is used up. `baseline` is the number of the
    trial with the job's own settings, None where none was completed. `repeats` is how many trials of `total` are
    repeats, at most where the candidates are not known yet. `confirming_s` is how much of `worked_s` went into
    repeats.
    """

    time: float
    ended: Literal["", "completed", "stopped", "failed"] = ""
    trials: tuple[TrialRow, ...] = ()
    best: int | None = None
    front: tuple[int, ...] = ()
    importance: dict[str, float] = {}
    worked_s: float = 0.0
    seconds_left: float | None = None
    total: int | None = None
    cause: str = ""
    candidates: tuple[int, ...] = ()
    baseline: int | None = None
    repeats: int = 0
    confirming_s: float = 0.0

    @property
    def own(self) -> tuple[TrialRow, ...]:
        """The search's own trials, without repeats."""
        return tuple(row for row in self.trials if row.again is None)

    @property
    def own_ended(self) -> int:
        """How many of its own trials have ended."""
        return sum(row.ended for row in self.own)

    @property
    def own_total(self) -> int | None:
        """How many trials of its own there will be, as far as that is known."""
        return self.total - self.repeats if self.total is not None else None

    @property
    def reached(self) -> float | None:
        """What the best trial has reached by the first goal: the mean of its repeats, or its own value where none was
        completed.
        """
        best = self.row(self.best)
        if best is None:
            return None
        return best.values[0] if best.mean is None else best.mean

    def count(self, state: TrialState) -> int:
        """How many trials are in that state."""
        return sum(row.state == state for row in self.trials)

    def row(self, number: int | None) -> TrialRow | None:
        """The trial of that number."""
        return next((row for row in self.trials if row.number == number), None)


class DriverFile(_Told, frozen=True, kw_only=True):
    """Who drives a search: a process, and its start time as `engine.runs.folder.process_start` tells it."""

    pid: Annotated[int, Meta(gt=0)]
    start_time: float
