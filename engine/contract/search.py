"""Hyperparameter search: request, trials and state.

A search is a folder, `<home>/searches/<name>`:

search.json   request, a `Search`; replaced when the budget, devices, pruning or confirmation change
state.json    state, a `SearchState`; its driver replaces it with every change
driver.json   process that drives the search, a `DriverFile`
driver.log    output of that process

`engine.checks.search_checks` validates a request. `engine.runs.searches` lists and reads searches within a millisecond,
without the driver and Optuna. state.json changes at most a few times per second, so polling its modification time is
enough to follow a search. Each trial is a run with the tag "search NAME". `TrialRow.run_id` leads to its log.

The state is derived from the trial.json (a `Trial`) in the folders of the runs and is restored from them when the
search resumes, so only the runs must survive a crash.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from engine.contract.devices import CPU
from engine.contract.job import FIELDS, Job

SEARCH_FILE, STATE_FILE, DRIVER_FILE, DRIVER_LOG = "search.json", "state.json", "driver.json", "driver.log"
"""Names of the files in the folder of a search."""
DRIVER_LOCK = "driver.lock"
"""Name of the file in this folder that the driver locks while it runs."""
TRIAL_FILE = "trial.json"
"""Name of the file that describes a trial, in the folder of the trial's run."""

OPTION = "options."
"""Prefix that marks a plug-in option, as in "options.NAME", among the fields of a search space."""

FIXED = frozenset(("dataset", "task", "devices", "recipe", "name", "model_file_sha256", "val_fraction", "fold")) | {
    name for name, field in FIELDS.items() if field.group in ("checkpoints", "faults")
}
"""Job fields that a search can't vary.

With another dataset or validation split, results can't be compared. Fields about checkpoints and faults don't change
the result.
"""
SEARCHABLE = tuple(name for name in FIELDS if name not in FIXED)
"""Fields that a search can vary, in the order of the form. Options ("options.NAME") can be varied, too."""

Scalar = bool | int | float | str | None
Value = Scalar | tuple[int | str, ...]
"""Value of a job field in a search."""

Sampler = Literal["tpe", "random", "grid", "nsgaii"]
"""Method that chooses the settings for the next trial.

"tpe" is a tree-structured Parzen estimator (Bergstra et al. 2011). "random" chooses random settings. "grid" tries all
combinations in random order. "nsgaii" is NSGA-II (Deb et al. 2002), for several goals.
"""
Pruner = Literal["hyperband", "halving", "median", "none"]
"""Rule for stopping trials early.

"hyperband" is Hyperband (Li et al. 2018), and "halving" asynchronous successive halving (Li et al. 2020). "median"
stops trials below the median of the other trials at the same epoch. "none" stops no trials.
"""

SECONDS, PARAMETERS = "seconds", "parameters"
"""Goals in addition to the task's metrics, to be minimized.

They are the training time, excluding startup and time in the queue, and the number of model parameters.
"""

CONFIRMED = 3
"""Number of best trials that are repeated with other seeds, in addition to the trial with the unchanged job."""
MAX_REPEATS = 10
"""Largest number of times that a best trial is repeated with another seed."""


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Range(_Struct, tag="range", tag_field="kind", frozen=True, kw_only=True):
    """Range of numbers, `low` to `high` with both ends, that a search tries for a job field.

    If `log` is True, values are sampled uniformly in the logarithm. `step` restricts values to low, low + step, …
    Integer fields get integers.
    """

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None


class Choices(_Struct, tag="choices", tag_field="kind", frozen=True, kw_only=True):
    """Unordered values that a search tries for a job field. None leaves an optional field empty."""

    values: tuple[Value, ...]


Dimension = Range | Choices


class Goal(_Struct, frozen=True, kw_only=True):
    """Objective of a search.

    `measure` is the id of a task metric, `SECONDS` or `PARAMETERS`. The value of a metric for a trial is taken from its
    best validation, as determined by the first goal that is a metric.
    """

    measure: str
    title: str
    higher_is_better: bool
    percent: bool = False


class Budget(_Struct, frozen=True, kw_only=True):
    """Limits of a search. Once one of them is reached, no more trials start. None means no limit.

    `hours` limits the working time of the search, and `epochs` the epochs of all trials together. Running trials are
    completed, and repeats don't count.
    """

    trials: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    hours: Annotated[float, Meta(gt=0, le=10_000)] | None = None
    epochs: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None


class Search(_Struct, frozen=True, kw_only=True):
    """Request for a search.

    Attributes:
        job: Settings that all trials share.
        space: Dimensions by the name of the job field, or "options.NAME".
        devices: Devices that are distributed among trials. len(devices) / devices_per_trial trials run at once. To run
            several trials on the CPU, repeat "cpu".
        confirm: Number of repeats for the best trials and the unchanged job when the budget is used up, each with a
            different seed. Only the mean of the repeats decides which trial is the best, because the best of many
            single results is partly luck.
        seed: Seed of the sampler. A trial's settings depend on its number and on the results known when it was chosen.
        best_epochs: Epochs for the final training with the best settings, or None for those of a trial.
        keep_checkpoints: True to keep the checkpoints of all trials, not only those of the best, the Pareto front and
            candidates for confirmation.
    """

    name: str
    job: Job
    space: dict[str, Dimension]
    goals: tuple[Goal, ...]
    budget: Budget
    sampler: Sampler = "tpe"
    pruner: Pruner = "none"
    confirm: Annotated[int, Meta(ge=0, le=MAX_REPEATS)] = 0
    seed: int = 0
    devices: tuple[str, ...] = (CPU,)
    devices_per_trial: int = 1
    best_epochs: int | None = None
    keep_checkpoints: bool = False


class Trial(_Struct, frozen=True, kw_only=True):
    """Description of a trial, written to the folder of its run before it starts.

    Attributes:
        search: Name of the search.
        number: Number of the trial, from 0.
        params: Varied fields. In a repeat, they include the seed.
        seed: Seed given to the sampler.
        known: Numbers of the trials that had ended when this one was chosen. Together with `in_hand` they determine its
            settings.
        in_hand: Numbers of the trials that were running when this one was chosen.
        pruned: True once the search has decided to stop the trial early.
        attrs: Optuna's system attributes.
        repeat_of: Number of the trial that it repeats with another seed of the job, or None for an original trial.
    """

    search: str
    number: int
    params: dict[str, Any]
    seed: int
    known: tuple[int, ...] = ()
    in_hand: tuple[int, ...] = ()
    pruned: bool = False
    attrs: dict[str, Any] = {}
    repeat_of: int | None = None


TrialState = Literal["waiting", "running", "paused", "interrupted", "completed", "pruned", "stopped", "failed"]
"""State of a trial.

"waiting" means in the queue for its device. "paused" and "interrupted" trials resume when the search resumes. "stopped"
means stopped by the user. The states from "completed" on are final.
"""
ENDED_TRIALS: tuple[TrialState, ...] = ("completed", "pruned", "stopped", "failed")


class TrialRow(_Struct, frozen=True, kw_only=True):
    """Row in the table of trials.

    Attributes:
        values: Best values, in the order of the search's goals. None before the first validation.
        reported: Values of the first goal by epoch.
        epoch: Last validated epoch.
        epochs: Number of planned epochs.
        seconds: Training time.
        cause: Reason for a failure.
        repeat_of: Number of the trial that it repeats with another seed.
        confirmed: Values of the first goal in its completed repeats.
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
    repeat_of: int | None = None
    confirmed: tuple[float, ...] = ()

    @property
    def ended(self) -> bool:
        return self.state in ENDED_TRIALS

    @property
    def title(self) -> str:
        """Title of the trial: "7", or "7, seed 2" for a repeat."""
        return str(self.number) if self.repeat_of is None else f"{self.repeat_of}, seed {self.params.get('seed')}"

    @property
    def mean(self) -> float | None:
        """Mean value of the first goal over the trial's completed repeats, or None if there are none."""
        return sum(self.confirmed) / len(self.confirmed) if self.confirmed else None


Status = Literal["running", "completed", "stopped", "failed", "interrupted"]
"""Status of a search.

- running: its driver is alive.
- completed: its budget is used up.
- stopped: the user stopped it.
- failed: it failed with a `cause`.
- interrupted: its driver has died.

Searches that are not running can resume.
"""


class SearchState(_Struct, frozen=True, kw_only=True):
    """State of a search at `time` (seconds since the epoch).

    Attributes:
        ended: Final status of the search, or "" while its driver works.
        trials: Trials by number, including repeats.
        best: Number of the best completed trial: by its value, or by the mean of its repeats once all of them have
            ended. None for several goals.
        front: Numbers of the trials on the Pareto front. For one goal, the best trial.
        importance: Importance of each field for reaching the better trials by the first goal (PED-ANOVA, Watanabe et
            al. 2023), largest first, with a sum of 1. Empty with fewer than four completed trials.
        worked_s: Working time of the search.
        seconds_left: Estimated remaining time, or None if unknown.
        total: Expected number of trials, if known.
        cause: Sentence that explains why the search failed or waits.
        candidates: Trials to confirm. Empty until the budget is used up.
        baseline: Number of the completed trial with the unchanged job.
        repeats: Number of repeats in `total`. Until the candidates are known, it is the maximum.
        confirming_s: Portion of `worked_s` spent on repeats.
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
    def originals(self) -> tuple[TrialRow, ...]:
        """Trials that do not repeat another trial with another seed."""
        return tuple(row for row in self.trials if row.repeat_of is None)

    @property
    def originals_ended(self) -> int:
        """Number of trials that have ended, without repeats."""
        return sum(row.ended for row in self.originals)

    @property
    def originals_total(self) -> int | None:
        """Expected number of trials that do not repeat another one, or None if it is unknown."""
        return self.total - self.repeats if self.total is not None else None

    @property
    def best_value(self) -> float | None:
        """Result of the best trial for the first goal, or None if no trial is the best yet.

        It is the mean of the trial's repeats or, without repeats, its own value.
        """
        best = self.row(self.best)
        if best is None:
            return None
        return best.values[0] if best.mean is None else best.mean

    def count(self, state: TrialState) -> int:
        return sum(row.state == state for row in self.trials)

    def row(self, number: int | None) -> TrialRow | None:
        return next((row for row in self.trials if row.number == number), None)


class DriverFile(_Struct, frozen=True, kw_only=True):
    """Content of the file that identifies a search's driver process.

    `start_time` is the result of `engine.runs.folder.process_start`, which distinguishes processes with the same pid.
    """

    pid: Annotated[int, Meta(gt=0)]
    start_time: float
