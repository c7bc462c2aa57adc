"""Garbage collection on the GUI thread.

Python collects on whatever thread allocates. Destroying a widget, timer or notifier in a reference cycle on another
thread, while Qt's event loop still uses it, would crash.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, QTimer

_EVERY_MS = 1000
_FULL_EVERY = 60
"""Collections of young objects per full one, which takes a tenth of a second with a day of history."""


class GarbageCollector(QObject):
    """Timer that collects on its own thread until it is closed."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._count = 0
        self._timer = QTimer(self, interval=_EVERY_MS)
        self._timer.timeout.connect(self.collect)
        self._timer.start()
        gc.disable()

    def collect(self) -> None:
        """Collect young objects, and all objects now and then."""
        self._count += 1
        gc.collect(2 if self._count % _FULL_EVERY == 0 else 1)

    def close(self) -> None:
        """Restore Python's own collection."""
        self._timer.stop()
        gc.enable()
