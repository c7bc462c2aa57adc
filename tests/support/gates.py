"""Hooks that delay workers: a model until a command arrives, or a checkpoint writer until a pipe is read."""

from __future__ import annotations

import os
from pathlib import Path

from engine.contract.worker import WorkerSpec
from engine.system import paths
from engine.training.report import Reporter

ON_COMMAND = "tests.support.gates:open_gate_on_command"
FOR_READERS = "tests.support.gates:wait_for_readers"
"""Value for `prepare` of a `WorkerGroup` whose checkpoint writers should block until a pipe is read."""


def open_gate_on_command(spec: WorkerSpec) -> None:
    """Make the worker create the file "gate" next to the run folder as soon as it receives a command."""

    def set_attribute(reporter: Reporter, name: str, value: object) -> None:
        object.__setattr__(reporter, name, value)
        if value and name.endswith("_requested"):
            (Path(spec.run_folder).parent / "gate").touch()

    Reporter.__setattr__ = set_attribute  # type: ignore[method-assign]


def wait_for_readers(_spec: WorkerSpec) -> None:
    """Make the worker wait for a reader when it opens a pipe for writing. Normally, this would raise an error."""
    paths.open_private = lambda path, flags: os.open(path, flags, 0o600)
