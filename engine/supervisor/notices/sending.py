"""``python -m engine.supervisor.notices.sending``: sends one notice, and says what became of it.

A `Notice` comes on the standard input and the `NoticeSent` goes out as a line. It is a process of its own, in a
session of its own, so that a desktop or a command that hangs holds up no run, and that the end of a run's supervisor,
which is when most notices are due, neither ends it nor lets the command go on for ever.
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
from engine.system.format import exit_words

NO_DESKTOP = (
    "No desktop notifications can be shown: neither notify-send (package libnotify-bin) nor gdbus "
    "(libglib2.0-bin) is installed, or nobody is logged in to a desktop."
)
_SAID_BYTES = 2000
"""Bytes at the end of a command's output that are reported."""


class _Ending:
    """A handler of SIGTERM that ends this process by SystemExit: at once, or when it is let go after it was held."""

    def __init__(self) -> None:
        self._held = self._asked = False

    def __call__(self, _number: int, _frame: object) -> None:
        self._asked = True
        self._end_if_asked()

    def hold(self) -> None:
        self._held = True

    def let_go(self) -> None:
        self._held = False
        self._end_if_asked()

    def _end_if_asked(self) -> None:
        if self._asked and not self._held:
            sys.exit(1)


_ending = _Ending()


def send(notice: Notice, command_s: float = COMMAND_S) -> NoticeSent:
    """Shows the notification, then runs the command; the one does not hang on the other."""
    sent = NoticeSent()
    if notice.desktop:
        by = desktop.way()
        why = desktop.show(by, notice.title, notice.text) if by is not None else NO_DESKTOP
        sent = NoticeSent(desktop_by="" if why else by or "", desktop_problem=why)
    return _run(notice, command_s, sent) if notice.command.strip() else sent


def _run(notice: Notice, command_s: float, sent: NoticeSent) -> NoticeSent:
    """Runs the command, and says beside what is in `sent` what became of it."""
    began = time.monotonic()
    # Into a file: what it leaves running in the background may hold its output open.
    with tempfile.TemporaryFile() as output:
        _ending.hold()  # a command that is being started would be left running
        try:
            process = _start(notice, output)
        except (OSError, ValueError) as error:  # no shell; a command that holds a NUL
            _ending.let_go()
            problem = f"The notification command could not be started: {error}."
            return msgspec.structs.replace(sent, command_problem=problem)
        try:
            _ending.let_go()
            code = process.wait(command_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                _end(process)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - _SAID_BYTES))
        said = output.read().decode(errors="replace").strip()
    return msgspec.structs.replace(
        sent,
        command_code=code,
        command_s=round(time.monotonic() - began, 3),
        said=said,
        command_problem=_problem(code, said, command_s),
    )


def _start(notice: Notice, output: IO[bytes]) -> subprocess.Popen[bytes]:
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


def _problem(code: int | None, said: str, command_s: float) -> str:
    """What went wrong with a command that has ended with `code`, None where it was ended after `command_s`."""
    if code == 0:
        return ""
    last = f"Its last line: {said.splitlines()[-1]}" if said else "It printed nothing."
    if code is None:
        return f"The notification command had not finished after {command_s:g} s and was killed. {last}"
    return f"The notification command {exit_words(code)}. {last}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and whatever it has started in its session's process group."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)  # it leads that group, and is not reaped yet
    process.wait()


def main() -> int:
    signal.signal(signal.SIGTERM, _ending)  # which ends the command, too
    try:
        notice = msgspec.json.decode(sys.stdin.buffer.read(), type=Notice)
    except NOT_DECODED as error:
        print(f"Invalid notification: {error}", file=sys.stderr)
        return 2
    sent = send(notice)
    try:
        os.write(1, msgspec.json.encode(sent) + b"\n")
    except OSError:  # the supervisor has ended: its log is what is left
        for problem in filter(None, (sent.desktop_problem, sent.command_problem)):
            print(problem, file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
