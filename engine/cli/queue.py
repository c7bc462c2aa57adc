"""``footplate queue``: list the runs that wait for devices, and change their order."""

from __future__ import annotations

import argparse
import select
import time
from contextlib import suppress

import msgspec

from engine.cli import watching
from engine.cli.arguments import RUN
from engine.cli.terminal import COMPLETED, format_table, print_error, print_lines
from engine.contract.events import Waiting
from engine.contract.protocol import COMMANDS_ONLY, ENCODE, Stop
from engine.runs import queue as run_queue
from engine.runs.connection import RunConnection
from engine.runs.folder import RunFolder
from engine.runs.notes import read_notes
from engine.runs.queue import CannotQueue, Ticket
from engine.system.format import duration, shorten_list

_ACTIONS = {
    "up": "move a run up by one",
    "down": "move a run down by one",
    "first": "move a run to the front of the queue",
    "hold": "hold a run in its position, and start other runs first",
    "release": "release a held run, so that it starts when its devices are free",
    "remove": "remove a run from the queue; it ends as stopped",
}


class _QueuedRun(msgspec.Struct):
    """Queued run, as printed with `--json`.

    `since` is the time in seconds since the epoch at which it was queued, `behind` the ids of the runs that it waits
    for, and `others` describes other users' processes on its devices.
    """

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
        command.add_argument("run", help=RUN)
        command.set_defaults(action=action)


def queue(options: argparse.Namespace) -> int:
    """Move, hold, release or remove a queued run, or print all queued runs. Returns an exit code."""
    try:
        return _change_run(options.action, options.run) if options.action else _list(json=options.json)
    except CannotQueue as error:
        return print_error(str(error))


def _list(*, json: bool) -> int:
    """Print the queued runs as a table or as lines of JSON. Returns an exit code."""
    rows = [_read_queued_run(ticket) for ticket in run_queue.list_waiting()]
    if json:
        print_lines(*(ENCODE.encode(row).decode() for row in rows))
    elif rows:
        print_lines(
            *format_table(
                ("POSITION", "RUN", "NAME", "DEVICES", "WAITING", "WAITS FOR"), [_format_cells(row) for row in rows]
            )
        )
    else:
        print_lines("The queue is empty.")
    return COMPLETED


def _read_queued_run(ticket: Ticket) -> _QueuedRun:
    """Collect the facts about a queued run from its ticket, its notes, its job and its log."""
    run = RunFolder(ticket.folder)
    name, job, last_event = read_notes(run.path).name, run.job(), run.last_event()
    if name is None:  # the user has not renamed the run
        name = job.name if job is not None else ""
    return _QueuedRun(
        position=ticket.position or 0,
        run_id=ticket.run_id,
        name=name,
        folder=ticket.folder,
        devices=ticket.devices,
        since=ticket.since,
        held=ticket.held,
        behind=ticket.behind,
        others=last_event.others if isinstance(last_event, Waiting) else (),
    )


def _format_cells(row: _QueuedRun) -> tuple[str, ...]:
    """Return the cells of a queued run in the printed table."""
    devices = ",".join(device[:12] for device in row.devices)  # the beginnings of UUIDs
    reasons = filter(None, ("its release" if row.held else "", shorten_list(row.behind), *row.others))
    waits_for = ", ".join(reasons) or "its devices"
    waited = duration(time.time() - row.since)
    return str(row.position), row.run_id, row.name or "–", devices, waited, waits_for


def _change_run(action: str, name: str) -> int:
    """Remove, move, hold or release the queued run `name`, and print its new position. Returns an exit code."""
    run = _find_run(name)
    if action == "remove":
        return _remove(run)
    if not _change_queue(action, run.run_id):
        return _report_not_queued(run)
    tickets = run_queue.list_waiting()
    ticket = next((each for each in tickets if each.run_id == run.run_id), None)
    if ticket is None:  # it has left the queue since
        print_lines(f"{run.run_id} already has its devices.")
    elif action == "hold":
        print_lines(f"{run.run_id} is held until `footplate queue release {run.run_id}`.")
    else:
        held = ", held" if ticket.held else ""
        print_lines(f"{run.run_id} is at position {ticket.position} of {len(tickets)}{held}.")
    return COMPLETED


def _change_queue(action: str, run_id: str) -> bool:
    """Move a queued run ("up", "down" or "first"), hold it or release it. Returns False if it is not in the queue."""
    match action:
        case "up":
            return run_queue.move(run_id, -1)
        case "down":
            return run_queue.move(run_id, 1)
        case "first":
            return run_queue.move(run_id, -len(run_queue.list_waiting()))
        case "hold":
            return run_queue.hold(run_id)
        case _:
            return run_queue.release(run_id)


def _remove(run: RunFolder) -> int:
    """Stop a queued run and wait until it has ended. Returns an exit code."""
    if all(ticket.run_id != run.run_id for ticket in run_queue.list_waiting()):
        return _report_not_queued(run)
    with suppress(OSError), RunConnection(run, COMMANDS_ONLY) as connection:  # it may end at any moment
        connection.send(Stop())
        while not connection.closed:
            select.select([connection], [], [])
            connection.receive_lines()
    print_lines(f"{run.run_id} is no longer in the queue; it is {run.state()}.")
    return COMPLETED


def _find_run(name: str) -> RunFolder:
    """Find a queued run by its id, or any other run by its name. Raises CommandError.

    The folder of a queued run may be outside the runs folder.
    """
    folder = next((ticket.folder for ticket in run_queue.list_waiting() if ticket.run_id == name), None)
    return RunFolder(folder) if folder is not None else watching.require_run(name)


def _report_not_queued(run: RunFolder) -> int:
    return print_error(f"{run.run_id} is not in the queue; it is {run.state()}.")
