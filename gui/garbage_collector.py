"""Garbage collection on the GUI thread alone.

Python collects on whichever thread allocates when it is time. A widget, timer or notifier that is only left in a
cycle of references would then be destroyed on a thread that reads a log, while Qt's event loop still has it: that
crashes.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, QTimer

_EVERY_MS = 1000
_WHOLE_EVERY = 60
"""Collections of the young objects between two of all, which take a tenth of a second with a day of history."""


class GarbageCollector(QObject):
    """Collects on the thread that it lives on, and on no other, for as long as it is not closed."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._count = 0
        self._timer = QTimer(self, interval=_EVERY_MS)
        self._timer.timeout.connect(self.collect)
        self._timer.start()
        gc.disable()

    def collect(self) -> None:
        """Collects the young objects, and now and then all."""
        self._count += 1
        gc.collect(2 if self._count % _WHOLE_EVERY == 0 else 1)

    def close(self) -> None:
        """Gives Python its own ways back."""
        self._timer.stop()
        gc.enable()
