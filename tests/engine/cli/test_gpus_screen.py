"""``footplate gpus --watch`` in a pseudoterminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.engine.cli.terminal import command
from tests.support.nvml_stub import NvmlStub, make_gpu_profile

if sys.platform == "win32":
    pytest.skip("there are no pseudo terminals", allow_module_level=True)

import fcntl
import pty
import select
import struct
import termios

from tests.support.waiting import wait_until

FRAME = re.compile(r"\x1b\[1;1H(.*?)(?=\x1b\[1;1H)", re.DOTALL)
NEXT_LINE = re.compile(r"\x1b\[\d+;1H")
SEQUENCE = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")
SCREEN_ON, SCREEN_OFF = "\x1b[?1049h", "\x1b[?1049l"


SHELL = """
import fcntl, os, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, lambda *_: None)
code = subprocess.call(sys.argv[2:])
os.write(int(sys.argv[1]), str(code).encode())
signal.pause()
"""
"""Script that controls the terminal like a shell.

Ctrl+C then becomes a signal, and the terminal remains open after the command exits.
"""


class Terminal:
    """Pseudoterminal that runs ``footplate gpus --watch`` in the foreground."""

    def __init__(self, rows: int, columns: int, environment: dict[str, str]) -> None:
        self.keyboard, self._slave = pty.openpty()
        self._code, code = os.pipe()
        self.resize(rows, columns)
        inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self._shell = subprocess.Popen(
            [sys.executable, "-c", SHELL, str(code), *command("gpus", "--watch", "--interval", "0.1")],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=inherited | {"TERM": "xterm-256color"} | environment,
            start_new_session=True,
            pass_fds=[code],
        )
        os.close(code)
        self.text = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_until(self, condition: Callable[[str], bool], timeout_s: float = 120.0) -> str:
        """Wait until `condition` is True for all output since the start, and return this output."""
        while not condition(self.text):
            ready, _, _ = select.select([self.keyboard], [], [], timeout_s)
            assert ready, self.text
            self.text += os.read(self.keyboard, 65536).decode(errors="replace")
        return self.text

    def read_frames(self, count: int) -> list[list[str]]:
        """Return the lines of the next `count` frames, without colors."""
        have = len(FRAME.findall(self.text))
        found = FRAME.findall(self.wait_until(lambda text: len(FRAME.findall(text)) >= have + count))
        return [[SEQUENCE.sub("", line).rstrip() for line in NEXT_LINE.split(frame)] for frame in found[-count:]]

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.keyboard)[3] & termios.ECHO)

    @property
    def unread_bytes(self) -> int:
        """Number of typed characters that the shell would read next."""
        (count,) = struct.unpack("i", fcntl.ioctl(self._slave, termios.FIONREAD, bytes(4)))
        return count

    @property
    def footplate(self) -> psutil.Process:
        return psutil.Process(self._shell.pid).children()[0]

    def wait_for_exit(self) -> int:
        """Wait until the command exits, and return its exit code."""
        return int(os.read(self._code, 16))

    def close(self) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        for descriptor in (self.keyboard, self._slave, self._code):
            os.close(descriptor)


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(nvml_stub: NvmlStub) -> Iterator[Open]:
    opened: list[Terminal] = []

    def launch(rows: int = 30, columns: int = 100, **environment: str) -> Terminal:
        nvml_stub.write([make_gpu_profile(0, wave=1), make_gpu_profile(1)])
        opened.append(Terminal(rows, columns, nvml_stub.environment | environment))
        return opened[-1]

    yield launch
    for one in opened:
        one.close()


def test_screen_redraws_in_place(terminal: Open) -> None:
    screen = terminal()
    screen.wait_until(lambda text: "H200" in text)
    first, second, third = screen.read_frames(3)
    assert len(first) == len(second) == len(third)
    heads = [next(line for line in frame if line.startswith("GPU")) for frame in (first, second, third)]
    assert len(set(heads)) == 1
    assert "\x1b[2J" not in screen.text


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_screen_restores_the_terminal(terminal: Open, how: str) -> None:
    screen = terminal()
    assert screen.echoes
    screen.wait_until(lambda text: SCREEN_ON in text and "H200" in text)
    assert not screen.echoes
    if how == "Ctrl-C":
        os.write(screen.keyboard, b"q\x03")
    else:
        os.write(screen.keyboard, b"q\n")
        wait_until(lambda: screen.unread_bytes > 0, "the typed keys")
        screen.footplate.terminate()
    text = screen.wait_until(lambda text: SCREEN_OFF in text)
    assert screen.wait_for_exit() == (130 if how == "Ctrl-C" else 128 + signal.SIGTERM)
    assert screen.echoes
    assert screen.unread_bytes == 0
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is visible again
    assert "Traceback" not in text
    assert "q" not in SEQUENCE.sub("", text[text.rindex(SCREEN_OFF) :])


def test_screen_follows_the_terminal_size(terminal: Open) -> None:
    screen = terminal(rows=30, columns=100)
    screen.wait_until(lambda text: "H200" in text)
    assert max(map(len, screen.read_frames(1)[0])) > 80
    screen.resize(5, 70)
    screen.read_frames(2)
    frame = screen.read_frames(1)[0]
    assert max(len(line) for line in frame[2:5]) <= 70
    assert len(frame) == 5
    assert frame[-1] == "… 2 more lines: a taller terminal shows them"
    screen.resize(6, 70)
    screen.read_frames(2)
    frame = screen.read_frames(1)[0]
    assert (len(frame), "more lines" in frame[-1]) == (6, False)


def test_screen_honors_no_color(terminal: Open) -> None:
    plain = terminal(NO_COLOR="1")
    plain.wait_until(lambda text: "H200" in text)
    assert "\x1b[1m" not in plain.text
    painted = terminal()
    assert "\x1b[1m" in painted.wait_until(lambda text: "H200" in text)
