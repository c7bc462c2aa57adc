"""``footplate hosts``, which edits the list of machines, and ``footplate node``, which runs on these machines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from engine.cli.terminal import BAD_REQUEST, COMPLETED, format_table, print_lines, report
from engine.contract.hosts import FIRST_PORT, THIS, Host, host, put_host, read_hosts, remove_host
from engine.contract.problems import Problem, errors
from engine.contract.protocol import ENCODE
from engine.machines import host_checks as checking
from engine.machines.install import FOLDER, InstallFailed, install
from engine.system.format import counted, size

_NAME = f"a host that ssh knows, or any name together with --ssh; “{THIS}” for this machine"


def _to_listed_name(typed: str) -> str:
    """Convert a machine's name as typed on the command line to its name in the list, which is "" for this machine."""
    return "" if typed == THIS else typed


def add_hosts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(command=hosts, action="list")
    actions = parser.add_subparsers(metavar="ACTION", title="actions")
    command = actions.add_parser("list", help="list the machines (also without an action)")
    command.set_defaults(action="list")
    command = actions.add_parser("add", help="add or change a machine, and check it")
    command.add_argument("name", help=_NAME)
    command.add_argument("--ssh", metavar="HOST", help="ssh's name of it, if different")
    command.add_argument("--folder", help="the virtual environment of Footplate on it")
    command.add_argument(
        "--address", help="the address that other machines reach it by, which selects the network interface"
    )
    command.add_argument(
        "--port", type=int, help=f"the first port for connections between machines; default {FIRST_PORT}"
    )
    command.add_argument(
        "--environment",
        nargs="*",
        metavar="NAME=VALUE",
        help="environment variables for Footplate on it, as NCCL_IB_DISABLE=1; none without a value",
    )
    command.add_argument("--install", metavar="WHEEL", type=Path, help="install Footplate on it from this wheel first")
    command.add_argument("--yes", action="store_true", help="install without asking")
    command.add_argument("--no-check", action="store_true", help="add it without connecting to it")
    command.set_defaults(action="add")
    command = actions.add_parser("check", help="check if the machines can train together")
    command.add_argument("names", nargs="*", metavar="NAME", help="the machines; by default all")
    command.add_argument("--dataset", default="", help="a dataset that must be the same on all")
    command.set_defaults(action="check")
    command = actions.add_parser("remove", help="remove a machine from the list, without changing the machine")
    command.add_argument("name", help="its name")
    command.set_defaults(action="remove")


def hosts(options: argparse.Namespace) -> int:
    """Change, check or print the list of machines. Returns an exit code."""
    found, problem = read_hosts()
    if problem is not None:
        return _report_problems([problem])
    try:
        match options.action:
            case "add":
                return _add(options)
            case "check":
                return _check(options, found)
            case "remove":
                return _remove(options.name)
    except OSError as error:
        return _report_problems([Problem("hosts", f"The list can't be written: {error}.", "Check FOOTPLATE_HOME.")])
    return _list(found, json=options.json)


def _list(found: Sequence[Host], *, json: bool) -> int:
    """Print the machines as a table or as lines of JSON. Returns an exit code."""
    if json:
        print_lines(*(ENCODE.encode(each).decode() for each in found))
    elif found:
        head = ("NAME", "SSH", "GPUS", "ADDRESS", "PORT", "FOLDER")
        print_lines(*format_table(head, [_format_cells(each) for each in found]))
    else:
        print_lines("No machines are listed. Add one with `footplate hosts add NAME`.")
    return COMPLETED


def _format_cells(machine: Host) -> tuple[str, ...]:
    """Return the cells of a machine in the printed table."""
    return (
        machine.name or THIS,
        machine.ssh_destination or "–",
        "–" if machine.gpus is None else str(machine.gpus),
        machine.address or "–",
        str(machine.port),
        machine.folder or "–",
    )


def _add(options: argparse.Namespace) -> int:
    """Add a machine to the list, or change its entry. Returns an exit code.

    With `--install`, Footplate is installed on the machine first. Unless `--no-check` is given, the machine is checked,
    and added only if it is reachable. Problems that the check finds are printed. Errors among them make the exit code
    that of a bad request, but the machine is added.
    """
    name = _to_listed_name(options.name)
    given = {
        "destination": options.ssh,
        "folder": options.folder,
        "address": options.address,
        "port": options.port,
        "environment": options.environment,
    }
    values = {field: value for field, value in given.items() if value is not None}
    machines, _problem = read_hosts()
    before = next((machine for machine in machines if machine.name == name), Host(name=name))
    try:
        new = msgspec.convert(msgspec.to_builtins(before) | values, Host)
    except msgspec.ValidationError as error:
        return _report_problems([Problem("port", f"{error}.", "Give a port from 1024 to 65519.")])
    if wrong := new.problems():
        return _report_problems(wrong)
    if options.install is not None:
        is_installed = _install(new, options.install, yes=options.yes)
        if not is_installed:
            return BAD_REQUEST
        if not new.folder:
            new = msgspec.structs.replace(new, folder=f"~/{FOLDER}")
    if options.no_check:
        put_host(new)
        print_lines(f"Added {new.title}, unchecked.")
        return COMPLETED
    [checked] = checking.check_hosts([msgspec.structs.replace(new, gpus=None)])  # the number of GPUs may have changed
    _print_facts([checked], checked.problems)
    if checked.facts is None:
        print_lines("  Not added. To add it without a check, use --no-check.", to=sys.stderr)
        return BAD_REQUEST
    put_host(msgspec.structs.replace(new, gpus=len(checked.facts.gpus)))
    print_lines(f"Added {new.title}.")
    return BAD_REQUEST if errors(checked.problems) else COMPLETED


def _install(new: Host, wheel: Path, *, yes: bool) -> bool:
    """Install Footplate on a machine from a wheel, after asking the user unless `yes` is True.

    Returns False if the user declined or the installation failed, which is printed.
    """
    if not yes:
        print_lines(
            f"Install {wheel.name} and its dependencies (several GB) into ~/{FOLDER} on {new.title}? [y/N] ",
            to=sys.stderr,
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print_lines("Nothing was installed.", to=sys.stderr)
            return False
    try:
        install(new, wheel)
    except InstallFailed as error:
        _report_problems([Problem("install", str(error))])
        return False
    return True


def _check(options: argparse.Namespace, found: Sequence[Host]) -> int:
    """Connect to the requested machines, by default to all, and report what keeps them from training together.

    Returns an exit code.
    """
    names = [_to_listed_name(name) for name in options.names]
    unknown = [name for name in names if host(name) is None]
    if unknown:
        return _report_problems(
            [Problem("hosts", f"{name} is not listed.", f"Run `footplate hosts add {name}`.") for name in unknown]
        )
    chosen = [host(name) or Host(name=name) for name in names] or list(found)
    if not chosen:
        return _list(found, json=False)
    if options.dataset and not os.path.isdir(os.path.expanduser(options.dataset)):
        message = f"There is no folder {options.dataset} on this machine."
        return report([Problem("--dataset", message, "Check the path.")])
    checked = checking.check_hosts(chosen, options.dataset)
    problems = [problem for each in checked for problem in each.problems] + checking.check_connections(checked)
    _print_facts(checked, problems)
    if not problems:
        print_lines("These machines can train together.")
    return BAD_REQUEST if errors(problems) else COMPLETED


def _print_facts(checked: Sequence[checking.CheckedHost], problems: Sequence[Problem]) -> None:
    """Print the facts that the machines have reported, then the problems."""
    for each in checked:
        facts = each.facts
        if facts is not None:
            versions = ", ".join(f"{name} {version}" for name, version in sorted(facts.versions.items()))
            gpus = counted(len(facts.gpus), "GPU")
            if facts.driver:
                gpus += f", driver {facts.driver}"
            endpoint = f"address {facts.address or 'unknown'}, port {each.host.port}"
            print_lines(
                f"{each.host.title}: {gpus}; {versions}; {size(facts.free_bytes)} free; clock {each.clock_offset_s:+.1f} s; {endpoint}"
            )
            for digest in facts.inputs.values():
                print_lines(
                    f"  dataset: {counted(digest.files, 'file')}, {size(digest.size_bytes)}, digest {digest.names[:8] or '–'}"
                )
    _report_problems(problems)


def _report_problems(problems: Iterable[Problem]) -> int:
    """Print problems without their field names, since this command has no such flags. Return the code for a bad request."""
    return report(msgspec.structs.replace(problem, field="") for problem in problems)


def _remove(name: str) -> int:
    """Remove a machine from the list. Returns an exit code."""
    listed_name = _to_listed_name(name)
    if not remove_host(listed_name):
        return _report_problems([Problem("hosts", f"{name} is not listed.", "See `footplate hosts`.")])
    print_lines(f"Removed {Host(name=listed_name).title}.")
    return COMPLETED


def add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--facts", action="store_true", help="print this machine's facts")
    parser.add_argument("--dataset", default="", help="with --facts: a dataset to compare")
    parser.add_argument("--address", default="", help="address at which other machines reach this one")
    parser.add_argument("--test-connections", action="store_true", help="test connections to other machines")
    parser.add_argument(
        "--no-infiniband", action="store_true", help="with --test-connections: keep NCCL from using InfiniBand"
    )
    parser.add_argument("--slurm", metavar="FOLDER", help="supervise a run in the batch step of its SLURM job")
    parser.add_argument("--relay", metavar="RUN", help="send the events of a run to another machine")
    parser.add_argument("--files", metavar="RUN", help="list the files of a run that can be fetched")
    parser.add_argument("--send", metavar="RUN", help="send files of a run over standard output")
    parser.add_argument(
        "--exchange", metavar="RUN", help="send and receive files of a run that this machine takes part in"
    )
    parser.set_defaults(command=node)


def node(options: argparse.Namespace) -> int:
    """Carry out the action that another machine's Footplate requests by a flag. Returns an exit code.

    Without such a flag, run this machine's workers of a run, controlled over standard input and output.
    """
    from engine.machines import connection_test, fetch, files, probe, relay, slurm
    from engine.machines.node import serve

    # Value of each flag, and the action that it requests.
    actions: list[tuple[object, Callable[[], int]]] = [
        (options.slurm, lambda: slurm.supervise_slurm(Path(options.slurm))),
        (options.facts, lambda: probe.print_facts(options.dataset, options.address)),
        (
            options.test_connections,
            lambda: connection_test.serve(options.address, infiniband=not options.no_infiniband),
        ),
        (options.relay, lambda: relay.relay(options.relay)),
        (options.files, lambda: fetch.list_files(options.files)),
        (options.send, lambda: fetch.send_files(options.send)),
        (options.exchange, lambda: files.exchange(options.exchange)),
    ]
    for flag_value, action in actions:
        if flag_value:
            return action()
    return serve()
