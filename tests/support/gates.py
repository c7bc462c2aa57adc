"""Hooks that make workers wait: a model for a command, a checkpoint writer for the reader of a pipe."""

from __future__ import annotations

import os
from pathlib import Path

from engine.contract.worker import WorkerSpec
from engine.system import paths
from engine.training.report import Reporter

ONCE_ASKED = "tests.support.gates:open_once_asked"
FOR_READERS = "tests.support.gates:wait_for_readers"
"""Value for `prepare` of a `WorkerGroup` whose writers should wait for readers."""


def open_once_asked(spec: WorkerSpec) -> None:
    """Create the file "gate" next to the run folder as soon as a command arrives."""

    def set_attribute(reporter: Reporter, name: str, value: object) -> None:
        object.__setattr__(reporter, name, value)
        if value and name.endswith("_requested"):
            (Path(spec.run_folder).parent / "gate").touch()

    Reporter.__setattr__ = set_attribute  # type: ignore[method-assign]


def wait_for_readers(_spec: WorkerSpec) -> None:
    """Make a write to a pipe wait for its reader. Workers normally raise an error in this case."""
    paths.open_private = lambda path, flags: os.open(path, flags, 0o600)
