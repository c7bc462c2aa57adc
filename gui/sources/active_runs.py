"""The runs that go on: who is ahead of a new one, and asking one to stop or to pause.
To be called away from the window's thread, on which nothing of it is imported before the first paint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.contract.protocol import Command
    from engine.runs.folder import RunFolder


def ask_to_stop(run_id: str) -> RunFolder:
    """Has the supervisor of a run stop it. Raises LookupError where there is no such run, OSError where it cannot be
    told.
    """
    from engine.contract.protocol import Stop

    return _ask(run_id, Stop())


def ask_to_pause(run_id: str) -> RunFolder:
    """Has the supervisor of a run pause it. Raises as `ask_to_stop`."""
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


def runs_ahead() -> dict[str, tuple[str, ...]]:
    """The titles of the runs that a new one would stand behind, by device: first those that have it, then those in line
    for it. Empty where there is no line to look at: the run itself will say so.
    """
    from engine.runs import queue
    from engine.runs.folder import RunFolder
    from engine.system import paths
    from gui.titles import title_of

    try:
        ahead = {device: list(run_ids) for device, run_ids in queue.holders().items()}
        for ticket in queue.waiting():
            for device in dict.fromkeys(ticket.devices):
                ahead.setdefault(device, []).append(ticket.run_id)
    except queue.CannotQueue:
        return {}
    runs = {run_id for run_ids in ahead.values() for run_id in run_ids}
    titles = {run_id: title_of(RunFolder(paths.runs_folder() / run_id)) for run_id in runs}
    return {device: tuple(dict.fromkeys(titles[run_id] for run_id in run_ids)) for device, run_ids in ahead.items()}
