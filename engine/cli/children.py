"""The child processes whose answers the commands need: the sampler, the dataset inspector and the planner."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from engine.contract.dataset import INSPECTION, DatasetReport, InspectionDone, InspectionProgress
from engine.contract.devices import Snapshot
from engine.contract.job import Job
from engine.contract.planning import PLANNING, PlanningDone, PlanningFailed, PlanningProgress

PACKAGES = Path(__file__).resolve().parents[2]
_SNAPSHOT = msgspec.json.Decoder(Snapshot)


class ChildFailed(Exception):  # noqa: N818  (it says what happened)
    """A child process ended without an answer; the text is what it said last."""


def snapshots(*, once: bool = False) -> Iterator[Snapshot]:
    """This machine's devices, now or once a second. Raises ChildFailed."""
    arguments = ["--once"] if once else []
    with _child("engine.gpus", *arguments) as process:
        assert process.stdout is not None
        try:
            empty = True
            for line in process.stdout:
                empty = False
                yield _SNAPSHOT.decode(line)
            if empty:
                raise ChildFailed(_last_words(process))
        finally:
            process.terminate()


def snapshot() -> Snapshot:
    return next(snapshots(once=True))


def inspect(job: Job, on_progress: Callable[[InspectionProgress], None]) -> DatasetReport:
    """Looks through the job's dataset folder. Raises ChildFailed."""
    options = ("--val-fraction", str(job.val_fraction), "--seed", str(job.seed))
    with _child("engine.data", job.dataset, *options) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                message = INSPECTION.decode(line)
                if isinstance(message, InspectionDone):
                    return message.report
                on_progress(message)
            raise ChildFailed(_last_words(process))
        finally:
            process.terminate()


def plan(job: Job, on_progress: Callable[[PlanningProgress], None]) -> PlanningDone | PlanningFailed:
    """Measures on the job's devices where its model is to be cut. Raises ChildFailed."""
    # What it, or a model file, says besides may be long, so that a pipe could fill.
    with tempfile.TemporaryFile() as said, _child("engine.planning", stdin=subprocess.PIPE, stderr=said) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # what it said at its end tells more
                process.stdin.write(msgspec.json.encode(job))
                process.stdin.close()
            for line in process.stdout:
                message = PLANNING.decode(line)
                if not isinstance(message, PlanningProgress):
                    return message
                on_progress(message)
            process.wait()
            said.seek(0)
            raise ChildFailed(_last_of(said.read(), process))
        finally:
            process.terminate()


def _child(
    module: str, *arguments: str, stdin: int = subprocess.DEVNULL, stderr: int | IO[bytes] = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    # Few complaints go into a pipe that is read at the end only, and are too short to fill it.
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=PACKAGES,
    )


def _last_words(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    return _last_of(process.stderr.read(), process)


def _last_of(said: bytes, process: subprocess.Popen[bytes]) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with exit code {process.wait()} and said nothing"
