"""Where a supervisor listens: a Unix socket in the user's runtime folder, else loopback with a token."""

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
"""The backlog of connections that are not accepted yet."""


class Endpoint:
    """A listening, non-blocking socket. `text` is what `supervisor.json` says of it."""

    def __init__(self, listener: socket.socket, text: str, path: Path | None, token: str) -> None:
        self.listener = listener
        self.text = text
        self.token = token
        self._path = path
        self._inode = path.lstat().st_ino if path is not None else 0

    def admits(self, peer: socket.socket) -> bool:
        """Whether the process at the other end is the user's own, where the system can tell."""
        if self._path is None or not hasattr(socket, "SO_PEERCRED"):
            return True  # the token decides, or the folder's mode
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return bool(uid == os.getuid())

    @property
    def stands(self) -> bool:
        """Whether clients still find it: the folder of its socket may be removed, as it is when its user logs out."""
        if self._path is None:
            return True
        try:
            return self._path.lstat().st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        ours = self.stands  # else it is the next execution's
        self.listener.close()
        if self._path is not None and ours:
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
            if stat.S_ISSOCK(info.st_mode) and not _answered(path):
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
    """The socket is at its place only once it answers, so that one that does not was left by a supervisor that was
    killed.
    """
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(part))
    part.chmod(0o600)
    listener.listen(BACKLOG)
    os.replace(part, path)
    return _ready(listener, f"unix:{path}", path, "")


def _loopback() -> Endpoint:
    listener = socket.socket(socket.AF_INET)
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    token = secrets.token_urlsafe(32)
    return _ready(listener, f"tcp:{listener.getsockname()[1]}:{token}", None, token)


def _ready(listener: socket.socket, text: str, path: Path | None, token: str) -> Endpoint:
    listener.setblocking(False)
    return Endpoint(listener, text, path, token)
