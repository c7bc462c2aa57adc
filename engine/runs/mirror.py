"""Runs of other machines that are followed from here: each has a folder here that holds what has been told of it."""

from __future__ import annotations

from pathlib import Path

from engine.runs.folder import RunFolder
from engine.system import paths


def mirror(host: str, run_id: str) -> RunFolder:
    """Where a run of `host` is followed."""
    return RunFolder(_root() / host / Path(run_id).name)


def machine_of(run: RunFolder) -> str:
    """The machine that a run is on: the name of a host where its folder is one of `mirror`, else ""."""
    return run.path.parent.name if run.path.parent.parent == _root() else ""


def _root() -> Path:
    return paths.home() / "remote"
