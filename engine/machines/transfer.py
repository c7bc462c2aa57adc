"""Transfer a run's files between two machines, as raw bytes over a separate connection, verified by SHA-256.

``footplate node --send RUN`` and ``--exchange RUN`` serve the files through ssh. Requests and offers are lines of JSON
(`RunFile`). The receiver of an offer answers with the number of bytes that it already has, and the sender sends the
remaining ones.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from engine.contract.nodes import RunFile, file_sha256
from engine.contract.protocol import ENCODE
from engine.machines.link import write_all
from engine.system import paths
from engine.system.children import limit_written_files
from engine.system.files import open_file
from engine.system.format import size
from engine.system.ssh import create_english_environment

_CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 16
_MAX_ERROR_BYTES = 1 << 20
_EXIT_S = 5.0
NO_PROGRESS: Callable[[int, int], object] = lambda _copied, _total: None  # noqa: E731


class ConnectionLost(OSError):  # noqa: N818 - describes the state
    """Raised when the connection to the other machine is lost."""


def is_inside(path: str) -> bool:
    """Return True if a relative path that another machine has sent stays inside the run folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not PurePosixPath(path).is_absolute() and ".." not in parts and "\0" not in path


class Channel:
    """One end of a connection that sends and receives files over two file descriptors."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer

    def write(self, message: RunFile) -> None:
        """Send `message` as a line. Raises OSError."""
        write_all(self._writer, ENCODE.encode(message) + b"\n")

    def read(self) -> RunFile:
        """Receive a message. Raises ConnectionLost, OSError, msgspec.DecodeError."""
        line = bytearray()
        while (byte := os.read(self._reader, 1)) != b"\n":
            line += byte
            if not byte or len(line) > _MAX_LINE_BYTES:
                raise ConnectionLost("the connection was lost")
        return msgspec.json.decode(bytes(line), type=RunFile)

    def send(self, stream: IO[bytes], offer: RunFile) -> str:
        """Offer the file that is open as `stream`, and send its content from the offset on that the receiver requests.

        Returns the reason if the receiver refuses the file, otherwise "". If the file becomes shorter in the meantime,
        zeros are sent for the rest, which the receiver notices by the digest. The digest is computed unless `offer` has
        one. Raises OSError.
        """
        digest = offer.sha256 or hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
        size_bytes = stream.seek(0, os.SEEK_END)
        self.write(msgspec.structs.replace(offer, size_bytes=size_bytes, sha256=digest))
        answer = self.read()
        if answer.problem:
            return answer.problem
        remaining = size_bytes - stream.seek(answer.size_bytes)  # the receiver has this many bytes already
        while remaining > 0:
            chunk_bytes = min(_CHUNK_BYTES, remaining)
            data = stream.read(chunk_bytes) or bytes(chunk_bytes)
            write_all(self._writer, data)
            remaining -= len(data)
        return ""

    def receive(
        self, offer: RunFile, target: Path, on_progress: Callable[[int, int], object] = NO_PROGRESS
    ) -> Path | None:
        """Receive an offered file next to `target`, flush it to the disk, and return its temporary path.

        An interrupted copy of the same content is continued. Returns None if the received content does not match the
        digest.

        Raises:
            ConnectionLost: The connection was lost. The partial copy is kept.
            OSError: The file can't be written, or is too large for the disk. The partial copy, which may be empty, is
                kept.
        """
        paths.make_folder(target.parent)
        partial = target.with_name(f".{target.name}.{offer.sha256[:16]}.part")
        with open(partial, "ab", opener=paths.open_private) as stream:
            copied = stream.tell()
            missing, free = offer.size_bytes - copied, shutil.disk_usage(target.parent).free
            if missing > free:
                raise OSError(errno.ENOSPC, f"it needs {size(missing)}, and {size(free)} are free", str(target.parent))
            self.write(RunFile(path=offer.path, size_bytes=copied))  # requests the content from this offset on
            while copied < offer.size_bytes:
                data = os.read(self._reader, min(_CHUNK_BYTES, offer.size_bytes - copied))
                if not data:
                    raise ConnectionLost("the connection was lost")
                stream.write(data)
                copied += len(data)
                on_progress(copied, offer.size_bytes)
            stream.flush()
            os.fsync(stream.fileno())
        if file_sha256(partial) != offer.sha256:
            partial.unlink()
            return None
        return partial


class FileConnection(Channel):
    """Connection to a command that serves files. Raises OSError.

    The standard error of the command is written to `errors`.
    """

    def __init__(self, command: Sequence[str], errors: IO[bytes] | int) -> None:
        def limit_errors() -> None:
            limit_written_files(_MAX_ERROR_BYTES)

        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=paths.PACKAGES,
            env=create_english_environment(),
            bufsize=0,
            start_new_session=True,
            preexec_fn=limit_errors if command[0] == "ssh" and sys.platform != "win32" else None,  # noqa: PLW1509
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        super().__init__(self.process.stdout.fileno(), self.process.stdin.fileno())

    def close(self) -> int:
        """Close the connection and return the command's exit code."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        try:
            return self.process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def remove_partial(target: Path) -> None:
    """Remove the partial copies of `target` that interrupted transfers have left."""
    for partial in target.parent.glob(f".{target.name}.*.part"):
        partial.unlink(missing_ok=True)


def serve(folder: Path, run_id: str, *, copies: Sequence[str] = (), writable: bool = False) -> int:
    """Serve the files of a folder over standard input and output until these are closed. Returns the exit code.

    Args:
        folder: Folder with the files.
        run_id: Id of the run.
        copies: Paths of files that may have the same content as an offered file. Such a file is linked instead of
            received.
        writable: True to store offered files in the folder.
    """
    channel = Channel(0, os.dup(1))
    os.dup2(2, 1)  # prints of libraries must not mix with the files
    try:
        while True:
            request = channel.read()
            is_offer = bool(request.sha256)
            try:
                if not is_inside(request.path) or (is_offer and not writable):
                    raise FileNotFoundError(f"{request.path} is not a file of the run's folder")
                if is_offer:
                    _receive_offer(channel, folder, request, copies)
                    continue
                stream = open_file(folder / request.path)
            except ConnectionLost:  # an OSError, but nobody is left to read the problem
                raise
            except OSError as error:
                channel.write(RunFile(path=request.path, problem=error.strerror or str(error)))
                if is_offer:  # the sender is still sending this file
                    return 1
                continue
            with stream:
                channel.send(stream, RunFile(path=request.path, run_id=run_id))
    except (OSError, msgspec.DecodeError):
        return 0


def _receive_offer(channel: Channel, folder: Path, offer: RunFile, copies: Sequence[str]) -> None:
    """Receive an offered file and confirm it. Raises OSError.

    If one of the files in `copies` has the same content, a link to it is created instead.
    """
    target = folder / offer.path
    candidates = (folder / path for path in (offer.path, *copies))
    existing = next((path for path in candidates if file_sha256(path) == offer.sha256), None)
    if existing is None:
        partial = channel.receive(offer, target)
        if partial is None:
            raise OSError("it did not arrive as it was sent")
        os.replace(partial, target)
    else:
        channel.write(offer)  # requests the content from its end on, which is nothing
        if existing != target:
            target.unlink(missing_ok=True)
            os.link(existing, target)
    remove_partial(target)
    channel.write(RunFile(path=offer.path))
