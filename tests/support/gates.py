"""Hooks that make workers wait: a model until a command arrives, a checkpoint's writer until a pipe is read."""

from __future__ import annotations

import os
from pathlib import Path

from engine.contract.worker import WorkerSpec
from engine.system import paths
from engine.training.report import Reporter

ONCE_ASKED = "tests.support.gates:open_once_asked"
FOR_READERS = "tests.support.gates:wait_for_readers"
"""Functions for a worker's `prepare` (`WorkerGroup`)."""


def open_once_asked(spec: WorkerSpec) -> None:
    """Create the file "gate" next to the run folder as soon as a command arrives."""

    def set_attribute(reporter: Reporter, name: str, value: object) -> None:
        object.__setattr__(reporter, name, value)
        if value and name.endswith("_requested"):
            (Path(spec.run_folder).parent / "gate").touch()

    Reporter.__setattr__ = set_attribute  # type: ignore[method-assign]


def wait_for_readers(_spec: WorkerSpec) -> None:
    """Let writers wait for the reader if their file is a pipe. By default that is an error."""
    paths.open_private = lambda path, flags: os.open(path, flags, 0o600)
