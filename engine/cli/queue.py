"""``footplate queue``: the runs that wait for their devices, and how their order is changed."""

from __future__ import annotations

import argparse
import select
import sys
import time
from contextlib import suppress

import msgspec

from engine.cli import watching
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.table import table
from engine.cli.terminal import say
from engine.contract.events import Waiting
from engine.contract.protocol import COMMANDS_ONLY, ENCODE, Stop
from engine.runs import queue as line
from engine.runs.connection import RunConnection
from engine.runs.folder import RunFolder
from engine.runs.notes import read_notes
from engine.runs.queue import CannotQueue, Ticket
from engine.system.format import duration, in_short

_ACTIONS = {
    "up": "move a run up by one",
    "down": "move a run down by one",
    "first": "move a run to the front of the queue",
    "hold": "hold a run: others start first, and it keeps its position",
    "release": "release a held run, so that it starts when its devices are free",
    "remove": "remove a run from the queue; it ends as stopped",
}


class _Row(msgspec.Struct):
    """What is told of a run that waits: `since` in seconds since the epoch, `others` as in `Waiting`."""

    position: int
    run_id: str
    name: str
    folder: str
    devices: tuple[str, ...]
    since: float
    held: bool
    behind: tuple[str, ...]
    others: tuple[str, ...]


def add_queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(command=queue, action="")
    actions = parser.add_subparsers(metavar="ACTION", title="actions")
    for action, text in _ACTIONS.items():
        command = actions.add_parser(action, help=text)
        command.add_argument("run", help="a run's id, the beginning of one, its name, or “last”")
        command.set_defaults(action=action)


def queue(options: argparse.Namespace) -> int:
    """Does what is asked for with one run, or lists all that wait."""
    try:
        return _act(options.action, options.run) if options.action else _list(json=options.json)
    except CannotQueue as error:
        say(f"footplate: {error}", to=sys.stderr)
        return BAD_REQUEST


def _list(*, json: bool) -> int:
    rows = [_row(ticket) for ticket in line.waiting()]
    if json:
        for row in rows:
            say(ENCODE.encode(row).decode())
    elif rows:
        say(*table(("PLACE", "RUN", "NAME", "DEVICES", "WAITING", "WAITS FOR"), [_cells(row) for row in rows]))
    else:
        say("The queue is empty.")
    return COMPLETED


def _row(ticket: Ticket) -> _Row:
    run = RunFolder(ticket.folder)
    name, job, last = read_notes(run.path).name, run.job(), run.last_event()
    return _Row(
        position=ticket.position or 0,
        run_id=ticket.run_id,
        name=name if name is not None else job.name if job is not None else "",
        folder=ticket.folder,
        devices=ticket.devices,
        since=ticket.since,
        held=ticket.held,
        behind=ticket.behind,
        others=last.others if isinstance(last, Waiting) else (),
    )


def _cells(row: _Row) -> tuple[str, ...]:
    devices = ",".join(device[:12] for device in row.devices)
    waits_for = ("its release" if row.held else "", in_short(row.behind), *row.others)
    waited = duration(time.time() - row.since)
    return (
        str(row.position),
        row.run_id,
        row.name or "–",
        devices,
        waited,
        ", ".join(filter(None, waits_for)) or "its turn",
    )


def _act(action: str, name: str) -> int:
    run = _find(name)
    if run is None:
        return BAD_REQUEST
    if action == "remove":
        return _remove(run)
    if not _change(action, run.run_id):
        return _does_not_wait(run)
    tickets = line.waiting()
    here = next((ticket for ticket in tickets if ticket.run_id == run.run_id), None)
    if here is None:
        say(f"{run.run_id} already has its devices.")
    elif action == "hold":
        say(f"{run.run_id} is held until `footplate queue release {run.run_id}`.")
    else:
        say(f"{run.run_id} is at position {here.position} of {len(tickets)}{', held' if here.held else ''}.")
    return COMPLETED


def _change(action: str, run_id: str) -> bool:
    """Changes the line; False where the run does not wait in it."""
    match action:
        case "up":
            return line.move(run_id, -1)
        case "down":
            return line.move(run_id, 1)
        case "first":
            return line.move(run_id, -len(line.waiting()))
        case "hold":
            return line.hold(run_id)
        case _:
            return line.release(run_id)


def _remove(run: RunFolder) -> int:
    """Stops a run that waits, and tells once it has ended."""
    if all(ticket.run_id != run.run_id for ticket in line.waiting()):
        return _does_not_wait(run)
    with suppress(OSError), RunConnection(run, COMMANDS_ONLY) as connection:  # it may end by itself at any moment
        connection.send(Stop())
        while not connection.closed:
            select.select([connection], [], [])
            connection.receive_lines()
    say(f"{run.run_id} is no longer in the queue; it is {run.state()}.")
    return COMPLETED


def _find(name: str) -> RunFolder | None:
    """A run in the line by its id, wherever its folder is; else one of the runs that there are, or it is said that
    there is none.
    """
    folder = next((ticket.folder for ticket in line.waiting() if ticket.run_id == name), None)
    return RunFolder(folder) if folder is not None else watching.find_or_say(name)


def _does_not_wait(run: RunFolder) -> int:
    say(f"footplate: {run.run_id} is not in the queue; it is {run.state()}.", to=sys.stderr)
    return BAD_REQUEST
