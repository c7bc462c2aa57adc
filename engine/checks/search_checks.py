"""Whether a search over settings can be made: every reason why not, each at its field, with what to do."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, get_args

import msgspec

from engine.checks.disk import Disk
from engine.checks.job_checks import REAL_DISK, problems
from engine.contract.catalogue import Catalogue, did_you_mean
from engine.contract.dataset import DatasetReport
from engine.contract.devices import Snapshot, is_gpu
from engine.contract.job import FIELDS, Field, Job, job_from_values, wrong_value
from engine.contract.options import option_problems
from engine.contract.problems import Problem, errors
from engine.contract.search import (
    FIXED,
    OPTION,
    PARAMETERS,
    SEARCHABLE,
    SECONDS,
    Budget,
    Choices,
    Dimension,
    Goal,
    Pruner,
    Range,
    Sampler,
    Search,
)
from engine.runs.searches import job_with

MOST_COMBINATIONS = 100_000
"""Of a grid."""
USUAL_TRIALS = 20
"""The budget where none is given."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,79}")
_OTHER_GOALS = {SECONDS: "Training time (s)", PARAMETERS: "Parameters"}
_BUDGET = {"trials": "trials", "hours": "hours", "total_epochs": "epochs"}
"""The fields of a `Budget` by what they are called among the values."""
_KEYS = (
    *("name", "space", "goals", *_BUDGET, "sampler", "pruner", "seed", "devices"),
    *("devices_per_trial", "best_epochs", "keep_checkpoints"),
)
_RANGE_KEYS = ("low", "high", "log", "step")


def judge_search(
    values: Mapping[str, Any],
    job: Job,
    catalogue: Catalogue,
    *,
    machine: Snapshot | None = None,
    report: DatasetReport | None = None,
    disk: Disk = REAL_DISK,
) -> tuple[Search | None, list[Problem]]:
    """The search that plain `values` ask for (as they stand in a SPACE.toml, but for the job), and all that is wrong with them; it is
    None if anything is. `job` is what all trials have in common, which is judged by `job_checks.problems`: here only what the space
    makes wrong with it. Other arguments are as there.

    A dimension is a list of values, or a table with low, high, log and step. Problems are told of "space.FIELD" and of the names of the
    values.
    """
    found = [
        Problem(name, f"A search has no “{name}”.", did_you_mean(name, list(_KEYS)))
        for name in values
        if name not in _KEYS
    ]
    name = _name(values, found)
    space = _space(values.get("space"), job, catalogue, found)
    goals = _goals(values.get("goals", ()), job, catalogue, disk, found)
    sampler = _one_of("sampler", values, Sampler, "nsgaii" if len(goals) > 1 else "tpe", found)
    pruner = _one_of("pruner", values, Pruner, "hyperband" if _can_prune(goals) else "none", found)
    found += _pruning(pruner, goals)
    combinations = math.prod(len(grid_values(each, field_of(job, key, catalogue)) or ()) for key, each in space.items())
    if sampler == "grid":
        found += _grid(space, combinations, job, catalogue)
    devices, per_trial = _devices(values, job, machine, found)
    budget = _budget(values, combinations if sampler == "grid" else USUAL_TRIALS, found)
    seed = _number(values, "seed", "seed", 0, found)
    best_epochs = _number(values, "best_epochs", "epochs", None, found)
    keep = values.get("keep_checkpoints", False)
    if not isinstance(keep, bool):
        found.append(Problem("keep_checkpoints", f"{keep!r} is neither true nor false.", "Give true or false."))
    if not found:
        base = msgspec.structs.replace(job, devices=devices[:per_trial])
        found += _impossible(space, base, catalogue, machine=machine, report=report, disk=disk)
    if found:
        return None, found
    return (
        Search(
            name=name,
            job=_judged_by(goals[0], base),
            space=space,
            goals=goals,
            budget=budget,
            sampler=sampler,
            pruner=pruner,
            seed=seed,
            devices=devices,
            devices_per_trial=per_trial,
            best_epochs=best_epochs,
            keep_checkpoints=keep,
        ),
        [],
    )


def field_of(job: Job, name: str, catalogue: Catalogue) -> Field | None:
    """The field that a dimension varies: one of the job's, or an option of its task, model or strategy."""
    if not name.startswith(OPTION):
        return FIELDS.get(name)
    options = catalogue.options_of(job.task, job.model, job.strategy)
    return next((field for field in options if field.name == name.removeprefix(OPTION)), None)


def grid_values(dimension: Dimension, field: Field | None) -> tuple[Any, ...] | None:
    """All values of a dimension; None of a range that has no steps, or more than `MOST_COMBINATIONS`."""
    if isinstance(dimension, Choices):
        return dimension.values
    step = dimension.step or (1 if field is not None and field.kind == "int" and not dimension.log else None)
    if step is None:
        return None
    count = math.floor((dimension.high - dimension.low) / step * (1 + 1e-9)) + 1
    return tuple(dimension.low + step * i for i in range(count)) if count <= MOST_COMBINATIONS else None


def _name(values: Mapping[str, Any], found: list[Problem]) -> str:
    name = values.get("name", "")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = f"{name!r} can't be the name of a search." if name else "The search has no name."
        found.append(Problem("name", message, "Use up to 80 letters, digits, spaces, dots, dashes and underscores."))
    return str(name)


def _space(told: Any, job: Job, catalogue: Catalogue, found: list[Problem]) -> dict[str, Dimension]:
    """The dimensions that are as they should be."""
    if not isinstance(told, Mapping) or not told:
        remedy = "Add a table [space] with a line such as learning_rate = { low = 1e-4, high = 1e-1, log = true }."
        found.append(Problem("space", "The search has nothing to vary.", remedy))
        return {}
    space: dict[str, Dimension] = {}
    for name, what in told.items():
        field = field_of(job, name, catalogue)
        if field is None or name in FIXED:
            found.append(_unknown_field(name, job, catalogue))
            continue
        wrong: list[Problem] = []
        dimension = (
            _range(name, field, what, wrong) if isinstance(what, Mapping) else _choices(name, field, what, wrong)
        )
        found += wrong
        if dimension is not None and not wrong:
            space[name] = dimension
    return space


def _unknown_field(name: str, job: Job, catalogue: Catalogue) -> Problem:
    where = f"space.{name}"
    if name in FIXED:
        message = f"{FIELDS[name].label} can't be searched: trials could not be compared, or would all be the same."
        return Problem(where, message, "Set it in the job.")
    options = [OPTION + field.name for field in catalogue.options_of(job.task, job.model, job.strategy)]
    near = difflib.get_close_matches(name, [*SEARCHABLE, *options], n=1)
    hint = f"Did you mean “{near[0]}”?" if near else "`footplate train --help` lists the fields."
    return Problem(where, f"“{name}” is not a field of this job.", hint)


def _range(name: str, field: Field, told: Mapping[str, Any], found: list[Problem]) -> Range | None:
    where = f"space.{name}"
    if field.kind not in ("int", "float"):
        found.append(Problem(where, f"{field.label} has no range.", f"List its values: {name} = [{_examples(field)}]."))
        return None
    unknown = [key for key in told if key not in _RANGE_KEYS]
    missing = [key for key in ("low", "high") if key not in told]
    if unknown or missing:
        what = f"has no “{missing[0]}”" if missing else f"has an unknown “{unknown[0]}”"
        found.append(
            Problem(where, f"The range of {field.label.lower()} {what}.", "Give low, high, and maybe log or step.")
        )
        return None
    low, high = (_value(where, name, field, told[key], found) for key in ("low", "high"))
    log, step = told.get("log", False), told.get("step")
    if found:
        return None
    if not isinstance(log, bool):
        found.append(Problem(where, f"log = {log!r} is neither true nor false.", "Give true or false."))
    elif low is None or high is None or low >= high:
        found.append(Problem(where, f"The range from {low} to {high} is empty.", "Give a low that is below high."))
    elif log and low <= 0:
        found.append(Problem(where, "A logarithmic range can't begin at 0.", "Give a low above 0, or leave log away."))
    elif step is not None and not _is_step(step, field, low, high):
        found.append(
            Problem(where, f"step = {step!r} does not fit the range.", f"Give a step of at most {high - low:g}.")
        )
    elif log and step is not None and step != 1:
        found.append(Problem(where, "A logarithmic range has no steps.", "Leave out log or step."))
    return None if found else Range(low=low, high=high, log=log, step=step)


def _is_step(step: Any, field: Field, low: float, high: float) -> bool:
    kinds = int if field.kind == "int" else int | float
    return isinstance(step, kinds) and not isinstance(step, bool) and 0 < step <= high - low


def _choices(name: str, field: Field, told: Any, found: list[Problem]) -> Choices | None:
    where = f"space.{name}"
    if not isinstance(told, list | tuple):
        remedy = "Give a list of values, or of numbers a table with low and high."
        found.append(Problem(where, f"{field.label}: {told!r} is neither a list nor a range.", remedy))
        return None
    values = tuple(_value(where, name, field, each, found) for each in told)
    if not found and len(set(map(repr, values))) < max(2, len(values)):
        found.append(Problem(where, f"{field.label} needs at least two different values.", "Or set it in the job."))
    return None if found else Choices(values=values)


def _value(where: str, name: str, field: Field, told: Any, found: list[Problem]) -> Any:
    """A value as the job has it; "none" leaves an optional field empty."""
    told = None if field.optional and told in ("none", "") else told
    if name.startswith(OPTION):
        wrong = [*option_problems({field.name: told}, (field,))]
        value = told
    else:
        job, wrong = job_from_values({name: told})
        value = getattr(job, name) if job is not None else None
    if isinstance(value, float) and not math.isfinite(value):
        wrong = [wrong_value(field, name, value)]
    found += [Problem(where, problem.message, problem.remedy) for problem in wrong]
    return value


def _examples(field: Field) -> str:
    if field.kind == "bool":
        return "false, true"
    return ", ".join(f'"{choice}"' for choice in islice(field.choices, 3)) or "…"


def _goals(told: Any, job: Job, catalogue: Catalogue, disk: Disk, found: list[Problem]) -> tuple[Goal, ...]:
    told = (told,) if isinstance(told, str) else told
    task = catalogue.task(job.task)
    file = disk.model_file(job.model) if task is not None and task.file else None
    measures = [*(file.measures if file is not None else ()), *(task.measures if task is not None else ())]
    known = {
        m.id: Goal(measure=m.id, title=m.title, higher_is_better=m.higher_is_better, percent=m.percent)
        for m in measures
    }
    known |= {name: Goal(measure=name, title=title, higher_is_better=False) for name, title in _OTHER_GOALS.items()}
    if not isinstance(told, list | tuple) or not all(isinstance(name, str) for name in told):
        found.append(Problem("goals", "The goals are a list of names.", f"Choose from {', '.join(known)}."))
        return ()
    names = tuple(told) or ((job.best_by,) if job.best_by in known else tuple(islice(known, 1)))
    for name in names:
        if name not in known:
            message = f"“{name}” is not a metric of this task."
            found.append(Problem("goals", message, did_you_mean(name, list(known))))
    if len(set(names)) < len(names):
        found.append(Problem("goals", "A goal is named twice.", "Name each once."))
    return tuple(known[name] for name in names if name in known)


def _can_prune(goals: tuple[Goal, ...]) -> bool:
    return len(goals) == 1 and goals[0].measure not in _OTHER_GOALS


def _pruning(pruner: str, goals: tuple[Goal, ...]) -> list[Problem]:
    if pruner == "none" or not goals or _can_prune(goals):
        return []
    if len(goals) > 1:
        message = "Trials can't be stopped early with several goals: none of them alone says which are worse."
        return [Problem("pruner", message, "Set the pruner to none, or choose one goal.")]
    message = f"Trials can't be stopped early by {goals[0].title.lower()}: validations do not measure it."
    return [Problem("pruner", message, "Set the pruner to none, or choose a metric as the goal.")]


def _grid(space: Mapping[str, Dimension], combinations: int, job: Job, catalogue: Catalogue) -> list[Problem]:
    found = []
    for name, each in space.items():
        if grid_values(each, field_of(job, name, catalogue)) is None:
            remedy = (
                f"Give it a step, or list its values: {name} = [{each.low:g}, {each.high:g}]."
                if isinstance(each, Range)
                else ""
            )
            found.append(Problem(f"space.{name}", "A grid needs single values, and this range has none.", remedy))
    if combinations > MOST_COMBINATIONS:
        message = f"The grid has {combinations:,} combinations."
        found.append(Problem("sampler", message, f"Use at most {MOST_COMBINATIONS:,}, or the sampler tpe."))
    return found


def _devices(
    values: Mapping[str, Any], job: Job, machine: Snapshot | None, found: list[Problem]
) -> tuple[tuple[str, ...], int]:
    told = values.get("devices", job.devices)
    per_trial = values.get("devices_per_trial", 1)
    if not isinstance(told, list | tuple) or not all(isinstance(device, str) for device in told):
        found.append(Problem("devices", "The devices are a list of names.", "Give GPUs by UUID, or cpu."))
        return (), 1
    devices = tuple(told)
    if not devices:
        found.append(Problem("devices", "No device is chosen.", "Choose at least one GPU or the CPU."))
    gpus = [device for device in devices if is_gpu(device)]
    if len(set(gpus)) < len(gpus):
        message = "A GPU is named twice: two trials never share one."
        found.append(Problem("devices", message, "Name each GPU once."))
    if not isinstance(per_trial, int) or isinstance(per_trial, bool) or per_trial < 1:
        found.append(Problem("devices_per_trial", f"{per_trial!r} is not a number of devices.", "Give 1 or more."))
        return devices, 1
    if devices and len(devices) % per_trial:
        message = f"{len(devices)} devices can't be divided into groups of {per_trial}."
        found.append(Problem("devices_per_trial", message, "Choose another number, or other devices."))
    if machine is not None:
        known = {gpu.uuid: gpu for gpu in machine.gpus}
        missing = [gpu for gpu in gpus[per_trial:] if gpu not in known or known[gpu].lost]
        remedy = machine.nvml.message or "Choose those that `footplate gpus` lists."
        found += [Problem("devices", f"There is no GPU {gpu} on this machine.", remedy) for gpu in missing]
    return devices, per_trial


def _budget(values: Mapping[str, Any], usual_trials: int, found: list[Problem]) -> Budget:
    given = {field: values[name] for name, field in _BUDGET.items() if values.get(name) is not None}
    right: dict[str, Any] = {}
    for name, field in _BUDGET.items():
        if field not in given:
            continue
        try:
            right[field] = getattr(msgspec.convert({field: given[field]}, Budget), field)
        except msgspec.ValidationError:
            found.append(Problem(name, f"{given[field]!r} can't be a number of {field}.", "Give a number above 0."))
    return Budget(**right) if given else Budget(trials=max(1, usual_trials))


def _number(values: Mapping[str, Any], name: str, like: str, usual: Any, found: list[Problem]) -> Any:
    """A value that is judged as the job's field `like`."""
    value = values.get(name)
    if value is None:
        return usual
    _job, wrong = job_from_values({like: value})
    found += [Problem(name, problem.message, problem.remedy) for problem in wrong]
    return value


def _one_of(name: str, values: Mapping[str, Any], kind: Any, usual: str, found: list[Problem]) -> Any:
    value = values.get(name, usual)
    if value not in get_args(kind):
        known = list(get_args(kind))
        found.append(Problem(name, f"There is no {name} “{value}”.", did_you_mean(str(value), known)))
    return value


def _judged_by(goal: Goal, job: Job) -> Job:
    """The job, whose best checkpoint is the best by the goal."""
    return job if job.best_by or goal.measure in _OTHER_GOALS else msgspec.structs.replace(job, best_by=goal.measure)


def _impossible(
    space: Mapping[str, Dimension],
    base: Job,
    catalogue: Catalogue,
    *,
    machine: Snapshot | None,
    report: DatasetReport | None,
    disk: Disk,
) -> list[Problem]:
    """What is wrong with the job where one field has one of its values, and not without it."""
    before = {problem.field for problem in errors(problems(base, catalogue, machine, report, disk))}
    found: dict[tuple[str, str], Problem] = {}
    for name, dimension in space.items():
        values: Iterable[Any] = dimension.values if isinstance(dimension, Choices) else (dimension.low, dimension.high)
        for value in values:
            job, wrong = job_with(base, {name: value})
            wrong = [*wrong, *(errors(problems(job, catalogue, machine, report, disk)) if job is not None else ())]
            for problem in wrong:
                if problem.field not in before:
                    told = Problem(f"space.{name}", f"{value!r}: {problem.message}", problem.remedy)
                    found.setdefault((name, problem.message), told)
    return list(found.values())
