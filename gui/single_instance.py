"""Limit of one window per user, Footplate home and display. A second start passes its argument to the open window."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.system import file_locks, paths
from engine.system.decode_errors import NOT_DECODED

if TYPE_CHECKING:  # QtNetwork is imported after the window's first frame, or for an open window
    from PySide6.QtNetwork import QLocalServer, QLocalSocket

TIMEOUT_S = 5.0
"""Seconds to wait for an open window, which may still be starting."""
MAX_BYTES = 64 << 10
"""Maximum bytes that are buffered for a request, whose only long part is a path."""
_POLL_S = 0.05
_TOKENS = ("XDG_ACTIVATION_TOKEN", "DESKTOP_STARTUP_ID")
"""Environment variables with tokens from the desktop that permit a window to take the focus."""


class OpenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request to bring the window to the front, and to open `path` (a folder or job file) unless it is ""."""

    path: str = ""
    activation_token: str = ""


_REQUEST = msgspec.json.Decoder(OpenRequest)


def make_open_request(path: str) -> OpenRequest:
    """Return a request to open `path`, made absolute, with the desktop's activation token for this process.

    If `path` is "", the request only brings the window to the front.
    """
    token = next(filter(None, map(os.environ.get, _TOKENS)), "")
    return OpenRequest(os.path.abspath(path) if path else "", token)


def find_socket_path() -> Path:
    """Return the path of the window's socket for this home and display.

    Raises:
        PermissionError: There is no folder that only the user can access.
    """
    display = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY", "")
    digest = hashlib.sha256(f"{paths.home().resolve()}\0{display}".encode()).hexdigest()[:16]
    return paths.runtime_folder() / f"window-{digest}.sock"


class SingleInstance(QObject):
    """Lock that only one window can hold, and a server for requests from later starts.

    Only the lock on a file decides which process has the window. If a killed window has left its socket, the next
    window removes it.

    Signals:
        requested(OpenRequest): a later start has sent a request.
    """

    requested = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._socket = Path()
        self._lock: int | None = None
        self._server: QLocalServer | None = None

    def forward_request(self, request: OpenRequest, timeout_s: float = TIMEOUT_S) -> bool:
        """Pass `request` to an open window and return True.

        If there is no open window, take the lock and return False: this process should open one.

        Raises:
            TimeoutError: The open window doesn't respond.
            OSError: There is no private folder, or files in it can't be locked.
        """
        self._socket = find_socket_path()
        deadline = time.monotonic() + timeout_s
        while not self._try_lock():
            remaining_ms = int(1000 * (deadline - time.monotonic()))
            if self._send(request, max(1, remaining_ms)):
                return True
            if time.monotonic() > deadline:
                raise TimeoutError("the open window does not respond")
            time.sleep(_POLL_S)  # the other window may still be starting, or just be closing
        return False

    def listen(self) -> None:
        """Accept requests from later starts. Does nothing without the lock."""
        if self._lock is None:
            return
        from PySide6.QtNetwork import QLocalServer

        QLocalServer.removeServer(str(self._socket))
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)
        self._server.listen(str(self._socket))

    def close(self) -> None:
        """Stop accepting requests and release the lock."""
        if self._server is not None:
            self._server.close()
        if self._lock is not None:
            file_locks.unlock(self._lock)
            self._lock = None

    def _try_lock(self) -> bool:
        """Try to become the only instance. Return True if no other instance has the lock. Raises OSError."""
        descriptor = file_locks.open_file(self._socket.with_suffix(".lock"), os.O_CREAT)
        try:
            is_locked = file_locks.try_lock(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        if is_locked:
            self._lock = descriptor
        else:
            os.close(descriptor)
        return is_locked

    def _send(self, request: OpenRequest, timeout_ms: int) -> bool:
        """Send a request. Return True if the window has confirmed it with an empty line."""
        from PySide6.QtNetwork import QLocalSocket

        connection = QLocalSocket()
        connection.connectToServer(str(self._socket))
        if not connection.waitForConnected(timeout_ms):
            return False
        connection.write(msgspec.json.encode(request) + b"\n")
        return connection.waitForReadyRead(timeout_ms)

    def _on_connection(self) -> None:
        """Accept the connections of all starts that are waiting, and read their requests when they arrive."""
        assert self._server is not None
        while (connection := self._server.nextPendingConnection()) is not None:
            connection.readyRead.connect(lambda connection=connection: self._read(connection))
            connection.disconnected.connect(connection.deleteLater)

    def _read(self, connection: QLocalSocket) -> None:
        """Emit and confirm a request of a later start. Invalid or oversized requests end the connection."""
        if not connection.canReadLine():
            if connection.bytesAvailable() > MAX_BYTES:
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
