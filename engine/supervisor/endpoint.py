"""Listening socket of a supervisor. It is a Unix socket in the user's runtime folder, or loopback TCP with a token."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import stat
import struct
from pathlib import Path

from engine.system import paths

BACKLOG = 128
"""Maximum number of connections that wait to be accepted."""
_MAX_PATH_BYTES = 100
"""Maximum length of a Unix socket's path in bytes. macOS allows 103 bytes, and Linux 107."""


class Endpoint:
    """Listening, non-blocking socket. `text` is its address, as written to `supervisor.json`."""

    def __init__(self, listener: socket.socket, text: str, *, path: Path | None = None, token: str = "") -> None:
        listener.setblocking(False)
        self.listener = listener
        self.text = text
        self.token = token
        self._path = path
        self._inode = path.lstat().st_ino if path is not None else 0

    def admits(self, peer: socket.socket) -> bool:
        """Return True unless the system reports that the peer is a process of another user."""
        if self._path is None or not hasattr(socket, "SO_PEERCRED"):
            return True  # the token or the folder's mode protects the socket
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return bool(uid == os.getuid())

    @property
    def is_reachable(self) -> bool:
        """True while clients can reach the socket by its address.

        They can't if the socket's file was replaced or removed, as it is after a logout.
        """
        if self._path is None:  # the address is not a file
            return True
        try:
            return self._path.lstat().st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Close the socket, and remove its file unless another socket has replaced it."""
        is_reachable = self.is_reachable  # its file is still that of this socket
        self.listener.close()
        if self._path is not None and is_reachable:
            self._path.unlink(missing_ok=True)


def open_endpoint(run_folder: Path, *, tcp: bool = False) -> Endpoint:
    """Open a socket for the clients of the run.

    If `tcp` is True, use loopback TCP even if Unix sockets are available.
    """
    if not tcp and hasattr(socket, "AF_UNIX"):
        path = paths.runtime_folder() / socket_name(run_folder)
        if len(os.fsencode(path)) < _MAX_PATH_BYTES:
            return _listen_on_unix(path)
    return _listen_on_loopback()


def socket_name(run_folder: Path) -> str:
    """Return a short file name for the run's socket.

    It differs even from that of a run with the same id in another home folder.
    """
    digest = hashlib.blake2b(os.fsencode(run_folder.absolute()), digest_size=4).hexdigest()
    return f"{run_folder.name[-24:]}-{digest}.sock"


def remove_stale_sockets() -> None:
    """Remove the socket files of supervisors that were killed."""
    if not hasattr(socket, "AF_UNIX"):
        return
    for path in paths.runtime_folder().glob("*.sock"):
        try:
            if stat.S_ISSOCK(path.lstat().st_mode) and not _has_listener(path):
                path.unlink()
        except OSError:
            continue  # removed by its supervisor in the meantime


def _has_listener(path: Path) -> bool:
    """Return False if no process listens on the Unix socket at `path`."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            pass  # a listener that can't accept the connection now
    return True


def _listen_on_unix(path: Path) -> Endpoint:
    """Create a Unix socket at `path`.

    It starts to listen under a temporary name, because other processes remove a socket at `path` that refuses
    connections.
    """
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(part))
    part.chmod(0o600)
    listener.listen(BACKLOG)
    os.replace(part, path)
    return Endpoint(listener, f"unix:{path}", path=path)


def _listen_on_loopback() -> Endpoint:
    """Listen on a free TCP port of the loopback interface, with a new token that clients must send."""
    listener = socket.socket(socket.AF_INET)
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    token = secrets.token_urlsafe(32)
    return Endpoint(listener, f"tcp:{listener.getsockname()[1]}:{token}", token=token)
