"""Checks of a hyperparameter search."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import msgspec

from engine.checks.job_checks import REAL_DISK, problems
from engine.checks.space_checks import field_of, grid_problems, list_grid_values, parse_space
from engine.contract.catalogue import Catalogue, Measure, suggest_name
from engine.contract.dataset import DatasetReport
from engine.contract.devices import Snapshot, is_gpu
from engine.contract.job import Job, job_from_values
from engine.contract.problems import Problem, errors
from engine.contract.search import (
    CONFIRMED,
    MAX_REPEATS,
    PARAMETERS,
    SECONDS,
    Budget,
    Choices,
    Dimension,
    Goal,
    Pruner,
    Sampler,
    Search,
)
from engine.runs.searches import SearchFolder, job_with, searches_folder
from engine.system.format import size
from engine.system.plugins import install_command

USUAL_TRIALS = 20
"""Number of trials of a search if the user does not set it."""

MIN_FREE_BYTES = 1 << 30
"""Minimum free disk space in bytes for starting another trial of a search."""

_BYTES_PER_PARAMETER = 4 * (1 + 2 * 3)
"""Size of a trial's checkpoints per parameter: best weights, and two states of weights and optimizer, in float32."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,79}")
_OTHER_GOALS = {SECONDS: "Training time", PARAMETERS: "Parameters"}
_BUDGET = {"trials": "trials", "hours": "hours", "total_epochs": "epochs"}
"""Fields of `Budget`, keyed by their names in the user's request."""
_CHANGEABLE = ("budget", "pruner", "confirm", "devices", "devices_per_trial", "best_epochs", "keep_checkpoints")
"""Fields of a search that may change when the search is continued."""
_KEYS = (
    "name", "space", "goals", *_BUDGET, "sampler", "pruner", "confirm", "seed", "devices", "devices_per_trial",
    "best_epochs", "keep_checkpoints",
)  # fmt: skip
"""Names of the values in a user's request for a search."""


def validate_search(
    values: Mapping[str, Any],
    job: Job,
    catalogue: Catalogue,
    *,
    machine: Snapshot | None = None,
    report: DatasetReport | None = None,
) -> tuple[Search | None, list[Problem]]:
    """Validate a request for a search. Returns the search, or None if there are problems, and all problems.

    `values` are plain values as in a SPACE.toml, without the job. A dimension is a list of values, or a table with low,
    high, log and step. The field of a problem is "space.FIELD" for a dimension, otherwise the name of the value. The
    problems that `job_checks.problems` finds in `job` are not repeated. See that function for the other arguments.
    """
    found = _unusable_values(values)
    name = _validate_name(values, found)
    space = parse_space(values.get("space"), job, catalogue, found)
    goals = _validate_goals(values.get("goals", ()), job, catalogue, found)
    sampler = _validate_choice("sampler", values, Sampler, "nsgaii" if len(goals) > 1 else "tpe", found)
    pruner = _validate_choice("pruner", values, Pruner, "hyperband" if _is_one_metric(goals) else "none", found)
    found += _pruner_problems(pruner, goals)
    confirm = _validate_confirmations(values, goals, space, found)
    grid_values = [list_grid_values(dimension, field_of(job, key, catalogue)) for key, dimension in space.items()]
    combinations = math.prod(len(each or ()) for each in grid_values)
    if sampler == "grid":
        found += grid_problems(space, combinations, job, catalogue)
    devices, per_trial = _validate_devices(values, job, machine, found)
    budget = _validate_budget(values, combinations if sampler == "grid" else USUAL_TRIALS, found)
    seed = _validate_number(values, "seed", like="seed", usual=0, found=found)
    best_epochs = _validate_number(values, "best_epochs", like="epochs", usual=None, found=found)
    keep = values.get("keep_checkpoints", False)
    if not isinstance(keep, bool):
        found.append(Problem("keep_checkpoints", f"{keep!r} is neither true nor false.", "Give true or false."))
    if found:  # values can be checked only in a valid search
        return None, found
    base = job.with_fields(devices=devices[:per_trial])
    if found := _value_problems(space, base, catalogue, machine=machine, report=report):
        return None, found
    if not base.checkpoints.best_by and _is_one_metric(goals[:1]):  # the first goal also selects the best checkpoint
        base = base.with_fields(best_by=goals[0].measure)
    search = Search(
        name=name,
        job=base,
        space=space,
        goals=goals,
        budget=budget,
        sampler=sampler,
        pruner=pruner,
        confirm=confirm,
        seed=seed,
        devices=devices,
        devices_per_trial=per_trial,
        best_epochs=best_epochs,
        keep_checkpoints=keep,
    )
    return search, []


def _unusable_values(values: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each unknown name in a request, and a problem if Optuna isn't installed."""
    found = []
    if find_spec("optuna") is None:
        message = "A search needs the package Optuna, which isn't installed."
        found.append(Problem("search", message, f"Run: {install_command('search')}"))
    unknown = [name for name in values if name not in _KEYS]
    return found + [Problem(key, f"A search has no “{key}”.", suggest_name(key, list(_KEYS))) for key in unknown]


def _validate_name(values: Mapping[str, Any], found: list[Problem]) -> str:
    """Return the name of a search. If it is missing or invalid, add a problem to `found`."""
    name = values.get("name", "")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = f"{name!r} can't be the name of a search." if name else "The search has no name."
        found.append(Problem("name", message, "Use up to 80 letters, digits, spaces, dots, dashes and underscores."))
    return str(name)


def _validate_goals(requested: Any, job: Job, catalogue: Catalogue, found: list[Problem]) -> tuple[Goal, ...]:
    """Return the goals of a search, by default the metric that selects the best checkpoint.

    `requested` is the name of a metric, or a list of names. Problems are added to `found`.
    """
    if isinstance(requested, str):
        requested = (requested,)
    task = catalogue.task(job.task)
    measures: list[Measure] = []
    if task is not None and task.file:  # the file declares the metrics; it is parsed, but not executed
        measures += REAL_DISK.model_file(job.model.name).measures
    if task is not None:
        measures += task.metrics
    known = {
        each.id: Goal(measure=each.id, title=each.title, higher_is_better=each.higher_is_better, percent=each.percent)
        for each in measures
    }
    known |= {name: Goal(measure=name, title=title, higher_is_better=False) for name, title in _OTHER_GOALS.items()}
    if not isinstance(requested, list | tuple) or not all(isinstance(name, str) for name in requested):
        found.append(Problem("goals", "The goals must be a list of names.", f"Choose from {', '.join(known)}."))
        return ()
    names = tuple(requested)
    if not names and job.checkpoints.best_by in known:
        names = (job.checkpoints.best_by,)
    elif not names:
        names = tuple(islice(known, 1))  # the task's first metric also selects the best checkpoint
    for name in names:
        if name not in known:
            message = f"“{name}” is not a metric of this task."
            found.append(Problem("goals", message, suggest_name(name, list(known))))
    if len(set(names)) < len(names):
        found.append(Problem("goals", "A goal is listed twice.", "List each goal once."))
    return tuple(known[name] for name in names if name in known)


def _is_one_metric(goals: tuple[Goal, ...]) -> bool:
    """Return True if the only goal is a metric, so that trials can be compared epoch by epoch."""
    return len(goals) == 1 and goals[0].measure not in _OTHER_GOALS


def _pruner_problems(pruner: str, goals: tuple[Goal, ...]) -> list[Problem]:
    """Return a problem if a `pruner` is chosen although trials with these goals can't be stopped early."""
    if pruner == "none" or not goals or _is_one_metric(goals):
        return []
    if len(goals) > 1:
        message = "Trials can't be stopped early with several goals: there is no single order of trials."
        return [Problem("pruner", message, "Set the pruner to none, or choose one goal.")]
    message = f"Trials can't be stopped early by {goals[0].title.lower()}: validations don't measure it."
    return [Problem("pruner", message, "Set the pruner to none, or choose a metric as the goal.")]


def _validate_confirmations(
    values: Mapping[str, Any], goals: tuple[Goal, ...], space: Mapping[str, Dimension], found: list[Problem]
) -> Any:
    """Return how many times each of the best trials is repeated with other seeds to confirm it.

    By default, this is 1 if confirmation is possible, otherwise 0. Problems are added to `found`.
    """
    can_confirm = _is_one_metric(goals) and "seed" not in space
    confirm = values.get("confirm", int(can_confirm))
    if not isinstance(confirm, int) or isinstance(confirm, bool) or not 0 <= confirm <= MAX_REPEATS:
        limits = f"from 0 to {MAX_REPEATS}"
        found.append(Problem("confirm", f"{confirm!r} is not a number {limits}.", f"Give a whole number {limits}."))
        return 0
    found += _confirm_problems(confirm, goals, space)
    return confirm


def _confirm_problems(confirm: int, goals: tuple[Goal, ...], space: Mapping[str, Dimension]) -> list[Problem]:
    """Return the problem, if any, with repeating each of the best trials `confirm` times with other seeds."""
    if not confirm or not goals:
        return []
    if len(goals) > 1:
        message = "The best can't be confirmed with several goals: there is no single best trial."
        return [Problem("confirm", message, "Set it to 0, or choose one goal.")]
    if not _is_one_metric(goals):
        message = f"The best can't be confirmed by {goals[0].title.lower()}: it doesn't depend on the seed."
        return [Problem("confirm", message, "Set it to 0, or choose a metric as the goal.")]
    if "seed" in space:
        message = "The best can't be confirmed with other seeds, because the search varies the seed."
        return [Problem("confirm", message, "Set it to 0, or remove the seed from the space.")]
    return []


def _validate_devices(
    values: Mapping[str, Any], job: Job, machine: Snapshot | None, found: list[Problem]
) -> tuple[tuple[str, ...], int]:
    """Return the devices of a search, by default the job's, and the number of devices for each trial, by default 1.

    Problems are added to `found`.
    """
    requested = values.get("devices", job.parallel.devices)
    per_trial = values.get("devices_per_trial", 1)
    if not isinstance(requested, list | tuple) or not all(isinstance(device, str) for device in requested):
        found.append(Problem("devices", "The devices must be a list of names.", "Give GPUs by UUID, or cpu."))
        return (), 1
    devices = tuple(requested)
    if not devices:
        found.append(Problem("devices", "No device is chosen.", "Choose at least one GPU or the CPU."))
    gpus = [device for device in devices if is_gpu(device)]
    if len(set(gpus)) < len(gpus):
        message = "A GPU is listed twice: trials can't share one."
        found.append(Problem("devices", message, "List each GPU once."))
    if not isinstance(per_trial, int) or isinstance(per_trial, bool) or per_trial < 1:
        found.append(Problem("devices_per_trial", f"{per_trial!r} is not a number of devices.", "Give 1 or more."))
        return devices, 1
    if devices and len(devices) % per_trial:
        message = f"{len(devices)} devices can't be divided into groups of {per_trial}."
        found.append(Problem("devices_per_trial", message, "Choose another number, or other devices."))
    if machine is not None:
        known = {gpu.uuid: gpu for gpu in machine.gpus}
        # The devices of the first trial are checked with the job.
        missing = [gpu for gpu in gpus[per_trial:] if gpu not in known or known[gpu].lost]
        remedy = machine.nvml.message or "Choose those that `footplate gpus` lists."
        found += [Problem("devices", f"There is no GPU {gpu} on this machine.", remedy) for gpu in missing]
    return devices, per_trial


def _validate_budget(values: Mapping[str, Any], usual_trials: int, found: list[Problem]) -> Budget:
    """Return the budget that a search request sets, by default `usual_trials` trials. Problems are added to `found`."""
    given = {name: values[name] for name in _BUDGET if values.get(name) is not None}
    limits: dict[str, Any] = {}
    for name, value in given.items():
        field = _BUDGET[name]
        try:  # converts a single field, since other fields may be invalid, too
            limits[field] = getattr(msgspec.convert({field: value}, Budget), field)
        except msgspec.ValidationError:
            found.append(Problem(name, f"{value!r} can't be a number of {field}.", "Give a number above 0."))
    return Budget(**limits) if given else Budget(trials=max(1, usual_trials))


def _validate_number(values: Mapping[str, Any], name: str, like: str, usual: Any, found: list[Problem]) -> Any:
    """Return the value `name` of a search request, or `usual` if it is not given.

    The value is validated like the job field `like`, and problems are added to `found`.
    """
    value = values.get(name)
    if value is None:
        return usual
    _job, wrong = job_from_values({like: value})
    found += [Problem(name, problem.message, problem.remedy) for problem in wrong]
    return value


def _validate_choice(name: str, values: Mapping[str, Any], kind: Any, usual: str, found: list[Problem]) -> Any:
    """Return the value `name` of a search request, or `usual` if it is not given.

    If it is not one of the values of the Literal `kind`, add a problem to `found`.
    """
    value = values.get(name, usual)
    if value not in get_args(kind):
        known = list(get_args(kind))
        found.append(Problem(name, f"There is no {name} “{value}”.", suggest_name(str(value), known)))
    return value


def _value_problems(
    space: Mapping[str, Dimension],
    base: Job,
    catalogue: Catalogue,
    *,
    machine: Snapshot | None,
    report: DatasetReport | None,
) -> list[Problem]:
    """Return the problems that occur when single values of the search space are put into the job `base`.

    Of a range, only the ends are tried. Problems with fields that already have a problem in `base` are left out.
    """
    fields_before = {problem.field for problem in errors(problems(base, catalogue, machine, report))}
    first_problems: dict[tuple[str, str], Problem] = {}  # by field and message, each for the first value that has it
    for name, dimension in space.items():
        values: Iterable[Any] = dimension.values if isinstance(dimension, Choices) else (dimension.low, dimension.high)
        for value in values:
            job, wrong = job_with(base, {name: value})
            if job is not None:
                wrong = [*wrong, *errors(problems(job, catalogue, machine, report))]
            for problem in wrong:
                if problem.field not in fields_before:
                    problem_of_value = Problem(f"space.{name}", f"{value!r}: {problem.message}", problem.remedy)
                    first_problems.setdefault((name, problem.message), problem_of_value)
    return list(first_problems.values())


def room_problems(search: Search, catalogue: Catalogue, folder: Path) -> list[Problem]:
    """Return a problem if there is too little disk space for the trials' checkpoints in `folder`, which need not exist.

    A trial stores its best weights and its last two states, with an optimizer state of at most twice the size of the
    weights. The checkpoints of trials that await confirmation are kept until the best trial is known. Models of unknown
    size are ignored.
    """
    varied_model = search.space.get("model")
    names = varied_model.values if isinstance(varied_model, Choices) else (search.job.model.name,)
    models = [catalogue.model(str(name)) for name in names]
    largest = max((model.parameters for model in models if model is not None), default=0)
    running, trials = len(search.devices) // search.devices_per_trial, search.budget.trials
    # Number of ended trials whose checkpoints are retained: the best ones, and the baseline until it is confirmed.
    retained = CONFIRMED + 1 if search.confirm else 1
    if trials is not None:
        retained = trials if search.keep_checkpoints else min(retained, trials)
    needed = largest * _BYTES_PER_PARAMETER * (running + retained) + MIN_FREE_BYTES
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    if free >= needed:
        return []
    message = f"The trials need about {size(needed)} on the disk of {existing}, which has {size(free)} free."
    keep = ", keep fewer checkpoints" if search.keep_checkpoints else ""
    return [Problem("disk", message, f"Free some space{keep}, or set FOOTPLATE_HOME to a folder on another disk.")]


def name_problems(search: Search) -> list[Problem]:
    """Return a problem if a search with this name exists and differs too much to be continued."""
    existing = SearchFolder(searches_folder() / search.name).search()
    if existing is None:
        return []
    # The existing search with all changes that are allowed, among them the devices of the job.
    allowed_changes = {name: getattr(search, name) for name in _CHANGEABLE}
    job = existing.job.with_fields(devices=search.job.parallel.devices)
    existing = msgspec.structs.replace(existing, job=job, **allowed_changes)
    changed = [name for name in Search.__struct_fields__ if getattr(existing, name) != getattr(search, name)]
    if not changed:
        return []
    message = f"There is already a search “{search.name}” with another {changed[0]}."
    return [Problem("name", message, "Choose another name, or continue that search unchanged.")]
