"""A worker on another machine, as its group sees it."""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable

from engine.contract.nodes import KillWorker, ToWorker
from engine.contract.protocol import Command
from engine.contract.worker import FROM_WORKER, WorkerDone, WorkerSpec
from engine.machines.link import NodeLink
from engine.processes.worker_process import FromWorker
from engine.runs.folder import RunFolder


class RemoteWorker:
    """Hears of a worker through the `link` to its machine; see `Worker`."""

    pid = 0

    def __init__(self, spec: WorkerSpec, link: NodeLink) -> None:
        self.rank = spec.rank
        self.log = RunFolder(spec.run_folder).worker_log(spec.rank)
        self.exit_code: int | None = None
        self.done: WorkerDone | None = None
        self.because_of_another = False
        self.channel: NodeLink | None = link
        self._link = link
        self._heard: deque[bytes | FromWorker] = deque()
        self._hear: Callable[[], None] = lambda: None

    def listen(self, selector: selectors.BaseSelector, hear: Callable[[], None]) -> None:
        self._hear = hear

    def take(self, message: bytes | FromWorker) -> None:
        """Notes what it has said."""
        self._heard.append(message)
        self._hear()

    def ended(self, exit_code: int | None) -> None:
        """Notes its end; None for one that was ended because of another."""
        self.because_of_another = exit_code is None
        self.exit_code = -9 if exit_code is None else exit_code

    def poll(self) -> int | None:
        return self.exit_code

    def receive(self) -> list[FromWorker]:
        """What has been heard; at the end of that the channel is closed. Raises msgspec.DecodeError."""
        heard = []
        while self._heard:
            message = self._heard.popleft()
            heard.append(FROM_WORKER.decode(message) if isinstance(message, bytes) else message)
        if not heard and self.exit_code is not None:
            self.close()
        return heard

    def send(self, message: Command) -> None:
        self._link.send(ToWorker(rank=self.rank, command=message))

    def kill(self, *, hard: bool) -> None:
        if self.exit_code is None:
            self._link.send(KillWorker(rank=self.rank, hard=hard))

    def close(self) -> None:
        self.channel = None
