"""Start a run's workers as real processes, without a supervisor.

A `Forker` controls a process that has imported torch and forks every worker from it, so that tests don't wait for
imports. `python worker_group.py FD` is this process.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from engine.contract.events import Failed, StepMetrics  # noqa: E402
from engine.contract.job import Job  # noqa: E402
from engine.contract.protocol import ENCODE, Frames  # noqa: E402
from engine.contract.worker import FROM_WORKER, Heartbeat, WorkerDone, WorkerSpec  # noqa: E402
from engine.processes import imports  # noqa: E402
from engine.processes.worker_process import run_worker, worker_environment  # noqa: E402
from engine.system import paths  # noqa: E402

INFERENCE = (
    "engine.inference.evaluation.measure",
    "engine.inference.prediction.work",
    "engine.inference.explanation.explain",
)
"""Additional modules to import for workers that load a trained model."""


class StartRequest(msgspec.Struct, tag=True):
    """Request to start a worker.

    The worker sets the `environment` variables and calls `prepare` ("module:function", or "" for none). It then calls
    `worker`, or trains if `worker` is "". It fails when it writes a file larger than `file_limit_bytes`.
    """

    spec: WorkerSpec
    every_step: bool
    file_limit_bytes: int | None
    environment: dict[str, str]
    prepare: str
    worker: str = ""


class CallRequest(msgspec.Struct, tag=True):
    """Request to call `function` ("module:function") in a new process. Arguments and result are JSON values."""

    function: str
    arguments: list[Any]
    environment: dict[str, str]


class PreloadRequest(msgspec.Struct, tag=True):
    """Request to import modules in the forking process, so that later workers needn't import them."""

    modules: tuple[str, ...]


class Forker:
    """Controller of the process that forks the workers.

    `prepare` names a function ("module:function") that each worker started with `spawn` calls first.
    """

    prepare = ""

    def __init__(self, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._socket, forker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with forker_end:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(forker_end.fileno())],
                pass_fds=[forker_end.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, request: StartRequest) -> tuple[socket.socket, int]:
        """Start a worker. Return its channel, and the file descriptor of a pipe that delivers its exit code as a byte."""
        worker_end, forker_end = socket.socketpair()
        with forker_end:
            return worker_end, self._start(request, forker_end)[1]

    def spawn(self, spec: WorkerSpec, worker: str, channel: socket.socket, _log: Path) -> ForkedWorker:
        """Fork a worker from the controlled process. Replaces `worker_process._spawn`, which starts an interpreter.

        Forking the test process itself would be unsafe, because it has threads.
        """
        request = StartRequest(spec, False, None, os.environ | worker_environment(spec), self.prepare, worker)
        return ForkedWorker(*self._start(request, channel))

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], environment: Mapping[str, str]) -> Any:
        """Call a module-level function in a forked process, and return its result.

        An exception in the function raises AssertionError here.
        """
        channel, forker_end = socket.socketpair()
        with channel, channel.makefile("rb") as replies:
            with forker_end:
                name = f"{function.__module__}:{function.__name__}"
                pid, end = self._start(CallRequest(name, list(arguments), dict(environment)), forker_end)
            channel.settimeout(120)
            try:
                reply = replies.read()
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            finally:
                os.close(end)
        assert reply, f"{name} has crashed"
        answer = json.loads(reply)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def preload(self, *modules: str) -> None:
        """Import modules in the controlled process, so that later workers needn't import them."""
        self._socket.send(msgspec.json.encode(PreloadRequest(modules)))
        self._socket.recv(16)

    def _start(self, request: StartRequest | CallRequest, channel: socket.socket) -> tuple[int, int]:
        """Fork a process for a request. Return its process id, and the file descriptor of a pipe for its exit code."""
        ends, begins = os.pipe()
        socket.send_fds(self._socket, [msgspec.json.encode(request)], [channel.fileno(), begins])
        os.close(begins)
        return int(self._socket.recv(16)), ends

    def close(self) -> None:
        self._socket.close()
        self._process.wait(120)


class ForkedWorker:
    """Replacement for `Popen`, with the members that `WorkerProcess` uses."""

    def __init__(self, pid: int, ends: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._ends = ends
        os.set_blocking(ends, False)

    def poll(self) -> int | None:
        if self._code is None:
            try:
                code = os.read(self._ends, 1)
            except BlockingIOError:
                return None
            self._code = code[0] if code else -signal.SIGKILL
            os.close(self._ends)
        return self._code


class WorkerGroup:
    """Running workers of a job, each with `threads` intra-op threads.

    `datasets` maps a rank to its dataset, if it differs from the job's. `messages` collects pairs (rank, message) in
    order of arrival, without heartbeats.
    """

    def __init__(
        self,
        forker: Forker,
        job: Job,
        folder: Path,
        *,
        every_step: bool = False,
        file_limit_bytes: int | None = None,
        threads: int = 1,
        skip_to: int = 0,
        environment: Mapping[str, str] = MappingProxyType({}),
        prepare: str = "",
        datasets: Mapping[int, Path] = MappingProxyType({}),
    ) -> None:
        world = 1 if job.parallel.strategy == "dp" else len(job.parallel.devices)
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.job = job
        self.messages: list[tuple[int, Any]] = []
        self.heartbeats = 0
        self._selector = selectors.DefaultSelector()
        self._frames = [Frames(1 << 24) for _ in range(world)]
        self.sockets: list[socket.socket] = []
        self._ends: list[int] = []
        for rank in range(world):
            spec = WorkerSpec(
                run_folder=str(folder),
                job=job.with_fields(dataset=str(datasets.get(rank, job.data.dataset))),
                rank=rank,
                world_size=world,
                devices=job.parallel.devices,
                rendezvous=str(folder / "rendezvous"),
                threads=threads,
                skip_to=skip_to,
            )
            variables = {"FOOTPLATE_HOME": str(paths.home()), **environment}  # the home contains the user's consents
            worker_end, end = forker.start(StartRequest(spec, every_step, file_limit_bytes, variables, prepare))
            worker_end.setblocking(False)
            self._selector.register(worker_end, selectors.EVENT_READ, rank)
            self.sockets.append(worker_end)
            self._ends.append(end)

    def send(self, message: msgspec.Struct, rank: int) -> None:
        self.sockets[rank].sendall(ENCODE.encode(message) + b"\n")

    def read(self, until: Callable[[int, Any], bool] | None = None, seconds: float = 120.0) -> Any:
        """Read messages until `until(rank, message)` is true for one of them, and return this message.

        Returns None if all channels close first.

        Raises:
            TimeoutError: This takes longer than `seconds`.
        """
        deadline = time.monotonic() + seconds
        while self._selector.get_map():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder}: {self.messages[-3:]}\n{self.logs()}")
            for key, _ in self._selector.select(0.5):
                for message in self._receive(key.data):
                    if until is not None and until(key.data, message):
                        return message
        return None

    def read_steps(self, step: int) -> None:
        """Read messages until rank 0 has reported `step`."""
        self.read(lambda _, message: isinstance(message, StepMetrics) and message.step >= step)

    def _receive(self, rank: int) -> list[Any]:
        try:
            data = self.sockets[rank].recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(self.sockets[rank])
            return []
        found = [FROM_WORKER.decode(line) for line in self._frames[rank].feed(data)]
        self.heartbeats += sum(isinstance(message, Heartbeat) for message in found)
        self.messages += [(rank, message) for message in found if not isinstance(message, Heartbeat)]
        return found

    def finish(self, seconds: float = 120.0) -> list[int | None]:
        """Read all remaining messages for at most `seconds`, close the group, and return the exit codes by rank.

        The code of a killed worker is None.
        """
        try:
            self.read(None, seconds)
            return self.wait_for_exit_codes()
        finally:
            self.close()

    def wait_for_exit_codes(self) -> list[int | None]:
        """Wait until all workers have exited, and return their exit codes by rank. The code of a killed worker is None."""
        codes: list[int | None] = []
        for end in self._ends:
            code = os.read(end, 1)
            while os.read(end, 1):
                pass
            codes.append(code[0] if code else None)
        return codes

    def close(self) -> None:
        """Close the channels, and wait until the workers have exited. Can be called repeatedly."""
        if not self._ends:
            return
        for worker_end in self.sockets:
            worker_end.close()
        self._selector.close()
        self.wait_for_exit_codes()
        while self._ends:
            os.close(self._ends.pop())

    def of(self, kind: type, rank: int | None = None) -> list[Any]:
        return [m for r, m in self.messages if isinstance(m, kind) and rank in (None, r)]

    @property
    def losses(self) -> list[float]:
        return [metrics.loss for metrics in self.of(StepMetrics)]

    def completed(self, seconds: float = 120.0) -> WorkerGroup:
        """Read all messages of the run for at most `seconds`, check that it succeeded, and return the closed group."""
        codes = self.finish(seconds)
        assert not any(codes), f"{codes} {self.of(Failed)}\n{self.logs()}"
        return self

    @property
    def done(self) -> WorkerDone:
        (done,) = self.of(WorkerDone, 0)
        assert isinstance(done, WorkerDone)
        return done

    def checkpoint(self, name: str = "last.pt") -> dict[str, Any]:
        """Load the checkpoint `name` of the run into main memory."""
        import torch

        content: dict[str, Any] = torch.load(self.folder / "checkpoints" / name, map_location="cpu", weights_only=True)
        return content

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("worker-*")))


def _fork_on_demand(requests: socket.socket) -> None:
    imports.import_all(imports.BASIC + imports.DISTRIBUTED + imports.OPTIONAL + INFERENCE)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children don't have to be awaited
    while True:
        line, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 2)
        if not line:
            return
        request = msgspec.json.decode(line, type=StartRequest | CallRequest | PreloadRequest)
        if isinstance(request, PreloadRequest):
            imports.import_all(request.modules)
            requests.send(b"done")
            continue
        pid = os.fork()
        if pid == 0:
            requests.close()
            os.environ.update(request.environment)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if isinstance(request, CallRequest):
                _answer_call(request, descriptors[0])
            _work(request, *descriptors)
        requests.send(b"%d" % pid)
        for descriptor in descriptors:
            os.close(descriptor)


def _import_function(name: str) -> Callable[..., Any]:
    """Import a function by its name ("module:function")."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def _answer_call(call: CallRequest, channel: int) -> None:
    """Send the result of a call, or its traceback, and exit."""
    try:
        reply = {"result": _import_function(call.function)(*call.arguments)}
    except Exception:
        reply = {"error": traceback.format_exc()}
    with socket.socket(fileno=channel) as replies:
        replies.sendall(json.dumps(reply).encode())
    os._exit(0)


def _work(request: StartRequest, channel: int, end: int) -> None:
    from engine.training.worker import run

    code = 70
    try:
        log = os.open(Path(request.spec.run_folder) / f"worker-{request.spec.rank}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if request.file_limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request.file_limit_bytes, resource.RLIM_INFINITY))
        if request.prepare:
            _import_function(request.prepare)(request.spec)
        if request.worker:
            os.setpgid(0, 0)
            code = run_worker(request.spec, request.worker, socket.socket(fileno=channel))
        else:
            code = run(request.spec, socket.socket(fileno=channel), every_step=request.every_step)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(end, bytes([code]))
        os._exit(code)


if __name__ == "__main__":
    _fork_on_demand(socket.socket(fileno=int(sys.argv[1])))
