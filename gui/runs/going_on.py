"""The runs that go on: which there are, which to show first, and asking one to stop. To be called away from the window's
thread, on which nothing of it is imported before the first paint."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.contract.runs import RunFolder

LOOKED_AT = 50
"""How many of the newest runs are looked at for those that still go on."""


def runs_going_on() -> list[RunFolder]:
    """Those of the newest runs that have not ended, newest first."""
    from engine.contract.runs import list_runs

    return [run for run in list_runs(LOOKED_AT) if run.state() in ("starting", "running")]


def ask_to_stop(run_id: str) -> RunFolder:
    """Has the supervisor of a run stop it. Raises LookupError where there is no such run, OSError where it cannot be told."""
    from engine.contract.connection import RunConnection
    from engine.contract.protocol import Stop
    from engine.contract.run_index import find_run

    run = find_run(run_id)
    if run is None:
        raise LookupError("it is not in the list of runs any more")
    with RunConnection(run) as connection:
        connection.send(Stop())
    return run


def run_to_show() -> RunFolder | None:
    """The newest run that goes on, else the newest of all."""
    from engine.contract.runs import list_runs

    runs = runs_going_on() or list_runs(1)
    return runs[0] if runs else None
