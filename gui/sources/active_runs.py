"""Commands to active runs, and the queue that a new run would join.

These functions may block, so call them on worker threads. Engine modules are imported inside them to keep the window's
start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gui.translation import tr

if TYPE_CHECKING:
    from engine.contract.protocol import Command
    from engine.runs.folder import RunFolder


class QueuedRun(NamedTuple):
    """Run in the queue of a device. It uses the device or waits for it.

    `left_s` is the number of seconds until it is expected to end, or None if unknown. `has_ended` is True if the
    run itself has ended, and other work with its model, such as an evaluation, holds the device.
    """

    title: str
    left_s: float | None = None
    has_ended: bool = False


def request_stop(run_id: str) -> RunFolder:
    """Ask a run's supervisor to stop it, and return the run's folder.

    Raises LookupError for an unknown run, OSError if its supervisor is unreachable.
    """
    from engine.contract.protocol import Stop

    return _send_to_run(run_id, Stop())


def request_pause(run_id: str) -> RunFolder:
    """Ask a run's supervisor to pause it. Raises the same errors as `request_stop`."""
    from engine.contract.protocol import Pause

    return _send_to_run(run_id, Pause())


def _send_to_run(run_id: str, command: Command) -> RunFolder:
    """Send a command to a run's supervisor and return the run's folder. Raises LookupError for an unknown run."""
    from engine.runs.index import find_run
    from engine.runs.slurm import send

    run = find_run(run_id)
    if run is None:
        raise LookupError(tr("it is no longer in the list of runs"))
    send(run, command)
    return run


def read_device_queues() -> dict[str, tuple[QueuedRun, ...]]:
    """Return the runs that use each device, then those that wait for it, by device id.

    The result is empty if the queue can't be read. Starting a run then reports the error.
    """
    from engine.runs import queue
    from engine.runs.folder import RunFolder
    from engine.system import paths
    from gui.titles import has_ended, title_of

    try:
        holders = {device: list(run_ids) for device, run_ids in queue.list_holders().items()}
        queues = {device: list(run_ids) for device, run_ids in holders.items()}
        for ticket in queue.list_waiting():
            for device in ticket.devices:
                queues.setdefault(device, []).append(ticket.run_id)
    except queue.CannotQueue:
        return {}
    training = {run_id for run_ids in holders.values() for run_id in run_ids}
    runs = {}
    for run_id in {run_id for run_ids in queues.values() for run_id in run_ids}:
        folder = RunFolder(paths.runs_folder() / run_id)
        is_over = has_ended(folder)
        left_s = _estimate_left_s(folder) if run_id in training and not is_over else None
        runs[run_id] = QueuedRun(title_of(folder), left_s, is_over)
    return {device: tuple(runs[run_id] for run_id in run_ids) for device, run_ids in queues.items()}


def _estimate_left_s(run: RunFolder) -> float | None:
    """Return the seconds until a training run is expected to finish, or None if unknown or its files are unreadable."""
    from engine.runs.estimates import estimate_remaining_s
    from engine.runs.folder import UnreadableJob

    try:
        return estimate_remaining_s(run)
    except (OSError, UnreadableJob):
        return None
