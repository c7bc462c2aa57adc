"""Files of a run on several machines: both ends of their transfer, verified by SHA-256."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import psutil

from engine.contract.events import CheckpointSaved
from engine.contract.job import Job
from engine.contract.nodes import CHUNK_BYTES, FileChunk, FileDigest, FileRequest, NodeOrder, file_sha256
from engine.machines.link import NodeLink
from engine.runs.folder import RunFolder, older_checkpoints
from engine.system import file_locks, paths
from engine.system.files import open_file

RESUME, BEST, LAST = "resume.pt", "checkpoints/best.pt", "checkpoints/last.pt"
OnFetched = Callable[[str], None]
"""Callback for a requested file: "" when it has arrived, else the reason why it can't."""

_LOCK = "node.lock"
_ABANDONED_S = 86_400.0
_LOCK_TIMEOUT_S = 20.0
_SCRATCH_PREFIX = "node-"


def is_inside(path: str) -> bool:
    """Return True if a path that another machine sends stays inside the run's folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not PurePosixPath(path).is_absolute() and ".." not in parts and "\0" not in path


def required_files(run: RunFolder, job: Job, *, has_rank_0: bool) -> tuple[FileDigest, ...]:
    """List the files that a machine needs to resume: the checkpoint and, for rank 0, the best one."""
    if not job.checkpoints.resume_from:
        return ()
    found = [FileDigest(RESUME, file_sha256(Path(job.checkpoints.resume_from)))]
    best = run.path / BEST
    return (*found, FileDigest(BEST, file_sha256(best))) if has_rank_0 and best.exists() else tuple(found)


def file_parts(path: str, file: Path, last_bytes: int | None = None) -> Iterator[FileChunk]:
    """Yield `file` as frames under the name `path`, or only its `last_bytes`. Raises OSError."""
    digest = hashlib.sha256()
    with open_file(file) as stream:
        if last_bytes is not None:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - last_bytes))
        while data := stream.read(CHUNK_BYTES):
            digest.update(data)
            yield FileChunk(path=path, data=data)
    yield FileChunk(path=path, data=b"", sha256=digest.hexdigest())


class _IncomingFile:
    """A file that arrives in parts, stored next to its final path until it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.part")
        self.error = ""
        self._digest = hashlib.sha256()
        with suppress(OSError):  # which writing reports
            paths.make_folder(path.parent)
            self.temporary.unlink(missing_ok=True)

    def write(self, part: FileChunk) -> None:
        """Append a part; `error` keeps the first failure."""
        self.error = self.error or part.error
        if self.error:
            return
        try:
            with open(self.temporary, "ab", opener=paths.open_private) as stream:
                stream.write(part.data)
                if part.last:
                    os.fsync(stream.fileno())
        except OSError as error:
            self.error = error.strerror or str(error)
        self._digest.update(part.data)

    def verify(self, sha256: str) -> bool:
        """Compare the content with `sha256` and return True if all of it has arrived."""
        if not self.error and self._digest.hexdigest() != sha256:
            self.error = "it did not arrive as it was sent"
        return not self.error


class FetchedFiles:
    """Supervisor's end: files requested from one machine.

    `keep` older checkpoints are retained next to last.pt.
    """

    def __init__(self, run: RunFolder, link: NodeLink, keep: int) -> None:
        self._run = run
        self._link = link
        self._keep = keep
        self._pending: dict[str, list[tuple[OnFetched, CheckpointSaved | None]]] = defaultdict(list)
        self._incoming: dict[str, _IncomingFile] = {}
        self._last: CheckpointSaved | None = None
        """Event of the last.pt that is in the run's folder."""

    def fetch(self, path: str, on_fetched: OnFetched, saved: CheckpointSaved | None = None) -> None:
        """Request a file, again if it is on its way, since it may have changed; `saved` is the event of a last.pt."""
        if not is_inside(path):
            on_fetched(f"{path} is not a file of the run's folder")
        elif self._link.has_ended:
            on_fetched("the machine is away")
        else:
            self._pending[path].append((on_fetched, saved))
            self._link.send(FileRequest(path=path))

    def give_up(self) -> None:
        """Fail all pending requests, because the machine is away."""
        pending, self._pending = self._pending, defaultdict(list)
        for requests in pending.values():
            for on_fetched, _ in requests:
                on_fetched("the machine is away")

    def receive(self, part: FileChunk, ranks: Sequence[int]) -> None:
        """Store the next part of a requested file or of a log of `ranks`, which nodes send unrequested."""
        logs = {name for rank in ranks for name in _worker_files(rank)}
        if part.path not in self._pending and part.path not in logs:
            return
        if part.path not in self._incoming:
            self._incoming[part.path] = _IncomingFile(self._run.path / part.path)
        incoming = self._incoming[part.path]
        incoming.write(part)
        if not part.last:
            return
        del self._incoming[part.path]
        requests = self._pending.pop(part.path, [])
        on_fetched, saved = requests.pop(0) if requests else (None, None)
        if requests:
            self._pending[part.path] = requests
        if incoming.verify(part.sha256):
            if part.path == LAST:
                self._retain_older(incoming.path, saved)
            os.replace(incoming.temporary, incoming.path)
        incoming.temporary.unlink(missing_ok=True)
        if on_fetched is not None:
            on_fetched(incoming.error)

    def _retain_older(self, last: Path, saved: CheckpointSaved | None) -> None:
        """Rename the last.pt that is about to be replaced after its epoch and step, and drop the oldest ones."""
        before, self._last = self._last, saved
        if not self._keep:
            return
        if before is not None and last.exists():
            with suppress(OSError):
                os.link(last, last.with_name(f"epoch-{before.epoch}-step-{before.step}.pt"))
        for path in list(older_checkpoints(last.parent).values())[: -self._keep]:
            path.unlink(missing_ok=True)


class NodeFiles:
    """Node's end: the run's folder on a machine, and its transfers.

    The folder belongs to this process: a node that an earlier attempt has left there is killed. With
    `order.run_folder` it is the run's own folder on a shared file system, and nothing is transferred.
    """

    def __init__(self, order: NodeOrder, send: Callable[[FileChunk], None]) -> None:
        self._order = order
        self._send = send
        self._incoming: dict[str, _IncomingFile] = {}
        self._is_copy = not order.run_folder
        if self._is_copy:
            paths.make_home()
            _remove_abandoned()
            self.folder = paths.private_folder(node_folder(order.run_id))
            _take_over(self.folder)
        else:
            self.folder = Path(order.run_folder)
        try:
            paths.make_folder(self.folder / "checkpoints")
        except OSError:
            self.close()
            raise

    def missing(self) -> tuple[str, ...]:
        """Return the paths of the order's files that are missing or differ."""
        last = self.folder / LAST
        for required in self._order.files:
            if required.path == RESUME and last.exists() and file_sha256(last) == required.sha256:
                (self.folder / RESUME).unlink(missing_ok=True)
                os.link(last, self.folder / RESUME)
        return tuple(each.path for each in self._order.files if file_sha256(self.folder / each.path) != each.sha256)

    def resume_from(self, path: str) -> Path:
        """Return the local path of the checkpoint that the supervisor calls `path`."""
        return self.folder / RESUME if self._is_copy else Path(path)

    def receive(self, part: FileChunk) -> None:
        """Store the next part of a missing file.

        Raises:
            OSError: The file could not be written or is damaged.
        """
        required = next(each for each in self._order.files if each.path == part.path)
        if part.path not in self._incoming:
            self._incoming[part.path] = _IncomingFile(self.folder / required.path)
        incoming = self._incoming[part.path]
        incoming.write(part)
        if part.last:
            incoming.verify(required.sha256)
        if incoming.error:
            raise OSError(f"{part.path} can't be copied here: {incoming.error}")
        if part.last:
            os.replace(incoming.temporary, incoming.path)

    def send(self, path: str, last_bytes: int | None = None) -> None:
        """Send a file of the run's folder, or its `last_bytes`; an error goes to the supervisor."""
        try:
            for part in file_parts(path, self.folder / path, last_bytes):
                self._send(part)
        except OSError as error:
            self._send(FileChunk(path=path, data=b"", error=error.strerror or str(error)))

    def send_worker_files(self, rank: int, last_bytes: int) -> None:
        """Send the end of a worker's log and its traceback, unless they are in the run's own folder already."""
        for name in _worker_files(rank) if self._is_copy else ():
            if (self.folder / name).exists():
                self.send(name, last_bytes)

    def close(self) -> None:
        """Remove the folder, unless it is the run's own."""
        if self._is_copy:
            _remove(self.folder)


def node_folder(run_id: str) -> Path:
    """Return a run's folder on this machine, distinct from that of other machines that share the home."""
    return paths.home() / "nodes" / Path(run_id).name / platform.node()


def make_scratch() -> Path:
    """Create this process's folder for sockets and temporary files, and remove those of nodes that were killed.

    Its path is short enough for a Unix socket.
    """
    base = paths.runtime_folder()
    for folder in base.glob(f"{_SCRATCH_PREFIX}*"):
        pid = folder.name.removeprefix(_SCRATCH_PREFIX)
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
    folder = paths.private_folder(base / f"{_SCRATCH_PREFIX}{os.getpid()}")
    tempfile.tempdir = str(folder)
    return folder


def _worker_files(rank: int) -> tuple[str, str]:
    return f"worker-{rank}.log", f"worker-{rank}-traceback.txt"


def _take_over(folder: Path) -> None:
    """Lock the folder for the life of this process, and kill the node of an earlier attempt that holds the lock.

    Raises:
        TimeoutError: That node does not end.
    """
    path = folder / _LOCK
    descriptor = file_locks.open_file(path, os.O_CREAT)
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while not file_locks.try_lock(descriptor):
        if time.monotonic() > deadline:
            raise TimeoutError(f"another node of this run does not end (see {path})")
        _kill_node(os.pread(descriptor, 32, 0))
        time.sleep(0.1)
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except OSError:  # the disk is full
        _remove(folder)
        raise


def _kill_node(pid: bytes) -> None:
    with suppress(ValueError, psutil.Error):
        node = psutil.Process(int(pid))
        if node.name().startswith("footplate-node") and node.pid != os.getpid():
            for process in (*node.children(recursive=True), node):
                with suppress(psutil.Error):
                    process.kill()


def _remove_abandoned() -> None:
    """Remove run folders of more than a day ago whose node is gone: the machine lost its power."""
    for lock in (paths.home() / "nodes").glob(f"*/{platform.node()}/{_LOCK}"):
        with suppress(OSError):
            if lock.stat().st_mtime < time.time() - _ABANDONED_S:
                descriptor = file_locks.open_file(lock)
                try:
                    if file_locks.try_lock(descriptor):
                        _remove(lock.parent)
                finally:
                    os.close(descriptor)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()
