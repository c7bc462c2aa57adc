"""Commands to active runs, and the queue that a new run would join.

These functions may block, so call them on worker threads. They import on use to keep the window's start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.contract.protocol import Command
    from engine.runs.folder import RunFolder


def ask_to_stop(run_id: str) -> RunFolder:
    """Ask a run's supervisor to stop it. Raises LookupError for an unknown run, OSError if it is unreachable."""
    from engine.contract.protocol import Stop

    return _ask(run_id, Stop())


def ask_to_pause(run_id: str) -> RunFolder:
    """Ask a run's supervisor to pause it. Raises the same errors as `ask_to_stop`."""
    from engine.contract.protocol import Pause

    return _ask(run_id, Pause())


def _ask(run_id: str, command: Command) -> RunFolder:
    from engine.runs.index import find_run
    from engine.runs.slurm import send

    run = find_run(run_id)
    if run is None:
        raise LookupError("it is no longer in the list of runs")
    send(run, command)
    return run


def device_queues() -> dict[str, tuple[str, ...]]:
    """Return the titles of the runs that use each device, followed by those queued for it.

    The result is empty if the queue can't be read; a run that is started then reports that error.
    """
    from engine.runs import queue
    from engine.runs.folder import RunFolder
    from engine.system import paths
    from gui.titles import title_of

    try:
        queues = {device: list(run_ids) for device, run_ids in queue.holders().items()}
        for ticket in queue.waiting():
            for device in dict.fromkeys(ticket.devices):
                queues.setdefault(device, []).append(ticket.run_id)
    except queue.CannotQueue:
        return {}
    runs = {run_id for run_ids in queues.values() for run_id in run_ids}
    titles = {run_id: title_of(RunFolder(paths.runs_folder() / run_id)) for run_id in runs}
    return {device: tuple(dict.fromkeys(titles[run_id] for run_id in run_ids)) for device, run_ids in queues.items()}
