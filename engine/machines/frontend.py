"""The node's end of what it and its supervisor tell each other, over its standard input and output."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

from engine.contract.nodes import BEAT_S, SILENCE_S, TO_NODE, Beat, FromNode, ToNode
from engine.contract.protocol import ENCODE, Frames

_CHUNK = 1 << 18


class Frontend:
    """Reads and writes frames. The standard output is kept for them: what is printed goes to standard error.

    `say` may be called by any thread; it raises nothing, as whoever does not read any more has ended, which
    `messages` tells.
    """

    def __init__(self) -> None:
        self._output = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._frames = Frames()
        self._heard_at = self._said_at = time.monotonic()

    def say(self, message: FromNode) -> None:
        data = memoryview(ENCODE.encode(message) + b"\n")
        with self._lock:
            self._said_at = time.monotonic()
            try:
                while data:
                    data = data[os.write(self._output, data) :]
            except OSError:
                return

    def messages(self) -> Iterator[ToNode]:
        """What the supervisor says, until it has no more to say. Raises FrameError, msgspec.DecodeError."""
        while data := os.read(0, _CHUNK):
            self._heard_at = time.monotonic()
            yield from (
                message for line in self._frames.feed(data) if not isinstance(message := TO_NODE.decode(line), Beat)
            )

    def start_beating(self, on_silence: Callable[[], None]) -> None:
        """Shows in a thread of its own that this process lives; calls `on_silence` once nothing comes any more."""

        def beat() -> None:
            while time.monotonic() < self._heard_at + SILENCE_S:
                self.say(Beat())
                time.sleep(BEAT_S)
            on_silence()

        threading.Thread(target=beat, name="beat", daemon=True).start()
