"""Connection between a supervisor and a node. Both exchange frames over the standard input and output of a command."""

from __future__ import annotations

import os
import queue
import select
import selectors
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from engine.contract.hosts import Host
from engine.contract.nodes import (
    FROM_NODE,
    KEEP_ALIVE_S,
    LOST_S,
    SILENCE_S,
    TO_NODE,
    FromNode,
    KeepAlive,
    ShellStarted,
    ToNode,
)
from engine.contract.protocol import ENCODE, FrameError, Frames
from engine.processes.line_child import SelectedOutput
from engine.system import linux, paths
from engine.system.children import limit_written_files
from engine.system.files import open_file
from engine.system.ssh import create_english_environment, ssh_command

_CHUNK_BYTES = 1 << 18
_KEEP_ALIVE = ENCODE.encode(KeepAlive()) + b"\n"
_MAX_REPORTED_BYTES = 4096
_JOIN_TIMEOUT_S = 1.0
START_S = 60.0
"""Timeout in seconds for the start of a machine's shell, and also for the subsequent start of Python."""
MAX_LOG_BYTES = 64 << 20
"""Maximum number of bytes that a machine's standard error may add to a log."""
SHUTDOWN_S = 5.0
"""Maximum time in seconds to wait until a machine has stopped everything that it started."""


def remote_command(host: Host, *arguments: str) -> list[str]:
    """Return a command line that runs `footplate` with `arguments` on another machine through ssh.

    The remote shell first prints the message `ShellStarted`. It shows that the connection works, even if Python starts
    slowly or fails.
    """
    started = shlex.quote(ENCODE.encode(ShellStarted()).decode())
    return ssh_command(
        host.ssh_destination, ["sh", "-c", f"echo {started}; exec {shlex.join(host.command(*arguments))}"]
    )


class NodeLink(SelectedOutput[IO[bytes]]):
    """Supervisor's end of the connection to a machine. It runs a command and exchanges frames with it. Raises OSError.

    The constructor starts the command, registers its output with `selector`, and empties a log that is too large. A
    thread sends messages and heartbeats, so that machines do not give up on a supervisor that is busy for a long time.

    Args:
        command: Command line, which starts with "ssh" for another machine.
        log: File to which the standard error of the command is appended. For ssh, its size is limited.
        selector: Selector that the caller polls.
        on_message: Called with each message.
        on_end: Called once after the last message, with the reason if a message was invalid, otherwise with "".
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        selector: selectors.BaseSelector,
        on_message: Callable[[FromNode], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.has_answered = False  # True once the machine has sent a message
        is_remote = command[0] == "ssh"
        self._has_shell_started = not is_remote  # a local command needs no login shell
        self._log = log
        self._on_message, self._on_end = on_message, on_end
        self._frames = Frames()
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # frames to send; None ends the thread
        self._received_at = time.monotonic()  # time of the last data
        parent = os.getpid()

        def prepare() -> None:
            linux.die_with_parent(parent)
            if is_remote:  # not for local nodes, which write checkpoints
                limit_written_files(self._log_start + MAX_LOG_BYTES)

        with open(log, "ab", opener=paths.open_private) as errors:
            self._log_start = os.fstat(errors.fileno()).st_size  # where this command's output starts in the log
            if self._log_start > MAX_LOG_BYTES:
                errors.truncate(0)
                self._log_start = 0
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=paths.PACKAGES,
                env=create_english_environment(),
                bufsize=0,
                start_new_session=True,
                preexec_fn=prepare if sys.platform != "win32" else None,  # noqa: PLW1509
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        super().__init__(selector, self._process.stdout, lambda _mask: self._receive())
        self._writer = threading.Thread(target=self._write, args=(self._process.stdin,), name="link", daemon=True)
        self._writer.start()

    @property
    def has_ended(self) -> bool:
        return self._output is None

    @property
    def silent_s(self) -> float:
        """Seconds since the last frame arrived."""
        return time.monotonic() - self._received_at

    def silence_reason(self, title: str) -> str:
        """Return an explanation if the machine has been silent for so long that it counts as lost, otherwise "".

        `title` is the name of the machine for the user. Before a machine counts as lost, its pending messages are
        handled, which may call `on_message` and `on_end`.
        """
        limit_s = LOST_S if self.has_answered else START_S
        if self.silent_s > limit_s:
            self._receive()  # messages may have arrived while this process was busy
        if self.has_ended or self.silent_s <= limit_s:
            return ""
        if self.has_answered:
            return f"{title} has not responded for {limit_s:.0f} s: it, or its network, may be down."
        if self._has_shell_started:
            return (
                f"Python has not started on {title} within {limit_s:.0f} s. Move Footplate's virtual environment to a "
                "local disk if it is on a slow network drive."
            )
        return (
            f"ssh's login or the login shell of {title} has taken more than {limit_s:.0f} s. Shorten the shell's startup "
            f"files, as .bashrc (conda, pyenv), until `time ssh {title} true` is fast."
        )

    def send(self, message: ToNode) -> None:
        """Queue a message, which a thread sends."""
        self._outbox.put(ENCODE.encode(message) + b"\n")

    def exit_status(self) -> tuple[int, str]:
        """Wait for the command to exit. Returns its exit code and the end of its standard error, "" if unreadable."""
        code = self._process.wait()
        with suppress(OSError), open_file(self._log) as stream:
            log_end = os.fstat(stream.fileno()).st_size
            stream.seek(max(self._log_start, log_end - _MAX_REPORTED_BYTES))
            return code, stream.read().decode(errors="replace")
        return code, ""

    def close(self) -> None:
        """Close the command's input, which makes the machine stop everything that it has started."""
        self._outbox.put(None)

    def finish(self, timeout_s: float) -> None:
        """Close the command's input, and wait until the command exits. Kill it after `timeout_s`.

        If the command's output has already ended, kill the command at once.
        """
        self.close()
        deadline = time.monotonic() + timeout_s
        while self._output is not None and time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
                break
            self._drain_output(self._output)
        self.kill()

    def _drain_output(self, output: IO[bytes]) -> None:
        """Read and discard the available output, because a full pipe would block the command."""
        with suppress(OSError):  # BlockingIOError if nothing is available
            while os.read(output.fileno(), _CHUNK_BYTES):
                pass

    def kill(self) -> None:
        """Kill the command, and close the connection without a call of `on_end`."""
        self._process.kill()
        self._process.wait()
        self.close()
        self._writer.join(_JOIN_TIMEOUT_S)
        self._close_output()

    def _write(self, stream: IO[bytes]) -> None:
        """Send queued messages to `stream`, with heartbeats in between, until the connection is closed."""
        with suppress(OSError), stream:  # the end of the other stream is reported
            while True:
                try:
                    data = self._outbox.get(timeout=KEEP_ALIVE_S)
                except queue.Empty:
                    data = _KEEP_ALIVE
                if data is None:
                    return
                write_all(stream.fileno(), data)

    def _receive(self) -> None:
        """Read the command's output without blocking.

        Call `on_message` with each message, and `on_end` once the output has ended or a message is invalid.
        """
        if self._output is None:
            return
        reason = ""
        try:
            data = os.read(self._output.fileno(), _CHUNK_BYTES)
            self._received_at = time.monotonic()
            messages = [FROM_NODE.decode(line) for line in self._frames.feed(data)]
        except BlockingIOError:
            return
        except (OSError, FrameError, msgspec.DecodeError) as error:
            data, messages, reason = b"", [], f"it sent an invalid message: {error}"
        for message in messages:
            if isinstance(message, ShellStarted):
                self._has_shell_started = True
                continue
            self.has_answered = True
            if not isinstance(message, KeepAlive):
                self._on_message(message)
        if not data:
            self._close_output()
            self._on_end(reason)


class SupervisorLink:
    """Machine's end of the connection to a supervisor: standard input and output. Other output goes to standard error.

    Any thread may call `send`, which never raises an exception. When the supervisor is gone, `messages` ends.
    """

    def __init__(self) -> None:
        self._output = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._frames = Frames()

    def send(self, message: FromNode) -> None:
        with self._lock, suppress(OSError):
            write_all(self._output, ENCODE.encode(message) + b"\n")

    def messages(self) -> Iterator[ToNode]:
        """Yield the supervisor's messages until it closes the connection or is silent for `SILENCE_S`.

        Raises FrameError and msgspec.DecodeError.
        """
        while select.select([0], [], [], SILENCE_S)[0] and (data := os.read(0, _CHUNK_BYTES)):
            for line in self._frames.feed(data):
                if not isinstance(message := TO_NODE.decode(line), KeepAlive):
                    yield message

    def start_heartbeats(self) -> None:
        """Start a thread that sends heartbeats to the supervisor."""

        def send_heartbeats() -> None:
            while True:
                self.send(KeepAlive())
                time.sleep(KEEP_ALIVE_S)

        threading.Thread(target=send_heartbeats, name="heartbeats", daemon=True).start()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to a blocking file descriptor. Raises OSError."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]
