"""Queue slots for runs that have no files besides their slots."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from engine.contract.job import Job
from engine.runs.folder import RunFolder
from engine.runs.queue import QueueSlot, Ticket, list_waiting

OPEN: list[QueueSlot] = []
"""Slots to close after the test."""


def make_slot(name: str, *devices: str, **fields: object) -> QueueSlot:
    """Create the queue slot of the run `name`.

    `devices` are "x" by default, and `fields` override fields of the job.
    """
    job = Job.from_fields(devices=devices or ("x",), **fields)  # type: ignore[arg-type]
    OPEN.append(QueueSlot(RunFolder(Path("/runs") / name), job))
    return OPEN[-1]


def list_waits() -> dict[str, tuple[str, ...]]:
    """Return the waiting runs in queue order. Each maps to the runs that it waits for."""
    return {ticket.run_id: ticket.behind for ticket in list_waiting()}


def ticket_of(name: str) -> Ticket:
    return next(ticket for ticket in list_waiting() if ticket.run_id == name)


def abandon(slot: QueueSlot) -> None:
    """Close the lock file of a slot without removing it. The kernel does the same when a process is killed."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if link.readlink() == slot.ticket_file:
                os.close(int(link.name))
