"""What ``footplate search`` is asked: a SPACE.toml, and flags over it."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, get_args

from engine.checks.search_checks import judge_search, name_problems, room_problems
from engine.cli import arguments, children, train
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import Snapshot
from engine.contract.job import FIELDS, Job, load_values, read_toml, values_from_table
from engine.contract.problems import Problem, errors
from engine.contract.search import OPTION, Pruner, Sampler, Search
from engine.runs.searches import searches_folder

_FLAGS = {
    "goals": (
        "--goal",
        str,
        "METRIC",
        "what to improve: a metric of the task, seconds or parameters; may be given several times",
    ),
    "trials": ("--trials", int, "N", "the number of trials (default: 20)"),
    "hours": ("--hours", float, "H", "start no trial after so many hours"),
    "total_epochs": ("--total-epochs", int, "N", "start no trial after so many epochs of all trials together"),
    "sampler": ("--sampler", str, "NAME", f"how settings are chosen: {', '.join(get_args(Sampler))}"),
    "pruner": ("--pruner", str, "NAME", f"which trials are stopped early: {', '.join(get_args(Pruner))}"),
    "confirm": (
        "--confirm",
        int,
        "N",
        "how often the best trials are trained again with other seeds, whose mean decides (default: 1)",
    ),
    "search_seed": ("--search-seed", int, "N", "the seed of the sampler (default: 0)"),
    "devices_per_trial": ("--devices-per-trial", int, "N", "how many of the devices each trial uses (default: 1)"),
    "best_epochs": ("--best-epochs", int, "N", "how long --train-best trains (default: as long as a trial)"),
}
"""The flags by the names of their values: what they are called, take and mean."""
_RENAMED = {"search_seed": "seed", "keep_all": "keep_checkpoints"}
"""Those that the job has fields of the same name for."""


def add_request(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a search, and of the job that all its trials have in common."""
    group = parser.add_argument_group("search")
    group.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="FIELD=VALUES",
        help="a field to vary: learning_rate=1e-4..1e-1,log or batch_size=8..64,step=8 or optimizer=sgd,adamw",
    )
    for name, (flag, kind, metavar, text) in _FLAGS.items():
        action = "append" if name == "goals" else "store"
        group.add_argument(flag, dest=name, type=kind, metavar=metavar, help=text, action=action)
    group.add_argument(
        "--keep-all",
        dest="keep_all",
        action="store_true",
        default=None,
        help="keep the checkpoints of all trials, not only of the best",
    )
    arguments.add_search(parser)


def request(options: argparse.Namespace) -> tuple[Search | None, list[Problem]]:
    """The search that is asked for, and all that is wrong with it."""
    values, found = _file(options) if options.space else ({}, [])
    if found:
        return None, found
    _take_flags(values, options, found)
    devices = _devices(values, options)
    first = max(1, values["devices_per_trial"]) if isinstance(values.get("devices_per_trial"), int) else 1
    options.devices = ",".join(map(str, devices[:first])) if devices else None
    job, wrong = train.judge(options)
    machine: Snapshot | None = None
    if arguments.needs_gpus({"devices": devices}):
        try:
            machine = children.snapshot()
            resolved = {"devices": devices}
            wrong += [problem for problem in arguments.resolve_devices(resolved, machine) if problem not in wrong]
            devices = resolved["devices"]
        except children.ChildFailed:
            pass  # the job's own devices have told of it
    if devices is not None:
        values["devices"] = devices
    catalogue = load_catalogue()
    search, of_search = judge_search(values, job or Job(), catalogue, machine=machine)
    if job is None:  # without the job nobody knows its metrics
        of_search = [problem for problem in of_search if problem.field != "goals"]
    found += [*wrong, *of_search]
    if search is None or job is None or errors(found):
        return None, found
    found += name_problems(search) + room_problems(search, catalogue, searches_folder())
    return search, found


def _file(options: argparse.Namespace) -> tuple[dict[str, Any], list[Problem]]:
    """The values of the SPACE.toml; its job is put among the `options`, under the flags."""
    path = Path(options.space).expanduser()
    values, problem = read_toml(path, "search")
    if problem is not None:
        return {}, [problem]
    values.setdefault("name", path.stem)
    job = values.pop("job", None)
    if isinstance(job, dict):
        options.values, problems = values_from_table(job)
        dataset = options.values.get("dataset")
        if isinstance(dataset, str) and dataset:
            options.values["dataset"] = str(path.parent.absolute() / Path(dataset).expanduser())
        return values, problems
    if isinstance(job, str):
        options.job = options.job or str(path.parent / Path(job).expanduser())
    elif job is not None:
        return values, [Problem("job", "The job is neither a table nor a path.", 'Write [job], or job = "job.toml".')]
    return values, []


def _take_flags(values: dict[str, Any], options: argparse.Namespace, found: list[Problem]) -> None:
    """Puts the flags over the values of the file."""
    for name in (*_FLAGS, "keep_all"):
        given = getattr(options, name)
        if given is not None:
            values[_RENAMED.get(name, name)] = given
    values["name"] = options.name or values.get("name", "")
    options.name = None  # trials have names of their own
    space = values.get("space", {})
    for text in options.vary:
        name, sign, told = text.partition("=")
        name = name.replace("-", "_") if not name.startswith(OPTION) else name
        if sign and told and isinstance(space, dict):
            space[name] = _varied(name, told)
        else:
            found.append(Problem("--vary", f"“{text}” has no values.", "Write --vary FIELD=LOW..HIGH or FIELD=A,B,C."))
    values["space"] = space


def _varied(name: str, told: str) -> Any:
    """A dimension as a flag has it; what can't be understood stays text, to be complained about."""
    field = FIELDS.get(name)
    first, *rest = told.split(",")
    low, dots, high = first.partition("..")
    if dots:
        dimension: dict[str, Any] = {"low": _number(low), "high": _number(high)}
        for each in rest:
            key, sign, value = each.partition("=")
            dimension[key.strip()] = _number(value) if sign else True
        return dimension
    parts = [part.strip() for part in told.split(",")]
    if field is not None and field.kind == "bool":
        return [{"true": True, "false": False}.get(part.lower(), part) for part in parts]
    if field is None:
        return [_number(part) for part in parts]
    return [part if part == "none" else arguments.typed(field, part) for part in parts]


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return text
        return int(value) if math.isfinite(value) and value.is_integer() and "." not in text else value


def _devices(values: dict[str, Any], options: argparse.Namespace) -> Any:
    """The devices as they are given, for all trials together: by the flag, the SPACE.toml, or the job."""
    if options.devices is not None:
        return [part.strip() for part in options.devices.split(",") if part.strip()]
    job = getattr(options, "values", {})
    if options.job is not None:
        job = load_values(Path(options.job), "job")[0]
    told = values.get("devices", job.get("devices"))
    return [str(device) for device in told] if isinstance(told, list) else told
