"""Runs that stand in line, without anything else that a run is."""

from __future__ import annotations

from pathlib import Path

from engine.contract.job import Job
from engine.runs.folder import RunFolder
from engine.runs.queue import Line, Ticket, holders, waiting


def a_line(name: str, *devices: str, **fields: object) -> Line:
    """The line of a run of that id, which wants `devices` ("x" where none are given)."""
    job = Job(devices=devices or ("x",), **fields)  # type: ignore[arg-type]
    return Line(RunFolder(Path("/runs") / name), job)


def standing() -> dict[str, tuple[str, ...]]:
    """What every run in line is behind, in their order."""
    return {ticket.run_id: ticket.behind for ticket in waiting()}


def ticket(name: str) -> Ticket:
    return next(ticket for ticket in waiting() if ticket.run_id == name)


__all__ = ["a_line", "holders", "standing", "ticket"]
