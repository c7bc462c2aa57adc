"""The flags of ``footplate train``, ``resume`` and ``cut``, made from the fields of a job, and the values that "
"they give.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from engine.checks.disk import RealDisk
from engine.cli.children import snapshot_of
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import Snapshot, host_of, is_gpu, there
from engine.contract.job import FIELDS, load_values
from engine.contract.job_fields import Field, Group, Need
from engine.contract.problems import Problem
from engine.contract.recipes import SETTABLE
from engine.runs.consent import agree
from engine.runs.resume import CHANGEABLE

_TITLES: dict[Group, str] = {
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
_OTHER_FLAGS = ("--job", "--json", "--detach", "--trust-model-file", "--option")


def add_train(parser: argparse.ArgumentParser) -> None:
    """Adds DATASET and a flag for every other field; values are judged later, all of them at once."""
    parser.add_argument("--json", action="store_true", help="print the run's event lines instead of progress")
    parser.add_argument("--detach", action="store_true", help="start the run, print its id and return")
    _add_fields(parser)


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each field that a run may go on with changed; left away, the run's job keeps what it has.

    The flags of the other fields are taken, too, so that the user is told why they cannot change.
    """
    parser.add_argument("--json", action="store_true", help="print the run's event lines instead of progress")
    parser.add_argument("--detach", action="store_true", help="resume the run, print its id and return")
    parser.set_defaults(job=None)
    _add_trust(parser)
    _add_option(parser)
    _add_flags(parser, CHANGEABLE, defaults=False)
    for field in (FIELDS[name] for name in FIELDS.keys() - CHANGEABLE):
        action = argparse.BooleanOptionalAction if field.kind == "bool" else "store"
        parser.add_argument(field.flag, default=None, help=argparse.SUPPRESS, action=action)


def add_cut(parser: argparse.ArgumentParser) -> None:
    """The same flags, for showing where a model would be cut."""
    parser.add_argument("--json", action="store_true", help="print the cut and its stages as one JSON object")
    _add_fields(parser)


def add_torchrun(parser: argparse.ArgumentParser) -> None:
    """The same flags, for the lines of PyTorch's own launcher."""
    parser.set_defaults(json=False)
    _add_fields(parser)


def add_finder(parser: argparse.ArgumentParser, json: str) -> None:
    """The same flags, for what is found by trying the job; `json` is the help of `--json`."""
    parser.add_argument("--json", action="store_true", help=json)
    _add_fields(parser)


def add_search(parser: argparse.ArgumentParser) -> None:
    """The same flags, for what all trials of a search have in common; DATASET is a flag here."""
    parser.add_argument("--dataset", metavar="FOLDER", help="the folder that holds the images")
    _add_job(parser)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", nargs="?", metavar="DATASET", help="the folder that holds the images")
    _add_job(parser)


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", metavar="FILE", help="a job.toml to start from; flags override what it says")
    _add_trust(parser)
    _add_option(parser)
    _add_flags(parser, FIELDS.keys() - {"dataset"}, defaults=True)


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust-model-file",
        action="store_true",
        help="allow the model's Python file to run, with its current content only",
    )


def _add_option(parser: argparse.ArgumentParser) -> None:
    known = "".join(f" {field.name} ({title}): {field.help}" for title, field in load_catalogue().options())
    text = "An option declared by the task, model or strategy of a plug-in; may be given several times."
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"{text}{known}".replace("%", "%%"),
    )


def _add_flags(parser: argparse.ArgumentParser, names: AbstractSet[str], *, defaults: bool) -> None:
    """Adds a flag for each of the fields, in their groups; the help shows the job's `defaults`, if wanted."""
    groups: dict[str, argparse._ArgumentGroup] = {
        name: parser.add_argument_group(title) for name, title in _TITLES.items()
    }
    users = _users()
    for field in (field for field in FIELDS.values() if field.name in names):
        if field.name in users:
            title = f"options of {', '.join(users[field.name])}"
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            _add_flag(groups[title], field, default=defaults)
        else:
            _add_flag(groups[field.group], field, default=defaults)


def _users() -> dict[str, tuple[str, ...]]:
    """The strategies that go by each field which not all of them do."""
    strategies = load_catalogue().strategies
    names = dict.fromkeys(name for strategy in strategies for name in strategy.fields)
    return {name: tuple(strategy.id for strategy in strategies if name in strategy.fields) for name in names}


def _add_flag(group: argparse._ArgumentGroup, field: Field, *, default: bool) -> None:
    text = field.help.replace("%", "%%") + "".join(f" Only with {_met(need)}." for need in field.needs)
    if field.kind == "bool":
        group.add_argument(field.flag, default=None, action=argparse.BooleanOptionalAction, help=text)
        return
    if field.name == "devices":
        text = (
            "Comma-separated: cpu (several times for several workers), CUDA indices, or UUIDs; those of another machine as "
            "HOST:cpu, HOST:0 or HOST:UUID (see `footplate hosts`)."
        )
    elif field.kind in ("list", "ints"):
        text += " Comma-separated."
    elif field.name == "recipe":
        text = "The recipe for all fields without a flag: its name (see `footplate recipes`) or its file; '' for none."
    elif field.name == "strategy":
        text += f" One of {', '.join(strategy.id for strategy in load_catalogue().strategies)}."
    value = ",".join(map(str, field.default)) if field.kind in ("list", "ints") else field.default
    default_text = f" Default: {value}." if value not in (None, "") else ""
    if field.name in SETTABLE:
        default_text = f" Default: the recipe's{'' if value in (None, '') else f', else {value}'}."
    elif field.name == "recipe":
        default_text = " Default: the one that fits; none with --job."
    elif field.name == "model":
        default_text = " Default: the task's best one whose pretrained weights can be had."
    elif field.name == "encoder":
        default_text = f" Default: the default model's; {value} with --model."
    choices = f" One of {', '.join(field.choices)}." if field.choices else ""
    group.add_argument(field.flag, metavar=field.name.upper(), help=f"{text}{choices}{default_text if default else ''}")


def _met(need: Need) -> str:
    """The flags that meet it."""
    return " or ".join(f"{FIELDS[name].flag} {', '.join(need.values)}".strip() for name in need.fields)


def gather(options: argparse.Namespace) -> tuple[dict[str, Any], list[Problem]]:
    """The values of the job file, if one is given (else `options.values`, if there are any), and of the flags over
    them; devices are still as typed.
    """
    values: dict[str, Any] = dict(getattr(options, "values", {}))
    problems = _unknown_words(options.unknown)
    if options.job is not None:
        values, unread = load_values(Path(options.job), "--job")
        values.pop("model_file_sha256", None)  # it is of the file as it was
        problems += unread
    for field in FIELDS.values():
        given = getattr(options, field.name, None)
        if given is not None:
            values[field.name] = typed(field, given)
    problems += _add_options(values, options.option)
    for name, ending in (
        ("dataset", ""),
        ("weights_file", ""),
        ("resume_from", ""),
        ("model", ".py"),
        ("recipe", ".toml"),
    ):
        value = values.get(name)
        if isinstance(value, str) and value and value.endswith(ending):
            values[name] = os.path.abspath(os.path.expanduser(value))
    model = str(values.get("model", ""))
    file = RealDisk().model_file(model) if model.endswith(".py") else None
    if file is not None and file.sha256 is not None and (file.agreed or options.trust_model_file):
        problems += [] if file.agreed else trust(model, file.sha256)
        values["model_file_sha256"] = file.sha256
    return values, problems


def _add_options(values: dict[str, Any], given: list[str]) -> list[Problem]:
    """Adds what `--option` says to the options of the job file, and returns what cannot be read of it."""
    known = {field.name: field for _, field in load_catalogue().options()}
    named = [text.partition("=") for text in given]
    added = {name: _option(known.get(name), text) for name, sign, text in named if sign}
    before = values.get("options", {})
    if added and isinstance(before, dict):
        values["options"] = before | added
    return [
        Problem("--option", f"“{name}” has no value.", f"Write --option {name}=VALUE.")
        for name, sign, _ in named
        if not sign
    ]


def _option(field: Field | None, text: str) -> Any:
    if field is not None and field.kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    return text if field is None else typed(field, text)


def trust(model: str, sha256: str) -> list[Problem]:
    """Notes that the user allows the model file to run with the contents of that `sha256`."""
    try:
        agree(model, sha256)
    except OSError as error:
        message = f"Your consent to run the model file can't be saved: {error}."
        return [Problem("model", message, "Set FOOTPLATE_HOME to a folder that you can write to.")]
    return []


_CUDA = re.compile(r"(?<![^:])cuda:(?=\d+$)")
"""What may stand before CUDA's number of a GPU, as torch writes it."""


def needs_gpus(values: dict[str, Any]) -> bool:
    """Whether the devices name a GPU of this machine, or CUDA's number of one elsewhere, so that the machines must be
    asked.
    """
    devices = values.get("devices", ())
    return isinstance(devices, list | tuple) and any(
        not isinstance(device, str) or there(device).isdecimal() or (is_gpu(device) and not host_of(device))
        for device in devices
    )


def resolve_devices(
    values: dict[str, Any], machine: Snapshot, remote: Callable[[str], Snapshot] = snapshot_of
) -> list[Problem]:
    """Replaces CUDA indices among `values["devices"]` by UUIDs, and puts those of a machine together, in the order in
    which the machines are named first. `remote` looks at another machine, and raises OSError where it can't.
    """
    typed = [_CUDA.sub("", device) if isinstance(device, str) else device for device in values["devices"]]
    hosts = list(dict.fromkeys(host_of(device) for device in typed if isinstance(device, str)))
    problems: list[Problem] = []
    resolved: list[Any] = [device for device in typed if not isinstance(device, str)]
    for host in hosts:
        own = [device for device in typed if isinstance(device, str) and host_of(device) == host]
        seen = machine
        if host and any(there(device).isdecimal() for device in own):
            try:
                seen = remote(host)
            except OSError as error:
                problems.append(Problem("devices", str(error), f"Run `footplate hosts check {host}`."))
                continue
        resolved += _resolved(own, host, seen, problems)
    values["devices"] = resolved
    return problems


def _resolved(devices: list[str], host: str, machine: Snapshot, problems: list[Problem]) -> Iterator[str]:
    uuids = {str(gpu.cuda_index): gpu.uuid for gpu in machine.gpus if gpu.cuda_index is not None}
    before = f"{host}:" if host else ""
    for device in devices:
        number = there(device)
        if not number.isdecimal():
            yield device
        elif number in uuids:
            yield before + uuids[number]
        else:
            known = ", ".join(sorted(uuids))
            remedy = f"Available: {known}." if known else machine.nvml.message or "Use --devices cpu."
            where = host or "this machine"
            problems.append(Problem("devices", f"CUDA finds no GPU {number} on {where}.", remedy))


def flag_of(problem: Problem) -> str:
    """How the terminal calls the field that a problem belongs to."""
    if problem.field == "dataset":
        return "DATASET"
    if problem.field.startswith("options."):
        return f"--option {problem.field.removeprefix('options.')}"
    field = FIELDS.get(problem.field)
    return field.flag if field is not None else problem.field


def _unknown_words(words: list[str]) -> list[Problem]:
    """A problem for each unknown flag and stray word; a word after an unknown flag was meant as its value."""
    return [
        _unknown(word)
        for before, word in zip(["", *words], words, strict=False)
        if word.startswith("-") or not before.startswith("-") or "=" in before
    ]


def _unknown(flag: str) -> Problem:
    if not flag.startswith("-"):
        return Problem(flag, f"“{flag}” is an extra argument.", "Give one dataset folder; quote names with spaces.")
    name = flag.split("=", maxsplit=1)[0]
    known = [field.flag for field in FIELDS.values()] + list(_OTHER_FLAGS)
    near = difflib.get_close_matches(name, known, n=1)
    return Problem(
        name, f"There is no flag {name}.", f"Did you mean {near[0]}?" if near else "See `footplate train --help`."
    )


def typed(field: Field, given: str | bool) -> Any:
    """The flag's text as its field's type; what does not fit stays as it is, to be complained about."""
    if isinstance(given, bool) or field.kind in ("text", "choice"):
        return given
    if field.kind in ("list", "ints"):
        parts = [part.strip() for part in given.split(",") if part.strip()]
        return [int(part) if field.kind == "ints" and part.isdecimal() else part for part in parts]
    if field.optional and not given:
        return None
    try:
        return int(given) if field.kind == "int" else float(given)
    except ValueError:
        return given
