"""Transfer a run's files between the supervisor and the machines of a run.

The folder of the run on each machine is managed here, too.
"""

from __future__ import annotations

import os
import platform
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from engine.contract.events import CheckpointSaved
from engine.contract.job import Job
from engine.contract.nodes import NodeRequest, RunFile
from engine.machines.transfer import ConnectionLost, FileConnection, is_inside, remove_partial, serve
from engine.runs.folder import RunFolder, older_checkpoints
from engine.system import file_locks, linux, paths
from engine.system.files import open_file, read_end

RESUME, BEST, LAST = "resume.pt", "checkpoints/best.pt", "checkpoints/last.pt"
OnDone = Callable[[str], None]
"""Callback for the end of a transfer. Its argument is the reason for a failure, or ""."""

_LOCK = "node.lock"
_MIN_ABANDONED_AGE_S = 86_400.0
_LOCK_TIMEOUT_S = 20.0
_LOCK_POLL_S = 0.1
_JOIN_TIMEOUT_S = 1.0
_LOCK_CHECK_S = 1.0
_SCRATCH_PREFIX = "node-"


def required_files(run: RunFolder, job: Job, *, has_rank_0: bool) -> dict[str, Path]:
    """Return the files that a machine needs to resume a run, keyed by their paths in the run folder on that machine.

    `has_rank_0` is True for the machine with the worker of rank 0. The result is empty if the job starts from scratch.
    """
    if not job.checkpoints.resume_from:
        return {}
    best = {BEST: run.path / BEST} if has_rank_0 and (run.path / BEST).exists() else {}
    return {RESUME: Path(job.checkpoints.resume_from)} | best


@dataclass(eq=False, slots=True, kw_only=True)
class _Transfer:
    """Queued transfer of a file.

    Attributes:
        path: Path of the file in the run folder.
        on_done: Callback for the end of the transfer.
        saved: Event that announced the file, if it is a last.pt to fetch.
        source: File to send, or None if the file is to be fetched.
        sha256: Function that returns the digest of the file to send, or "" if it is unknown.
    """

    path: str
    on_done: OnDone
    saved: CheckpointSaved | None = None
    source: Path | None = None
    sha256: Callable[[], str] = lambda: ""


class FileTransfers:
    """Transfers of files between the supervisor and one machine, in a thread and over a separate connection.

    The thread calls no callbacks. Call `poll` regularly, so that it calls those of the transfers that have ended.

    Args:
        run: Run folder on the supervisor's machine.
        command: Command that starts the other end (`exchange`) on the machine, where a node must be running.
        log: File to which the standard error of the command is appended.
        keep: Number of older checkpoints to keep next to last.pt.
    """

    def __init__(self, run: RunFolder, command: Sequence[str], log: Path, keep: int) -> None:
        self._run, self._command, self._log, self._keep = run, command, log, keep
        self._pending: list[_Transfer] = []  # transfers whose callbacks have not been called
        self._requests: queue.SimpleQueue[_Transfer | None] = queue.SimpleQueue()  # None ends the thread
        self._results: queue.SimpleQueue[tuple[_Transfer, str]] = queue.SimpleQueue()  # with the error, or ""
        self._lock = threading.Lock()  # guards `_connection` and `_is_closed`
        self._connection: FileConnection | None = None
        self._thread = threading.Thread(target=self._run_transfers, name="files", daemon=True)
        self._is_closed = False
        self._fetched: dict[str, str] = {}
        """SHA-256 digests of the files that were fetched, by path."""
        self._last: CheckpointSaved | None = None
        """Event that announced the last.pt that is now in the run folder."""
        self._thread.start()

    def fetch(self, path: str, on_done: OnDone, saved: CheckpointSaved | None = None) -> None:
        """Queue a file for fetching, even during an earlier transfer of it, since it may have changed.

        `path` is its path in the run folder. `on_done` is called with the reason for a failure, or "". `saved` is the
        event that announced the file, if it is a last.pt.
        """
        if is_inside(path):
            self._submit(_Transfer(path=path, on_done=on_done, saved=saved))
        else:
            on_done(f"{path} is not a file of the run's folder")

    def send(self, path: str, source: Path, sha256: Callable[[], str], on_done: OnDone) -> None:
        """Queue a file for sending. Its content is not sent if the machine already has it.

        `path` is its path on the machine, and `sha256` is a function that waits for the digest of `source`. `on_done`
        is called with the reason for a failure, or "".
        """
        self._submit(_Transfer(path=path, on_done=on_done, source=source, sha256=sha256))

    def poll(self) -> None:
        """Call the callbacks of the transfers that have ended."""
        while not self._results.empty():
            transfer, error = self._results.get()
            if transfer in self._pending:
                self._pending.remove(transfer)
                transfer.on_done(error)

    def give_up(self) -> None:
        """Close the connection, and end all pending transfers with the error that the machine is away."""
        self.close()
        pending, self._pending = self._pending, []
        for transfer in pending:
            transfer.on_done("the machine is away")

    def close(self) -> None:
        """Close the connection, even in the middle of a transfer."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.process.kill()
        self._requests.put(None)
        self._thread.join(_JOIN_TIMEOUT_S)

    def _submit(self, transfer: _Transfer) -> None:
        """Queue a transfer for the thread. If the connection was closed for good, end it with an error at once."""
        if self._is_closed:
            transfer.on_done("the machine is away")
        else:
            self._pending.append(transfer)
            self._requests.put(transfer)

    # In the thread

    def _run_transfers(self) -> None:
        """Open the connection, and carry out the queued transfers until None is taken from the queue."""
        with suppress(OSError):  # reported by the first transfer
            self._connect()
        while (transfer := self._requests.get()) is not None:
            self._results.put((transfer, self._copy(transfer)))
        self._disconnect()

    def _copy(self, transfer: _Transfer) -> str:
        """Fetch or send a file. Returns the error, or "" if it succeeds.

        If sending fails, or an exception interrupts a transfer, the connection is closed. Partial copies of the file in
        the run folder are then removed. A fetch that ends without an exception leaves them, because `_receive` deals
        with them.
        """
        try:
            connection = self._connect()
            if transfer.source is None:
                return self._receive(connection, transfer)
            reason = _send(connection, transfer.path, transfer.source, transfer.sha256())
        except msgspec.DecodeError as error:
            reason = f"the machine sent an invalid message: {error}"
        except Exception as error:
            reason = getattr(error, "strerror", None) or str(error)
        if reason:
            self._disconnect()
        remove_partial(self._run.path / transfer.path)  # of this transfer, or of one that a killed supervisor has left
        return reason

    def _connect(self) -> FileConnection:
        """Return the connection to the machine, which is opened if there is none. Raises OSError."""
        with self._lock:
            if self._is_closed:
                raise ConnectionLost("the machine is away")
            if self._connection is None:
                with open(self._log, "ab", opener=paths.open_private) as errors:
                    self._connection = FileConnection(self._command, errors)
            return self._connection

    def _disconnect(self) -> None:
        """Close the connection. The next transfer opens another one."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _receive(self, connection: FileConnection, transfer: _Transfer) -> str:
        """Fetch a file, unless it is unchanged since it was last fetched. Returns the error, or "" if it succeeds.

        Before a last.pt is replaced, it is saved as an older checkpoint. Surplus older checkpoints are removed.
        """
        connection.write(RunFile(path=transfer.path))
        offer = connection.read()
        if offer.problem:
            return offer.problem
        target = self._run.path / transfer.path
        is_unchanged = offer.sha256 == self._fetched.get(transfer.path) and target.exists()
        if is_unchanged:
            connection.write(offer)  # requests the content from its end on, which is nothing
        else:
            partial = connection.receive(offer, target)
            if partial is None:
                return "it did not arrive as it was sent"
            if transfer.path == LAST and self._last is not None and self._keep and target.exists():
                with suppress(OSError):  # the file system may have no hard links
                    os.link(target, self._run.path / _get_older_path(self._last))
            os.replace(partial, target)
            self._fetched[transfer.path] = offer.sha256
        if transfer.path == LAST:
            previous, self._last = self._last, transfer.saved
            if is_unchanged and previous is not None and self._keep and self._requests.empty():
                # The previous last.pt was replaced before it was fetched, but the machine may have kept it as an older
                # checkpoint. Queued transfers come first. An error is ignored, since the requested file has arrived.
                self._receive(connection, _Transfer(path=_get_older_path(previous), on_done=transfer.on_done))
            self._remove_surplus_checkpoints(target.parent)
        return ""

    def _remove_surplus_checkpoints(self, folder: Path) -> None:
        """Remove the oldest checkpoints in `folder`, so that `_keep` of them remain next to last.pt."""
        if self._keep:
            oldest_first = list(older_checkpoints(folder).values())
            for path in oldest_first[: -self._keep]:
                path.unlink(missing_ok=True)


def _get_older_path(saved: CheckpointSaved) -> str:
    """Return the path to which a last.pt is saved as an older checkpoint.

    `saved` is the event that reported the last.pt.
    """
    return f"checkpoints/epoch-{saved.epoch}-step-{saved.step}.pt"


def _send(connection: FileConnection, path: str, source: Path, sha256: str) -> str:
    """Send the file `source`, which gets the path `path` on the machine. Returns the error, or "" if it succeeds."""
    with open_file(source) as stream, suppress(BrokenPipeError):  # the confirmation explains it
        if problem := connection.send(stream, RunFile(path=path, sha256=sha256)):
            return problem
    confirmation = connection.read()
    return confirmation.problem


class NodeFiles:
    """Run folder on one of the machines of a run, for the process (node) that runs the workers there.

    The folder belongs to this process. If a node process from an earlier start of the run still uses it, that process
    is killed. If `request.run_folder` is set, it is the original folder on a shared file system, and nothing is
    transferred.
    """

    def __init__(self, request: NodeRequest) -> None:
        self._is_copy = not request.run_folder
        self.folder = node_folder(request.run_id) if self._is_copy else Path(request.run_folder)
        self._lock: int | None = None
        self._opening = threading.Lock()
        """Held while the folder is created, and from `close` on."""

    def open(self) -> None:
        """Create the run folder and, unless it is the original one, lock it for the lifetime of this process.

        Raises:
            OSError: The folder can't be created.
            TimeoutError: The node process from an earlier start of the run did not exit.
        """
        with self._opening:
            if self._is_copy:
                paths.make_home()
                _remove_abandoned()
                self._lock = _lock_folder(self.folder)
                # A later node process of the run reads this id to kill this process.
                os.truncate(self._lock, 0)
                os.pwrite(self._lock, str(os.getpid()).encode(), 0)
            paths.make_folder(self.folder / "checkpoints")

    def resume_from(self, path: str) -> Path:
        """Return the local path of a checkpoint, given its `path` on the supervisor's machine."""
        return self.folder / RESUME if self._is_copy else Path(path)

    def read_worker_files(self, rank: int, last_bytes: int) -> dict[str, bytes]:
        """Return the end of a worker's log and of its traceback, keyed by file name.

        At most `last_bytes` of each are returned. The result is empty if the files already are in the original run
        folder.
        """
        files: dict[str, bytes] = {}
        if self._is_copy:
            for name in worker_file_names(rank):
                with suppress(OSError):  # the traceback file exists only after an error
                    files[name] = read_end(self.folder / name, last_bytes)
        return files

    def close(self) -> None:
        """Remove the folder, unless it is the original run folder or another node uses it. The process must exit next.

        If another thread is opening the folder, wait for at most a second. Later calls of `open` block forever, so that
        no thread creates the folder again.
        """
        self._opening.acquire(timeout=_JOIN_TIMEOUT_S)
        if not self._is_copy:
            return
        with suppress(OSError):
            is_owner = self._lock is not None
            if is_owner or _is_abandoned(self.folder / _LOCK):
                remove_node_folder(self.folder)


def node_folder(run_id: str) -> Path:
    """Return the folder that a run uses on this machine.

    Its path contains the name of the machine, so that machines with a shared home folder use different ones.
    """
    return paths.home() / "nodes" / Path(run_id).name / platform.node()


def exchange(run_id: str) -> int:
    """Serve a run's folder on this machine to the supervisor. Returns the exit code when the connection is closed.

    As soon as the node process that uses the folder exits, a thread exits this process, too.
    """
    folder = node_folder(run_id)

    def exit_with_node() -> None:
        with suppress(OSError):  # the node has removed the folder
            while not _is_abandoned(folder / _LOCK):
                time.sleep(_LOCK_CHECK_S)
        os._exit(0)

    linux.name_process("footplate-files")
    threading.Thread(target=exit_with_node, name="watch", daemon=True).start()
    return serve(folder, run_id, copies=(LAST,), writable=True)


def make_scratch() -> Path:
    """Create and return a folder for this process's sockets and temporary files.

    The folder's path is short enough for a Unix socket. The module `tempfile` uses it from now on in this process. Such
    folders of nodes that were killed are removed.
    """
    base = paths.runtime_folder()
    for folder in base.glob(f"{_SCRATCH_PREFIX}*"):
        pid = folder.name.removeprefix(_SCRATCH_PREFIX)
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
    folder = paths.make_private_folder(base / f"{_SCRATCH_PREFIX}{os.getpid()}")
    tempfile.tempdir = str(folder)
    return folder


def worker_file_names(rank: int) -> tuple[str, str]:
    """Return the names of the log and of the traceback file of a rank's worker."""
    return f"worker-{rank}.log", f"worker-{rank}-traceback.txt"


def _lock_folder(folder: Path) -> int:
    """Create the folder, lock it, and return the file descriptor of the lock.

    A node process from an earlier start of the run that still holds the lock is killed. Raises TimeoutError if it does
    not exit.
    """
    path = folder / _LOCK
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        with suppress(FileNotFoundError):  # that node is removing the folder
            if (descriptor := file_locks.lock_file(paths.make_private_folder(folder) / _LOCK)) is not None:
                return descriptor
            _kill_node(read_end(path, 32))
        if time.monotonic() > deadline:
            raise TimeoutError(f"another node of this run does not end (see {path})")
        time.sleep(_LOCK_POLL_S)


def _kill_node(pid: bytes) -> None:
    """Kill the process whose id is the text `pid`, and its descendants, if it is a node other than this one."""
    with suppress(ValueError, psutil.Error):
        node = psutil.Process(int(pid))
        if node.name().startswith("footplate-node") and node.pid != os.getpid():
            for process in (*node.children(recursive=True), node):
                with suppress(psutil.Error):
                    process.kill()


def _remove_abandoned() -> None:
    """Remove the folders of runs that are more than a day old and whose node has exited."""
    for lock in (paths.home() / "nodes").glob(f"*/{platform.node()}/{_LOCK}"):
        with suppress(OSError):
            if lock.stat().st_mtime < time.time() - _MIN_ABANDONED_AGE_S and _is_abandoned(lock):
                remove_node_folder(lock.parent)


def _is_abandoned(lock: Path) -> bool:
    """Return True if the node that locked the file `lock` has exited. Raises OSError."""
    descriptor = file_locks.open_file(lock)
    try:
        return file_locks.try_lock(descriptor)
    finally:
        os.close(descriptor)


def remove_node_folder(folder: Path) -> None:
    """Remove a run's folder on this machine, and its parent if that is empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()
