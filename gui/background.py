"""Work that must not hold up the window: one function on a thread, its outcome back on the GUI thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot


class Background(QObject):
    """Runs one function on a thread of its own.

    The object must be kept until it has answered; `parent` keeps it. It deletes itself afterwards.

    Signals: done(object) - what the function returned; failed(object) - the exception that it raised.
    """

    done = Signal(object)
    failed = Signal(object)
    _answered = Signal(object, object)

    def __init__(self, function: Callable[[], Any], parent: QObject) -> None:
        super().__init__(parent)
        self._function = function
        self._answered.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    def start(self) -> None:
        threading.Thread(target=self._work, name="background", daemon=True).start()

    def _work(self) -> None:
        result: Any = None
        fault: Exception | None = None
        try:
            result = self._function()
        except Exception as error:
            fault = error
        try:
            self._answered.emit(result, fault)
        except RuntimeError:
            return  # the window, and this object with it, is gone already

    @Slot(object, object)
    def _deliver(self, result: Any, fault: Exception | None) -> None:
        if fault is None:
            self.done.emit(result)
        else:
            self.failed.emit(fault)
        self.deleteLater()


def in_background(
    function: Callable[[], Any], parent: QObject, done: Callable[[Any], None], failed: Callable[[Exception], None]
) -> None:
    """Calls `function` on a thread and then `done` or `failed` on the GUI thread, if `parent` still lives."""
    work = Background(function, parent)
    work.done.connect(done)
    work.failed.connect(failed)
    work.start()
