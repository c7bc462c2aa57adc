"""A run's files on a machine that is not its supervisor's: what is sent there, and what is fetched from there."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from engine.contract.nodes import PART_BYTES, FilePart, NodeOrder, file_sha256
from engine.system import file_locks, paths

RESUME = "resume.pt"
"""The checkpoint to go on from, in the run's folder on a node."""
_LAST = "checkpoints/last.pt"
_LOCK = "node.lock"
_OLD_S = 86_400.0
_PATIENCE_S = 20.0


def node_folder(run_id: str) -> Path:
    """Where a run's files are on this machine, whatever other machines may share the home."""
    return paths.home() / "nodes" / Path(run_id).name / platform.node()


class RunFiles:
    """The files of the order's run in `folder`, which is this run's alone: another node of the run that is left there
    is ended.
    """

    def __init__(self, order: NodeOrder, say: Callable[[FilePart], None]) -> None:
        self._order = order
        self._say = say
        self._parts: dict[str, Path] = {}
        self._ours = not order.run_folder
        if self._ours:
            paths.make_home()
            _sweep()
            self.folder = paths.private_folder(node_folder(order.run_id))
            _take_over(self.folder)
        else:
            self.folder = Path(order.run_folder)
        try:
            paths.make_folder(self.folder / "checkpoints")
        except OSError:
            self.close()
            raise

    def lacking(self) -> tuple[str, ...]:
        """The order's files that are not there, or others."""
        last = self.folder / _LAST
        for wanted in self._order.files:
            if wanted.path == RESUME and last.exists() and file_sha256(last) == wanted.sha256:
                (self.folder / RESUME).unlink(missing_ok=True)
                os.link(last, self.folder / RESUME)
        return tuple(one.path for one in self._order.files if file_sha256(self.folder / one.path) != one.sha256)

    def resume_from(self, told: str) -> Path:
        """The checkpoint that the supervisor calls `told`, here."""
        return self.folder / RESUME if self._ours else Path(told)

    def take(self, part: FilePart) -> None:
        """Takes the next part of a file that is lacking. Raises OSError, ValueError."""
        wanted = next(one for one in self._order.files if one.path == part.path)
        path = self.folder / wanted.path
        coming = path.with_name(f".{path.name}.part")
        with open(coming, "ab" if part.path in self._parts else "wb", opener=paths.for_the_user_alone) as stream:
            stream.write(part.data)
        self._parts[part.path] = coming
        if part.last:
            if file_sha256(coming) != wanted.sha256:
                raise ValueError(f"{part.path} did not arrive as it was sent")
            os.replace(coming, path)

    def send(self, path: str, most: int | None = None) -> None:
        """Sends a file of the run's folder, of a long one the last `most` bytes."""
        digest = hashlib.sha256()
        try:
            with (self.folder / path).open("rb") as stream:
                if most is not None:
                    stream.seek(max(0, os.fstat(stream.fileno()).st_size - most))
                while data := stream.read(PART_BYTES):
                    digest.update(data)
                    self._say(FilePart(path=path, data=data))
        except OSError as error:
            self._say(FilePart(path=path, data=b"", error=error.strerror or str(error)))
        else:
            self._say(FilePart(path=path, data=b"", sha256=digest.hexdigest()))

    def send_worker_files(self, rank: int, most: int) -> None:
        """Sends what a worker has printed, and the traceback of its fault, unless they are in the run's folder
        already.
        """
        names = (f"worker-{rank}.log", f"worker-{rank}-traceback.txt")
        for name in names if self._ours else ():
            if (self.folder / name).exists():
                self.send(name, most)

    def close(self) -> None:
        """Leaves nothing: the supervisor has what it wanted."""
        if self._ours:
            _remove(self.folder)


def _take_over(folder: Path) -> None:
    """Makes the folder this process's alone, for as long as it lives; a node that an earlier attempt has left is
    killed with all that it has started. Raises TimeoutError.
    """
    path = folder / _LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _PATIENCE_S
    while not file_locks.take(descriptor):
        if time.monotonic() > deadline:
            raise TimeoutError(f"another node of this run does not end (see {path})")
        _kill(os.pread(descriptor, 32, 0))
        time.sleep(0.1)
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except OSError:  # the disk is full
        _remove(folder)
        raise


def _sweep() -> None:
    """Removes what runs have left on this machine that began here over a day ago and have no node any more: it lost
    its power.
    """
    for lock in (paths.home() / "nodes").glob(f"*/{platform.node()}/{_LOCK}"):
        with suppress(OSError):
            if lock.stat().st_mtime < time.time() - _OLD_S:
                descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if file_locks.take(descriptor):
                        _remove(lock.parent)
                finally:
                    os.close(descriptor)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def _kill(told: bytes) -> None:
    with suppress(ValueError, psutil.Error):
        node = psutil.Process(int(told))
        if node.name().startswith("footplate-node") and node.pid != os.getpid():
            for process in (*node.children(recursive=True), node):
                with suppress(psutil.Error):
                    process.kill()
