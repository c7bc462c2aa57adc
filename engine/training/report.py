"""Channel from a worker to its supervisor. It never blocks the training."""

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
from engine.training.stack_probe import inspect_stack

QUEUE_LIMIT = 1000
"""Maximum number of queued messages. Beyond it, droppable events are dropped and counted."""
HEARTBEAT_S = 1.0
INSPECT_S = 5.0
"""Minimum time in one activity, in seconds, before heartbeats include the state of the main thread's stack."""
CLOSE_DEADLINE_S = 10.0

_ACTIVITIES: dict[Phase, Activity] = {
    "training": "step",
    "validating": "evaluate",
    "saving": "save",
    "pausing": "save",
    "stopping": "save",
}
"""Initial activity of each phase."""


def _exit_at_once() -> None:
    """End this process without cleanup, because the supervisor has exited and no worker may outlive it."""
    os._exit(1)


class Reporter:
    """Reporter that sends events and heartbeats to the supervisor and receives its commands, on threads of its own.

    `send` never blocks. If the supervisor does not read, events that may be dropped (`DROPPABLE`) are dropped and
    counted (`EventsLost`). All other events are queued. When the supervisor closes the channel, `on_end` is called. By
    default, it ends the process.

    Heartbeats describe the thread that created the reporter. Only this thread may call `set_phase`, `set_activity` and
    `set_step`.

    Attributes:
        stop_requested, checkpoint_requested, loader_workers_requested, folders_requested: Commands of the supervisor.
        ending: Phase that begins after a requested end of the training: "stopping" or "pausing".
        step: Number of completed steps.
    """

    def __init__(self, channel: socket.socket, rank: int, on_end: Callable[[], None] = _exit_at_once) -> None:
        """Start the threads that send messages to `channel` and receive commands from it."""
        self.rank = rank
        self.stop_requested = False
        self.ending: Phase = "stopping"
        self.checkpoint_requested = False
        self.loader_workers_requested: int | None = None
        self.folders_requested: deque[str] = deque()
        self._channel = channel
        self._on_end = on_end
        self._queue: deque[msgspec.Struct] = deque()
        self._condition = threading.Condition()
        self._dropped = 0  # number of messages dropped since the last `EventsLost`
        self._closing = False  # True once `close` was called
        self._next_heartbeat = 0.0  # time of the next heartbeat, or 0 to send one now
        self.step = 0
        self._phase: Phase = "preparing"
        # Activity and its start. As one tuple, so that the other thread sees both or neither change without a lock.
        self._activity: tuple[Activity, float] = ("", time.monotonic())
        self._step_started_at: float | None = None  # start of the current step, or None outside of timed steps
        self._has_completed_step = False
        self._longest_step_s = 0.0
        self._main_thread = threading.get_ident()
        channel.setblocking(True)
        self._sender = threading.Thread(target=self._send_queued, name="report", daemon=True)
        self._receiver = threading.Thread(target=self._receive, name="commands", daemon=True)
        self._sender.start()
        self._receiver.start()

    def send(self, message: Event | WorkerDone) -> None:
        """Queue a message for the supervisor. Any thread may call it.

        While `QUEUE_LIMIT` messages are queued, messages of the types `DROPPABLE` are dropped. Once there is room
        again, an `EventsLost` with their number is sent.
        """
        with self._condition:
            if isinstance(message, DROPPABLE) and len(self._queue) >= QUEUE_LIMIT:
                self._dropped += 1
                return
            if self._dropped and len(self._queue) < QUEUE_LIMIT:
                self._queue.append(EventsLost(count=self._dropped, reason="the supervisor did not read in time"))
                self._dropped = 0
            self._queue.append(message)
            self._condition.notify()

    def set_phase(self, phase: Phase, detail: str = "") -> None:
        """Set the phase of the run. Rank 0 reports it for all ranks, with a `detail` such as "after step 7"."""
        ends_preparation = self._phase == "preparing" and phase != "preparing"
        self._phase = phase
        # The first step includes one-time work and does not count as the longest.
        is_step_timed = phase == "training" and self._has_completed_step
        self._step_started_at = time.monotonic() if is_step_timed else None
        self.set_activity(_ACTIVITIES.get(phase, ""))
        if ends_preparation:
            with self._condition:  # send a heartbeat now: the supervisor allows more time for preparation
                self._next_heartbeat = 0.0
                self._condition.notify()
        if self.rank == 0:
            self.send(PhaseChanged(phase=phase, detail=detail))

    def set_activity(self, activity: Activity) -> None:
        """Set the activity of the main thread.

        The supervisor uses it to distinguish hanging ranks from ranks that wait for others. Every call counts as
        progress, and calls are cheap. `set_phase` sets the activity with which a phase begins. Set

        - "data" before loading a batch,
        - "step" before `Strategy.step`,
        - "agree" before collectives and before reading results from the device,
        - "evaluate" in a validation, after each collective in which the ranks agree whether to stop,
        - "save" before gathering and writing a checkpoint.
        """
        self._activity = (activity, time.monotonic())

    def set_step(self, step: int) -> None:
        """Set the number of completed steps. Heartbeats include it, and the duration of the longest step."""
        now = time.monotonic()
        if self._step_started_at is not None:
            self._longest_step_s = max(self._longest_step_s, now - self._step_started_at)
        self._step_started_at = now
        self._has_completed_step = True
        self.step = step
        self._activity = (self._activity[0], now)

    def _create_heartbeat(self) -> Heartbeat:
        """Create a heartbeat. It locates the main thread in the code if its activity takes longer than `INSPECT_S`."""
        activity, since = self._activity
        seconds = time.monotonic() - since
        thread_state, location = inspect_stack(self._main_thread) if seconds > INSPECT_S else ("", "")
        return Heartbeat(
            step=self.step,
            activity=activity,
            seconds=round(seconds, 3),
            longest_step_s=round(self._longest_step_s, 3),
            thread_state=thread_state,
            location=location,
        )

    @property
    def current_step(self) -> int | None:
        """Number of the current step in the training phase, or of the last step in other phases.

        None before the first step.
        """
        step = self.step + 1 if self._phase == "training" else self.step
        return step or None

    @property
    def current_work(self) -> str:
        """Description of the current work for the end of a sentence: "at step 7", "while saving after step 7"."""
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
        """Send queued messages for at most `CLOSE_DEADLINE_S` seconds, stop the threads, and close the channel."""
        with self._condition:
            if self._dropped:
                self._queue.append(EventsLost(count=self._dropped, reason="the supervisor did not read in time"))
            self._closing = True
            self._condition.notify()
        self._sender.join(CLOSE_DEADLINE_S)
        with contextlib.suppress(OSError):  # the other end may have closed already
            self._channel.shutdown(socket.SHUT_RDWR)  # ends threads that still send or receive
        self._sender.join()
        self._receiver.join()
        self._channel.close()

    def _send_queued(self) -> None:
        """Send queued messages and heartbeats until the reporter is closed or the connection is lost.

        This runs on a thread.
        """
        while True:
            with self._condition:
                # If `_next_heartbeat` is 0, a heartbeat is sent now.
                self._condition.wait_for(
                    lambda: self._queue or self._closing or not self._next_heartbeat,
                    max(0.0, self._next_heartbeat - time.monotonic()),
                )
                messages = list(self._queue)
                self._queue.clear()
                is_last = self._closing
            now = time.monotonic()
            if now >= self._next_heartbeat:
                self._next_heartbeat = now + HEARTBEAT_S
                messages.append(self._create_heartbeat())
            try:
                if messages:
                    self._channel.sendall(b"".join(ENCODE.encode(message) + b"\n" for message in messages))
            except OSError:
                if not self._closing:
                    self._on_end()
                return
            if is_last:
                return

    def _receive(self) -> None:
        """Receive the supervisor's commands on a thread, and store them in the attributes of this object.

        If the connection is lost before the reporter is closed, `on_end` is called.
        """
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
