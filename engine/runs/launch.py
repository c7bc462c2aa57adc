"""Starting a run's supervisor, or another process that is to outlive whoever started it: detached."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from engine.runs.folder import RunFolder
from engine.runs.interruptions import note_end
from engine.system import paths

_GOODBYE_S = 2.0


def start_supervisor(run: RunFolder) -> int:
    """Starts the supervisor of `run` in a session of its own and returns its pid. Raises OSError."""
    return start_detached("engine.supervisor", run.path, "supervisor.log", lambda code: note_end(run.path, code))


def start_detached(
    module: str, folder: Path, log_name: str, ended: Callable[[int], object] = lambda _code: None
) -> int:
    """Starts `python -m module FOLDER` in a session of its own, so that it outlives whoever started it, and returns
    its pid. What it prints is added to the log in the folder; while the starter lives, `ended` is given its exit
    code. Raises OSError.
    """
    windows = sys.platform == "win32"
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
            start_new_session=not windows,
            creationflags=flags,
        )
    # Waited for aside, so that no zombie stays while the starter lives.
    name = f"{module.rpartition('.')[2]}-{process.pid}"
    threading.Thread(target=lambda: ended(process.wait()), name=name, daemon=True).start()
    return process.pid


class Preloader:
    """A child process that has PyTorch in memory and forks supervisors at once, where the system can fork.

    All calls return at once. `fileno` is readable whenever `poll` should be called, which notes what the child
    has said; `ready` is true once it can start runs without delay. Where it cannot (not started, not ready yet,
    gone, or not on Linux), `start_run` starts a supervisor the usual way.
    """

    def __init__(self) -> None:
        self.ready = False
        self.pids: dict[str, int] = {}
        """The supervisors that were started, by the run's folder."""
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: dict[str, RunFolder] = {}
        self._rest = b""

    def start(self) -> None:
        """Starts the child, unless it is there already or the system cannot fork."""
        self.poll()
        if sys.platform != "linux" or self._process is not None:
            return
        paths.make_home()
        logs = paths.private_folder(paths.home() / "logs")
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
        """What to wait on for `poll`; -1 where no child is there."""
        if self._process is None or self._process.stdout is None:
            return -1
        return self._process.stdout.fileno()

    def start_run(self, run: RunFolder) -> None:
        """Has the supervisor of `run` started. Raises OSError where even the usual way fails."""
        self.poll()
        folder = str(run.path.absolute())
        if self.ready and self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(os.fsencode(folder) + b"\n")
            except OSError:
                self._forget()
            else:
                self._asked[folder] = run
                return
        self.pids[folder] = start_supervisor(run)

    def poll(self) -> None:
        """Notes what the child has said; starts the usual way what it left undone at its end."""
        if self._process is None or self._process.stdout is None:
            return
        while True:
            try:
                data = os.read(self._process.stdout.fileno(), 65536)
            except BlockingIOError:
                return
            if not data:
                self._forget()
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._note(os.fsdecode(line))

    def close(self) -> None:
        """Ends the child; the runs that it started live on."""
        if self._process is not None and self._asked and self._process.stdin is not None:
            self._process.stdin.close()  # it still answers what it was asked
            self._wait()
            self.poll()
        self._forget()

    def _note(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "ready":
            self.ready = True
        elif word == "started":
            pid, _, folder = rest.partition(" ")
            self._asked.pop(folder, None)
            self.pids[folder] = int(pid)

    def _forget(self) -> None:
        """Parts from the child. It has no work of its own in hand, so that a signal harms nothing."""
        process, self._process = self._process, None
        self.ready = False
        self._rest = b""
        if process is not None:
            process.terminate()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
            try:
                process.wait(_GOODBYE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        undone, self._asked = self._asked, {}
        for folder, run in undone.items():
            supervisor = run.supervisor()
            if supervisor is None or not supervisor.alive():
                self.pids[folder] = start_supervisor(run)

    def _wait(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            return
