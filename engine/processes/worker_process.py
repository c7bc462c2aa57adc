"""One worker's process: started by fork on Linux and by a new interpreter elsewhere, watched, and ended."""

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
from pathlib import Path
from typing import Protocol

import msgspec

from engine.contract.devices import is_gpu
from engine.contract.events import AnyEvent
from engine.contract.protocol import ENCODE, MAX_FRAME_BYTES, Command, Frames
from engine.contract.worker import FROM_WORKER, Heartbeat, WorkerDone, WorkerSpec
from engine.runs.folder import RunFolder
from engine.system import linux, paths, stdio

WORKER = "engine.training.worker:run"
"""The function that a worker runs, as MODULE:NAME; it takes (WorkerSpec, socket) and returns an exit code."""

FRAME_LIMIT = MAX_FRAME_BYTES - 256
"""A worker's event gets its number and time before it is passed on as a frame."""

THREADS_S = 1.0
"""How long native threads may take to end before forking is abandoned."""

_CHUNK = 1 << 18

FromWorker = AnyEvent | Heartbeat | WorkerDone


class Worker(Protocol):
    """A worker as its group sees it, wherever it runs. `pid` is 0 for one of another machine; `channel` is None once
    there is nothing more to hear of it. One that has ended only `because_of_another` is no cause of anything.
    """

    rank: int
    pid: int
    log: Path
    exit_code: int | None
    done: WorkerDone | None
    because_of_another: bool

    @property
    def channel(self) -> object | None: ...
    def listen(self, selector: selectors.BaseSelector, hear: Callable[[], None]) -> None:
        """Has `hear` called whenever there is something to `receive`."""

    def poll(self) -> int | None: ...
    def receive(self) -> list[FromWorker]: ...
    def send(self, message: Command) -> None: ...
    def kill(self, *, hard: bool) -> None: ...
    def close(self) -> None: ...


class WorkerProcess:
    """A running worker. `channel` is this end of its socket pair, non-blocking, None once it has closed."""

    because_of_another = False

    def __init__(self, spec: WorkerSpec, worker: str, *, fork: bool) -> None:
        self.rank = spec.rank
        self.log = RunFolder(spec.run_folder).worker_log(spec.rank)
        self.exit_code: int | None = None
        self.done: WorkerDone | None = None
        self._frames = Frames(FRAME_LIMIT)
        self._popen: subprocess.Popen[bytes] | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            if fork:
                self.pid = _fork(spec, worker, theirs, self.log)
            else:
                self._popen = _spawn(spec, worker, theirs, self.log)
                self.pid = self._popen.pid
        ours.setblocking(False)
        self.channel: socket.socket | None = ours
        self._selector: selectors.BaseSelector | None = None

    def listen(self, selector: selectors.BaseSelector, hear: Callable[[], None]) -> None:
        """Has `hear` called by `selector` whenever there is something to `receive`."""
        assert self.channel is not None
        self._selector = selector
        selector.register(self.channel, selectors.EVENT_READ, lambda _mask: hear())

    def poll(self) -> int | None:
        """The exit code once the process has ended (minus the signal's number if by one), else None."""
        if self.exit_code is None and _may_be_reaped(self.pid):
            if self._popen is not None:
                self.exit_code = self._popen.poll()
            else:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code

    def receive(self) -> list[FromWorker]:
        """What has arrived; closes the channel at its end. Raises FrameError, msgspec.DecodeError."""
        if self.channel is None:
            return []
        try:
            data = self.channel.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.close()
            return []
        return [FROM_WORKER.decode(line) for line in self._frames.feed(data)]

    def send(self, message: Command) -> None:
        """Sends what the channel takes at once; a worker that reads nothing is met by signals later."""
        if self.channel is not None:
            try:
                self.channel.send(ENCODE.encode(message) + b"\n")
            except OSError as error:
                print(f"Rank {self.rank} could not be sent {message}: {error}", flush=True)

    def kill(self, *, hard: bool) -> None:
        """Signals the worker's process group: SIGTERM, or SIGKILL if `hard`."""
        if self.poll() is not None:
            return
        if sys.platform == "win32":
            assert self._popen is not None
            self._popen.kill()
            return
        try:
            os.killpg(self.pid, signal.SIGKILL if hard else signal.SIGTERM)
        except ProcessLookupError:
            return  # it ended meanwhile; poll() will tell

    def close(self) -> None:
        if self.channel is not None:
            if self._selector is not None:
                self._selector.unregister(self.channel)
            self.channel.close()
            self.channel = None


def _may_be_reaped(pid: int) -> bool:
    """False while a worker lives. Once it has ended, ends what it started and left in its process group.

    That is done before the worker is reaped, as long as nobody else can get its number.
    """
    if not hasattr(os, "waitid"):  # Windows, and macOS before Python 3.13
        return True
    try:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        os.killpg(pid, signal.SIGKILL)
    except (ChildProcessError, ProcessLookupError, PermissionError):
        pass  # another process's child; macOS reports a group of which only the dead leader is left as forbidden
    return True


def can_fork() -> bool:
    """Forking is kept to Linux (macOS's frameworks do not bear it) and to processes of one thread.

    A thread that Python has joined may still be on its way out, with locks in hand: it is waited for.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    deadline = time.monotonic() + THREADS_S
    while linux.thread_count() > 1:
        if time.monotonic() > deadline:
            print("A library's thread is still running: workers are started without forking.", flush=True)
            return False
        time.sleep(0.001)
    return True


def worker_environment(spec: WorkerSpec) -> dict[str, str]:
    """What a worker's environment must say before torch touches a device."""
    gpus = [device for device in spec.own_devices if is_gpu(device)]
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "OMP_NUM_THREADS": str(spec.threads),
        "MKL_NUM_THREADS": str(spec.threads),
    }


def run_worker(spec: WorkerSpec, worker: str, channel: socket.socket) -> int:
    """Runs the worker's function in this process; a fault that it did not report goes to its log."""
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


def _fork(spec: WorkerSpec, worker: str, channel: socket.socket, log: Path) -> int:
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _forked(parent, spec, worker, channel, log)
        finally:
            os._exit(code)
    try:
        os.setpgid(pid, pid)  # both sides do it, so that neither can find it undone
    except OSError:
        return pid  # it is past that already
    return pid


def _forked(parent: int, spec: WorkerSpec, worker: str, channel: socket.socket, log: Path) -> int:
    linux.die_with_parent(parent)
    os.setpgid(0, 0)
    faulthandler.disable()  # its dump would take the place of a worker's last words
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    stdio.redirect(log)
    linux.release_inherited_files({channel.fileno()})
    os.environ.update(worker_environment(spec))
    channel.setblocking(True)
    return run_worker(spec, worker, channel)


def _spawn(spec: WorkerSpec, worker: str, channel: socket.socket, log: Path) -> subprocess.Popen[bytes]:
    """A new interpreter. The channel is passed by inheritance, on Windows by `socket.share` (its documentation
    asks for the child's pid, so it goes through the child's stdin).
    """
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
    orders = SpawnOrders(spec=spec, worker=worker, parent=os.getpid(), fd=channel.fileno(), shared=shared)
    assert popen.stdin is not None
    popen.stdin.write(ENCODE.encode(orders) + b"\n")
    popen.stdin.close()
    return popen


class SpawnOrders(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a worker in a new interpreter reads from its stdin. `shared` is base64 of `socket.share`, or ""."""

    spec: WorkerSpec
    worker: str
    parent: int
    fd: int
    shared: str
