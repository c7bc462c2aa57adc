"""Timer that limits how often views are updated."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, QTimer, Signal

_NOTIFY_MS = 100
_NOTIFY_BACKOFF = 1.5
"""Growth factor of the pause between updates while a log is loading."""


class UpdateTimer(QObject):
    """Timer that limits updates to ten per second, and to fewer while a log is loading.

    Signals:
        due(): the views should show the current data.
    """

    due = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._is_loading = False
        self._pause_ms: float = _NOTIFY_MS
        self._last_at = 0.0  # time of the last update, by time.monotonic()
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self.notify)

    def set_loading(self, is_loading: bool) -> None:
        """Set whether a log is loading, which makes updates less frequent."""
        self._is_loading = is_loading
        if not is_loading:
            self._pause_ms = _NOTIFY_MS

    def schedule(self) -> None:
        """Emit `due` once the pause since the previous update has passed, unless this is already scheduled."""
        if not self._timer.isActive():
            since_ms = 1000 * (time.monotonic() - self._last_at)
            self._timer.start(max(0, int(self._pause_ms - since_ms)))

    def notify(self) -> None:
        """Emit `due` immediately, and cancel a scheduled update.

        While a log is loading, each call lengthens the pause before the next update, because drawing slows down
        reading.
        """
        self.stop()
        self._last_at = time.monotonic()
        self._pause_ms = _NOTIFY_BACKOFF * self._pause_ms if self._is_loading else _NOTIFY_MS
        self.due.emit()

    def stop(self) -> None:
        self._timer.stop()
