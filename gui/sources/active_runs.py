"""The runs that go on: which there are, which to show first, who is ahead of a new one, and asking one to stop or to pause.
To be called away from the window's thread, on which nothing of it is imported before the first paint."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.contract.protocol import Command
    from engine.runs.folder import RunFolder

LOOKED_AT = 50
"""How many of the newest runs are looked at for those that still go on."""


def runs_going_on() -> list[RunFolder]:
    """Those of the newest runs that have not ended, newest first."""
    from engine.runs.folder import list_runs

    return [run for run in list_runs(LOOKED_AT) if run.state() in ("starting", "waiting", "running")]


def count_going_on() -> tuple[int, int]:
    """How many of them are at work, and how many wait in line for their devices."""
    waiting = [run.state() == "waiting" for run in runs_going_on()]
    return waiting.count(False), waiting.count(True)


def ask_to_stop(run_id: str) -> RunFolder:
    """Has the supervisor of a run stop it. Raises LookupError where there is no such run, OSError where it cannot be told."""
    from engine.contract.protocol import Stop

    return _ask(run_id, Stop())


def ask_to_pause(run_id: str) -> RunFolder:
    """Has the supervisor of a run pause it. Raises as `ask_to_stop`."""
    from engine.contract.protocol import Pause

    return _ask(run_id, Pause())


def _ask(run_id: str, command: Command) -> RunFolder:
    from engine.contract.protocol import COMMANDS_ONLY
    from engine.runs.connection import RunConnection
    from engine.runs.index import find_run

    run = find_run(run_id)
    if run is None:
        raise LookupError("it is not in the list of runs any more")
    with RunConnection(run, COMMANDS_ONLY) as connection:
        connection.send(command)
    return run


def runs_ahead() -> dict[str, tuple[str, ...]]:
    """The titles of the runs that a new one would stand behind, by device: first those that have it, then those in line
    for it. Empty where there is no line to look at: the run itself will say so."""
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


def run_to_show() -> RunFolder | None:
    """The newest run that goes on, else the newest of all."""
    from engine.runs.folder import list_runs

    runs = runs_going_on() or list_runs(1)
    return runs[0] if runs else None
