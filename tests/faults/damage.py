"""Functions that damage the disk which holds a run, and a client that collects the run's events during the damage."""

from __future__ import annotations

import errno
import os
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from engine.contract.events import AnyEvent, Warned
from engine.contract.protocol import Welcome
from engine.runs.connection import RunConnection
from tests.faults.real_runs import RealRun
from tests.support.waiting import PATIENCE_S, wait_until

_Kind = TypeVar("_Kind", bound=AnyEvent)


STEPWISE = """
import os
import time
from pathlib import Path

from torch import nn

GATE = Path(os.environ["FOOTPLATE_HOME"], "gate")


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(32, classes)
        self.steps = 0

    def forward(self, images):
        if self.training:
            self.steps += 1
            print("step", self.steps, flush=True)
            while GATE.exists() and int(GATE.read_text()) < self.steps:
                time.sleep(0.005)
        return self.head(self.stem(images))


def build_model(num_classes):
    return Net(num_classes)
"""
"""Source of a small network that waits, if the gate file exists, until this file permits the next step."""


class Gate:
    """Controller of runs of the model `STEPWISE`, which train up to the step whose number is in its file."""

    def __init__(self, home: Path) -> None:
        self._file = home / "gate"

    def permit_steps(self, step: int, run: RealRun | None = None, *, saved: bool = True) -> None:
        """Permit training up to `step`, counted from the start of the worker.

        If `run` is given, wait until it has finished the step and, if `saved`, until it has written the checkpoint.
        """
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_text(str(step))
        part.replace(self._file)
        if run is not None:
            log = run.folder.worker_log(0)
            wait_until(lambda: log.exists() and f"step {step + 1}\n" in log.read_text(), f"step {step}")
            if saved:
                run.wait_for_checkpoint(step)

    def permit_all_steps(self) -> None:
        self.permit_steps(1 << 60)


class Listener:
    """Client that collects the events of a run from its socket, without reading its log file."""

    def __init__(self, run: RealRun) -> None:
        self.messages: list[AnyEvent] = []
        wait_until(lambda: (found := run.folder.supervisor()) is not None and found.alive(), "the supervisor")
        self._connection = RunConnection(run.folder, from_n=1)

    def wait_for(self, kind: type[_Kind], condition: Callable[[_Kind], bool] = lambda event: True) -> _Kind:
        """Wait until an event of type `kind` satisfies `condition`, and return the first one.

        Events that this client has already received count, too.
        """
        place = 0
        while True:
            for event in self.messages[place:]:
                if isinstance(event, kind) and condition(event):
                    return event
            place = len(self.messages)
            assert not self._connection.closed, f"{kind.__name__} never came: {self.messages[-5:]}"
            assert select.select([self._connection], [], [], PATIENCE_S)[0], f"waited in vain for {kind.__name__}"
            messages = self._connection.receive()
            self.messages += [message for message in messages if not isinstance(message, Welcome)]  # type: ignore[misc]

    def wait_for_warning(self, code: str) -> Warned:
        return self.wait_for(Warned, lambda event: event.code == code)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def open_listener(run: RealRun) -> Iterator[Listener]:
    listener = Listener(run)
    try:
        yield listener
    finally:
        listener.close()


def fill_disk(disk: Path) -> Path:
    """Create a file that uses all free space, and return its path."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        for block in (1 << 16, 1 << 10, 1):
            try:
                while stream.write(bytes(block)) == block:
                    pass
            except OSError:
                continue
    return filler


def mount(*arguments: str) -> None:
    """Run the command `mount` with these arguments. Skip the test if mounting isn't permitted."""
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")


def unmount(place: Path) -> None:
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def limit_files(process: psutil.Process, size: int | None) -> None:
    """Limit the size of each file that `process` writes to `size` bytes. Remove the limit if `size` is None."""
    _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (hard if size is None else size, hard))


@contextmanager
def make_read_only(folder: Path) -> Iterator[None]:
    """Make `folder` read-only inside the context."""
    if os.geteuid() != 0:
        folder.chmod(0o500)
        yield
        folder.chmod(0o700)
        return
    mount("--bind", str(folder), str(folder))
    try:
        # This fails while a file in the folder is open for writing.
        command = ["mount", "-o", "remount,ro,bind", str(folder)]
        wait_until(
            lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, "the disk to be idle"
        )
        yield
    finally:
        unmount(folder)


def delete_folder(run: RealRun) -> None:
    """Delete the run's folder. Repeat this if the run writes to the folder at the same time."""
    while True:
        try:
            shutil.rmtree(run.folder.path)
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise


def move_away(run: RealRun) -> None:
    run.folder.path.rename(run.folder.path.with_name("moved"))
