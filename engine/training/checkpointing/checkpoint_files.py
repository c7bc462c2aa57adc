"""Checkpoints on disk: written so that there is always a whole one, and read only where they are whole.

A checkpoint is a file of torch.save's, which is a zip archive, with the SHA-256 of its bytes as the archive's comment:
torch.load and unzip read it as any other, and a file that was cut short or changed since is known as such.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pickle
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from engine.runs.folder import OLDER_CHECKPOINT
from engine.system import paths

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_COMMENT = bytes(2)
"""How torch's archives end: with the length of an empty comment. The checksum covers the archive as torch wrote it."""
_BLOCK_BYTES = 1 << 20


class CheckpointError(Exception):
    """A checkpoint could not be written: `why`, and in the text what to do besides. The one before it is untouched."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(f"{why} Training continues, and the last good checkpoint is kept. {remedy}".rstrip())
        self.why = why


class DamagedCheckpoint(Exception):  # noqa: N818 - said of a file
    """A file is no checkpoint, or not the whole one that was written."""


@dataclass(frozen=True, slots=True)
class Written:
    bytes: int
    seconds: float
    sha256: str


def older_name(epoch: int, step: int) -> str:
    """What last.pt is called once it is not the newest any more."""
    return f"epoch-{epoch}-step-{step}.pt"


def older_checkpoints(folder: Path) -> list[Path]:
    """Those in `folder` that went before its last.pt, the newest first."""
    found = [
        (int(match["step"]), path) for path in folder.iterdir() if (match := OLDER_CHECKPOINT.fullmatch(path.name))
    ]
    return [path for _, path in sorted(found, reverse=True)]


def write_checkpoint(content: Any, path: Path, *, aside: str = "") -> Written:
    """Writes `content` with torch.save so that `path` is either as before or whole, even after a power cut.

    What was at `path` is kept in its folder under the name `aside`, where one is given. Raises CheckpointError.
    """
    begun = time.perf_counter()
    temporary = _part(path)
    try:
        paths.make_folder(path.parent)
        _drop_link(temporary)
        with open(temporary, "wb", opener=paths.open_private) as stream:
            sha256 = _save(content, stream)
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.tell()
        if path.is_dir() and not path.is_symlink():
            os.replace(path, path.with_name(f"{path.name}.{secrets.token_hex(2)}.folder"))  # of which we know nothing
        if aside and path.exists():
            _set_aside(path, path.with_name(aside))
        os.replace(temporary, path)
        sync(path.parent)
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _refused(error, path) from error
    return Written(size, time.perf_counter() - begun, sha256)


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copies a file so that `target` is either as before or whole. Raises OSError."""
    paths.make_folder(target.parent)
    temporary = _part(target)
    _drop_link(temporary)
    with source.open("rb") as stream, open(temporary, "wb", opener=paths.open_private) as copy:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        os.fsync(copy.fileno())
    os.replace(temporary, target)
    sync(target.parent)


def read_checkpoint(path: Path) -> tuple[Any, str]:
    """What was written to `path`, on the CPU, and its SHA-256. Nothing is read from a file that is not whole.

    Raises OSError, or DamagedCheckpoint.
    """
    with path.open("rb") as stream:
        sha256 = _verified(stream)
        stream.seek(0)
        try:
            return torch.load(stream, map_location="cpu", weights_only=True), sha256
        except OSError:
            raise
        except pickle.UnpicklingError as error:  # whose text advises to set weights_only=False
            raise DamagedCheckpoint("it contains more than tensors and plain values") from error
        except Exception as error:  # torch.load raises many things for what it does not take
            raise DamagedCheckpoint(str(error)) from error


def whole_checksum(path: Path) -> str:
    """The SHA-256 of a checkpoint that is whole. Raises OSError, or DamagedCheckpoint."""
    with path.open("rb") as stream:
        return _verified(stream)


def drop_older(folder: Path, keep: int) -> None:
    """Deletes all but the newest `keep` of the older checkpoints in `folder`, as far as they can be."""
    with contextlib.suppress(OSError):
        for path in older_checkpoints(folder)[keep:]:
            path.unlink()


class _Digesting:
    """A stream that adds up the SHA-256 of all that is written through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()
        self.flush = stream.flush

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self._stream.write(data)


def _save(content: Any, stream: BinaryIO) -> str:
    """The checksum of what was written."""
    digesting = _Digesting(stream)
    torch.save(content, digesting)  # type: ignore[arg-type]  # asks a stream for `write` and `flush` alone
    sha256 = digesting.sha256.hexdigest()
    stream.seek(-len(_NO_COMMENT), os.SEEK_END)
    stream.write(_ending(sha256))
    return sha256


def _ending(sha256: str) -> bytes:
    """How a checkpoint ends, in the place of `_NO_COMMENT`."""
    comment = f"footplate sha256 {sha256}".encode()
    return len(comment).to_bytes(2, "little") + comment


def _verified(stream: BinaryIO) -> str:
    """The SHA-256 of a whole checkpoint."""
    sha256 = hashlib.sha256()
    left = max(0, stream.seek(0, os.SEEK_END) - len(_ending(sha256.hexdigest())))
    stream.seek(0)
    while block := stream.read(min(_BLOCK_BYTES, left)):
        sha256.update(block)
        left -= len(block)
    sha256.update(_NO_COMMENT)
    digest = sha256.hexdigest()
    if stream.read() != _ending(digest):
        raise DamagedCheckpoint("its checksum is missing or does not match")
    return digest


def _part(path: Path) -> Path:
    """Where a checkpoint is written before it is put into place."""
    return path.with_name(f".{path.name}.part")


def _drop_link(path: Path) -> None:
    """Removes a link, which a run folder from elsewhere may hold in the place of what is written. Raises OSError."""
    if path.is_symlink():
        path.unlink()


def _set_aside(path: Path, older: Path) -> None:
    older.unlink(missing_ok=True)
    try:
        os.link(path, older)  # so that `path` is there all the time
    except OSError:  # a file system without hard links
        os.replace(path, older)


def sync(path: Path) -> None:
    """Brings a folder's entries, or what a file holds, to the disk. Raises OSError."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(error: BaseException, path: Path) -> CheckpointError:
    """torch.save wraps the system's error, or raises another while it handles it."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, OSError) and cause.errno in _FULL:
        full = f"the disk (or the quota) of {path.parent} is full"
        return CheckpointError(f"{path.name} could not be saved: {full}.", "Free some space.")
    why = cause.strerror if isinstance(cause, OSError) else error
    return CheckpointError(f"{path.name} could not be saved in {path.parent}: {why}.")
