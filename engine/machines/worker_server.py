"""Server through which a node communicates with the workers on its machine."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from engine.contract.nodes import FromWorker
from engine.contract.protocol import ENCODE, Command, Frames
from engine.contract.worker import WorkerSpec
from engine.machines.worker import WorkerHello

_CHUNK_BYTES = 1 << 18
_LAST_MESSAGES_TIMEOUT_S = 5.0
_HELLO = msgspec.json.Decoder(WorkerHello)


class WorkerServer:
    """Server on a private socket that gives each worker its spec, and passes the workers' messages to `forward`.

    `folder` contains the socket.
    """

    def __init__(self, specs: Sequence[WorkerSpec], forward: Callable[[FromWorker], None], folder: Path) -> None:
        self._specs = {spec.rank: spec for spec in specs}
        self._forward = forward
        self._channels: dict[int, socket.socket] = {}  # by rank
        self._early_commands = dict.fromkeys(self._specs, b"")
        """Encoded commands for workers that have not connected, by rank."""
        self._lock = threading.Lock()
        self._pids: dict[int, int] = {}  # by rank
        self._threads: list[threading.Thread] = []
        self.socket_path: Path = folder / "workers.sock"
        self.socket_path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.socket_path))
        self._listener.listen(len(specs))
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def send(self, rank: int, command: Command) -> None:
        """Send a command to a worker. If the worker has not connected, it gets the command after its spec."""
        data = ENCODE.encode(command) + b"\n"
        with self._lock:
            channel = self._channels.get(rank)
            if channel is None:
                self._early_commands[rank] += data
                return
        with suppress(OSError):
            channel.sendall(data)

    def kill(self, rank: int, *, hard: bool) -> bool:
        """Send SIGTERM, or SIGKILL if `hard`, to a worker's process group. Return False if it has not connected."""
        pid = self._pids.get(rank)
        if pid is None:
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL if hard else signal.SIGTERM)
        return True

    def finish(self) -> None:
        """Forward the last messages of workers that have exited, then close the server."""
        for thread in self._threads:
            thread.join(_LAST_MESSAGES_TIMEOUT_S)
        self.close()

    def close(self) -> None:
        """Remove the socket, and kill the process groups of all workers."""
        self.socket_path.unlink(missing_ok=True)
        for rank in self._pids:
            self.kill(rank, hard=True)  # also stops child processes of the worker

    def _accept(self) -> None:
        """Accept one connection for each worker, and start a thread that serves it."""
        for _ in self._specs:
            channel, _ = self._listener.accept()
            thread = threading.Thread(target=self._serve, args=(channel,), name="worker", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._listener.close()

    def _serve(self, channel: socket.socket) -> None:
        """Send a worker its spec and the commands issued so far, and forward its messages until it disconnects.

        The first message, a `WorkerHello`, tells which worker it is. Connections of other users are closed.
        """
        pid, uid, _ = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        frames = Frames()
        rank = None
        with channel, suppress(ConnectionError):
            if uid != os.getuid():
                return
            while data := channel.recv(_CHUNK_BYTES):
                for line in frames.feed(data):
                    if rank is None:
                        rank = _HELLO.decode(line).rank
                        self._pids[rank] = pid
                        with self._lock:
                            channel.sendall(ENCODE.encode(self._specs[rank]) + b"\n" + self._early_commands[rank])
                            self._channels[rank] = channel
                    else:
                        self._forward(FromWorker(rank=rank, message=msgspec.Raw(line)))
