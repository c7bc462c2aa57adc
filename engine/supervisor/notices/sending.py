"""Program ``python -m engine.supervisor.notices.sending``, which sends one notification.

It reads a `Notice` from standard input and prints a `NoticeSent`. It has its own process and session, so that a hanging
desktop or command can't delay the run. It can also outlive the supervisor, which often exits right after starting it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

import msgspec

from engine.runs.notices import COMMAND_S, Notice, NoticeSent
from engine.supervisor.notices import desktop
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import describe_exit

NO_DESKTOP = (
    "No desktop notifications can be shown: neither notify-send (package libnotify-bin) nor gdbus "
    "(libglib2.0-bin) is installed, or nobody is logged in to a desktop."
)
_OUTPUT_BYTES = 2000
"""Maximum number of bytes, from the end of a command's output, that are reported."""


class TermHandler:
    """Handler for SIGTERM that exits the process. After `defer`, the exit is delayed until `allow` is called."""

    def __init__(self) -> None:
        self._is_deferred = self._is_requested = False

    def __call__(self, _number: int, _frame: object) -> None:
        self._is_requested = True
        self._exit_if_requested()

    def defer(self) -> None:
        """Delay the exit after a signal until `allow` is called."""
        self._is_deferred = True

    def allow(self) -> None:
        """Exit immediately after a signal from now on, or at once if a signal has arrived since `defer`."""
        self._is_deferred = False
        self._exit_if_requested()

    def _exit_if_requested(self) -> None:
        """Raise SystemExit if a signal has arrived and the exit is not delayed."""
        if self._is_requested and not self._is_deferred:
            sys.exit(1)


def send(notice: Notice, timeout_s: float = COMMAND_S, on_term: TermHandler | None = None) -> NoticeSent:
    """Show the notification and then run the user's command for at most `timeout_s`, even if showing has failed.

    `on_term` is this process's handler for SIGTERM, which must not interrupt the start of the command. It is None if
    the process has no such handler.
    """
    result = NoticeSent()
    if notice.desktop:
        program = desktop.find_program()
        problem = desktop.show(program, notice.title, notice.text) if program is not None else NO_DESKTOP
        shown_by = program if program is not None and not problem else ""
        result = NoticeSent(desktop_by=shown_by, desktop_problem=problem)
    if not notice.command.strip():
        return result
    return _run_command(notice, timeout_s, result, on_term or TermHandler())


def _run_command(notice: Notice, timeout_s: float, result: NoticeSent, on_term: TermHandler) -> NoticeSent:
    """Run the user's command for at most `timeout_s`. Return `result` with its exit code, output and problem.

    `on_term` delays a SIGTERM while the command is started.
    """
    started_at = time.monotonic()
    # Use a file, because a background process may keep a pipe open.
    with tempfile.TemporaryFile() as output:
        on_term.defer()  # a command that is being started would survive this process
        try:
            process = _start_command(notice, output)
        except (OSError, ValueError) as error:  # there is no shell, or the command contains NUL
            on_term.allow()
            problem = f"The notification command could not be started: {error}."
            return msgspec.structs.replace(result, command_problem=problem)
        try:
            on_term.allow()
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                _kill_group(process)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - _OUTPUT_BYTES))
        text = output.read().decode(errors="replace").strip()
    return msgspec.structs.replace(
        result,
        command_code=code,
        command_s=round(time.monotonic() - started_at, 3),
        command_output=text,
        command_problem=_describe_problem(code, text, timeout_s),
    )


def _start_command(notice: Notice, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the user's command in a shell and a session of its own, and return its process.

    The command's output is written to `output`. Raises OSError or ValueError.
    """
    return subprocess.Popen(
        notice.command,
        shell=True,
        cwd=notice.folder if Path(notice.folder).is_dir() else None,
        env=os.environ | notice.variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=sys.platform != "win32",
    )


def _describe_problem(code: int | None, output: str, timeout_s: float) -> str:
    """Describe a failed command, or return "" if it succeeded.

    `code` is its exit code, or None if it was killed after `timeout_s`. `output` is the end of its output.
    """
    if code == 0:
        return ""
    last = f"Its last line: {output.splitlines()[-1]}" if output else "It printed nothing."
    if code is None:
        return f"The notification command had not finished after {timeout_s:g} s and was killed. {last}"
    return f"The notification command {describe_exit(code)}. {last}"


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and all other processes in its process group."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)  # its pid can't be reused before `wait`
    process.wait()


def main() -> int:
    """Send the notification on stdin, and print the result as JSON. Returns 2 if the notification is invalid."""
    on_term = TermHandler()
    signal.signal(signal.SIGTERM, on_term)
    try:
        notice = msgspec.json.decode(sys.stdin.buffer.read(), type=Notice)
    except NOT_DECODED as error:
        print(f"Invalid notification: {error}", file=sys.stderr)
        return 2
    result = send(notice, on_term=on_term)
    try:
        os.write(1, msgspec.json.encode(result) + b"\n")
    except OSError:  # the supervisor has ended; stderr is its log
        for problem in filter(None, (result.desktop_problem, result.command_problem)):
            print(problem, file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
