"""Work that must not hold up the window: one function on a thread, its outcome back on the GUI thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot


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

    def finish(self) -> None:
        """Waits for the function and answers now, for the end of the program, when no event loop will."""
        self._thread.join()
        self._deliver()

    def _work(self) -> None:
        try:
            self._result = self._function()
        except Exception as error:
            self._fault = error
        try:
            self._answered.emit()
        except RuntimeError:
            return  # the window, and this object with it, is gone already

    @Slot()
    def _deliver(self) -> None:
        if self._delivered:
            return
        self._delivered = True
        self.deleteLater()
        if self._fault is None:
            self.done.emit(self._result)
        else:
            self.failed.emit(self._fault)


def in_background(
    function: Callable[[], Any], parent: QObject, done: Callable[[Any], None], failed: Callable[[Exception], None]
) -> Background:
    """Calls `function` on a thread and then `done` or `failed` on the GUI thread, if `parent` still lives."""
    work = Background(function, parent)
    work.done.connect(done)
    work.failed.connect(failed)
    work.start()
    return work
