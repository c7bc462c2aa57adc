"""Real runs on the CPU, faults to inject, and access to a run's files and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import psutil
import torch

from engine.contract.events import EVENT, AnyEvent, CheckpointSaved, RunFinished, StepMetrics
from engine.contract.job import Job
from engine.contract.protocol import Command
from engine.processes.watchdog import Limits
from engine.runs.connection import RunConnection
from engine.runs.folder import RunFolder
from engine.runs.launch import start_supervisor
from engine.runs.resume import job_to_resume, save_next_job
from tests.engine.supervisor.supervised import ROOT
from tests.faults.starting import StartRequest
from tests.support.same_states import find_differences
from tests.support.waiting import PATIENCE_S, wait_until

MARK = "FOOTPLATE_TEST_RUN"
"""Environment variable that identifies the processes of one run."""

AT_ONCE_S = 2.0
"""Maximum seconds until the kernel has ended the workers of a killed supervisor, even on a busy machine."""

MODEL = '''
"""A small network that does at a moment what a file named "hold" beside the runs asks for, on one rank."""

import ctypes
import os
import signal
import threading
import time
from pathlib import Path

import torch
from torch import nn

from engine.data.datasets import images as data

HOLD = Path(os.environ["FOOTPLATE_HOME"], "hold")
fsync, replace, decode = os.fsync, os.replace, data.decode


def asked():
    try:
        return HOLD.read_text()
    except OSError:
        return ""


def ask(moment):
    own = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    request = asked()
    if request.startswith(f"{moment} {own} "):
        HOLD.with_name("held").touch()  # from here on something else may be asked for at any time
        DOES[request.split()[-1]](request)


def wait(request):
    while asked() == request:
        time.sleep(0.005)


def ignore(request):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait(request)


def block(request):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.PyDLL(None).sleep(3600)  # native code that keeps the interpreter's lock


def crash(request):
    ctypes.string_at(0)


def crash_once(request):
    HOLD.unlink()
    crash(request)


def throw(request):
    HOLD.unlink()
    for reader in threading.enumerate():
        # Validation may have readers of its own by now. A thread that is just starting would end without a traceback, and
        # `Thread.start` would wait for ever.
        if reader.name != "batches" or not reader.is_alive():
            continue
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(reader.ident), ctypes.py_object(BufferError))


DOES = {"wait": wait, "ignore": ignore, "block": block, "crash": crash, "crash_once": crash_once, "throw": throw}


def ask_and_sync(file):
    name = Path(os.readlink(f"/proc/self/fd/{file}")).name
    if name.endswith(".part"):
        ask(f"syncing{name}")
    fsync(file)


def ask_and_replace(source, target):
    ask(f"renaming{Path(source).name}")
    replace(source, target)


def ask_and_decode(*given):
    ask("decoding")
    return decode(*given)


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(32, classes)
        self.steps = 0

    def forward(self, images):
        self.steps += self.training
        if self.training:
            ask("training")
            ask(f"step{self.steps}")
        elif self.steps:  # a strategy tries what it makes of the model beforehand, in no training
            ask("validating")
        return self.head(self.stem(images))


def build_model(num_classes):
    ask("building")
    os.fsync, os.replace, data.decode = ask_and_sync, ask_and_replace, ask_and_decode
    return Net(num_classes)
'''

_Kind = TypeVar("_Kind", bound=AnyEvent)


class Hold:
    """Controller that makes runs of the model `MODEL` wait or fail at a certain moment of the training.

    A moment is "building"; "decoding" an image; "training" or "validating" (a forward pass); "step5", the fifth step of
    a process; or a stage of writing a checkpoint, such as "syncing.last.pt.part" or "renaming.best.pt.part".
    """

    def __init__(self, home: Path) -> None:
        self._asked, self._reached = home / "hold", home / "held"

    def set_action(self, moment: str, *, what: str = "wait") -> None:
        """Make rank 0 perform the action `what` when it reaches a moment.

        - "wait": Wait until the action changes.
        - "ignore": Wait and ignore SIGTERM.
        - "block": Wait in native code.
        - "crash": Crash in native code.
        - "crash_once": Crash only the first time.
        - "throw": Raise BufferError in the prefetching thread.
        """
        self._asked.parent.mkdir(parents=True, exist_ok=True)
        self._reached.unlink(missing_ok=True)
        self._asked.with_suffix(".part").write_text(f"{moment} 0 {what}")
        self._asked.with_suffix(".part").replace(self._asked)

    def wait_until_reached(self) -> None:
        wait_until(self._reached.exists, f"the moment of {self._asked.read_text()}")

    def release(self) -> None:
        self._asked.unlink(missing_ok=True)


class Starter:
    """Controller of a child process that forks supervisors (tests/faults/starting.py)."""

    def __init__(self, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.starting"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict(environment),
            cwd=ROOT,
        )

    def start(self, request: StartRequest) -> int:
        """Start a supervisor and return its pid."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


class RealRun:
    """Run with a real supervisor and real workers, which can be started and resumed any number of times.

    `StartRequest` describes `limits`, `deadline_s` and `save_again_s`.
    """

    def __init__(
        self,
        starter: Starter,
        folder: RunFolder,
        *,
        limits: Limits | None = None,
        deadline_s: float | None = None,
        save_again_s: float | None = None,
    ) -> None:
        self.folder = folder
        self.limits = limits
        self.deadline_s = deadline_s
        self.save_again_s = save_again_s
        self.pid = 0
        self._starter = starter
        self._events: list[AnyEvent] = []
        self._read_to = 0

    # Start

    def start_cold(self) -> RealRun:
        """Start the supervisor in a new interpreter, like a command in a terminal. Imports take seconds."""
        self.pid = start_supervisor(self.folder)
        return self

    def start(self) -> RealRun:
        """Fork a process that runs the supervisor, and return this run without waiting for the process."""
        folder = str(self.folder.path.absolute())
        environment = os.environ | {MARK: folder}
        request = StartRequest(
            folder, environment, limits=self.limits, deadline_s=self.deadline_s, save_again_s=self.save_again_s
        )
        self.pid = self._starter.start(request)
        return self

    def resume(self, **changes: Any) -> RealRun:
        """Resume the run as `footplate resume` does. `changes` override fields of its job."""
        job, problems = job_to_resume(self.folder, changes)
        assert job is not None, problems
        save_next_job(self.folder, job)
        return self.start()

    def send(self, command: Command) -> None:
        with RunConnection(self.folder, from_n=1 << 60) as connection:
            connection.send(command)

    # Events

    @property
    def job(self) -> Job:
        """Job of the current execution."""
        job = self.folder.job()
        assert job is not None
        return job

    @property
    def logged(self) -> list[AnyEvent]:
        """All events in the log."""
        if self.folder.events_file.exists():
            with self.folder.events_file.open("rb") as stream:
                stream.seek(self._read_to)
                for line in stream:
                    if not line.endswith(b"\n"):
                        break
                    self._events.append(EVENT.decode(line))
                    self._read_to += len(line)
        return self._events

    def list_events(self, kind: type[_Kind], since: int = 0) -> list[_Kind]:
        """Return the events of type `kind` in the log whose numbers are greater than `since`."""
        return [event for event in self.logged if isinstance(event, kind) and event.n > since]

    @property
    def last_n(self) -> int:
        return self.logged[-1].n if self.logged else 0

    def wait_for(
        self,
        kind: type[_Kind],
        condition: Callable[[_Kind], bool] = lambda event: True,
        *,
        since: int = 0,
        patience_s: float = PATIENCE_S,
    ) -> _Kind:
        """Wait until an event of type `kind` satisfies `condition`, and return this event.

        Events up to number `since` are ignored.
        """
        found: list[_Kind] = []

        def has_found() -> bool:
            # Read this before the other events. Otherwise, the run could log such an event and end in between.
            over = self.list_events(RunFinished, since)
            found[:] = [event for event in self.list_events(kind, since) if condition(event)]
            if not found:
                assert not over, f"{kind.__name__} never came: {over}\n{self.logs()}"
            return bool(found)

        wait_until(has_found, f"{kind.__name__} in {self.folder.path}", patience_s)
        return found[0]

    def wait_for_step(self, step: int, since: int = 0) -> StepMetrics:
        return self.wait_for(StepMetrics, lambda event: event.step >= step, since=since)

    def wait_for_checkpoint(self, step: int = 1, since: int = 0) -> CheckpointSaved:
        return self.wait_for(CheckpointSaved, lambda event: event.kind == "last" and event.step >= step, since=since)

    @property
    def saved(self) -> int:
        """Step of the newest last.pt according to the log, or 0 if none was saved."""
        return next((event.step for event in reversed(self.list_events(CheckpointSaved)) if event.kind == "last"), 0)

    def wait_for_end(self, since: int = 0, patience_s: float = PATIENCE_S) -> RunFinished:
        """Wait until an execution of the run has ended and its processes have exited. Return its final event.

        Events up to number `since` are ignored.
        """
        finished = self.wait_for(RunFinished, since=since, patience_s=patience_s)
        self.wait_for_processes_to_end()
        return finished

    def completed(self, since: int = 0, patience_s: float = PATIENCE_S) -> RealRun:
        finished = self.wait_for_end(since, patience_s)
        assert finished.outcome == self.folder.state() == "completed", f"{finished}\n{self.logs()}"
        assert finished.cause == ""
        return self

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-4000:]}" for path in self.folder.path.glob("*.log"))

    # Processes

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the run.

        A process belongs to the run if it has one of the run's output files, if its environment variable `MARK` names
        the run's folder, or if it is a descendant of such a process, such as the sampler.
        """
        owned = [process for process in _list_other_processes() if self._owns(process)]
        return list(dict.fromkeys([*owned, *(child for process in owned for child in _list_descendants(process))]))

    def workers(self) -> dict[int, psutil.Process]:
        """Return the worker processes by rank."""
        named = [(process, _get_name(process)) for process in self.processes()]
        return {int(name[11:]): process for process, name in named if name.startswith("footplate-w")}

    def kill_all(self) -> None:
        """Kill all processes of the run before any of them can react to the death of another process."""
        for process in self.processes():
            kill(process.pid)

    def wait_for_processes_to_end(self) -> None:
        wait_until(lambda: not self.processes(), f"the end of {self.processes()}")

    def assert_processes_end(self) -> None:
        """Wait until all processes of the run have exited. Fail if this takes longer than `AT_ONCE_S`."""
        wait_until(lambda: not self.processes(), f"the end of {self.processes()}", AT_ONCE_S)

    def _owns(self, process: psutil.Process) -> bool:
        folder = str(self.folder.path.absolute())
        try:
            if process.pid == self.pid:
                return True
            outputs = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (1, 2)]
            return (
                any(path.startswith(f"{folder}{os.sep}") for path in outputs) or process.environ().get(MARK) == folder
            )
        except (OSError, psutil.Error):
            return False

    # Files

    @property
    def last(self) -> Path:
        return self.folder.checkpoints / "last.pt"

    def partial_file(self, name: str = "last.pt") -> Path:
        """Return the path of the temporary file to which the checkpoint `name` is written."""
        return self.folder.checkpoints / f".{name}.part"

    @property
    def final_checkpoints(self) -> FinalCheckpoints:
        """Contents of last.pt and best.pt of the run, which must have ended."""
        return FinalCheckpoints(_load_content(self.last), _load_content(self.folder.checkpoints / "best.pt"))

    def remove_socket(self) -> None:
        """Remove the socket that a killed supervisor left behind."""
        supervisor = self.folder.supervisor()
        if supervisor is not None and not supervisor.alive():
            Path(supervisor.endpoint.removeprefix("unix:")).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class FinalCheckpoints:
    """Contents of last.pt and best.pt after a run, without values that differ between identical runs."""

    last: dict[str, Any]
    best: dict[str, Any]


def assert_same_checkpoints(result: FinalCheckpoints, expected: FinalCheckpoints) -> None:
    """Check that two results are equal bit by bit: weights, optimizer states, random states, metrics and position."""
    for mine, other in ((result.last, expected.last), (result.best, expected.best)):
        found = find_differences(mine, other)
        assert not found, found


def _load_content(checkpoint: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(checkpoint, weights_only=True)
    content.pop("model_split", None)  # contains measured times
    if "job" in content:
        for field in ("resume_from", "restarts", "split_points"):
            content["job"].pop(field)
    return content


def _list_other_processes() -> Iterator[psutil.Process]:
    return (process for process in psutil.process_iter() if process.pid != os.getpid() and is_alive(process))


def _list_descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return the running descendants of a process, or an empty list if it has exited."""
    try:
        return [child for child in process.children(recursive=True) if is_alive(child)]
    except psutil.Error:
        return []


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _get_name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def kill(pid: int) -> None:
    """Kill a process. Do nothing if it has already exited."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
