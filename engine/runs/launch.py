"""Start supervisors and other processes that outlive their parent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.runs.folder import RunFolder
from engine.runs.interruptions import record_fatal_signal
from engine.system import paths

_EXIT_TIMEOUT_S = 2.0


def start_supervisor(run: RunFolder) -> int:
    """Start the supervisor of `run` in its own session and return its pid. Raises OSError."""
    return start_detached(
        "engine.supervisor", run.path, "supervisor.log", lambda code: record_fatal_signal(run.path, code)
    )


def start_detached(
    module: str, folder: Path, log_name: str, on_exit: Callable[[int], object] = lambda _code: None
) -> int:
    """Start `python -m module FOLDER` in its own session and return its pid. Raises OSError.

    The output is appended to the log `log_name` in `folder`. When the started process exits, `on_exit` is called with its
    exit code if this process is still alive.
    """
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    with open(folder / log_name, "ab", opener=paths.open_private) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=paths.PACKAGES,
            start_new_session=sys.platform != "win32",
            creationflags=flags,
        )
    # Wait for the process in a thread, so that it does not become a zombie.
    name = f"{module.rpartition('.')[2]}-{process.pid}"
    threading.Thread(target=lambda: on_exit(process.wait()), name=name, daemon=True).start()
    return process.pid


class Preloader:
    """Owner of a child process that has already imported PyTorch and forks supervisors without delay.

    The child is used only on systems that can fork. Without a child that is ready, `start_run` starts a supervisor
    directly. If the child exits before it has started all requested supervisors, the next `poll` or `close` starts the
    missing ones. No call waits for a supervisor to start. `ready` is True once the child can start runs.
    """

    def __init__(self) -> None:
        self.ready = False
        self.pids: dict[str, int] = {}
        """Process ids of the started supervisors, keyed by run folder."""
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: dict[str, RunFolder] = {}  # runs that the child has not confirmed to have started, by folder
        self._partial_line = b""

    def start(self) -> None:
        """Start the child process, unless it is running or the system can't fork."""
        self.poll()
        if sys.platform != "linux" or self._process is not None:
            return
        paths.make_home()
        logs = paths.make_private_folder(paths.home() / "logs")
        with (logs / "preloader.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "engine.supervisor", "--preload"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=paths.PACKAGES,
                start_new_session=True,
                bufsize=0,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when `poll` must be called, or -1 if there is no child."""
        if self._process is None or self._process.stdout is None:
            return -1
        return self._process.stdout.fileno()

    def start_run(self, run: RunFolder) -> None:
        """Start the supervisor of `run`, with the child process if it is ready. Raises OSError."""
        self.poll()
        folder = str(run.path.absolute())
        if self.ready and self.alive and self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(os.fsencode(folder) + b"\n")
            except OSError:
                self._stop_child()
            else:
                self._pending[folder] = run
                return
        self.pids[folder] = start_supervisor(run)

    def poll(self) -> None:
        """Read the messages of the child process.

        If the child has exited, start the supervisors of its unanswered requests.
        """
        if self._process is None or self._process.stdout is None:
            return
        while True:
            try:
                data = os.read(self._process.stdout.fileno(), 65536)
            except BlockingIOError:
                return
            if not data:
                self._stop_child()
                return
            *lines, self._partial_line = (self._partial_line + data).split(b"\n")
            for line in lines:
                self._on_message(os.fsdecode(line))

    def close(self) -> None:
        """Stop the child process. Supervisors that it has started continue to run."""
        if self._process is not None and self._pending and self._process.stdin is not None:
            self._process.stdin.close()  # it still answers pending requests
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_TIMEOUT_S)
            self.poll()
        self._stop_child()

    def _on_message(self, line: str) -> None:
        """Handle a line from the child process, "ready" or "started PID FOLDER"."""
        word, _, arguments = line.partition(" ")
        if word == "ready":
            self.ready = True
        elif word == "started":
            pid, _, folder = arguments.partition(" ")
            self._pending.pop(folder, None)
            self.pids[folder] = int(pid)

    def _stop_child(self) -> None:
        """Terminate the child, which has no state to save, and start the supervisors of unanswered requests."""
        process, self._process = self._process, None
        self.ready = False
        self._partial_line = b""
        if process is not None:
            process.terminate()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
            try:
                process.wait(_EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        pending, self._pending = self._pending, {}
        for folder, run in pending.items():
            if not run.is_supervised():  # otherwise, the child has started it without confirming this
                self.pids[folder] = start_supervisor(run)
