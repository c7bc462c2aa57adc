"""The child processes whose answers the commands need: the sampler and the dataset inspector."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from engine.contract.dataset import INSPECTION, DatasetReport, InspectionDone, InspectionProgress
from engine.contract.devices import Snapshot
from engine.contract.job import Job

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


def _child(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    # Its few complaints go into a pipe that is read at the end only, and are too short to fill it.
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PACKAGES,
    )


def _last_words(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    lines = process.stderr.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with exit code {process.wait()} and said nothing"
