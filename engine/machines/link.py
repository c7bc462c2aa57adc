"""Both ends of the connection between a supervisor and a node: frames over the standard streams of a command."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from engine.contract.nodes import FROM_NODE, KEEP_ALIVE_S, SILENCE_S, TO_NODE, FromNode, KeepAlive, ToNode
from engine.contract.protocol import ENCODE, FrameError, Frames
from engine.system import linux, paths
from engine.system.files import open_file
from engine.system.ssh import english_environment

_CHUNK = 1 << 18
_QUEUED_BYTES = 1 << 22
"""Queued bytes above which no more of a file is read."""
SHUTDOWN_S = 5.0
"""Seconds in which a machine ends what it has started."""


class NodeLink:
    """Supervisor's end: runs a command and exchanges frames with it.

    `on_message` receives each message, and `on_end` is called once after the last: with the reason if a message was
    invalid, else with "". The command's standard error is appended to `log`. Raises OSError.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        selector: selectors.BaseSelector,
        on_message: Callable[[FromNode], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.has_answered = False
        self._log = log
        self._selector, self._on_message, self._on_end = selector, on_message, on_end
        self._frames = Frames()
        self._queued: deque[memoryview] = deque()
        self._streams: deque[Iterator[ToNode]] = deque()
        self._received_at, self._sent_at = time.monotonic(), 0.0
        parent = os.getpid()
        with open(log, "ab", opener=paths.open_private) as errors:
            self._log_start = os.fstat(errors.fileno()).st_size
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=paths.PACKAGES,
                env=english_environment(),
                bufsize=0,
                start_new_session=True,
                preexec_fn=(lambda: linux.die_with_parent(parent)) if sys.platform == "linux" else None,  # noqa: PLW1509
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[bytes] | None = self._process.stdin
        self._output: IO[bytes] | None = self._process.stdout
        for stream in (self._input, self._output):
            os.set_blocking(stream.fileno(), False)
        selector.register(self._output, selectors.EVENT_READ, lambda _mask: self._receive())

    @property
    def has_ended(self) -> bool:
        return self._output is None

    @property
    def silent_s(self) -> float:
        """Seconds since the last frame."""
        return time.monotonic() - self._received_at

    def send(self, message: ToNode) -> None:
        self._enqueue(message)
        self._write()

    def send_all(self, messages: Iterator[ToNode]) -> None:
        """Send `messages` in order, as fast as the pipe takes them; later messages may overtake the last of them."""
        self._streams.append(messages)
        self._write()

    def tick(self) -> None:
        """Send a heartbeat if one is due."""
        if time.monotonic() > self._sent_at + KEEP_ALIVE_S:
            self.send(KeepAlive())

    def exit_status(self) -> tuple[int, str]:
        """Wait for the command and return its exit code and the end of its standard error."""
        with suppress(OSError), open_file(self._log) as stream:
            stream.seek(max(self._log_start, os.fstat(stream.fileno()).st_size - 4096))
            return self._process.wait(), stream.read().decode(errors="replace")
        return self._process.wait(), ""

    def close(self) -> None:
        """Close the command's input, after which the machine ends all that it has started."""
        self._close_input()

    def finish(self, timeout_s: float) -> None:
        """Close the command's input and wait for its end; kill it after `timeout_s`."""
        self.close()
        deadline = time.monotonic() + timeout_s
        while self._output is not None and time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
                break
            with suppress(OSError):  # a full pipe would keep the command from ending
                while os.read(self._output.fileno(), _CHUNK):
                    pass
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close_input()
        self._close_output()

    def _enqueue(self, message: ToNode) -> None:
        if self._input is not None:
            self._sent_at = time.monotonic()
            self._queued.append(memoryview(ENCODE.encode(message) + b"\n"))

    def _write(self) -> None:
        """Write what the pipe takes; the selector calls again for the rest."""
        while self._input is not None:
            while self._streams and sum(map(len, self._queued)) < _QUEUED_BYTES:
                message = next(self._streams[0], None)
                if message is None:
                    self._streams.popleft()
                else:
                    self._enqueue(message)
            if not self._queued:
                break
            try:
                count = os.write(self._input.fileno(), self._queued[0])
            except BlockingIOError:
                break
            except OSError:
                self._close_input()  # the other stream reports the end
                return
            if count < len(self._queued[0]):
                self._queued[0] = self._queued[0][count:]
            else:
                self._queued.popleft()
        self._watch_writable()

    def _watch_writable(self) -> None:
        if self._input is None:
            return
        registered = self._input in self._selector.get_map()
        if self._queued and not registered:
            self._selector.register(self._input, selectors.EVENT_WRITE, lambda _mask: self._write())
        elif not self._queued and registered:
            self._selector.unregister(self._input)

    def _receive(self) -> None:
        if self._output is None:
            return
        reason = ""
        try:
            data = os.read(self._output.fileno(), _CHUNK)
            self._received_at = time.monotonic()
            messages = [FROM_NODE.decode(line) for line in self._frames.feed(data)]
        except BlockingIOError:
            return
        except (OSError, FrameError, msgspec.DecodeError) as error:
            data, messages, reason = b"", [], f"it sent an invalid message: {error}"
        for message in messages:
            self.has_answered = True
            if not isinstance(message, KeepAlive):
                self._on_message(message)
        if not data:
            self._close_output()
            self._on_end(reason)

    def _close_input(self) -> None:
        if self._input is not None:
            if self._input in self._selector.get_map():
                self._selector.unregister(self._input)
            self._input.close()
            self._input = None

    def _close_output(self) -> None:
        if self._output is not None:
            self._selector.unregister(self._output)
            self._output.close()
            self._output = None


class SupervisorLink:
    """Node's end, on its own standard streams; what else is printed goes to standard error.

    Any thread may call `send`, which never raises: the end of `messages` reports a supervisor that is gone.
    """

    def __init__(self) -> None:
        self._output = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._frames = Frames()
        self._received_at = time.monotonic()

    def send(self, message: FromNode) -> None:
        data = memoryview(ENCODE.encode(message) + b"\n")
        with self._lock, suppress(OSError):
            while data:
                data = data[os.write(self._output, data) :]

    def messages(self) -> Iterator[ToNode]:
        """Yield the supervisor's messages until it closes the connection. Raises FrameError, msgspec.DecodeError."""
        while data := os.read(0, _CHUNK):
            self._received_at = time.monotonic()
            for line in self._frames.feed(data):
                if not isinstance(message := TO_NODE.decode(line), KeepAlive):
                    yield message

    def start_beating(self, on_silence: Callable[[], None]) -> None:
        """Send heartbeats from a thread, and call `on_silence` after `SILENCE_S` without a frame."""

        def beat() -> None:
            while time.monotonic() < self._received_at + SILENCE_S:
                self.send(KeepAlive())
                time.sleep(KEEP_ALIVE_S)
            on_silence()

        threading.Thread(target=beat, name="beat", daemon=True).start()
