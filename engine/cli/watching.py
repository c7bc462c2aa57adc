"""``footplate attach`` and ``stop``, and how ``train`` follows its run."""

from __future__ import annotations

import argparse
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from engine.cli import following
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED, FAILED, INTERRUPTED, UNSAVED
from engine.cli.progress import Progress
from engine.cli.terminal import say
from engine.contract.events import EVENT, CheckpointSaved, DevicesFree, RunFinished
from engine.contract.protocol import Pause, Stop
from engine.runs.connection import NotAnswering, NotRunning, RunConnection, silent
from engine.runs.folder import ENDED, RunFolder, list_runs
from engine.runs.index import find_run
from engine.runs.interruptions import why_interrupted
from engine.runs.resume import last_execution
from engine.runs.slurm import POLL_S, refresh, send, supervised_elsewhere
from engine.system.decode_errors import NOT_DECODED

_TICK_S = 0.5
_START_S = 30.0
_AWAY_S = 1.0
"""How long a client that was sent away stays so."""
_AFTER_RUN = {
    "completed": COMPLETED,
    "failed": FAILED,
    "unsaved": UNSAVED,
    "paused": INTERRUPTED,
    "stopped": INTERRUPTED,
    "interrupted": INTERRUPTED,
}


class Detached(Exception):  # noqa: N818  (the user's wish, not an error)
    """The user does not want to wait any longer."""


class Watcher:
    """Follows one run to the end of an execution, through whatever connections it takes, line by line and each once.

    `execution` is the one that the run is in, or was in last, unless it is given; `from_n` the first event that is
    wanted.
    """

    def __init__(
        self, run: RunFolder, on_line: Callable[[bytes], None], *, execution: int | None = None, from_n: int = 1
    ) -> None:
        self._run = run
        self._on_line = on_line
        self._next_n = self._from_n = from_n
        self._execution = last_execution(run) if execution is None else execution
        self._interrupts = 0
        self._wake, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self.connection: RunConnection | None = None
        self.refusal = ""
        self._again_at = self._look_at = 0.0
        self.finished: RunFinished | None = None
        self.freed: DevicesFree | None = None

    def interrupt(self) -> int:
        """To be called from a signal handler; tells how many interrupts there were."""
        self._interrupts += 1
        self._waker.send(b"!")
        return self._interrupts

    def follow(self, on_interrupt: Callable[[int], None]) -> None:
        """Returns once the run has come to its end, one way or another. Raises Detached."""
        handled = 0
        deadline = time.monotonic() + _START_S
        while self.finished is None:
            if self.connection is None and not self._connect():
                if self._in_slurm():
                    deadline = time.monotonic() + _START_S
                elif not self._goes_on() or (time.monotonic() > deadline and not self.refusal):
                    self._read_file()
                    return
            elif self.connection is not None:
                deadline = time.monotonic() + _START_S
            while handled < self._interrupts and self.connection is not None:
                handled += 1
                on_interrupt(handled)
            if self._interrupts > handled + 1:
                raise Detached
            self._wait()

    def ask_to_stop(self) -> None:
        """Sends a stop; where the supervisor has just gone, `follow` will see it."""
        with suppress(OSError):
            send(self._run, Stop())

    def close(self) -> None:
        self._disconnect()
        self._wake.close()
        self._waker.close()

    def _goes_on(self) -> bool:
        """Whether there is still something to come, as far as the run's folder tells."""
        return last_execution(self._run) < self._execution or self._run.state() not in ENDED

    def _in_slurm(self) -> bool:
        """Follows a run by its log whose supervisor is on a node of SLURM; False for another."""
        if supervised_elsewhere(self._run) is None:
            return False
        now = time.monotonic()
        if now > self._look_at:
            self._look_at = now + POLL_S
            with suppress(OSError):
                refresh([self._run])
        if now > self._again_at:
            self._again_at = now + _AWAY_S
            self._read_file()
        return True

    def _connect(self) -> bool:
        if time.monotonic() < self._again_at and self._goes_on():
            return False
        try:
            self.connection = RunConnection(self._run, self._next_n)
            self._from_n = self._next_n
        except (NotRunning, NotAnswering):
            return False
        return True

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            if self.connection is not None:
                selector.register(self.connection, selectors.EVENT_READ)
            ready = selector.select(_TICK_S if self.connection is not None else 0.05)
        for key, _ in ready:
            if key.fileobj is self._wake:
                self._wake.recv(64)
            elif self.connection is not None:
                for line in self.connection.receive_lines():
                    self._take(line)
                if self.connection.closed:
                    refusal = self.connection.reason
                    self._disconnect()
                    if refusal:
                        self._sent_away(refusal)

    def _sent_away(self, reason: str) -> None:
        """Follows the run by its log, until it is let in again."""
        if not self.refusal:
            self.refusal = reason
            say(f"footplate: the run has disconnected this command: {reason}. Reading its log instead.", to=sys.stderr)
        self._again_at = time.monotonic() + _AWAY_S
        self._read_file()

    def _read_file(self) -> None:
        """What the run's folder still has to tell once nobody answers any more."""
        self._from_n = self._next_n
        try:
            with self._run.events_file.open("rb") as stream:
                for line in stream:
                    if line.endswith(b"\n"):
                        self._take(line[:-1])
        except OSError:
            return  # it never began

    def _take(self, line: bytes) -> None:
        try:
            event = EVENT.decode(line)
        except NOT_DECODED:
            return  # the server's own words, an event of a newer Footplate, or a damaged line
        if event.n < self._from_n:
            return
        # One that is wrong, of a damaged line, is put right by the next.
        self._next_n = event.n + 1
        self._on_line(line)
        if isinstance(event, DevicesFree):
            self.freed = event
        elif isinstance(event, RunFinished) and event.execution >= self._execution:
            self.finished = event


def follow(
    run: RunFolder, *, json: bool, stop_on_interrupt: bool, execution: int | None = None, from_n: int = 1
) -> int:
    """Shows `run` until it ends and returns the exit code that tells how; see `Watcher` for what is shown.

    Ctrl-C stops the run where `stop_on_interrupt`, a second one without waiting for the step in hand, and a
    third one leaves it to end by itself. Otherwise Ctrl-C only ends the showing.
    """
    progress = Progress(run, sys.stdout, sys.stderr)
    on_line = (lambda line: say(line.decode())) if json else (lambda line: progress.show(EVENT.decode(line)))
    watcher = Watcher(run, on_line, execution=execution, from_n=from_n)

    def interrupted(count: int) -> None:
        if not stop_on_interrupt or count > 2:
            raise Detached
        watcher.ask_to_stop()
        if not json:
            if count == 1:
                progress.say("Stopping after the current step. Press Ctrl-C again to stop at once.")
            else:
                progress.say("Stopping now. Press Ctrl-C again to leave the run alone.")

    try:
        with on_interrupt(watcher):
            watcher.follow(interrupted)
    except Detached:
        say("", f"The run continues in the background: footplate attach {run.run_id}", to=sys.stderr)
        return INTERRUPTED if stop_on_interrupt else COMPLETED
    finally:
        watcher.close()
    if watcher.finished is None:
        say(f"footplate: {run.run_id} was interrupted: {why_interrupted(run)}", to=sys.stderr)
    outcome = watcher.finished.outcome if watcher.finished is not None else run.state()
    return _AFTER_RUN.get(outcome, FAILED)


def attach(options: argparse.Namespace) -> int:
    """Follows a run that goes on, or shows what a past one said."""
    run = find_or_follow(options.run)
    if run is None:
        return BAD_REQUEST
    return follow(run, json=options.json, stop_on_interrupt=False)


def stop(options: argparse.Namespace) -> int:
    """Stops a run and waits until its devices are free."""
    return end(options, Stop())


def end(options: argparse.Namespace, command: Stop | Pause) -> int:
    """Sends `command`, which ends a run, and waits until its devices are free."""
    run = find_or_follow(options.run)
    if run is None:
        return BAD_REQUEST
    saved: list[CheckpointSaved] = []

    def note(line: bytes) -> None:
        event = EVENT.decode(line)
        if isinstance(event, CheckpointSaved) and event.kind == "last":
            saved.append(event)

    watcher = Watcher(run, note)
    try:
        if not send(run, *[command] * (2 if options.now else 1)):
            say(f"footplate: {silent(run)}", to=sys.stderr)
        with on_interrupt(watcher):
            watcher.follow(leave)
    except NotRunning as error:
        say(f"{run.run_id} is not running; it is {run.state()}. ({error})")
        return COMPLETED
    except NotAnswering as error:
        say(f"footplate: {error}", to=sys.stderr)
        return FAILED
    except Detached:
        return INTERRUPTED
    finally:
        watcher.close()
    state = watcher.finished.outcome if watcher.finished is not None else run.state()
    never_began = watcher.finished is None and state == "stopped"  # SLURM has let it go
    free = never_began or (watcher.freed is not None and watcher.freed.verified)
    say(f"{run.run_id} is {state}; its devices {'are free' if free else 'may still be in use'}.")
    if state == "unsaved":
        assert watcher.finished is not None
        say(f"footplate: {watcher.finished.cause}", to=sys.stderr)
        return UNSAVED
    say(f"{saved[-1].path} holds step {saved[-1].step:,}." if saved else "There was nothing to save yet.")
    return COMPLETED


def leave(_count: int) -> None:
    """What an interrupt does that only ends the waiting."""
    raise Detached


@contextmanager
def on_interrupt(watcher: Watcher) -> Iterator[None]:
    """Has Ctrl-C told to `watcher` meanwhile."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        watcher.interrupt()

    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def find_or_follow(name: str) -> RunFolder | None:
    """As `find_or_say`; of another machine where the name is "HOST:RUN"."""
    where, run = following.split(name)
    return find_or_say(name) if where is None or find_run(name) is not None else following.followed(where, run)


def find_or_say(name: str) -> RunFolder | None:
    """The run of that name, or None once it has been said that there is none."""
    run = find_run(name)
    if run is None:
        known = ", ".join(run.run_id for run in list_runs()[:3])
        hint = f"The newest are {known}." if known else "There are no runs yet."
        say(f"footplate: there is no run “{name}”. {hint} `footplate runs` lists them.", to=sys.stderr)
    return run
