"""Where a supervisor listens: a Unix socket in the user's runtime folder, else loopback with a token."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import stat
import struct
import time
from pathlib import Path

from engine.contract import paths

STALE_S = 60.0
"""A socket that nobody answers and that is older than this was left by a supervisor that was killed."""


class Endpoint:
    """A listening, non-blocking socket. `text` is what `supervisor.json` says of it."""

    def __init__(self, listener: socket.socket, text: str, path: Path | None, token: str) -> None:
        self.listener = listener
        self.text = text
        self.token = token
        self._path = path

    def admits(self, peer: socket.socket) -> bool:
        """Whether the process at the other end is the user's own, where the system can tell."""
        if self._path is None or not hasattr(socket, "SO_PEERCRED"):
            return True  # the token decides, or the folder's mode
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return bool(uid == os.getuid())

    def close(self) -> None:
        self.listener.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def open_endpoint(run_folder: Path, *, tcp: bool = False) -> Endpoint:
    """Listens for clients of the run. `tcp` asks for loopback even where Unix sockets exist."""
    if not tcp and hasattr(socket, "AF_UNIX"):
        path = paths.runtime_folder() / socket_name(run_folder)
        if len(os.fsencode(path)) < 100:  # macOS allows 103 bytes, Linux 107
            return _unix(path)
    return _loopback()


def socket_name(run_folder: Path) -> str:
    """A short name that two runs, even of the same id in two homes, do not share."""
    digest = hashlib.blake2b(os.fsencode(run_folder.absolute()), digest_size=4).hexdigest()
    return f"{run_folder.name[-24:]}-{digest}.sock"


def sweep() -> None:
    """Removes the sockets of supervisors that were killed."""
    if not hasattr(socket, "AF_UNIX"):
        return
    for path in paths.runtime_folder().glob("*.sock"):
        try:
            info = path.lstat()
            if stat.S_ISSOCK(info.st_mode) and time.time() - info.st_mtime > STALE_S and not _answered(path):
                path.unlink()
        except OSError:
            continue  # it went by itself


def _answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def _unix(path: Path) -> Endpoint:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    return _listening(listener, f"unix:{path}", path, "")


def _loopback() -> Endpoint:
    listener = socket.socket(socket.AF_INET)
    listener.bind(("127.0.0.1", 0))
    token = secrets.token_urlsafe(32)
    return _listening(listener, f"tcp:{listener.getsockname()[1]}:{token}", None, token)


def _listening(listener: socket.socket, text: str, path: Path | None, token: str) -> Endpoint:
    listener.listen(64)
    listener.setblocking(False)
    return Endpoint(listener, text, path, token)
