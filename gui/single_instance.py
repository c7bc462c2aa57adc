"""One window for each user, home and display: a second start brings the first window forward and hands its argument
over.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from engine.system import file_locks, paths
from engine.system.decode_errors import NOT_DECODED

PATIENCE_S = 5.0
"""How long an open window, which may still be starting, is waited for."""
MOST_BYTES = 64 << 10
_POLL_S = 0.05
_TOKENS = ("XDG_ACTIVATION_TOKEN", "DESKTOP_STARTUP_ID")
"""By which a desktop lets a window come forward that a program started for the user asks to."""


class OpenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a start asks of the window: to show itself, and to open the folder or job file at `path` if there is one."""

    path: str = ""
    activation_token: str = ""


_REQUEST = msgspec.json.Decoder(OpenRequest)


def this_start(path: str) -> OpenRequest:
    """What this process was started for; a relative path is meant from its own working directory."""
    token = next(filter(None, map(os.environ.get, _TOKENS)), "")
    return OpenRequest(os.path.abspath(path) if path else "", token)


def socket_path() -> Path:
    """Where the window listens, in the folder that is the user's alone. A home of its own and another display have each
    a window of their own. Raises PermissionError where there is no such folder.
    """
    display = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY", "")
    which = hashlib.sha256(f"{paths.home().resolve()}\0{display}".encode()).hexdigest()[:16]
    return paths.runtime_folder() / f"window-{which}.sock"


class SingleInstance(QObject):
    """Whether this process has the window, and in that which has, the ear for later starts.

    Only the kernel's lock decides: a socket that a killed window has left is cleared by the next one.

    Signals: requested(OpenRequest) - a later start asks for something.
    """

    requested = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._socket = Path()
        self._lock: int | None = None
        self._server: QLocalServer | None = None

    def handed_over(self, request: OpenRequest, patience_s: float = PATIENCE_S) -> bool:
        """Whether an open window has taken `request`; else this process is to open one.

        Raises TimeoutError where there is a window that does not answer, OSError where there is no folder of the user's
        alone or files can't be locked in it.
        """
        self._socket = socket_path()
        deadline = time.monotonic() + patience_s
        while not self._take_lock():
            if self._sent(request, max(1, int(1000 * (deadline - time.monotonic())))):
                return True
            if time.monotonic() > deadline:
                raise TimeoutError("the open window does not respond")
            time.sleep(_POLL_S)
        return False

    def listen(self) -> None:
        """Takes requests from now on, in the process that has the lock."""
        if self._lock is None:
            return
        QLocalServer.removeServer(str(self._socket))
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._connected)
        self._server.listen(str(self._socket))

    def close(self) -> None:
        """Lets the next start open a window."""
        if self._server is not None:
            self._server.close()
        if self._lock is not None:
            file_locks.unlock(self._lock)
            self._lock = None

    def _take_lock(self) -> bool:
        descriptor = file_locks.open_file(self._socket.with_suffix(".lock"), os.O_CREAT)
        try:
            taken = file_locks.try_lock(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        if taken:
            self._lock = descriptor
        else:
            os.close(descriptor)
        return taken

    def _sent(self, request: OpenRequest, patience_ms: int) -> bool:
        """Whether a window has taken it, which answers with an empty line."""
        connection = QLocalSocket()
        connection.connectToServer(str(self._socket))
        if not connection.waitForConnected(patience_ms):
            return False
        connection.write(msgspec.json.encode(request) + b"\n")
        return connection.waitForReadyRead(patience_ms)

    def _connected(self) -> None:
        assert self._server is not None
        while (connection := self._server.nextPendingConnection()) is not None:
            connection.readyRead.connect(lambda connection=connection: self._read(connection))
            connection.disconnected.connect(connection.deleteLater)

    def _read(self, connection: QLocalSocket) -> None:
        if not connection.canReadLine():
            if connection.bytesAvailable() > MOST_BYTES:
                connection.abort()
            return
        try:
            request = _REQUEST.decode(connection.readLine().data())
        except NOT_DECODED:
            connection.abort()
            return
        connection.write(b"\n")
        connection.flush()
        self.requested.emit(request)
