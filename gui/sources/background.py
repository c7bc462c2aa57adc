"""Calls on worker threads whose results are delivered on the GUI thread.

A failure callback must raise exceptions that it doesn't expect, so that they reach the window's error log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QMetaMethod, QObject, QProcess, Qt, Signal, SignalInstance, Slot

from engine.runs.folder import UnreadableJob

CLOSE_S = 1.0
"""Maximum seconds in total to wait for pending calls and processes when the window closes.

There is a limit because a dead disk may never answer.
"""

GRACE_S = 0.05
"""Seconds to wait for a disk in `wait_briefly`, so that a click and its effect usually appear at the same time."""

_closes_at: list[float] = []
"""Time until which the closing window may wait, or an empty list while no window is closing."""

_KILL_S = 0.1
"""Minimum seconds to wait for a killed process, which normally exits at once."""

_Result = TypeVar("_Result")


@contextmanager
def closing(within_s: float = CLOSE_S) -> Iterator[None]:
    """Limit the waits for worker threads and child processes within this context to `within_s` seconds in total."""
    _closes_at.append(time.monotonic() + within_s)
    try:
        yield
    finally:
        _closes_at.pop()


def allowed_wait_s(limit_s: float) -> float:
    """Return the seconds that a wait may take: `limit_s`, or less while the window closes."""
    return min([limit_s, *(max(0.0, deadline - time.monotonic()) for deadline in _closes_at)])


def await_exit(process: QProcess, limit_s: float) -> None:
    """Wait up to `limit_s` seconds for the exit of a process that was asked to end, then kill it."""
    if not process.waitForFinished(int(1000 * allowed_wait_s(limit_s))):
        process.kill()
        process.waitForFinished(int(1000 * max(_KILL_S, allowed_wait_s(limit_s))))


def emit_safely(signal: SignalInstance, *values: Any) -> bool:
    """Emit a signal from a worker thread. Return False if the sender has been deleted because the window closed."""
    try:
        signal.emit(*values)
    except RuntimeError:
        return False
    return True


def ignore_os_error(error: Exception) -> None:
    """Raise `error` unless it is an OSError.

    Failure callback for calls whose result is optional.
    """
    if not isinstance(error, OSError):
        raise error


def reraise(error: Exception) -> None:
    """Raise `error`.

    Failure callback for calls that should never fail.
    """
    raise error


def describe_error(error: Exception) -> str:
    """Return a phrase that describes `error` to the user."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error) if isinstance(error, UnreadableJob) else f"{type(error).__name__}: {error}"


class Background(QObject):
    """Call of a function on a separate thread. It deletes itself after delivering the result.

    Signals:
        done(object): the function's return value.
        failed(object): the exception that it raised.
    """

    done = Signal(object)
    failed = Signal(object)
    _returned = Signal()

    def __init__(self, function: Callable[[], Any], parent: QObject) -> None:
        super().__init__(parent)
        self._function = function
        self._result: Any = None
        self._error: Exception | None = None
        self._delivered = False
        self._thread = threading.Thread(target=self._work, name="background", daemon=True)
        self._returned.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def finish(self, within_s: float = CLOSE_S) -> None:
        """Wait up to `within_s` for the function and deliver its result.

        If the function takes longer, the event loop delivers the result later.
        """
        self._thread.join(allowed_wait_s(within_s))
        if not self.running:
            self._deliver()

    def wait_briefly(self) -> None:
        """Wait a moment for the function and deliver its result. If it takes longer, the event loop delivers it later."""
        self.finish(GRACE_S)

    def _work(self) -> None:
        """Call the function, store its result or exception, and schedule its delivery on the GUI thread."""
        try:
            self._result = self._function()
        except Exception as error:
            self._error = error
        emit_safely(self._returned)

    @Slot()
    def _deliver(self) -> None:
        """Emit `done` or `failed` once, disconnect all receivers, and schedule the deletion of this object."""
        if self._delivered:  # by `finish`, before the event loop came to it
            return
        self._delivered = True
        self._thread.join()  # the thread may still be emitting the signal of this object
        self.deleteLater()
        if self._error is None:
            self.done.emit(self._result)
        else:
            self.failed.emit(self._error)
        # Receivers may have the last reference to the parent, which must not be deleted in a method of its child.
        for signal in (self.done, self.failed):
            if self.isSignalConnected(QMetaMethod.fromSignal(signal)):
                signal.disconnect()


def in_background(
    function: Callable[[], Any], parent: QObject, done: Callable[[Any], None], failed: Callable[[Exception], None]
) -> Background:
    """Call `function` on a thread, then call `done` or `failed` on the GUI thread if `parent` still exists."""
    work = Background(function, parent)
    work.done.connect(done)
    work.failed.connect(failed)
    work.start()
    return work


class SingleFlight(Generic[_Result]):
    """Function that runs on a worker thread, at most once at a time.

    Requests during a call lead to a single further call, which sees the newest state.
    """

    def __init__(
        self,
        parent: QObject,
        next_call: Callable[[], Callable[[], _Result] | None],
        done: Callable[[_Result], None],
        failed: Callable[[Exception], None] = ignore_os_error,
        discard: Callable[[_Result], None] | None = None,
    ) -> None:
        """Create the object without calling a function.

        Args:
            parent: Owner of the calls.
            next_call: Returns the function to call, or None if there is nothing to do. Runs on the GUI thread.
            done: Called with the result on the GUI thread.
            failed: Called with the exception on the GUI thread.
            discard: Called with the result of an abandoned call, to release its resources.
        """
        self._discard = discard
        self.abandoned = False
        """True once a call has been abandoned before it returned."""
        self._parent = parent
        self._next_call = next_call
        self._done = done
        self._failed = failed
        self._work: Background | None = None  # running call
        self._pending = False  # True if another call must follow the running one

    @property
    def running(self) -> bool:
        return self._work is not None

    def request(self) -> None:
        """Start a call, or schedule another one if a call is running."""
        if self._work is not None:
            self._pending = True
            return
        function = self._next_call()
        if function is not None:
            work = self._work = Background(function, self._parent)
            work.done.connect(partial(self._deliver, work, self._done))
            work.failed.connect(partial(self._deliver, work, self._failed))
            work.start()

    def abandon(self) -> None:
        """Ignore the result of the running call, so that the next request starts immediately."""
        self.abandoned |= self._work is not None
        self._work, self._pending = None, False

    def wait(self, within_s: float) -> None:
        """Wait up to `within_s` for the running call and deliver its result.

        If the call takes longer, its result is delivered later.
        """
        if self._work is not None:
            self._work.finish(within_s)

    def wait_briefly(self) -> None:
        """Wait a moment for the running call and deliver its result. A longer call delivers its result later."""
        self.wait(GRACE_S)

    def finish(self, within_s: float = CLOSE_S) -> None:
        """Wait up to `within_s` for the running call and deliver its result. Abandon the call if it takes longer."""
        work, self._pending = self._work, False
        if work is not None:
            work.finish(within_s)
            if self._work is work:  # its result was not delivered
                self.abandon()

    def _deliver(self, work: Background, callback: Callable[[Any], None], outcome: Any) -> None:
        """Pass the result or exception of a call to `callback`, then start a pending call.

        The result of an abandoned call is discarded.
        """
        if work is not self._work:
            if callback == self._done and self._discard is not None:
                self._discard(outcome)
            return
        self._work = None
        try:
            callback(outcome)
        finally:
            if self._pending:
                self._pending = False
                self.request()
