"""Child process that prints lines of JSON, which the loop of a selector reads."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, Generic, TypeVar

import msgspec

from engine.contract.protocol import FrameError, Frames
from engine.system import paths

STOP_S = 2.0
"""Maximum time to wait for the child to exit after SIGTERM, in seconds."""
KILL_S = 2.0
"""Maximum time to wait for the child to exit after SIGKILL, in seconds.

A process that is stuck in a driver call survives SIGKILL.
"""
_CHUNK_BYTES = 1 << 16


_Stream = TypeVar("_Stream", socket.socket, IO[bytes])


class SelectedOutput(Generic[_Stream]):
    """Base class for connections to child processes. The loop of a selector reads the output of the child."""

    def __init__(self, selector: selectors.BaseSelector, output: _Stream, on_readable: Callable[[int], object]) -> None:
        self._selector = selector
        self._output: _Stream | None = output  # None once it is closed
        selector.register(output, selectors.EVENT_READ, on_readable)

    def _close_output(self) -> None:
        if self._output is not None:
            self._selector.unregister(self._output)
            self._output.close()
            self._output = None


class LineChild(SelectedOutput[socket.socket]):
    """Child process ``python -m`` with `arguments`, whose output the loop of `selector` reads.

    Args:
        on_line: Called with each line. May raise msgspec.DecodeError.
        on_end: Called at the end of the output. The argument is the error that made a line invalid, or "".
        quiet: True to discard the child's standard error.

    Raises:
        OSError: The process can't be started.
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
        self._on_line, self._on_end = on_line, on_end
        self._frames = Frames()  # divides the output into lines
        reader, writer = socket.socketpair()
        is_windows = sys.platform == "win32"  # where Popen accepts no socket as the standard output
        with writer:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if is_windows else writer.fileno(),
                    stderr=subprocess.DEVNULL if quiet else None,
                    cwd=paths.PACKAGES,
                )
            except OSError:
                reader.close()
                raise
            if self.process.stdout is not None:  # on Windows
                _start_forwarding(self.process.stdout, writer.dup())
        reader.setblocking(False)
        super().__init__(selector, reader, self._receive)

    def stop(self) -> None:
        """Ask the child to exit, and stop reading its output."""
        self._close_output()
        self.process.terminate()

    def close(self) -> None:
        """Stop the child and wait until it has exited. It is killed if it does not exit within `STOP_S`."""
        self.stop()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            try:
                self.process.wait(KILL_S)
            except subprocess.TimeoutExpired:
                print(f"Process {self.process.pid} survived SIGKILL and is left behind.", flush=True)

    def _receive(self, _mask: int) -> None:
        """Call `on_line` with each line that the child has printed. Stop at the end or after an invalid line."""
        assert self._output is not None
        problem = ""
        try:
            data = self._output.recv(_CHUNK_BYTES)
            for line in self._frames.feed(data):
                self._on_line(line)
        except BlockingIOError:
            return
        except (OSError, FrameError, msgspec.DecodeError) as error:
            data, problem = b"", str(error)
        if not data:
            self._close_output()
            self._on_end(problem)


def _start_forwarding(pipe: IO[bytes], target: socket.socket) -> None:
    """Start a thread that copies lines from a pipe to a socket, because selectors on Windows accept only sockets."""

    def forward() -> None:
        with target, pipe:
            for line in pipe:
                try:
                    target.sendall(line)
                except OSError:
                    return

    threading.Thread(target=forward, name="child-output", daemon=True).start()
