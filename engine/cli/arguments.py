"""Command-line flags for jobs, created from the fields of `Job`."""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.checks.disk import RealDisk
from engine.cli.children import read_remote_snapshot
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import Snapshot, host_of, is_gpu, local_device
from engine.contract.job import AUTO_STRATEGY, FIELDS, load_values
from engine.contract.job_fields import Field, Group, Need
from engine.contract.problems import Problem
from engine.contract.recipes import SETTABLE
from engine.runs.consent import record_consent
from engine.runs.resume import CHANGEABLE

_GROUP_TITLES: dict[Group, str] = {
    "main": "what to train",
    "training": "training",
    "optimizer": "optimizer",
    "schedule": "schedule",
    "checkpoints": "checkpoints",
    "faults": "queue and faults",
    "data": "data",
    "augmentation": "augmentation",
    "precision": "precision",
    "model": "model",
    "parallel": "options of every strategy",
}
RUN = "a run's id, its beginning or its last part, its name, or “last”"
RUN_ANYWHERE = f"{RUN}; HOST:RUN on another machine"
_OTHER_FLAGS = ("--job", "--json", "--detach", "--trust-model-file", "--option")

_PATH_ENDINGS = {"dataset": "", "weights_file": "", "resume_from": "", "model": ".py", "recipe": ".toml"}
"""Fields whose values may be paths, with the extension that identifies a path, or "" if every value is a path."""


def add_train_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``footplate train``."""
    parser.add_argument("--json", action="store_true", help="print the run's event lines instead of progress")
    parser.add_argument("--detach", action="store_true", help="start the run, print its id and return")
    add_field_flags(parser)


def add_resume_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each field that may change when a run resumes. Without a flag, the run keeps its value.

    Flags for all other fields are hidden from the help. They are parsed only to explain why they can't change.
    """
    parser.add_argument("--json", action="store_true", help="print the run's event lines instead of progress")
    parser.add_argument("--detach", action="store_true", help="resume the run, print its id and return")
    parser.set_defaults(job=None)
    _add_trust(parser)
    _add_option(parser)
    _add_flags(parser, CHANGEABLE, show_defaults=False)
    for field in (FIELDS[name] for name in FIELDS.keys() - CHANGEABLE):
        action = argparse.BooleanOptionalAction if field.kind == "bool" else "store"
        parser.add_argument(field.flag, default=None, help=argparse.SUPPRESS, action=action)


def add_search_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for the job settings that all trials in a search share.

    The dataset is a flag here, not a positional argument.
    """
    parser.add_argument("--dataset", metavar="FOLDER", help="the folder that holds the images")
    _add_job(parser)


def add_field_flags(parser: argparse.ArgumentParser) -> None:
    """Add the argument DATASET and a flag for every other field of a job. Values are validated later, all at once."""
    parser.add_argument("dataset", nargs="?", metavar="DATASET", help="the folder that holds the images")
    _add_job(parser)


def _add_job(parser: argparse.ArgumentParser) -> None:
    """Add flags for a job file, consent to a model file, options, and every field of a job but the dataset."""
    parser.add_argument("--job", metavar="FILE", help="a job.toml to start from; flags override its values")
    _add_trust(parser)
    _add_option(parser)
    _add_flags(parser, FIELDS.keys() - {"dataset"}, show_defaults=True)


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust-model-file",
        action="store_true",
        help="allow the model's Python file to run, with its current content only",
    )


def _add_option(parser: argparse.ArgumentParser) -> None:
    known = "".join(f" {field.name} ({title}): {field.help}" for title, field in load_catalogue().options())
    text = "An option declared by the task, model or strategy of a plug-in; repeatable."
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"{text}{known}".replace("%", "%%"),
    )


def _add_flags(parser: argparse.ArgumentParser, names: AbstractSet[str], *, show_defaults: bool) -> None:
    """Add a flag for each field in `names` to the argument group of the field.

    If `show_defaults` is True, the help shows default values.
    """
    groups: dict[str, argparse._ArgumentGroup] = {
        name: parser.add_argument_group(title) for name, title in _GROUP_TITLES.items()
    }
    strategies_by_field = _list_strategies_by_field()
    for field in (field for field in FIELDS.values() if field.name in names):
        key: str = field.group
        if field.name in strategies_by_field:
            key = f"options of {', '.join(strategies_by_field[field.name])}"
            if key not in groups:
                groups[key] = parser.add_argument_group(key)
        _add_flag(groups[key], field, shows_default=show_defaults)


def _list_strategies_by_field() -> dict[str, tuple[str, ...]]:
    """Return the ids of the strategies that use each field. Fields that all strategies use are not included."""
    strategies = load_catalogue().strategies
    names = dict.fromkeys(name for strategy in strategies for name in strategy.fields)
    return {name: tuple(strategy.id for strategy in strategies if name in strategy.fields) for name in names}


def _add_flag(group: argparse._ArgumentGroup, field: Field, *, shows_default: bool) -> None:
    """Add the flag of a job field. Its parsed value is None if the flag is not given.

    If `shows_default` is True, the help shows the default value, except for fields that are true or false.
    """
    text = field.help.replace("%", "%%") + "".join(f" Only with {_format_need_flags(need)}." for need in field.needs)
    if field.kind == "bool":
        group.add_argument(field.flag, default=None, action=argparse.BooleanOptionalAction, help=text)
        return
    if field.name == "devices":
        text = (
            "Comma-separated: cpu (repeated for several workers), CUDA indices, or UUIDs; on another machine "
            "HOST:cpu, HOST:0 or HOST:UUID (see `footplate hosts`)."
        )
    elif field.kind in ("list", "ints"):
        text += " Comma-separated."
    elif field.name == "recipe":
        text = "The recipe for all fields without a flag: a name (see `footplate recipes`) or a file; '' for none."
    elif field.name == "strategy":
        known = [AUTO_STRATEGY, *(strategy.id for strategy in load_catalogue().strategies)]
        text += f" One of {', '.join(known)}."
    value = ",".join(map(str, field.default)) if field.kind in ("list", "ints") else field.default
    has_value = value not in (None, "")
    default_text = f" Default: {value}." if has_value else ""
    if field.name in SETTABLE:
        default_text = f" Default: the recipe's, else {value}." if has_value else " Default: the recipe's."
    elif field.name == "recipe":
        default_text = " Default: the one that fits; none with --job."
    elif field.name == "model":
        default_text = " Default: the task's best one with available pretrained weights."
    elif field.name == "encoder":
        default_text = f" Default: the default model's; {value} with --model."
    if field.choices:
        text += f" One of {', '.join(field.choices)}."
    if shows_default:
        text += default_text
    group.add_argument(field.flag, metavar=field.name.upper(), help=text)


def _format_need_flags(need: Need) -> str:
    """Format the flags that meet `need`, e.g. "--strategy ddp, fsdp". One of them must be set."""
    return " or ".join(f"{FIELDS[name].flag} {', '.join(need.values)}".strip() for name in need.fields)


def read_job_values(options: argparse.Namespace) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of a job from its file and the flags, and the problems found.

    Flags override the job file, or `options.values` if there is no file. Devices are returned as typed. With
    `--trust-model-file`, the user's consent to the content of the model file is recorded.
    """
    values: dict[str, Any] = dict(getattr(options, "values", {}))
    problems = _find_unknown_arguments(options.unknown)
    if options.job is not None:
        values, wrong = load_values(Path(options.job), "--job")
        values.pop("model_file_sha256", None)  # the file may have changed since
        problems += wrong
    for field in FIELDS.values():
        given = getattr(options, field.name, None)
        if given is not None:
            values[field.name] = parse_value(field, given)
    problems += _add_options(values, options.option)
    for name, ending in _PATH_ENDINGS.items():  # make paths absolute
        value = values.get(name)
        if isinstance(value, str) and value and value.endswith(ending):
            values[name] = os.path.abspath(os.path.expanduser(value))
    model = str(values.get("model", ""))
    file = RealDisk().model_file(model) if model.endswith(".py") else None
    if file is not None and file.sha256 is not None:
        if options.trust_model_file and not file.agreed:
            problems += trust_model(model, file.sha256)
        # Code of the user runs only if the user has agreed to its present content.
        if options.trust_model_file or file.agreed:
            values["model_file_sha256"] = file.sha256
    return values, problems


def _add_options(values: dict[str, Any], given: list[str]) -> list[Problem]:
    """Add the options `given` by `--option` flags, each NAME=VALUE, to `values["options"]`. Return the problems."""
    known = {field.name: field for _, field in load_catalogue().options()}
    problems, options = [], {}
    for argument in given:
        name, sign, text = argument.partition("=")
        if sign:
            options[name] = _parse_option_value(known.get(name), text)
        else:
            problems.append(Problem("--option", f"“{name}” has no value.", f"Write --option {name}=VALUE."))
    in_file = values.get("options", {})
    if options and isinstance(in_file, dict):  # the validation reports anything else in the file
        values["options"] = in_file | options
    return problems


def _parse_option_value(field: Field | None, text: str) -> Any:
    """Convert the text of an option's value to the type of its `field`. If the option is unknown, keep the text."""
    if field is not None and field.kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    return text if field is None else parse_value(field, text)


def trust_model(model: str, sha256: str) -> list[Problem]:
    """Record that the user allows the model file with this hash to run.

    Returns a problem if that can't be saved.
    """
    try:
        record_consent(model, sha256)
    except OSError as error:
        message = f"Your consent to run the model file can't be saved: {error}."
        return [Problem("model", message, "Set FOOTPLATE_HOME to a folder that you can write to.")]
    return []


_CUDA = re.compile(r"(?<![^:])cuda:(?=\d+$)")
"""Pattern for the prefix "cuda:" of a CUDA index, as in torch."""


def needs_gpus(values: dict[str, Any]) -> bool:
    """Return True if the devices include a GPU of this machine or a CUDA index, so that devices must be queried."""
    devices = values.get("devices", ())
    if not isinstance(devices, list | tuple):
        return False
    names = [device for device in devices if isinstance(device, str)]
    return any(local_device(name).isdecimal() or (is_gpu(name) and not host_of(name)) for name in names)


def resolve_devices(
    values: dict[str, Any], machine: Snapshot, remote: Callable[[str], Snapshot] = read_remote_snapshot
) -> list[Problem]:
    """Replace CUDA indices in `values["devices"]` by UUIDs, and group the devices by machine. Returns the problems.

    Machines keep the order in which they are first named. `remote` returns the devices of a named machine, or raises
    OSError. Entries that are not texts are kept, since the validation reports them.
    """
    resolved: list[Any] = [device for device in values["devices"] if not isinstance(device, str)]
    typed = [_CUDA.sub("", device) for device in values["devices"] if isinstance(device, str)]
    problems: list[Problem] = []
    for host in dict.fromkeys(map(host_of, typed)):
        on_host = [device for device in typed if host_of(device) == host]
        snapshot = machine
        if host and any(local_device(device).isdecimal() for device in on_host):
            try:
                snapshot = remote(host)
            except OSError as error:
                problems.append(Problem("devices", str(error), f"Run `footplate hosts check {host}`."))
                continue
        resolved += _resolve_on_host(on_host, host, snapshot, problems)
    values["devices"] = resolved
    return problems


def _resolve_on_host(devices: list[str], host: str, machine: Snapshot, problems: list[Problem]) -> Iterator[str]:
    """Yield the devices of one machine, with UUIDs in place of CUDA indices. Add problems with unknown indices."""
    uuids = {str(gpu.cuda_index): gpu.uuid for gpu in machine.gpus if gpu.cuda_index is not None}
    prefix = f"{host}:" if host else ""
    for device in devices:
        index = local_device(device)  # or a UUID, or "cpu"
        if not index.isdecimal():
            yield device
        elif index in uuids:
            yield prefix + uuids[index]
        else:
            known = ", ".join(sorted(uuids))
            remedy = f"Available: {known}." if known else machine.nvml.message or "Use --devices cpu."
            problems.append(Problem("devices", f"CUDA finds no GPU {index} on {host or 'this machine'}.", remedy))


def _find_unknown_arguments(arguments: list[str]) -> list[Problem]:
    """Return a problem for each unknown flag or value. A value after an unknown flag belongs to it and is left out."""
    problems = []
    for previous, argument in pairwise(["", *arguments]):
        is_value_of_previous = previous.startswith("-") and "=" not in previous and not argument.startswith("-")
        if not is_value_of_previous:
            problems.append(_create_unknown_problem(argument))
    return problems


def _create_unknown_problem(flag: str) -> Problem:
    """Return the problem with a flag that doesn't exist, or with a stray word."""
    if not flag.startswith("-"):
        return Problem(flag, f"“{flag}” is an extra argument.", "Give one dataset folder; quote names with spaces.")
    name = flag.split("=", maxsplit=1)[0]
    known = [field.flag for field in FIELDS.values()] + list(_OTHER_FLAGS)
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"Did you mean {near[0]}?" if near else "See `footplate train --help`."
    return Problem(name, f"There is no flag {name}.", remedy)


def split_list(text: str) -> list[str]:
    """Split the comma-separated value of a flag. Spaces around entries and empty entries are dropped."""
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def parse_value(field: Field, given: str | bool) -> Any:
    """Convert the text of a flag to the type of its field.

    Text that can't be converted is returned unchanged, and the validation reports it.
    """
    if isinstance(given, bool) or field.kind in ("text", "choice"):
        return given
    if field.kind == "list":
        return split_list(given)
    if field.kind == "ints":
        return [int(entry) if entry.isdecimal() else entry for entry in split_list(given)]
    if field.optional and not given:
        return None
    try:
        return int(given) if field.kind == "int" else float(given)
    except ValueError:
        return given
