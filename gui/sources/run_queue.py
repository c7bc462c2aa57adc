"""Queue of runs for display, and operations on it. Call all functions on worker threads."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.contract.devices import is_gpu
from engine.contract.events import Waiting
from engine.contract.protocol import COMMANDS_ONLY, Stop
from engine.runs import queue
from engine.runs.connection import NotRunning, RunConnection
from engine.runs.folder import RunFolder
from engine.runs.launch import start_supervisor
from engine.runs.queue import Ticket
from engine.runs.resume import job_to_resume, save_next_job
from engine.system.format import listed
from gui.format import format_time_or_date
from gui.titles import describe_device_use, describe_devices, format_gpu_names, has_ended, title_of
from gui.translation import tr

PATIENCE_S = 30.0
"""Maximum seconds to wait for a queued run to exit."""
_POLL_S = 0.05


class CannotReturn(Exception):  # noqa: N818  (a state of things more than an error)
    """Raised when a run can't be queued again. The message is written for the user."""


@dataclass(frozen=True)
class QueuePosition:
    """Queued run with its position, as texts for display.

    Attributes:
        number: Position in the queue, starting at 1.
        waits_for: Names of the runs that use its devices.
    """

    number: int
    run_id: str
    folder: str
    name: str
    devices: str
    waits_for: str
    since: str
    held: bool


def read_queue_positions() -> list[QueuePosition]:
    """Return the queued runs in order. Raises CannotQueue, OSError."""
    tickets = queue.list_waiting()
    folders = {ticket.run_id: Path(ticket.folder) for ticket in tickets}
    users = {}
    for run_id in {behind for ticket in tickets for behind in ticket.behind}:
        # Runs that aren't queued are in the same runs folder.
        folder = folders.get(run_id) or next(iter(folders.values())).parent / run_id
        users[run_id] = describe_device_user(RunFolder(folder))
    return [_make_position(number, ticket, users) for number, ticket in enumerate(tickets, 1)]


def _make_position(number: int, ticket: Ticket, users: dict[str, str]) -> QueuePosition:
    """Describe the queued run at position `number`. `users` are texts about the users of devices, by run id."""
    last = RunFolder(ticket.folder).last_event()
    others = last.others if isinstance(last, Waiting) else ()  # processes of other users, which no ticket contains
    behind = [users[run_id] for run_id in ticket.behind]
    released = (tr("your release"),) if ticket.held else ()
    return QueuePosition(
        number=number,
        run_id=ticket.run_id,
        folder=ticket.folder,
        name=title_of(RunFolder(ticket.folder)),
        devices=describe_devices(ticket.devices),
        waits_for=", ".join((*released, *behind, *others)) or tr("its turn"),
        since=format_time_or_date(ticket.since),
        held=ticket.held,
    )


def take_out(folder: str) -> None:
    """Remove a run from the queue and wait until its supervisor has exited. Raises OSError."""
    run = RunFolder(folder)
    deadline = time.monotonic() + PATIENCE_S
    with suppress(NotRunning), RunConnection(run, COMMANDS_ONLY) as connection:
        connection.send(Stop())
        while not connection.closed and time.monotonic() < deadline:
            select.select([connection], [], [], _POLL_S)
            connection.receive_lines()  # sets `closed` at the end of the connection
    supervisor = run.supervisor()
    while supervisor is not None and supervisor.alive():
        if time.monotonic() > deadline:
            raise TimeoutError(
                tr("{run_id} has not ended {seconds:.0f} s after the request.").format(
                    run_id=run.run_id, seconds=PATIENCE_S
                )
            )
        time.sleep(_POLL_S)


def put_back(folder: str) -> None:
    """Append a run that was removed to the queue. Raises CannotReturn, OSError."""
    _resume(RunFolder(folder), {})


def start_now(folder: str) -> None:
    """Start a queued run immediately, even if other runs use its devices. Raises CannotReturn, OSError."""
    take_out(folder)
    _resume(RunFolder(folder), {"start": "at_once"})


def _resume(run: RunFolder, changes: dict[str, str]) -> None:
    """Save the run's job with `changes`, and start its supervisor. Raises CannotReturn, OSError."""
    job, problems = job_to_resume(run, changes)
    if job is None:
        raise CannotReturn(" ".join(map(str, problems)))
    save_next_job(run, job)
    start_supervisor(run)


_NAMED = 2
"""Maximum number of preceding runs that are all named. If there are more, only the first is named."""


def describe_device_user(run: RunFolder) -> str:
    """Describe what uses the devices of a run: the run or, if it has ended, the use of its model. Raises OSError."""
    return describe_device_use(title_of(run), has_ended=has_ended(run))


def describe_queue_position(
    waiting: Waiting, devices: Sequence[str], titles: Mapping[str, str], users: Mapping[str, str]
) -> str:
    """Describe the queue position of a run, as in "2nd in the queue for GPU 0, behind “flowers · 6e2a”".

    `titles` contains the titles of known GPUs by UUID. `users` contains texts about the users of devices by run id.
    Runs that are not in it are described by their ids.
    """
    text = tr("{position} in the queue for {devices}").format(
        position=_format_ordinal(waiting.position), devices=_describe_devices(devices, titles)
    )
    if waiting.held:
        return tr("{position}, on hold until released").format(position=text)
    reasons = [tr("behind {runs}").format(runs=_describe_users(waiting.behind, users))] if waiting.behind else []
    return ", ".join([text, *reasons, *waiting.others])


def _format_ordinal(position: int) -> str:
    """Return "next" for the first position, otherwise a number such as "2nd"."""
    if position == 1:
        return tr("next")
    ending = "th" if position % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")
    return f"{position}{ending}"


def _describe_devices(devices: Sequence[str], titles: Mapping[str, str]) -> str:
    """Describe the devices that a run waits for, as in "GPU 0–3", "its 2 GPUs" or "the CPU"."""
    gpus = [device for device in dict.fromkeys(devices) if is_gpu(device)]
    if not gpus:
        return tr("the CPU")
    if any(gpu not in titles for gpu in gpus):
        return tr("its GPU") if len(gpus) == 1 else tr("its {count} GPUs").format(count=len(gpus))
    return format_gpu_names([titles[gpu] for gpu in gpus])


def _describe_users(run_ids: Sequence[str], users: Mapping[str, str]) -> str:
    """Describe runs that use or wait for devices, as in "a and b" or "a and 2 more runs"."""
    texts = [users.get(run_id, run_id) for run_id in run_ids]
    return (
        tr("{run} and {count} more runs").format(run=texts[0], count=len(texts) - 1)
        if len(texts) > _NAMED
        else listed(texts)
    )
