"""Runs of other machines that are followed from here: each has a folder here that holds what has been told of it."""

from __future__ import annotations

import re
from pathlib import Path

from engine.runs.folder import RunFolder
from engine.system import paths

_ID = re.compile(r"\w[\w.-]*")


def mirror(host: str, run_id: str) -> RunFolder:
    """Where a run of `host` is followed. Raises ValueError for an id that is none, as another machine tells it."""
    if not _ID.fullmatch(run_id):
        raise ValueError(f"{run_id!r} is not the id of a run")
    return RunFolder(followed_of(host) / run_id)


def followed_of(host: str) -> Path:
    """The folder of all runs of `host` that are followed."""
    return _root() / host


def machine_of(run: RunFolder) -> str:
    """The machine that a run is on: the name of a host where its folder is one of `mirror`, else ""."""
    return run.path.parent.name if run.path.parent.parent == _root() else ""


def _root() -> Path:
    return paths.home() / "remote"
