"""Process of one worker. It is forked on Linux. On other systems, it is a new interpreter."""

from __future__ import annotations

import base64
import faulthandler
import importlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from engine.contract.devices import is_gpu
from engine.contract.events import AnyEvent
from engine.contract.protocol import ENCODE, MAX_FRAME_BYTES, Command, Frames
from engine.contract.worker import FROM_WORKER, Heartbeat, WorkerDone, WorkerSpec
from engine.runs.folder import RunFolder
from engine.system import compile_cache, linux, paths, stdio
from engine.system.private_network import PrivateNetwork

WORKER = "engine.training.worker:run"
"""Function that workers run by default, as MODULE:NAME.

It is called with (WorkerSpec, socket) and returns an exit code.
"""

FRAME_LIMIT = MAX_FRAME_BYTES - 256
"""Maximum size of a worker's message in bytes. Its number and time are added before it becomes a frame."""

THREADS_TIMEOUT_S = 1.0
"""Maximum time to wait until native threads have ended, in seconds. If some remain, the process does not fork."""

_CHUNK_BYTES = 1 << 18

FromWorker = AnyEvent | Heartbeat | WorkerDone


class Worker(Protocol):
    """Interface of a group's workers, which run on this machine or on a remote one.

    `pid` is 0 on another machine. `channel` is None after the last message. `is_stopped_for_another` is True if the worker
    was stopped because of another worker, so that its exit is not the cause of a failure.
    """

    rank: int
    pid: int
    log: Path
    exit_code: int | None
    done: WorkerDone | None
    is_stopped_for_another: bool

    @property
    def channel(self) -> object | None: ...
    def listen(self, selector: selectors.BaseSelector, on_readable: Callable[[], None]) -> None:
        """Make the selector call `on_readable` whenever `receive` can return messages."""

    def poll(self) -> int | None: ...
    def receive(self) -> list[FromWorker]: ...
    def send(self, message: Command) -> None: ...
    def kill(self, *, hard: bool) -> None: ...
    def close(self) -> None: ...


class WorkerProcess:
    """Worker on this machine.

    `channel` is this process's end of the socket pair, non-blocking, or None once it is closed.
    """

    is_stopped_for_another = False

    def __init__(self, spec: WorkerSpec, worker: str, *, fork: bool, network: PrivateNetwork | None = None) -> None:
        self.rank = spec.rank
        self.log = RunFolder(spec.run_folder).worker_log(spec.rank)
        self.exit_code: int | None = None  # None while the process runs
        self.done: WorkerDone | None = None  # result, or None before the worker has reported it
        self._frames = Frames(FRAME_LIMIT)
        self._unsent = bytearray()  # commands that the socket has not accepted yet
        self._popen: subprocess.Popen[bytes] | None = None
        channel, worker_end = socket.socketpair()
        with worker_end:
            if fork:
                self.pid = _fork(spec, worker, worker_end, self.log, network)
            else:
                self._popen = _spawn(spec, worker, worker_end, self.log)
                self.pid = self._popen.pid
        channel.setblocking(False)
        self.channel: socket.socket | None = channel
        self._selector: selectors.BaseSelector | None = None

    def listen(self, selector: selectors.BaseSelector, on_readable: Callable[[], None]) -> None:
        """Register `channel` with the selector, which calls `on_readable` when messages have arrived."""
        assert self.channel is not None
        self._selector = selector
        selector.register(self.channel, selectors.EVENT_READ, lambda _mask: on_readable())

    def poll(self) -> int | None:
        """Return the exit code, which is negative after a fatal signal. Return None while the process is running.

        Once the process has exited, the remaining processes of its group are killed.
        """
        if self.exit_code is None and _kill_group_if_exited(self.pid):
            if self._popen is not None:
                self.exit_code = self._popen.poll()
            else:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code

    def receive(self) -> list[FromWorker]:
        """Return the messages that have arrived, and send commands that the socket did not accept before.

        If the worker has closed the channel, close this end, too.

        Raises:
            FrameError, msgspec.DecodeError: A message is invalid.
        """
        if self.channel is None:
            return []
        try:
            data = self.channel.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.close()
            return []
        self._flush()  # regularly, since each heartbeat of the worker leads here
        return [FROM_WORKER.decode(line) for line in self._frames.feed(data)]

    def send(self, message: Command) -> None:
        """Send a command without blocking. Parts that the socket does not accept are sent later.

        If the worker never reads, the command is lost. The worker is then sent a signal later.
        """
        if len(self._unsent) > MAX_FRAME_BYTES:
            print(f"Rank {self.rank} reads no messages; dropped {message}.", flush=True)
            return
        self._unsent += ENCODE.encode(message) + b"\n"
        self._flush()

    def _flush(self) -> None:
        """Send as much pending data as the socket accepts. After an error, the data is dropped."""
        if self.channel is None or not self._unsent:
            return
        try:
            del self._unsent[: self.channel.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError as error:
            print(f"Couldn't send messages to rank {self.rank}: {error}", flush=True)
            self._unsent.clear()

    def kill(self, *, hard: bool) -> None:
        """Send SIGTERM, or SIGKILL if `hard` is True, to the worker's process group."""
        if self.poll() is not None:
            return
        if sys.platform == "win32":
            assert self._popen is not None
            self._popen.kill()
            return
        try:
            os.killpg(self.pid, signal.SIGKILL if hard else signal.SIGTERM)
        except ProcessLookupError:
            return  # the process has just exited; poll() reports that

    def close(self) -> None:
        """Close this end of the channel. The process continues."""
        if self.channel is not None:
            if self._selector is not None:
                self._selector.unregister(self.channel)
            self.channel.close()
            self.channel = None


def _kill_group_if_exited(pid: int) -> bool:
    """Kill the process group of a worker if the worker has exited. Return False if it is still running.

    The worker is not reaped here, so that its pid can't be reused before its group is killed. On systems without
    `waitid`, the result is always True, and no process is killed.
    """
    if not hasattr(os, "waitid"):  # Windows, and macOS before Python 3.13
        return True
    try:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        os.killpg(pid, signal.SIGKILL)
    except (ChildProcessError, ProcessLookupError, PermissionError):
        pass  # not a child of this process; or on macOS, a group whose only member is dead
    return True


def can_fork() -> bool:
    """Return True if this process can fork workers, which requires Linux and a single thread.

    On macOS, frameworks do not survive a fork. Threads that Python has joined may still be ending. This waits for them,
    and prints a message if they don't end.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    deadline = time.monotonic() + THREADS_TIMEOUT_S
    while linux.count_threads() > 1:
        if time.monotonic() > deadline:
            print("A library's thread is still running: workers are started without forking.", flush=True)
            return False
        time.sleep(0.001)
    return True


def worker_environment(spec: WorkerSpec) -> dict[str, str]:
    """Return the environment variables that must be set in a worker before torch uses a device."""
    gpus = [device for device in spec.local_devices if is_gpu(device)]
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "OMP_NUM_THREADS": str(spec.threads),
        "MKL_NUM_THREADS": str(spec.threads),
    }


def run_worker(spec: WorkerSpec, worker: str, channel: socket.socket) -> int:
    """Run the function `worker` (MODULE:NAME) in this process, and return the exit code.

    The function is called with `spec` and `channel`, and returns the exit code. If it raises an exception, this is
    printed to the worker's log, and the exit code is 1.
    """
    linux.name_process(f"footplate-w{spec.rank}")
    try:
        module, _, name = worker.partition(":")
        return int(getattr(importlib.import_module(module), name)(spec, channel))
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _fork(spec: WorkerSpec, worker: str, channel: socket.socket, log: Path, network: PrivateNetwork | None) -> int:
    """Fork a process that runs a worker, and return its pid. The process leads a process group of its own."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _run_forked(parent, spec, worker, channel, log, network=network)
        finally:
            os._exit(code)
    try:
        os.setpgid(pid, pid)  # the child does the same, so that both can rely on it
    except OSError:
        return pid  # the child has set its group and continued
    return pid


def _run_forked(
    parent: int,
    spec: WorkerSpec,
    worker: str,
    channel: socket.socket,
    log: Path,
    *,
    network: PrivateNetwork | None,
) -> int:
    """Run a worker in a process that has just been forked, and return the exit code.

    Signals, files and environment that the process has inherited are reset, and its output is redirected to `log`.
    """
    linux.die_with_parent(parent)
    os.setpgid(0, 0)
    faulthandler.disable()  # its dump would hide the last lines of the log
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    stdio.redirect_output(log)
    linux.release_inherited_files({channel.fileno(), *(network.descriptors if network is not None else ())})
    os.environ.update(worker_environment(spec))
    if network is not None:
        _enter_network(network)
    channel.setblocking(True)
    return run_worker(spec, worker, channel)


def _enter_network(network: PrivateNetwork) -> None:
    """Enter a private network in a worker.

    The worker's cache folders are fixed beforehand, because that depends on the owners of folders, which can't be
    determined inside the network's user namespace.
    """
    os.environ["FOOTPLATE_CACHE"] = str(paths.cache_folder())
    with suppress(OSError):  # the worker meets the same problem and reports it
        compile_cache.use_private_folders()
    network.enter()


def _spawn(spec: WorkerSpec, worker: str, channel: socket.socket, log: Path) -> subprocess.Popen[bytes]:
    """Start a worker in a new interpreter, which writes its output to `log`. Returns the process."""
    windows = sys.platform == "win32"
    with open(log, "ab", opener=paths.open_private) as output:
        popen = subprocess.Popen(
            [sys.executable, "-m", "engine.processes.worker_main"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=paths.PACKAGES,
            env=os.environ | worker_environment(spec),
            pass_fds=() if windows else (channel.fileno(),),
            process_group=None if windows else 0,
        )
    shared = ""
    if sys.platform == "win32":
        shared = base64.b64encode(channel.share(popen.pid)).decode()
    request = SpawnRequest(spec=spec, worker=worker, parent=os.getpid(), fd=channel.fileno(), shared=shared)
    assert popen.stdin is not None
    popen.stdin.write(ENCODE.encode(request) + b"\n")
    popen.stdin.close()
    return popen


class SpawnRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Request to run a worker in a new interpreter.

    On Windows, `shared` is the result of `socket.share` in base64. On other systems, it is "".
    """

    spec: WorkerSpec
    worker: str
    parent: int
    fd: int
    shared: str
