"""Follow a run: ``footplate attach``, ``stop``, ``pause`` and ``save``, and ``train`` after it has started a run."""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from engine.cli import remote
from engine.cli.arguments import RUN
from engine.cli.progress import ProgressDisplay
from engine.cli.terminal import (
    BAD_REQUEST,
    COMPLETED,
    FAILED,
    INTERRUPTED,
    UNSAVED,
    CommandError,
    print_error,
    print_lines,
)
from engine.contract.events import EVENT, CheckpointSaved, DevicesFree, RunFinished, Warned
from engine.contract.protocol import Pause, SaveElsewhere, Stop
from engine.runs import connection
from engine.runs.connection import ANSWER_S, NotAnswering, NotRunning, RunConnection, describe_silence
from engine.runs.folder import ENDED, RunFolder, list_runs
from engine.runs.index import find_run
from engine.runs.interruptions import explain_interruption
from engine.runs.resume import last_execution
from engine.runs.slurm import POLL_S, find_job_elsewhere, refresh_slurm_states, send
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import iterate_complete_lines, open_file
from engine.system.plain_text import make_encodable

_TICK_S = 0.5
_UNCONNECTED_TICK_S = 0.05
_START_TIMEOUT_S = 30.0
_REFUSED_S = 1.0
"""Seconds between attempts to connect to a supervisor that has refused a connection."""
_EXIT_CODES = {
    "completed": COMPLETED,
    "failed": FAILED,
    "unsaved": UNSAVED,
    "paused": INTERRUPTED,
    "stopped": INTERRUPTED,
    "interrupted": INTERRUPTED,
}


class Detached(Exception):  # noqa: N818  (no error)
    """Raised to stop waiting for a run because the user wants to detach."""


class Watcher:
    """Reader for a run's events until the end of one execution.

    Each event is passed to `on_line` once. If the connection to the supervisor ends before the execution, the watcher
    reconnects.

    Attributes:
        finished: Last event of the execution, or None before it is read.
        freed: Event that reports the release of the run's devices, or None before it is read.

    Args:
        run: Run to follow.
        on_line: Receives each event as a line of JSON.
        execution: Number of the execution, by default the current or last one.
        from_n: Number (in the run's log) of the first event to report.
    """

    def __init__(
        self, run: RunFolder, on_line: Callable[[bytes], None], *, execution: int | None = None, from_n: int = 1
    ) -> None:
        self._run = run
        self._on_line = on_line
        self._next_n = self._from_n = from_n  # events with smaller numbers than `_from_n` are ignored
        self._execution = last_execution(run) if execution is None else execution
        self._interrupts = 0  # number of interrupts until now
        # An interrupt is written to the second socket, so that `_wait` wakes up.
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._connection: RunConnection | None = None
        self._refusal = ""  # first reason for which the supervisor could not be followed
        # Earliest times of the next attempt to connect or to read the log, and of the next query of SLURM.
        self._retry_at = self._poll_at = 0.0
        self._unanswered_since: float | None = None  # start of a connection that has not answered, otherwise None
        self.finished: RunFinished | None = None
        self.freed: DevicesFree | None = None

    def interrupt(self) -> None:
        """Record an interrupt by the user, and wake up `follow`. Signal handlers may call this."""
        self._interrupts += 1
        self._wake_sender.send(b"!")

    def follow(self, on_interrupt: Callable[[int], None]) -> None:
        """Report events, and block until the execution has ended or its supervisor can't be reached any more.

        `on_interrupt` is called for each interrupt with its number, counted from 1. Without a connection to a
        supervisor, which could carry out a command, the calls are delayed until there is one.

        Raises:
            Detached: The user interrupted twice while no supervisor was connected.
        """
        handled = 0  # number of interrupts that were passed on
        deadline = time.monotonic() + _START_TIMEOUT_S  # for a supervisor to start or to come back
        while self.finished is None:
            if self._reach_supervisor():
                deadline = time.monotonic() + _START_TIMEOUT_S
            else:
                # A supervisor that has refused this client is alive, so the deadline does not apply.
                is_too_late = time.monotonic() > deadline and not self._refusal
                if is_too_late or not self._is_active():
                    self._read_log()
                    return
            while handled < self._interrupts and self._connection is not None:
                handled += 1
                on_interrupt(handled)
            if self._interrupts >= handled + 2:  # no supervisor could receive them
                raise Detached
            self._wait()

    def request_stop(self) -> None:
        """Send a stop command to the supervisor. Nothing happens if it has just exited."""
        with suppress(OSError):
            send(self._run, Stop())

    def close(self) -> None:
        self._disconnect()
        self._wake_receiver.close()
        self._wake_sender.close()

    def _is_active(self) -> bool:
        """Return True unless the state in the run folder shows that the execution has ended.

        The folder may still have the state of an earlier execution.
        """
        return last_execution(self._run) < self._execution or self._run.state() not in ENDED

    def _reach_supervisor(self) -> bool:
        """Connect to the supervisor or, if it runs on a SLURM node, read its log. Returns False if neither is possible."""
        return self._connection is not None or self._connect() or self._follow_slurm()

    def _follow_slurm(self) -> bool:
        """Report new events in the log if the run is supervised on a SLURM node. Returns False if it is not.

        Every `POLL_S`, this also queries SLURM and records the state of the job in the run folder.
        """
        if find_job_elsewhere(self._run) is None:
            return False
        now = time.monotonic()
        if now > self._poll_at:
            self._poll_at = now + POLL_S
            with suppress(OSError):
                refresh_slurm_states([self._run])
        if now > self._retry_at:
            self._retry_at = now + _REFUSED_S
            self._read_log()
        return True

    def _connect(self) -> bool:
        """Try to connect to the supervisor. Returns False if that fails or it is too early for another attempt."""
        is_too_early = time.monotonic() < self._retry_at
        if is_too_early and self._is_active():  # once the run has ended, a last attempt is made at once
            return False
        try:
            self._connection = RunConnection(self._run, self._next_n)
            self._from_n = self._next_n
            self._unanswered_since = time.monotonic()
        except NotRunning:
            return False
        except NotAnswering:
            self._on_silence()
            return False
        return True

    def _on_silence(self) -> None:
        """Read the log, because the supervisor doesn't answer. The first call prints this as an error."""
        if not self._refusal:
            self._refusal = describe_silence(self._run)
            print_error(f"{self._refusal} Reading its log instead.")
        self._retry_at = time.monotonic() + _REFUSED_S
        self._read_log()
        self._from_n = self._next_n  # the supervisor will send the same events again

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _wait(self) -> None:
        """Wait for a message from the supervisor, an interrupt, or a short timeout, and report new events."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_receiver, selectors.EVENT_READ)
            if self._connection is not None:
                selector.register(self._connection, selectors.EVENT_READ)
            # Without a connection there is nothing to wake up this wait, so it is short.
            ready = selector.select(_TICK_S if self._connection is not None else _UNCONNECTED_TICK_S)
        for key, _ in ready:
            if key.fileobj is self._wake_receiver:
                self._wake_receiver.recv(64)
            elif self._connection is not None:
                self._unanswered_since = None
                for line in self._connection.receive_lines():
                    self._on_event_line(line)
                if self._connection.closed:
                    refusal = self._connection.reason
                    self._disconnect()
                    if refusal:
                        self._on_refusal(refusal)

        if self._unanswered_since is not None and self._connection is not None:
            is_due = time.monotonic() > max(self._unanswered_since + ANSWER_S, self._retry_at)
            if is_due:
                self._on_silence()

    def _on_refusal(self, reason: str) -> None:
        """Read the log, because the supervisor has closed the connection. The first call prints `reason` as an error."""
        if not self._refusal:
            self._refusal = reason
            print_error(f"the run has disconnected this command: {reason}. Reading its log instead.")
        self._retry_at = time.monotonic() + _REFUSED_S
        self._read_log()

    def _read_log(self) -> None:
        """Report the events in the log that were not reported before."""
        self._from_n = self._next_n  # the log contains all events from the beginning
        with suppress(OSError), open_file(self._run.events_file) as stream:  # the run may not have started
            for line in iterate_complete_lines(stream):
                self._on_event_line(line[:-1])

    def _on_event_line(self, line: bytes) -> None:
        """Report an event, given as a line of JSON, unless it was reported before. Other lines are ignored."""
        try:
            event = EVENT.decode(line)
        except NOT_DECODED:
            return  # a message from the server, an event from a newer Footplate, or a damaged line
        if event.n < self._from_n:
            return
        self._next_n = event.n + 1  # the next event corrects the number of a damaged line
        self._on_line(line)
        if isinstance(event, DevicesFree):
            self.freed = event
        elif isinstance(event, RunFinished) and event.execution >= self._execution:
            self.finished = event


def follow(
    run: RunFolder, *, json: bool, stop_on_interrupt: bool, execution: int | None = None, from_n: int = 1
) -> int:
    """Print the events of `run` until its execution ends, and return its exit code. See `Watcher` for the arguments.

    If `json` is True, events are printed as lines of JSON. If `stop_on_interrupt` is True, the first Ctrl+C stops the
    run after the current step, the second one stops it immediately, and the third one detaches from it. Otherwise,
    Ctrl+C detaches.
    """
    progress = ProgressDisplay(run, sys.stdout, sys.stderr)

    def print_event(line: bytes) -> None:
        if json:
            print_lines(line.decode())
        else:
            progress.show(EVENT.decode(line))

    watcher = Watcher(run, print_event, execution=execution, from_n=from_n)

    def on_interrupt_count(count: int) -> None:
        """Handle Ctrl+C number `count`. Stop the run, or raise Detached if `stop_on_interrupt` is False or `count` > 2."""
        if not stop_on_interrupt or count > 2:
            raise Detached
        watcher.request_stop()
        if not json:
            if count == 1:
                progress.print_lines("Stopping after the current step. Press Ctrl+C again to stop at once.")
            else:
                progress.print_lines("Stopping now. Press Ctrl+C again to detach from the run.")

    try:
        with on_interrupt(watcher):
            watcher.follow(on_interrupt_count)
    except Detached:
        print_lines("", f"The run continues in the background: footplate attach {run.run_id}", to=sys.stderr)
        return INTERRUPTED if stop_on_interrupt else COMPLETED
    finally:
        watcher.close()
    if watcher.finished is None:
        print_error(f"{run.run_id} was interrupted: {explain_interruption(run)}")
    outcome = watcher.finished.outcome if watcher.finished is not None else run.state()
    return _EXIT_CODES.get(outcome, FAILED)


def attach(options: argparse.Namespace) -> int:
    """Print the events of a run from the beginning, and follow it if it is active. Returns an exit code."""
    run = require_any_run(options.run)
    return follow(run, json=options.json, stop_on_interrupt=False)


def stop(options: argparse.Namespace) -> int:
    """Stop a run and wait until its devices are free. Returns an exit code."""
    return _send_and_await_end(options, Stop())


def pause(options: argparse.Namespace) -> int:
    """Pause a run and wait until its devices are free. Returns an exit code."""
    return _send_and_await_end(options, Pause())


def _send_and_await_end(options: argparse.Namespace, command: Stop | Pause) -> int:
    """Send a command that ends a run, and wait until its devices are free. Returns an exit code."""
    run = require_any_run(options.run)
    last_saved: CheckpointSaved | None = None

    def record_checkpoint(line: bytes) -> None:
        """Decode an event of the run, and store it if it reports a saved last.pt."""
        nonlocal last_saved
        event = EVENT.decode(line)
        if isinstance(event, CheckpointSaved) and event.kind == "last":
            last_saved = event

    watcher = Watcher(run, record_checkpoint)
    try:
        repeats = 2 if options.now else 1  # the second command interrupts the current step
        if not send(run, *[command] * repeats):
            print_error(describe_silence(run))
        with on_interrupt(watcher):
            watcher.follow(detach)
    except NotRunning as error:
        print_lines(f"{run.run_id} is not running; it is {run.state()}. ({error})")
        return COMPLETED
    except NotAnswering as error:
        return print_error(str(error), FAILED)
    except Detached:
        return INTERRUPTED
    finally:
        watcher.close()
    state = watcher.finished.outcome if watcher.finished is not None else run.state()
    never_started = watcher.finished is None and state == "stopped"  # SLURM has canceled it
    is_free = never_started or (watcher.freed is not None and watcher.freed.verified)
    print_lines(f"{run.run_id} is {state}; its devices {'are free' if is_free else 'may still be in use'}.")
    if state == "unsaved":
        assert watcher.finished is not None
        return print_error(watcher.finished.cause, UNSAVED)
    if last_saved is None:
        print_lines("There was nothing to save yet.")
    else:
        print_lines(f"{last_saved.path} holds step {last_saved.step:,}.")
    return COMPLETED


def detach(_count: int) -> None:
    """Handle Ctrl+C by raising Detached, so that the command ends and the run continues."""
    raise Detached


@contextmanager
def on_interrupt(watcher: Watcher) -> Iterator[None]:
    """Context manager that passes Ctrl+C to `watcher`."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        watcher.interrupt()

    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def require_any_run(name: str) -> RunFolder:
    """Return the run called `name` on this machine, or a local copy of it if the name is "HOST:RUN".

    The copy is kept up to date until this process exits. A run on this machine takes precedence, since its name may
    contain a colon, too. Raises CommandError if there is no such run or it can't be copied.
    """
    machine, name_there = remote.split(name)
    if machine is None or find_run(name) is not None:
        return require_run(name)
    return remote.follow(machine, name_there)


def require_run(name: str) -> RunFolder:
    """Return the run with this name. Raises CommandError if there is none."""
    run = find_run(name)
    if run is None:
        known = ", ".join(run.run_id for run in list_runs()[:3])
        hint = f"The newest are {known}." if known else "There are no runs yet."
        raise CommandError(print_error(f"there is no run “{name}”. {hint} `footplate runs` lists them."))
    return run


def add_save(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help=RUN)
    parser.add_argument("--to", required=True, metavar="FOLDER", help="the folder to save it in")
    parser.set_defaults(command=save)


def save(options: argparse.Namespace) -> int:
    """Make a run that can't save its last state save it in another folder, and print the result.

    Returns an exit code.
    """
    run = require_run(options.run)
    try:
        code, text = _save_elsewhere(run, make_encodable(os.path.abspath(os.path.expanduser(options.to))))
    except NotRunning as error:
        code, text = BAD_REQUEST, f"{run.run_id} is not running; it is {run.state()}. ({error})"
    except NotAnswering as error:
        code, text = FAILED, str(error)
    except Detached:
        return INTERRUPTED
    if code != COMPLETED:
        return print_error(text, code)
    print_lines(text)
    return code


def _save_elsewhere(run: RunFolder, folder: str) -> tuple[int, str]:
    """Request a run to save its state in `folder`, and wait until it has ended. Ctrl+C detaches from the run.

    Returns an exit code and a message about the result. Raises NotRunning, NotAnswering and Detached.
    """
    welcome = connection.send(run, SaveElsewhere(folder=folder))
    if welcome is None:
        raise NotAnswering(describe_silence(run))
    is_saved_elsewhere = False

    def record_answer(line: bytes) -> None:
        """Decode an event of the run, and record if it reports the saved state. Raises _Refused if the folder was refused."""
        nonlocal is_saved_elsewhere
        event = EVENT.decode(line)
        if isinstance(event, Warned) and event.code == "not_saved_elsewhere":
            raise _Refused(event.message)
        if isinstance(event, Warned) and event.code == "saved_elsewhere":
            is_saved_elsewhere = True

    watcher = Watcher(run, record_answer, from_n=welcome.next_n)
    try:
        with on_interrupt(watcher):
            watcher.follow(detach)
    except _Refused as refusal:
        return BAD_REQUEST, str(refusal)
    finally:
        watcher.close()
    finished = watcher.finished
    if finished is None:
        return FAILED, f"{run.run_id} was interrupted: {explain_interruption(run)}"
    if is_saved_elsewhere:
        return COMPLETED, finished.cause
    if finished.outcome in ("failed", "unsaved"):
        return UNSAVED if finished.outcome == "unsaved" else FAILED, finished.cause
    return COMPLETED, f"{run.run_id} is {finished.outcome}: its last state was saved in its own folder."


class _Refused(Exception):  # noqa: N818 - the folder's fault
    """Raised when the supervisor of a run refuses the folder. The message is the supervisor's answer."""
