"""Notifications over D-Bus, according to the Desktop Notifications Specification (org.freedesktop.Notifications)."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from PySide6.QtCore import Q_ARG, Q_RETURN_ARG, SLOT, QMetaObject, QObject, Qt, Slot
from PySide6.QtDBus import QDBusConnection, QDBusError, QDBusInterface, QDBusMessage

from gui.alerts.channels import Channel
from gui.translation import tr

SERVICE = "org.freedesktop.Notifications"
PATH = "/org/freedesktop/Notifications"
PATIENCE_MS = 3000
"""Milliseconds to wait for a reply from the desktop."""
_PRESSED = "default"
"""Action id with which the specification reports a click on the notification."""


class FreedesktopChannel(Channel):
    """Channel that uses the notification service on `bus`."""

    def __init__(self, bus: QDBusConnection, parent: QObject | None = None, *, patience_ms: int = PATIENCE_MS) -> None:
        super().__init__(parent)
        self._bus = bus
        self._patience_ms = patience_ms
        self._service: QDBusInterface | None = None
        self._sent: set[int] = set()
        self._waiting: list[tuple[str, str, Callable[[str], None]]] = []
        bus.connect(SERVICE, PATH, SERVICE, "ActionInvoked", self, SLOT("_action(uint,QString)"))  # type: ignore[call-overload] # it takes no bytes

    def send(self, title: str, text: str, answer: Callable[[str], None]) -> None:
        self._waiting.append((title, text, answer))
        # Ask asynchronously first, because later calls block until the service answers.
        question = QDBusMessage.createMethodCall(SERVICE, PATH, SERVICE, "GetServerInformation")
        self._bus.callWithCallback(
            question,
            self,
            SLOT("_answered(QDBusMessage)"),  # type: ignore[call-overload] # it takes no bytes
            SLOT("_failed(QDBusError)"),
            self._patience_ms,
        )

    @Slot(QDBusMessage)
    def _answered(self, _information: QDBusMessage) -> None:
        for title, text, answer in self._take_waiting():
            answer(self._notify(title, text))

    @Slot(QDBusError)
    def _failed(self, error: QDBusError) -> None:
        for _title, _text, answer in self._take_waiting():
            answer(_why(error))

    def _take_waiting(self) -> list[tuple[str, str, Callable[[str], None]]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _notify(self, title: str, text: str) -> str:
        if self._service is None or not self._service.isValid():
            self._service = QDBusInterface(SERVICE, PATH, SERVICE, self._bus, self)
            self._service.setTimeout(self._patience_ms)
        # Use the meta-object, because a Python integer would become a signed one, which the service rejects.
        number = QMetaObject.invokeMethod(
            self._service,
            "Notify",
            Qt.ConnectionType.DirectConnection,
            Q_RETURN_ARG("uint"),
            Q_ARG(str, "Footplate"),
            Q_ARG("uint", 0),
            Q_ARG(str, "footplate"),
            Q_ARG(str, title),
            Q_ARG(str, escape(text, quote=False)),  # the text of a notification may contain markup
            Q_ARG("QStringList", [_PRESSED, tr("Show")]),
            Q_ARG("QVariantMap", {"desktop-entry": "footplate"}),
            Q_ARG(int, -1),
        )
        fault = self._service.lastError()
        if fault.isValid():
            return _why(fault)
        if isinstance(number, int):
            self._sent.add(number)
        return ""

    @Slot("uint", str)
    def _action(self, number: int, action: str) -> None:
        if number in self._sent and action == _PRESSED:
            self._sent.discard(number)
            self.pressed.emit()


def _why(error: QDBusError) -> str:
    return tr("The desktop's notification service failed: {message}").format(message=error.message())
