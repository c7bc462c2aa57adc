"""``footplate hosts``: the machines that Monitor watches and that runs may train on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.checks.node_checks import named
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.table import table
from engine.cli.terminal import say
from engine.contract.hosts import FIRST_PORT, THIS, Host, host, put_host, read_hosts, remove_host
from engine.contract.problems import Problem, errors
from engine.contract.protocol import ENCODE
from engine.machines import host_checks as checking
from engine.machines.install import FOLDER, InstallFailed, install
from engine.system.format import counted, size

_NAME = f"what you call it; a host that ssh knows, or with --ssh any name; “{THIS}” for this machine"


def add_hosts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(command=hosts, action="list")
    actions = parser.add_subparsers(metavar="ACTION", title="actions")
    command = actions.add_parser("list", help="list the machines (also without an action)")
    command.set_defaults(action="list")
    command = actions.add_parser("add", help="add a machine, or change what is said of it, and check it")
    command.add_argument("name", help=_NAME)
    command.add_argument("--ssh", metavar="HOST", help="what `ssh HOST` reaches it by, if not its name")
    command.add_argument("--folder", help="the virtual environment that Footplate is installed in there")
    command.add_argument(
        "--address", help="the address that the other machines reach it by, which chooses the interface"
    )
    command.add_argument("--port", type=int, help=f"the first port at which machines meet there; default {FIRST_PORT}")
    command.add_argument("--install", metavar="WHEEL", type=Path, help="install Footplate there from this wheel first")
    command.add_argument("--yes", action="store_true", help="install without asking")
    command.add_argument("--no-check", action="store_true", help="add it without reaching it")
    command.set_defaults(action="add")
    command = actions.add_parser("check", help="check whether the machines can train together")
    command.add_argument("names", nargs="*", metavar="NAME", help="the machines; all if none is named")
    command.add_argument("--dataset", default="", help="a dataset that is to be the same on all")
    command.set_defaults(action="check")
    command = actions.add_parser("remove", help="remove a machine from the list; nothing changes on it")
    command.add_argument("name", help="its name")
    command.set_defaults(action="remove")


def hosts(options: argparse.Namespace) -> int:
    """Does what is asked for with the list."""
    found, problem = read_hosts()
    if problem is not None:
        return _refuse([problem])
    try:
        match options.action:
            case "add":
                return _add(options)
            case "check":
                return _check(options, found)
            case "remove":
                return _remove(options.name)
    except OSError as error:
        return _refuse([Problem("hosts", f"The list can't be written: {error}.", "Check FOOTPLATE_HOME.")])
    return _list(found, json=options.json)


def _list(found: Sequence[Host], *, json: bool) -> int:
    if json:
        say(*(ENCODE.encode(one).decode() for one in found))
    elif found:
        head = ("NAME", "SSH", "GPUS", "ADDRESS", "PORT", "FOLDER")
        say(*table(head, [_cells(one) for one in found]))
    else:
        say("No machines are listed. Add one with `footplate hosts add NAME`.")
    return COMPLETED


def _cells(one: Host) -> tuple[str, ...]:
    gpus = "–" if one.gpus is None else str(one.gpus)
    return one.name or THIS, one.reached_by or "–", gpus, one.address or "–", str(one.port), one.folder or "–"


def _add(options: argparse.Namespace) -> int:
    name = named(options.name)
    given = {"destination": options.ssh, "folder": options.folder, "address": options.address, "port": options.port}
    values = {key: value for key, value in given.items() if value is not None}
    before = next((one for one in read_hosts()[0] if one.name == name), Host(name=name))
    try:
        new = msgspec.convert(msgspec.to_builtins(before) | values, Host)
    except msgspec.ValidationError as error:
        return _refuse([Problem("port", f"{error}.", "Give a port from 1024 to 65519.")])
    if wrong := new.problems():
        return _refuse(wrong)
    if options.install is not None and not _install(new, options.install, yes=options.yes):
        return BAD_REQUEST
    if options.install is not None and not new.folder:
        new = msgspec.structs.replace(new, folder=f"~/{FOLDER}")
    if options.no_check:
        put_host(new)
        say(f"Added {new.title}, unchecked.")
        return COMPLETED
    [looked] = checking.check_hosts([msgspec.structs.replace(new, gpus=None)])
    _show([looked], looked.problems)
    if looked.facts is None:
        say("  Not added. Add it all the same with --no-check.", to=sys.stderr)
        return BAD_REQUEST
    put_host(msgspec.structs.replace(new, gpus=len(looked.facts.gpus)))
    say(f"Added {new.title}.")
    return BAD_REQUEST if errors(looked.problems) else COMPLETED


def _install(new: Host, wheel: Path, *, yes: bool) -> bool:
    if not yes:
        say(
            f"Install {wheel.name} and what it needs (several GB) into ~/{FOLDER} on {new.title}? [y/N] ", to=sys.stderr
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            say("Nothing was installed.", to=sys.stderr)
            return False
    try:
        install(new, wheel)
    except InstallFailed as error:
        _refuse([Problem("install", str(error))])
        return False
    return True


def _check(options: argparse.Namespace, found: Sequence[Host]) -> int:
    names = [named(name) for name in options.names]
    unknown = [name for name in names if host(name) is None]
    if unknown:
        return _refuse(
            [Problem("hosts", f"{name} is not listed.", f"Run `footplate hosts add {name}`.") for name in unknown]
        )
    chosen = [host(name) or Host(name=name) for name in names] or list(found)
    if not chosen:
        return _list(found, json=False)
    looked = checking.check_hosts(chosen, options.dataset)
    problems = [problem for each in looked for problem in each.problems] + checking.unreachable(looked)
    _show(looked, problems)
    if not problems:
        say("These machines can train together.")
    return BAD_REQUEST if errors(problems) else COMPLETED


def _show(looked: Sequence[checking.CheckedHost], problems: Sequence[Problem]) -> None:
    for each in looked:
        if each.facts is not None:
            facts = each.facts
            told = ", ".join(f"{name} {version}" for name, version in sorted(facts.versions.items()))
            gpus = f"{counted(len(facts.gpus), 'GPU')}{f', driver {facts.driver}' if facts.driver else ''}"
            where = f"address {facts.address or 'unknown'}, port {each.host.port}"
            say(
                f"{each.host.title}: {gpus}; {told}; {size(facts.free_bytes)} free; clock {each.clock_offset_s:+.1f} s; {where}"
            )
            for digest in facts.inputs.values():
                say(
                    f"  dataset: {counted(digest.files, 'file')}, {size(digest.size_bytes)}, digest {digest.names[:8] or '–'}"
                )
    _refuse(problems)


def _refuse(problems: Sequence[Problem]) -> int:
    for problem in problems:
        kind = "warning: " if problem.severity == "warning" else ""
        say(f"footplate: {kind}{problem.message}", to=sys.stderr)
        if problem.remedy:
            say(f"  {problem.remedy}", to=sys.stderr)
    return BAD_REQUEST


def _remove(name: str) -> int:
    if not remove_host(named(name)):
        return _refuse([Problem("hosts", f"{name} is not listed.", "See `footplate hosts`.")])
    say(f"Removed {name}.")
    return COMPLETED
