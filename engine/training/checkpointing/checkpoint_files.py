"""Checkpoint files that are replaced atomically and verified before use.

A checkpoint is a zip archive written by torch.save, whose comment is the SHA-256 of the bytes before it. torch.load and
unzip read it like any other archive. The checksum reveals truncated and modified files.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pickle
import secrets
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from engine.runs.folder import older_checkpoints
from engine.system import paths
from engine.system.archives import refuse_packed
from engine.system.files import open_file

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_COMMENT = bytes(2)
"""Last bytes of an archive written by torch: the length 0 of an empty comment. They are included in the checksum."""
_BLOCK_BYTES = 1 << 20


class CheckpointError(Exception):
    """Raised when a checkpoint could not be written. The previous checkpoint is unchanged.

    The message contains the reason and the remedy. `why` contains only the reason.
    """

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(f"{why} Training continues, and the last good checkpoint is kept. {remedy}".rstrip())
        self.why = why


class DamagedCheckpoint(Exception):  # noqa: N818 - describes the file
    """Raised when a file is not a checkpoint, or has been truncated or modified."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """Size of a written checkpoint, the duration of writing it, and its checksum."""

    bytes: int
    seconds: float
    sha256: str


def name_older_checkpoint(epoch: int, step: int) -> str:
    """Return the file name of a last.pt that is kept when a newer one replaces it.

    The checkpoint was saved in epoch `epoch`, after `step` steps of the run.
    """
    return f"epoch-{epoch}-step-{step}.pt"


def write_checkpoint(content: Any, path: Path, *, previous_name: str = "") -> WrittenFile:
    """Write `content` to `path` with torch.save and a checksum. Return the file's size, the duration and the checksum.

    Even after a power failure, the file at `path` is either the previous one or complete. If `previous_name` is given,
    the previous file is kept under this name. On a file system without hard links, `path` may then be missing after a
    power failure. Raises CheckpointError.
    """
    started = time.perf_counter()
    temporary = _get_partial_path(path)
    try:
        paths.make_folder(path.parent)
        _drop_link(temporary)
        with open(temporary, "wb", opener=paths.open_private) as stream:
            sha256 = _save(content, stream)
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.tell()
        if path.is_dir() and not path.is_symlink():
            # Set a folder with this name aside.
            os.replace(path, path.with_name(f"{path.name}.{secrets.token_hex(2)}.folder"))
        if previous_name and path.exists():
            _keep_previous(path, path.with_name(previous_name))
        os.replace(temporary, path)
        sync(path.parent)
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _create_error(error, path) from error
    return WrittenFile(size, time.perf_counter() - started, sha256)


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy a checkpoint file. Raises OSError.

    After an error, the file at `target` is either the previous one or complete.
    """
    paths.make_folder(target.parent)
    temporary = _get_partial_path(target)
    _drop_link(temporary)
    with open_file(source) as stream, open(temporary, "wb", opener=paths.open_private) as copy:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        os.fsync(copy.fileno())
    os.replace(temporary, target)
    sync(target.parent)


def read_checkpoint(path: Path) -> tuple[Any, str]:
    """Load the checkpoint at `path` on the CPU, and return its content and its SHA-256.

    On Linux, tensors are mapped from the file. Processes on one machine therefore share its pages, and read only the
    parts that they use. If the file is replaced, the old one occupies disk space until its last tensor is freed. Raises
    OSError and DamagedCheckpoint.
    """
    with open_file(path) as stream:
        sha256 = _verify(stream)
        try:
            refuse_packed(stream)  # compressed archives, which could fill the memory
            # Opened by descriptor, because another file may have replaced the verified one at this path.
            is_mapped = sys.platform == "linux"
            source: Any = f"/proc/self/fd/{stream.fileno()}" if is_mapped else stream
            return torch.load(source, map_location="cpu", weights_only=True, mmap=is_mapped), sha256
        except OSError:
            raise
        except pickle.UnpicklingError as error:  # its text advises setting weights_only=False
            raise DamagedCheckpoint("it contains more than tensors and plain values") from error
        except Exception as error:  # torch.load raises many kinds
            raise DamagedCheckpoint(str(error)) from error


def verify_checkpoint(path: Path) -> str:
    """Verify the checkpoint at `path`, and return its SHA-256. Raises OSError and DamagedCheckpoint."""
    with open_file(path) as stream:
        return _verify(stream)


def delete_older(folder: Path, keep: int) -> None:
    """Delete older checkpoints in `folder` except for the newest `keep`. Errors are ignored."""
    older = list(older_checkpoints(folder).values())
    with contextlib.suppress(OSError):
        for path in older[: max(0, len(older) - keep)]:
            path.unlink()


class _HashingStream:
    """Output stream that computes the SHA-256 of the data written through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()
        self.flush = stream.flush

    def write(self, data: Any) -> int:
        """Write data, and return the number of written bytes."""
        self.sha256.update(data)
        return self._stream.write(data)


def _save(content: Any, stream: BinaryIO) -> str:
    """Write `content` followed by its checksum, and return the checksum."""
    hashing_stream = _HashingStream(stream)
    torch.save(content, hashing_stream)  # type: ignore[arg-type]  # only needs `write` and `flush`
    sha256 = hashing_stream.sha256.hexdigest()
    stream.seek(-len(_NO_COMMENT), os.SEEK_END)
    stream.write(_make_comment(sha256))
    return sha256


def _make_comment(sha256: str) -> bytes:
    """Return the last bytes of a checkpoint with the checksum `sha256`: the length of a zip comment, and the comment.

    These bytes replace `_NO_COMMENT`.
    """
    comment = f"footplate sha256 {sha256}".encode()
    return len(comment).to_bytes(2, "little") + comment


def _verify(stream: BinaryIO) -> str:
    """Verify the checkpoint in `stream`, and return its SHA-256. Raises DamagedCheckpoint."""
    sha256 = hashlib.sha256()
    comment_bytes = len(_make_comment(sha256.hexdigest()))  # equal for all checksums
    remaining = max(0, stream.seek(0, os.SEEK_END) - comment_bytes)
    stream.seek(0)
    while block := stream.read(min(_BLOCK_BYTES, remaining)):
        sha256.update(block)
        remaining -= len(block)
    # The checksum was computed before a comment with it replaced the empty one at the end of the file.
    sha256.update(_NO_COMMENT)
    digest = sha256.hexdigest()
    if stream.read() != _make_comment(digest):
        raise DamagedCheckpoint("its checksum is missing or does not match")
    return digest


def _get_partial_path(path: Path) -> Path:
    """Return the path of the temporary file that becomes the checkpoint at `path`."""
    return path.with_name(f".{path.name}.part")


def _drop_link(path: Path) -> None:
    """Remove `path` if it is a symbolic link, so that writing doesn't change the file that it points to.

    Some copies of run folders contain such links. Raises OSError.
    """
    if path.is_symlink():
        path.unlink()


def _keep_previous(path: Path, older: Path) -> None:
    """Keep the file at `path`, which is about to be replaced, under the path `older`. Raises OSError."""
    older.unlink(missing_ok=True)
    try:
        os.link(path, older)  # unlike renaming, this leaves `path` in place
    except OSError:  # a file system without hard links
        os.replace(path, older)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk. Raises OSError."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create_error(error: BaseException, path: Path) -> CheckpointError:
    """Create a CheckpointError for the checkpoint at `path`, with the operating system's reason.

    torch.save may have wrapped the system's error in its own errors.
    """
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, OSError) and cause.errno in _FULL:
        full = f"the disk (or the quota) of {path.parent} is full"
        return CheckpointError(f"{path.name} could not be saved: {full}.", "Free some space.")
    why = cause.strerror if isinstance(cause, OSError) else error
    return CheckpointError(f"{path.name} could not be saved in {path.parent}: {why}.")
