"""The supervisor's end of what it and one machine tell each other."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from engine.contract.nodes import BEAT_S, FROM_NODE, Beat, FromNode, ToNode
from engine.contract.protocol import ENCODE, FrameError, Frames
from engine.system import linux, paths
from engine.system.ssh import in_english

_CHUNK = 1 << 18
_WAITING_BYTES = 1 << 22
"""How much may wait to be sent before more of a file is read."""
GOODBYE_S = 5.0
"""How long a machine may take to end what it has started."""


class NodeLink:
    """Runs `command`, which serves frames, and calls `on_message` with each that comes and `on_end` once there are no
    more: with why they were not understood, or "". What it says besides goes to the end of `log`. Raises OSError.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        selector: selectors.BaseSelector,
        on_message: Callable[[FromNode], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.heard_at = time.monotonic()
        self.begun = False
        """Whether it has said anything."""
        self._log = log
        self._selector, self._on_message, self._on_end = selector, on_message, on_end
        self._frames = Frames()
        self._waiting: deque[memoryview] = deque()
        self._coming: deque[Iterator[ToNode]] = deque()
        self._said_at = 0.0
        parent = os.getpid()
        with open(log, "ab", opener=paths.for_the_user_alone) as said:
            self._log_from = os.fstat(said.fileno()).st_size
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=paths.PACKAGES,
                env=in_english(),
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
        selector.register(self._output, selectors.EVENT_READ, lambda _mask: self._hear())

    @property
    def ended(self) -> bool:
        return self._output is None

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self.heard_at

    def send(self, message: ToNode) -> None:
        self._put(message)
        self._write()

    def send_all(self, messages: Iterator[ToNode]) -> None:
        """Sends `messages` in their order, as fast as they are taken; what is sent later may come before the last of
        them.
        """
        self._coming.append(messages)
        self._write()

    def tick(self) -> None:
        if time.monotonic() > self._said_at + BEAT_S:
            self.send(Beat())

    def last_words(self) -> tuple[int, str]:
        """The exit code of what was run, once it has ended, and what it said besides."""
        with suppress(OSError), self._log.open("rb") as stream:
            stream.seek(max(self._log_from, os.fstat(stream.fileno()).st_size - 4096))
            return self._process.wait(), stream.read().decode(errors="replace")
        return self._process.wait(), ""

    def close(self) -> None:
        """Says that there is nothing more to do: the machine ends all that it has started."""
        self._close_input()

    def finish(self, patience_s: float = GOODBYE_S) -> None:
        """Returns once the command has ended; it is killed where that takes too long."""
        self.close()
        deadline = time.monotonic() + patience_s
        while self._output is not None and time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
                break
            self._drain()
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close_input()
        self._close_output()

    # Within

    def _drain(self) -> None:
        """Lets nobody wait who still has something to say."""
        with suppress(OSError):
            if self._output is not None:
                while os.read(self._output.fileno(), _CHUNK):
                    pass

    def _put(self, message: ToNode) -> None:
        if self._input is not None:
            self._said_at = time.monotonic()
            self._waiting.append(memoryview(ENCODE.encode(message) + b"\n"))

    def _write(self) -> None:
        """Writes what is taken at once, and has itself called for the rest."""
        while self._input is not None:
            while self._coming and sum(map(len, self._waiting)) < _WAITING_BYTES:
                part = next(self._coming[0], None)
                if part is None:
                    self._coming.popleft()
                else:
                    self._put(part)
            if not self._waiting:
                break
            try:
                count = os.write(self._input.fileno(), self._waiting[0])
            except BlockingIOError:
                break
            except OSError:
                self._close_input()  # its end is heard at the other stream
                return
            if count < len(self._waiting[0]):
                self._waiting[0] = self._waiting[0][count:]
            else:
                self._waiting.popleft()
        self._await_room()

    def _await_room(self) -> None:
        if self._input is None:
            return
        registered = self._input in self._selector.get_map()
        if self._waiting and not registered:
            self._selector.register(self._input, selectors.EVENT_WRITE, lambda _mask: self._write())
        elif not self._waiting and registered:
            self._selector.unregister(self._input)

    def _hear(self) -> None:
        if self._output is None:
            return
        why = ""
        try:
            data = os.read(self._output.fileno(), _CHUNK)
            self.heard_at = time.monotonic()
            messages = [FROM_NODE.decode(line) for line in self._frames.feed(data)]
        except BlockingIOError:
            return
        except (OSError, FrameError, msgspec.DecodeError) as error:
            data, messages, why = b"", [], f"it sent something that is not understood: {error}"
        for message in messages:
            self.begun = True
            if not isinstance(message, Beat):
                self._on_message(message)
        if not data:
            self._close_output()
            self._on_end(why)

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
