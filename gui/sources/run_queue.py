"""The queue of runs for the window, and its operations, called on worker threads."""

from __future__ import annotations

import select
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.contract.events import Waiting
from engine.contract.protocol import COMMANDS_ONLY, Stop
from engine.runs import queue
from engine.runs.connection import NotRunning, RunConnection
from engine.runs.folder import RunFolder
from engine.runs.launch import start_supervisor
from engine.runs.queue import Ticket
from engine.runs.resume import job_to_resume, save_next_job
from gui.format import lately
from gui.titles import devices_words, title_of

PATIENCE_S = 30.0
"""Longest wait for a queued run to end."""
_POLL_S = 0.05


class CannotReturn(Exception):  # noqa: N818  (a state of things more than an error)
    """Failed return of a run to the queue; the text is a message for the user."""


@dataclass(frozen=True)
class QueuePosition:
    """Queued run as shown in the table.

    Attributes:
        number: Position in the queue, from 1.
        waits_for: Names of the holders of its devices.
    """

    number: int
    run_id: str
    folder: str
    name: str
    devices: str
    waits_for: str
    since: str
    held: bool


def queue_positions() -> list[QueuePosition]:
    """Return the queued runs in order. Raises CannotQueue, OSError."""
    tickets = queue.waiting()
    names: dict[str, str] = {}
    folders = {ticket.run_id: Path(ticket.folder) for ticket in tickets}
    for run_id in {behind for ticket in tickets for behind in ticket.behind} | folders.keys():
        folder = folders.get(run_id) or next(iter(folders.values())).parent / run_id
        names[run_id] = title_of(RunFolder(folder))
    return [_position(number, ticket, names) for number, ticket in enumerate(tickets, 1)]


def _position(number: int, ticket: Ticket, names: dict[str, str]) -> QueuePosition:
    last = RunFolder(ticket.folder).last_event()
    others = last.others if isinstance(last, Waiting) else ()
    behind = [f"“{names[run_id]}”" for run_id in ticket.behind]
    released = ("your release",) if ticket.held else ()
    return QueuePosition(
        number=number,
        run_id=ticket.run_id,
        folder=ticket.folder,
        name=names[ticket.run_id],
        devices=devices_words(ticket.devices),
        waits_for=", ".join((*released, *behind, *others)) or "its turn",
        since=lately(ticket.since),
        held=ticket.held,
    )


def take_out(folder: str) -> None:
    """Stop a queued run and wait for its supervisor to exit. Raises OSError."""
    run = RunFolder(folder)
    deadline = time.monotonic() + PATIENCE_S
    with suppress(NotRunning), RunConnection(run, COMMANDS_ONLY) as connection:
        connection.send(Stop())
        while not connection.closed and time.monotonic() < deadline:
            select.select([connection], [], [], _POLL_S)
            connection.receive_lines()
    supervisor = run.supervisor()
    while supervisor is not None and supervisor.alive():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{run.run_id} has not ended {PATIENCE_S:.0f} s after the request.")
        time.sleep(_POLL_S)


def put_back(folder: str) -> None:
    """Append a removed run to the queue. Raises CannotReturn, OSError."""
    _resume(RunFolder(folder), {})


def start_now(folder: str) -> None:
    """Start a queued run now, sharing devices with their holders. Raises CannotReturn, OSError."""
    take_out(folder)
    _resume(RunFolder(folder), {"start": "at_once"})


def _resume(run: RunFolder, changes: dict[str, str]) -> None:
    job, problems = job_to_resume(run, changes)
    if job is None:
        raise CannotReturn(" ".join(map(str, problems)))
    save_next_job(run, job)
    start_supervisor(run)
