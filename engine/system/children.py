"""Execution of commands, with limits on the time they take and the length of their output.

All output of child processes and other machines is read here, since a compromised machine may send endless output or
never answer.
"""

from __future__ import annotations

import errno
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

if sys.platform != "win32":
    import resource

MAX_OUTPUT_BYTES = 64 << 20
"""Maximum output of a command in bytes. A list of a hundred thousand runs takes 50 MB."""

_CHUNK_BYTES = 1 << 16
_POLL_S = 0.1
"""Seconds between checks whether a command that prints nothing has exited."""
_JOIN_S = 5.0
"""Maximum time for reading the rest of an exited command's output, in seconds.

On Windows, child processes of the command can delay the end of its output.
"""


class OutputTooLong(OSError):  # noqa: N818 - describes the output
    """Raised when a command has printed more than its limit."""


def run_child(
    command: Sequence[str],
    *,
    timeout_s: float | None,
    at_most: int = MAX_OUTPUT_BYTES,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command and return its exit code and output. Kill the command if it exceeds a limit.

    Child processes that outlive the command may keep its pipes open. Their later output is ignored.

    Raises:
        subprocess.TimeoutExpired: The command has not exited within `timeout_s`.
        OutputTooLong: The command has printed more than `at_most` bytes to one of its streams.
        OSError: The command can't be started.
    """
    process = subprocess.Popen(
        command, bufsize=0, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with kill_after(process, timeout_s):
        errors = _OutputReader(process, process.stderr, at_most)
        output = _OutputReader(process, process.stdout, at_most)
        process.wait()
    output.join(_JOIN_S)
    errors.join(_JOIN_S)
    if max(len(output.data), len(errors.data)) > at_most:
        raise OutputTooLong(errno.EMSGSIZE, f"it has sent more than {at_most:,} bytes", command[0])
    return subprocess.CompletedProcess(command, process.returncode, bytes(output.data), bytes(errors.data))


def limit_written_files(at_most: int) -> None:
    """Limit each file that this process writes to `at_most` bytes. Writing beyond that fails with an OSError.

    Programs that replace this process by `exec` keep the limit. Does nothing on Windows.
    """
    if sys.platform != "win32":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (at_most, at_most))


@contextmanager
def kill_after(process: subprocess.Popen[bytes], timeout_s: float | None) -> Iterator[None]:
    """Context manager that kills the process if the block takes longer than `timeout_s`.

    At the end of such a block, subprocess.TimeoutExpired is raised. A `timeout_s` of None means no limit.
    """
    if timeout_s is None:
        yield
        return
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(timeout_s, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if expired.is_set():
        raise subprocess.TimeoutExpired(process.args, timeout_s)


class _OutputReader(threading.Thread):
    """Thread that stores the output of a process, read from `stream`, in `data`.

    The thread ends and closes the stream when the output has ended or the process has exited. If the output exceeds
    `at_most` bytes, the thread kills the process.
    """

    def __init__(self, process: subprocess.Popen[bytes], stream: IO[bytes], at_most: int) -> None:
        super().__init__(name="output", daemon=True)
        self.data = bytearray()
        self._process, self._stream, self._at_most = process, stream, at_most
        self.start()

    def run(self) -> None:
        with self._stream:
            while len(self.data) <= self._at_most and self._has_output():
                chunk = self._stream.read(_CHUNK_BYTES)
                if not chunk:
                    break
                self.data += chunk
        if len(self.data) > self._at_most:
            self._process.kill()

    def _has_output(self) -> bool:
        """Wait until the stream can be read without blocking, and return True.

        Return False if the process has exited and the stream has no more data. On Windows, always return True at once.
        """
        if sys.platform == "win32":  # pipes can't be polled there, so the next read waits instead
            return True
        poller = select.poll()
        poller.register(self._stream, select.POLLIN)
        while True:
            has_exited = self._process.returncode is not None  # checked first, since the last output precedes the exit
            if poller.poll(0 if has_exited else 1000 * _POLL_S):
                return True
            if has_exited:
                return False
