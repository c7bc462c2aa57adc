"""Program ``python -m engine.supervisor --preload``, which imports PyTorch and then forks supervisors.

It is a child of the window, and prints "ready" after the imports. For each line RUN_FOLDER on standard input, it forks
the supervisor of that run in a new session and answers "started PID RUN_FOLDER". It exits when standard input is
closed. To free its memory (about 400 MB, most of it shared with workers), it also exits after `IDLE_S` without a
request. Its supervisors continue in both cases.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import traceback
from pathlib import Path

from engine.processes import imports
from engine.processes.worker_process import can_fork
from engine.runs.interruptions import record_fatal_signal
from engine.supervisor.execution import supervise
from engine.system import linux, stdio

IDLE_S = 15 * 60.0
_REAP_INTERVAL_S = 2.0


def serve() -> int:
    """Import PyTorch, then fork a supervisor for each run folder that is read from standard input.

    Return the exit code when standard input is closed, or after `IDLE_S` without a request.
    """
    linux.name_process("footplate-pre")
    linux.signal_at_parents_death(signal.SIGKILL)  # during the imports, nothing reads stdin for seconds
    imports.import_all(imports.BASIC + imports.DISTRIBUTED)
    with contextlib.suppress(ImportError):  # a job that needs PyTorch reports it
        imports.import_all(imports.OPTIONAL)
    linux.signal_at_parents_death(0)
    if not can_fork():
        return 1
    _print_answer("ready")
    partial_line = b""
    folders: dict[int, Path] = {}
    deadline = time.monotonic() + IDLE_S
    while time.monotonic() < deadline:
        _reap(folders)
        readable, _, _ = select.select([0], [], [], _REAP_INTERVAL_S)
        if not readable:
            continue
        data = os.read(0, 65536)
        if not data:
            return 0
        *lines, partial_line = (partial_line + data).split(b"\n")
        for line in lines:
            folder = os.fsdecode(line)
            pid = _fork_supervisor(Path(folder))
            folders[pid] = Path(folder)
            _print_answer(f"started {pid} {folder}")
        deadline = time.monotonic() + IDLE_S
    return 0


def _print_answer(text: str) -> None:
    """Write a line to standard output, in which paths have the file system's encoding."""
    os.write(1, os.fsencode(text) + b"\n")


def _fork_supervisor(folder: Path) -> int:
    """Fork a supervisor for the run in `folder`, and return its process id. The child never returns."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        stdio.redirect_output(folder / "supervisor.log")
        linux.release_inherited_files(keep=set())  # such as the window's pipe, which this process must not hold open
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        code = supervise(folder, modules=())  # `serve` has imported them before the fork
    except BaseException:
        traceback.print_exc()
    finally:
        stdio.exit_now(code)


def _reap(folders: dict[int, Path]) -> None:
    """Collect children that have exited, and record the exit codes of supervisors in their run folders.

    `folders` maps process ids of supervisors to run folders. Imported modules may have started other children.
    """
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid in folders:
                record_fatal_signal(folders.pop(pid), os.waitstatus_to_exitcode(status))
