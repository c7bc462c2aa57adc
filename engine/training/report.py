"""The worker's side of its channel to the supervisor: training never waits for it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from engine.contract.events import DROPPABLE, ENCODE, Event, EventsLost, Phase, PhaseChanged
from engine.contract.protocol import CheckpointNow, FrameError, Frames, Stop
from engine.contract.worker import TO_WORKER, Heartbeat, WorkerDone

QUEUE_LIMIT = 1000
"""Messages that may wait; past it, metrics are dropped and counted."""
HEARTBEAT_S = 1.0
HANG_S = 600.0
"""A training step that takes longer no longer counts as progress."""
CLOSE_DEADLINE_S = 10.0


def _vanish() -> None:
    # The supervisor is gone: nobody is left to report to, and nothing may outlive it.
    os._exit(1)


class Reporter:
    """Sends events and heartbeats, and receives commands, on threads of its own.

    `send` never blocks. When the supervisor does not read, step metrics and device samples are dropped and
    counted (`EventsLost`); all else waits. `stop_requested` and `checkpoint_requested` are set by the
    supervisor's commands; `step` counts the steps done. The end of the channel is an order to end at once (`on_end`).
    """

    def __init__(self, channel: socket.socket, rank: int, on_end: Callable[[], None] = _vanish) -> None:
        self.rank = rank
        self.stop_requested = False
        self.checkpoint_requested = False
        self._channel = channel
        self._on_end = on_end
        self._waiting: deque[msgspec.Struct] = deque()
        self._changed = threading.Condition()
        self._lost = 0
        self._closing = False
        self.step = 0
        self._phase: Phase = "preparing"
        self._progress = time.monotonic()
        channel.setblocking(True)
        self._writer = threading.Thread(target=self._write, name="report", daemon=True)
        self._reader = threading.Thread(target=self._read, name="commands", daemon=True)
        self._writer.start()
        self._reader.start()

    def send(self, message: Event | WorkerDone) -> None:
        """Hands a message over; callable from any thread."""
        with self._changed:
            if isinstance(message, DROPPABLE) and len(self._waiting) >= QUEUE_LIMIT:
                self._lost += 1
                return
            if self._lost and len(self._waiting) < QUEUE_LIMIT:
                self._waiting.append(EventsLost(count=self._lost, reason="the supervisor did not read in time"))
                self._lost = 0
            self._waiting.append(message)
            self._changed.notify()

    def phase(self, phase: Phase, detail: str = "") -> None:
        """Sends the phase; rank 0 speaks for all."""
        self._phase = phase
        self._progress = time.monotonic()
        if self.rank == 0:
            self.send(PhaseChanged(phase=phase, detail=detail))

    def progressed(self, step: int) -> None:
        """Says how many steps are done, which the heartbeat tells."""
        self.step = step
        self._progress = time.monotonic()

    @property
    def step_in_hand(self) -> int | None:
        """The step that is being made, or in other phases the last one made; None before the first."""
        return self.step + (self._phase == "training") or None

    @property
    def whereabouts(self) -> str:
        """Where the worker is, as the end of a sentence."""
        match self._phase:
            case "training":
                return f"at step {self.step + 1}"
            case "validating":
                return f"in the validation after step {self.step}"
            case "saving" | "stopping":
                return f"while saving after step {self.step}"
            case _:
                return "while preparing the training"

    def close(self) -> None:
        """Sends what waits, for at most `CLOSE_DEADLINE_S` seconds, and ends the threads and the channel."""
        with self._changed:
            if self._lost:
                self._waiting.append(EventsLost(count=self._lost, reason="the supervisor did not read in time"))
            self._closing = True
            self._changed.notify()
        self._writer.join(CLOSE_DEADLINE_S)
        with contextlib.suppress(OSError):  # the other end may have closed already
            self._channel.shutdown(socket.SHUT_RDWR)
        self._writer.join()
        self._reader.join()
        self._channel.close()

    def _write(self) -> None:
        next_beat = time.monotonic()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing, max(0.0, next_beat - time.monotonic()))
                messages = list(self._waiting)
                self._waiting.clear()
                ending = self._closing
            now = time.monotonic()
            if now >= next_beat:
                next_beat = now + HEARTBEAT_S
                if self._phase != "training" or now - self._progress < HANG_S:
                    messages.append(Heartbeat(step=self.step))
            try:
                if messages:
                    self._channel.sendall(b"".join(ENCODE.encode(message) + b"\n" for message in messages))
            except OSError:
                if not self._closing:
                    self._on_end()
                return
            if ending:
                return

    def _read(self) -> None:
        frames = Frames()
        while True:
            try:
                data = self._channel.recv(1 << 16)
                commands = [TO_WORKER.decode(line) for line in frames.feed(data)]
            except (OSError, FrameError, msgspec.DecodeError):
                data, commands = b"", []
            if not data:
                if not self._closing:
                    self._on_end()
                return
            for command in commands:
                match command:
                    case Stop():
                        self.stop_requested = True
                    case CheckpointNow():
                        self.checkpoint_requested = True
