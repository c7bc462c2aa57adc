"""Work that must not hold up the window: one function on a thread, its outcome back on the GUI thread.

An exception that `failed` is given and does not expect is to be raised there: it is then told of as a fault of the
window.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QMetaMethod, QObject, Qt, Signal, SignalInstance, Slot

from engine.runs.folder import UnreadableJob


def emitted(signal: SignalInstance, *values: Any) -> bool:
    """Emits a signal from a thread. False where the window, and the signal's object with it, is gone already."""
    try:
        signal.emit(*values)
    except RuntimeError:
        return False
    return True


def expected_of_a_disk(error: Exception) -> None:
    """What to do about a failure that only means that there is nothing to show: nothing, or to raise what is a
    fault.
    """
    if not isinstance(error, OSError):
        raise error


def raise_again(error: Exception) -> None:
    """What to do about a failure that nothing is known to lead to."""
    raise error


def why(error: Exception) -> str:
    """What went wrong with a file, in words."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error) if isinstance(error, UnreadableJob) else f"{type(error).__name__}: {error}"


class Background(QObject):
    """Runs one function on a thread of its own. Its parent keeps it until it has answered; then it deletes itself.

    Signals: done(object) - what the function returned; failed(object) - the exception that it raised.
    """

    done = Signal(object)
    failed = Signal(object)
    _answered = Signal()

    def __init__(self, function: Callable[[], Any], parent: QObject) -> None:
        super().__init__(parent)
        self._function = function
        self._result: Any = None
        self._fault: Exception | None = None
        self._delivered = False
        self._thread = threading.Thread(target=self._work, name="background", daemon=True)
        self._answered.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def finish(self, within_s: float | None = None) -> None:
        """Waits for the function and answers now, as at the end of the program, when no event loop will. Where it takes
        longer than `within_s`, the answer comes later.
        """
        self._thread.join(within_s)
        if not self.running:
            self._deliver()

    def _work(self) -> None:
        try:
            self._result = self._function()
        except Exception as error:
            self._fault = error
        emitted(self._answered)

    @Slot()
    def _deliver(self) -> None:
        if self._delivered:
            return
        self._delivered = True
        self._thread.join()  # which may still be within the signal that it has emitted, of the object that is to go
        self.deleteLater()
        if self._fault is None:
            self.done.emit(self._result)
        else:
            self.failed.emit(self._fault)
        # What hears of it may hold the parent, which must not go from within the end of its child.
        for signal in (self.done, self.failed):
            if self.isSignalConnected(QMetaMethod.fromSignal(signal)):
                signal.disconnect()


def in_background(
    function: Callable[[], Any], parent: QObject, done: Callable[[Any], None], failed: Callable[[Exception], None]
) -> Background:
    """Calls `function` on a thread and then `done` or `failed` on the GUI thread, if `parent` still lives."""
    work = Background(function, parent)
    work.done.connect(done)
    work.failed.connect(failed)
    work.start()
    return work
