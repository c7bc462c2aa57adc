"""Models that wait at a gate until their worker has been asked for something, however long that takes to arrive."""

from __future__ import annotations

from pathlib import Path

from engine.contract.worker import WorkerSpec
from engine.training.report import Reporter

ONCE_ASKED = "tests.support.gates:open_once_asked"
"""Functions for a worker's `prepare` (`WorkerGroup`)."""


def open_once_asked(spec: WorkerSpec) -> None:
    """Create the file "gate" next to the run folder as soon as a command has been received."""

    def set_attribute(reporter: Reporter, name: str, value: object) -> None:
        object.__setattr__(reporter, name, value)
        if value and name.endswith("_requested"):
            (Path(spec.run_folder).parent / "gate").touch()

    Reporter.__setattr__ = set_attribute  # type: ignore[method-assign]
