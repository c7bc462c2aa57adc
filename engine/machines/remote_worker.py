"""Worker on another machine, with the same interface as a local worker."""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable

from engine.contract.nodes import KillWorker, WorkerCommand
from engine.contract.protocol import Command
from engine.contract.worker import FROM_WORKER, WorkerDone, WorkerSpec
from engine.machines.link import NodeLink
from engine.processes.worker_process import FromWorker
from engine.runs.folder import RunFolder


class RemoteWorker:
    """Worker on the machine at the other end of `link`.

    `has_ended` is True once the worker has exited. The exit code is set later, after the worker's files have been
    copied or if they are no longer needed.
    """

    pid = 0
    has_ended = False

    def __init__(self, spec: WorkerSpec, link: NodeLink) -> None:
        self.rank = spec.rank
        self.log = RunFolder(spec.run_folder).worker_log(spec.rank)
        self.exit_code: int | None = None
        self.done: WorkerDone | None = None
        self.is_stopped_for_another = False  # True if torch's agent has stopped it because another worker failed
        self.channel: NodeLink | None = link  # None once all messages have been taken
        self._link = link
        self._received: deque[bytes | FromWorker] = deque()
        self._on_readable: Callable[[], None] = lambda: None

    def listen(self, selector: selectors.BaseSelector, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` whenever a message for `receive` has arrived. The selector is not used."""
        self._on_readable = on_readable

    def on_message(self, message: bytes | FromWorker) -> None:
        """Queue a message, encoded or decoded, for `receive`."""
        self._received.append(message)
        self._on_readable()

    def set_exit_code(self, exit_code: int | None) -> None:
        """Set the exit code of the worker. It is None if the worker was stopped because another worker failed."""
        self.is_stopped_for_another = exit_code is None
        self.exit_code = -9 if exit_code is None else exit_code

    def poll(self) -> int | None:
        """Return the exit code, or None if the worker has not exited or its files are still being copied."""
        return self.exit_code

    def receive(self) -> list[FromWorker]:
        """Return the queued messages. After the last one, the channel is closed. Raises msgspec.DecodeError."""
        messages = []
        while self._received:
            message = self._received.popleft()
            messages.append(FROM_WORKER.decode(message) if isinstance(message, bytes) else message)
        if not messages and self.exit_code is not None:
            self.close()
        return messages

    def send(self, message: Command) -> None:
        """Queue a command, which the machine forwards to the worker."""
        self._link.send(WorkerCommand(rank=self.rank, command=message))

    def kill(self, *, hard: bool) -> None:
        """Send the worker SIGKILL (if `hard`) or SIGTERM. If it has exited, stop waiting for its files instead."""
        if self.has_ended:
            # With an exit code, the worker counts as finished.
            self.set_exit_code(self.exit_code or 0)
        elif self.exit_code is None:
            self._link.send(KillWorker(rank=self.rank, hard=hard))

    def close(self) -> None:
        """Mark the channel as closed. The connection to the machine, which other workers use, remains open."""
        self.channel = None
