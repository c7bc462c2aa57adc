"""Supervisor process with the tiny worker, and helpers that wait for it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
from PIL import Image

from engine.contract.events import AnyEvent
from engine.contract.job import Job
from engine.contract.protocol import Welcome
from engine.runs.connection import NotRunning, RunConnection, ServerMessage
from engine.runs.folder import RunFolder, create_run
from tests.support.waiting import PATIENCE_S, wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def has_exited(pid: int) -> bool:
    """Return True if a process has exited, even if it is still a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def try_to_connect(run: RunFolder, from_n: int = 1) -> RunConnection | None:
    """Connect to a run's supervisor, or return None if it doesn't listen.

    The supervisor sends the events of the run from number `from_n` on.
    """
    try:
        return RunConnection(run, from_n)
    except NotRunning:
        return None


def wait_until_exited(processes: Iterable[psutil.Process]) -> None:
    """Wait until all processes have exited. Zombies count as exited, since PID 1 may reap orphans only after seconds."""
    wait_until(lambda: all(has_exited(process.pid) for process in processes), f"the end of {processes}")


class Supervised:
    """Run whose supervisor process starts the tiny worker.

    `behavior` is the name of the job and selects what the worker does. `arguments` are passed to tiny_supervisor.py.
    The supervisor doesn't restart failed workers unless `fields`, the fields of the job, permit restarts.
    """

    def __init__(self, behavior: str, world_size: int, *arguments: str, **fields: Any) -> None:
        strategy = "ddp" if world_size > 1 else "single"
        values = {"name": behavior, "strategy": strategy, "devices": ("cpu",) * world_size, "restarts": 0}
        self.run: RunFolder = create_run(Job.from_fields(**(values | fields)))
        self.arguments = arguments
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the supervisor for the next execution of the run."""
        with (self.run.path / "supervisor.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(HERE / "tiny_supervisor.py"), str(self.run.path), *self.arguments],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"},
                start_new_session=True,
            )

    def connect(self, from_n: int = 1) -> RunConnection:
        return wait_until(lambda: try_to_connect(self.run, from_n), "the supervisor", describe_state=lambda: self.log)

    @property
    def log(self) -> str:
        return (self.run.path / "supervisor.log").read_text()

    def wait(self) -> list[AnyEvent]:
        self.process.wait(PATIENCE_S)
        return list(self.run.events())


def messages(connection: RunConnection) -> Iterator[ServerMessage]:
    """Yield messages until the connection closes. Fail if none arrives for a long time."""
    while not connection.closed:
        ready = select.select([connection], [], [], PATIENCE_S)[0]
        assert ready, "nothing came"
        yield from connection.receive()


def events(connection: RunConnection) -> Iterator[AnyEvent]:
    return (message for message in messages(connection) if not isinstance(message, Welcome))  # type: ignore[misc]


Start = Callable[..., Supervised]


def make_images(folder: Path, per_class: int = 24) -> Path:
    """Write `per_class` small gray images for each of two classes, one darker than the other, and return `folder`."""
    for split, lighter, count in (("train", 0, per_class), ("val", 20, max(2, per_class // 4))):
        for brightness, name in ((60, "dark"), (200, "light")):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                image = Image.new("L", (28, 28), brightness + lighter + number % 20)
                image.save(folder / split / name / f"{number}.png")
    return folder
