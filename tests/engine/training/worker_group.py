"""Starts the workers of a run as real processes, standing in for the supervisor; also runs one of them.

`python worker_group.py SPEC_JSON FD EVERY_STEP` is one worker.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from engine.contract.events import Failed, StepMetrics  # noqa: E402
from engine.contract.job import Job  # noqa: E402
from engine.contract.protocol import ENCODE, Frames  # noqa: E402
from engine.contract.worker import FROM_WORKER, Heartbeat, WorkerDone, WorkerSpec  # noqa: E402


class WorkerGroup:
    """All workers of one run. `messages` holds (rank, message) in the order of arrival, `codes` the exit codes."""

    def __init__(self, job: Job, folder: Path, *, every_step: bool = False, environment: dict[str, str] | None = None):
        world = 1 if job.strategy == "dp" else len(job.devices)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "checkpoints").mkdir(exist_ok=True)
        self.folder = folder
        self.messages: list[tuple[int, Any]] = []
        self._selector = selectors.DefaultSelector()
        self._frames = [Frames(1 << 24) for _ in range(world)]
        self.sockets: list[socket.socket] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        rendezvous = folder / "rendezvous"
        rendezvous.unlink(missing_ok=True)
        for rank in range(world):
            spec = WorkerSpec(
                run_folder=str(folder),
                job=job,
                rank=rank,
                world_size=world,
                devices=job.devices,
                rendezvous=str(rendezvous),
                threads=1,
            )
            ours, theirs = socket.socketpair()
            with theirs, (folder / f"worker-{rank}.log").open("wb") as log:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        __file__,
                        msgspec.json.encode(spec).decode(),
                        str(theirs.fileno()),
                        str(int(every_step)),
                    ],
                    pass_fds=[theirs.fileno()],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **(environment or {})},
                )
            ours.setblocking(False)
            self._selector.register(ours, selectors.EVENT_READ, rank)
            self.sockets.append(ours)
            self.processes.append(process)

    def send(self, message: msgspec.Struct, ranks: list[int] | None = None) -> None:
        for rank in ranks if ranks is not None else range(len(self.sockets)):
            self.sockets[rank].sendall(ENCODE.encode(message) + b"\n")

    def read(self, until: Callable[[int, Any], bool] | None = None, seconds: float = 60.0) -> Any:
        """Reads until a message satisfies `until` and returns it, or until all channels are closed."""
        deadline = time.monotonic() + seconds
        while self._selector.get_map():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder}: {self.messages[-3:]}\n{self.logs()}")
            for key, _ in self._selector.select(0.5):
                found = self._receive(key.data)
                for message in found:
                    if until is not None and until(key.data, message):
                        return message
        return None

    def _receive(self, rank: int) -> list[Any]:
        try:
            data = self.sockets[rank].recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(self.sockets[rank])
            return []
        found = [FROM_WORKER.decode(line) for line in self._frames[rank].feed(data)]
        self.messages += [(rank, message) for message in found if not isinstance(message, Heartbeat)]
        return found

    def finish(self, seconds: float = 60.0) -> list[int]:
        """Reads to the end; the exit codes."""
        try:
            self.read(None, seconds)
            return [process.wait(10) for process in self.processes]
        finally:
            self.close()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for ours in self.sockets:
            ours.close()
        self._selector.close()

    def of(self, kind: type, rank: int | None = None) -> list[Any]:
        return [m for r, m in self.messages if isinstance(m, kind) and rank in (None, r)]

    @property
    def losses(self) -> list[float]:
        return [metrics.loss for metrics in self.of(StepMetrics)]

    @property
    def done(self) -> WorkerDone:
        failed = self.of(Failed)
        assert not failed, f"{failed}\n{self.logs()}"
        (done,) = self.of(WorkerDone, 0)
        return done

    def logs(self) -> str:
        texts = [path.read_text() for path in sorted(self.folder.glob("worker-*.*"))]
        return "\n".join(texts)


def main(arguments: list[str]) -> int:
    from engine.training.worker import run

    spec = msgspec.json.decode(arguments[0], type=WorkerSpec)
    return run(spec, socket.socket(fileno=int(arguments[1])), every_step=bool(int(arguments[2])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
