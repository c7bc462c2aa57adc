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
from engine.contract.protocol import Adjust, CheckpointNow, FrameError, Frames, Pause, SaveElsewhere, Stop
from engine.contract.worker import TO_WORKER, Activity, Heartbeat, WorkerDone
from engine.training.stack_probe import look

QUEUE_LIMIT = 1000
"""The most queued messages; beyond it, metrics are dropped and counted."""
HEARTBEAT_S = 1.0
LOOK_S = 5.0
"""Once the main thread has been in one activity for longer, every heartbeat inspects its stack."""
CLOSE_DEADLINE_S = 10.0

_ACTIVITIES: dict[Phase, Activity] = {
    "training": "step",
    "validating": "evaluate",
    "saving": "save",
    "pausing": "save",
    "stopping": "save",
}
"""The activity at the beginning of a phase, until `set_activity` sets another."""


def _vanish() -> None:
    # The supervisor is gone: nobody is left to report to, and nothing may outlive it.
    os._exit(1)


class Reporter:
    """Sends events and heartbeats, and receives commands, on threads of its own.

    `send` never blocks. When the supervisor does not read, step metrics and device samples are dropped and counted
    (`EventsLost`); all else waits. `stop_requested`, `checkpoint_requested`, `loader_workers_requested` and
    `folders_requested` are set by the supervisor's commands, and `ending` is the phase in which the run is to end;
    `step` counts the steps done. The end of the channel is an order to end at once (`on_end`).

    Heartbeats describe the thread that creates it, which alone calls `set_phase`, `set_activity` and `set_step`.
    """

    def __init__(self, channel: socket.socket, rank: int, on_end: Callable[[], None] = _vanish) -> None:
        self.rank = rank
        self.stop_requested = False
        self.ending: Phase = "stopping"
        self.checkpoint_requested = False
        self.loader_workers_requested: int | None = None
        self.folders_requested: deque[str] = deque()
        self._channel = channel
        self._on_end = on_end
        self._waiting: deque[msgspec.Struct] = deque()
        self._changed = threading.Condition()
        self._lost = 0
        self._closing = False
        self._next_beat = 0.0
        self.step = 0
        self._phase: Phase = "preparing"
        # One tuple, so that the other thread sees both or neither change; no lock is needed.
        self._activity: tuple[Activity, float] = ("", time.monotonic())
        self._step_began: float | None = None
        self._warm = False
        self._longest_step_s = 0.0
        self._main = threading.get_ident()
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

    def set_phase(self, phase: Phase, detail: str = "") -> None:
        """Sends the phase; rank 0 speaks for all."""
        prepared = self._phase == "preparing" != phase
        self._phase = phase
        # The run's first step carries much else and is left out of the longest.
        self._step_began = time.monotonic() if phase == "training" and self._warm else None
        self.set_activity(_ACTIVITIES.get(phase, ""))
        if prepared:
            with self._changed:  # the supervisor is to know at once, since it bears more while a rank prepares
                self._next_beat = 0.0
                self._changed.notify()
        if self.rank == 0:
            self.send(PhaseChanged(phase=phase, detail=detail))

    def set_activity(self, activity: Activity) -> None:
        """Says what the main thread is about to do, from which the supervisor tells a rank that hangs from those
        that wait for it. It costs a clock's reading; every call counts as a sign of progress.

        In training: "data" before the next batch is asked for, "step" before `Strategy.step`, "agree" before `agree`,
        `total` and the reading of figures off the device. In validation: "evaluate" after every `stop()`, "agree"
        before it. "save" before a checkpoint is gathered and written. `set_phase` calls it for what its phase begins
        with.
        """
        self._activity = (activity, time.monotonic())

    def set_step(self, step: int) -> None:
        """Sets the number of steps done, which the heartbeat sends with the duration of the longest."""
        now = time.monotonic()
        if self._step_began is not None:
            self._longest_step_s = max(self._longest_step_s, now - self._step_began)
        self._step_began = now
        self._warm = True
        self.step = step
        self._activity = (self._activity[0], now)

    def _heartbeat(self) -> Heartbeat:
        activity, since = self._activity
        seconds = time.monotonic() - since
        standing, location = look(self._main) if seconds > LOOK_S else ("", "")
        return Heartbeat(
            step=self.step,
            activity=activity,
            seconds=round(seconds, 3),
            longest_step_s=round(self._longest_step_s, 3),
            standing=standing,
            location=location,
        )

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
            case "saving" | "pausing" | "stopping":
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
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._waiting or self._closing or not self._next_beat,
                    max(0.0, self._next_beat - time.monotonic()),
                )
                messages = list(self._waiting)
                self._waiting.clear()
                ending = self._closing
            now = time.monotonic()
            if now >= self._next_beat:
                self._next_beat = now + HEARTBEAT_S
                messages.append(self._heartbeat())
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
                        self.ending = "stopping"
                        self.stop_requested = True
                    case Pause():
                        self.ending = "pausing"
                        self.stop_requested = True
                    case CheckpointNow():
                        self.checkpoint_requested = True
                    case Adjust(loader_workers=count):
                        self.loader_workers_requested = count
                    case SaveElsewhere(folder=folder):
                        self.folders_requested.append(folder)
