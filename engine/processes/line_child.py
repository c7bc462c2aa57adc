"""A child process that tells the supervisor's loop something, a JSON object a line."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO

import msgspec

from engine.contract.protocol import FrameError, Frames
from engine.system import paths

STOP_S = 2.0
"""How long the child may take to exit when asked to."""
_CHUNK = 1 << 16


class LineChild:
    """Runs the module `arguments` ("-m" is added) and calls `on_line` with each line of its output, and `on_end`
    once, when that has ended ("") or cannot be understood (with why): where `on_line` raises msgspec.DecodeError,
    too. `quiet`: what it writes to stderr is dropped. Raises OSError.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        arguments: Sequence[str],
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
        *,
        quiet: bool = False,
    ) -> None:
        self._selector, self._on_line, self._on_end = selector, on_line, on_end
        self._frames = Frames()
        ours, theirs = socket.socketpair()
        windows = sys.platform == "win32"
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if windows else theirs.fileno(),
                stderr=subprocess.DEVNULL if quiet else None,
                cwd=paths.PACKAGES,
            )
            if self.process.stdout is not None:
                _carry_over(self.process.stdout, theirs.dup())
        ours.setblocking(False)
        self._output: socket.socket | None = ours
        selector.register(ours, selectors.EVENT_READ, self._hear)

    def stop(self) -> None:
        """Asks it to end, and hears nothing more of it."""
        self._close_output()
        self.process.terminate()

    def close(self) -> None:
        """Has it ended when this returns."""
        self.stop()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _hear(self, _mask: int) -> None:
        assert self._output is not None
        why = ""
        try:
            data = self._output.recv(_CHUNK)
            for line in self._frames.feed(data):
                self._on_line(line)
        except BlockingIOError:
            return
        except (OSError, FrameError, msgspec.DecodeError) as error:
            data, why = b"", str(error)
        if not data:
            self._close_output()
            self._on_end(why)

    def _close_output(self) -> None:
        if self._output is not None:
            self._selector.unregister(self._output)
            self._output.close()
            self._output = None


def _carry_over(pipe: IO[bytes], target: socket.socket) -> None:
    """On Windows only sockets can be waited for: a thread carries the pipe's lines over to one."""

    def carry() -> None:
        with target, pipe:
            for line in pipe:
                try:
                    target.sendall(line)
                except OSError:
                    return

    threading.Thread(target=carry, name="child-output", daemon=True).start()
