"""``footplate search``: train a job with different settings, as described by a SPACE.toml and flags."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import Any, get_args

import msgspec

from engine.checks.search_checks import name_problems, room_problems, validate_search
from engine.cli import arguments, children, search_views, train, watching
from engine.cli.terminal import (
    BAD_REQUEST,
    COMPLETED,
    FAILED,
    INTERRUPTED,
    StatusLine,
    print_error,
    print_lines,
    report,
    report_unwritable,
)
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import Snapshot
from engine.contract.job import FIELDS, Job, load_values, read_toml, values_from_table
from engine.contract.problems import Problem, errors
from engine.contract.search import OPTION, Pruner, Sampler, Search
from engine.runs.searches import (
    SearchFolder,
    create_search,
    list_searches,
    searches_folder,
    start_driver,
    stop_driver,
    train_best,
)

_POLL_S = 0.2
_EXIT_CODES = {"completed": COMPLETED, "failed": FAILED, "stopped": INTERRUPTED, "interrupted": INTERRUPTED}


def add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "space", nargs="?", metavar="SPACE.toml|NAME", help="the search space, or the name of a search to show"
    )
    parser.add_argument("--list", action="store_true", help="list all searches, with their progress")
    parser.add_argument("--continue", dest="resumes", action="store_true", help="continue the search of that name")
    parser.add_argument("--stop", action="store_true", help="stop the search of that name; its trials are paused")
    parser.add_argument(
        "--train-best",
        nargs="?",
        type=int,
        const=-1,
        metavar="NUMBER",
        help="train the best settings, or those of a trial, in full",
    )
    parser.add_argument("--detach", action="store_true", help="start the search, print its name and return")
    parser.add_argument("--json", action="store_true", help="print JSON objects instead of text")
    add_request(parser)
    parser.set_defaults(command=search)


def search(options: argparse.Namespace) -> int:
    """Start a hyperparameter search, list all searches, or act on an existing one. Returns an exit code."""
    if options.list:
        return _list(json=options.json)
    is_name = options.space and not options.space.endswith(".toml")
    if is_name and not options.vary:
        return _execute_action(options)
    requested, found = build_search(options)
    if options.detach and options.train_best is not None:
        remedy = f"Leave one out, or run it later: footplate search {quote(requested.name if requested else 'NAME')} --train-best"
        found.append(Problem("--train-best", "A detached search can't train its best trial.", remedy))
    report(found)
    if requested is None or errors(found):
        return BAD_REQUEST
    with report_unwritable():
        folder = create_search(requested)
        start_driver(folder)
    return _follow_or_detach(folder, requested, options)


def _execute_action(options: argparse.Namespace) -> int:
    """Show, stop or continue an existing search, or train its best settings, as requested. Returns an exit code."""
    folder = SearchFolder(searches_folder() / Path(options.space).name)
    requested = folder.search()
    if requested is None:
        known = ", ".join(each.name for each in list_searches()[:5])
        hint = f"There are {known}." if known else "There are no searches."
        return print_error(f"there is no search “{options.space}”. {hint}")
    if options.stop:
        return _stop(folder)
    if options.resumes:
        return _continue(folder, requested, options)
    if options.train_best is not None:
        return _train_best(folder, requested, options)
    state = folder.state()
    if options.json:
        print_lines(msgspec.json.encode(state).decode())
    else:
        print_lines(*search_views.format_search(requested, state, folder.status()))
    return COMPLETED


def _continue(folder: SearchFolder, requested: Search, options: argparse.Namespace) -> int:
    """Continue a search that has ended, unless the disk is too full. Returns an exit code."""
    found = room_problems(requested, load_catalogue(), folder.path)
    if found:
        return report(found)
    with report_unwritable():
        start_driver(folder)
    return _follow_or_detach(folder, requested, options)


def _follow_or_detach(folder: SearchFolder, requested: Search, options: argparse.Namespace) -> int:
    """Follow a started search to its end, or only print its name with `--detach`. Returns an exit code."""
    if options.detach:
        print_lines(folder.name)
        return COMPLETED
    code = _follow(folder, requested, json=options.json)
    if code == COMPLETED and options.train_best is not None:
        return _train_best(folder, requested, options)
    return code


def _follow(folder: SearchFolder, requested: Search, *, json: bool) -> int:
    """Print each finished trial until the search ends, and then the search. Returns an exit code.

    The first Ctrl+C stops the search, and the second one detaches from it.
    """
    interrupt_count = 0

    def handler(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupt_count
        interrupt_count += 1

    previous = signal.signal(signal.SIGINT, handler)
    line = StatusLine(sys.stderr)
    is_stopping = False
    printed = {row.number for row in folder.state().trials if row.ended}
    try:
        while True:
            status, state = folder.status(), folder.state()
            for row in state.trials:
                if row.ended and row.number not in printed:
                    printed.add(row.number)
                    line.clear()
                    print_lines(
                        msgspec.json.encode(row).decode() if json else search_views.format_trial(requested, row)
                    )
            if status != "running":
                line.clear()
                if json:
                    print_lines(msgspec.json.encode(state).decode())
                else:
                    print_lines(*search_views.format_search(requested, state, status))
                return _EXIT_CODES[status]
            line.show(search_views.format_progress(requested, state))
            # Two interrupts between two polls detach, too, without stopping the search.
            if interrupt_count > 1:
                line.clear()
                print_lines(
                    f"The search continues in the background: footplate search {quote(folder.name)}", to=sys.stderr
                )
                return INTERRUPTED
            if interrupt_count and not is_stopping:
                is_stopping = True
                stop_driver(folder)
                print_lines("Pausing the trials. Press Ctrl+C again to detach from the search.", to=sys.stderr)
            time.sleep(_POLL_S)
    finally:
        signal.signal(signal.SIGINT, previous)


def _stop(folder: SearchFolder) -> int:
    """Stop a search, and wait until its driver has exited. Returns an exit code."""
    if not stop_driver(folder):
        print_lines(f"“{folder.name}” is not running; it is {folder.status()}.")
        return COMPLETED
    while folder.driver() is not None:
        time.sleep(_POLL_S)
    print_lines(
        f"“{folder.name}” is {folder.status()}. To continue it: footplate search {quote(folder.name)} --continue"
    )
    return COMPLETED


def _train_best(folder: SearchFolder, requested: Search, options: argparse.Namespace) -> int:
    """Train the best settings of a search, or those of the requested trial, as a new run. Returns an exit code."""
    state = folder.state()
    number = state.best if options.train_best < 0 else options.train_best  # -1 if the flag has no number
    row = state.row(number)
    if row is None:
        front = ", ".join(map(str, state.front))
        hint = f"Choose one: --train-best NUMBER, of {front}." if front else "Let a trial complete first."
        return print_error(f"--train-best: the search has no single best trial. {hint}")
    with report_unwritable():
        run = train_best(requested, row)
    if options.detach:
        print_lines(run.run_id)
        return COMPLETED
    print_lines(f"Training the settings of trial {row.title} in full: run {run.run_id}", to=sys.stderr)
    return watching.follow(run, json=options.json, stop_on_interrupt=True)


def _list(*, json: bool) -> int:
    """Print all searches as a table or as lines of JSON. Returns an exit code."""
    readable = [(folder, requested) for folder in list_searches() if (requested := folder.search()) is not None]
    if json:
        for folder, _ in readable:
            row = {"name": folder.name, "status": folder.status(), "state": folder.state()}
            print_lines(msgspec.json.encode(row).decode())
    elif readable:
        rows = [(requested, folder.state(), folder.status()) for folder, requested in readable]
        print_lines(*search_views.format_search_table(rows))
    else:
        print_lines("There are no searches. Start one with `footplate search SPACE.toml`.")
    return COMPLETED


_FLAGS = {
    "goals": (
        "--goal",
        str,
        "METRIC",
        "what to improve: a metric of the task, seconds or parameters; repeatable",
    ),
    "trials": ("--trials", int, "N", "the number of trials (default: 20)"),
    "hours": ("--hours", float, "H", "start no trial after H hours"),
    "total_epochs": ("--total-epochs", int, "N", "start no trial after N epochs in total"),
    "sampler": ("--sampler", str, "NAME", f"how to choose settings: {', '.join(get_args(Sampler))}"),
    "pruner": ("--pruner", str, "NAME", f"how to stop trials early: {', '.join(get_args(Pruner))}"),
    "confirm": (
        "--confirm",
        int,
        "N",
        "train the best trials N times with other seeds, and compare the means (default: 1)",
    ),
    "search_seed": ("--search-seed", int, "N", "the seed of the sampler (default: 0)"),
    "devices_per_trial": ("--devices-per-trial", int, "N", "number of devices per trial (default: 1)"),
    "best_epochs": ("--best-epochs", int, "N", "number of epochs of --train-best (default: as in a trial)"),
}
"""Flag, type, metavar and help text for each setting of a search."""
_RENAMED = {"search_seed": "seed", "keep_all": "keep_checkpoints"}
"""Names in `Search` of settings whose flags have another name, since the job has fields with the same names."""


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a search, and of the job that all its trials share."""
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
        help="keep the checkpoints of all trials, not only the best",
    )
    arguments.add_search_flags(parser)


def build_search(options: argparse.Namespace) -> tuple[Search | None, list[Problem]]:
    """Build the search that the SPACE.toml and the flags describe.

    Returns the search, or None if it is invalid, and all problems with it. `options` is changed: the name of the search
    is removed from it, and its devices become those of one trial.
    """
    values, found = _read_space_file(options) if options.space else ({}, [])
    if found:
        return None, found
    _apply_flags(values, options, found)
    devices = _choose_devices(values, options)
    # The job is validated with the devices of one trial.
    per_trial = values.get("devices_per_trial", 1)
    per_trial = max(1, per_trial) if isinstance(per_trial, int) else 1
    options.devices = ",".join(map(str, devices[:per_trial])) if devices else None
    job, wrong = train.validate(options)
    machine: Snapshot | None = None
    if arguments.needs_gpus({"devices": devices}):
        try:
            machine = children.read_snapshot()
            resolved = {"devices": devices}
            wrong += [problem for problem in arguments.resolve_devices(resolved, machine) if problem not in wrong]
            devices = resolved["devices"]
        except children.ChildFailed:
            pass  # reported with the job's devices
    if devices is not None:
        values["devices"] = devices
    catalogue = load_catalogue()
    search, search_problems = validate_search(values, job or Job(), catalogue, machine=machine)
    if job is None:  # the metrics are unknown without a job
        search_problems = [problem for problem in search_problems if problem.field != "goals"]
    found += [*wrong, *search_problems]
    if search is None or job is None or errors(found):
        return None, found
    found += name_problems(search) + room_problems(search, catalogue, searches_folder())
    return search, found


def _read_space_file(options: argparse.Namespace) -> tuple[dict[str, Any], list[Problem]]:
    """Read the SPACE.toml, and return its values and the problems with it.

    The job in the file is stored in `options.values`, or its path in `options.job`, so that flags can override it.
    """
    path = Path(options.space).expanduser()
    values, problem = read_toml(path, "search")
    if problem is not None:
        return {}, [problem]
    values.setdefault("name", path.stem)
    job = values.pop("job", None)
    if isinstance(job, dict):
        options.values, problems = values_from_table(job)
        dataset = options.values.get("dataset")
        if isinstance(dataset, str) and dataset:  # relative to the file
            options.values["dataset"] = str(path.parent.absolute() / Path(dataset).expanduser())
        return values, problems
    if isinstance(job, str):
        options.job = options.job or str(path.parent / Path(job).expanduser())
    elif job is not None:
        return values, [Problem("job", "The job is neither a table nor a path.", 'Write [job], or job = "job.toml".')]
    return values, []


def _apply_flags(values: dict[str, Any], options: argparse.Namespace, found: list[Problem]) -> None:
    """Override values of the SPACE.toml with those of the flags. Problems are appended to `found`.

    `options.name`, the name of the search, is set to None, so that it doesn't become the name of the trials' job.
    """
    for name in (*_FLAGS, "keep_all"):
        given = getattr(options, name)
        if given is not None:
            values[_RENAMED.get(name, name)] = given
    values["name"] = options.name or values.get("name", "")
    options.name = None
    space = values.get("space", {})
    for text in options.vary:
        name, _, choices = text.partition("=")
        if not name.startswith(OPTION):
            name = name.replace("-", "_")  # as in flags
        if choices and isinstance(space, dict):
            space[name] = _parse_dimension(name, choices)
        else:
            found.append(Problem("--vary", f"“{text}” has no values.", "Write --vary FIELD=LOW..HIGH or FIELD=A,B,C."))
    values["space"] = space


def _parse_dimension(name: str, text: str) -> Any:
    """Parse the values of a field to search, in the notation of `--vary`, e.g. "1e-4..1e-1,log" or "sgd,adamw".

    Invalid text is returned unchanged, and the validation reports it.
    """
    field = FIELDS.get(name)
    first, *settings = text.split(",")
    low, dots, high = first.partition("..")
    if dots:  # a range, possibly with `log` or `step=…`
        dimension: dict[str, Any] = {"low": _parse_number(low), "high": _parse_number(high)}
        for setting in settings:
            key, sign, value = setting.partition("=")
            dimension[key.strip()] = _parse_number(value) if sign else True
        return dimension
    items = [item.strip() for item in text.split(",")]
    if field is not None and field.kind == "bool":
        return [{"true": True, "false": False}.get(item.lower(), item) for item in items]
    if field is None:
        return [_parse_number(item) for item in items]
    return [item if item == "none" else arguments.parse_value(field, item) for item in items]


def _parse_number(text: str) -> Any:
    """Convert text to a float, or to an int if it has no decimal point, as in "8" or "1e3".

    Other text is returned unchanged.
    """
    with suppress(ValueError):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return text
    is_int = value.is_integer() and "." not in text
    return int(value) if is_int else value


def _choose_devices(values: dict[str, Any], options: argparse.Namespace) -> Any:
    """Return the devices that all trials share, from the flag, or else the SPACE.toml, or else the job.

    `values` are those of the SPACE.toml. The values of the job are those of its file or, without a file, of
    `options.values`, if it is set (see `read_job_values`). Returns None if none of these names devices. A value that is not a list is returned as it is, and the validation
    reports it.
    """
    if options.devices is not None:
        return arguments.split_list(options.devices)
    job_values = getattr(options, "values", {})
    if options.job is not None:
        # The validation of the job reports these problems.
        job_values, _problems = load_values(Path(options.job), "job")
    devices = values.get("devices", job_values.get("devices"))
    return [str(device) for device in devices] if isinstance(devices, list) else devices
