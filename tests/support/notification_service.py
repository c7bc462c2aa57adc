"""Desktop notification service for tests.

It registers on the bus whose address is its first argument, and writes each notification as a line of JSON.
"""

from __future__ import annotations

import json
import sys

from PySide6.QtCore import ClassInfo, QCoreApplication, QObject, Slot
from PySide6.QtDBus import QDBusConnection

SERVICE = "org.freedesktop.Notifications"
PATH = "/org/freedesktop/Notifications"


@ClassInfo({"D-Bus Interface": SERVICE})
class NotificationService(QObject):
    """Desktop notification service that prints notifications. It has only the methods that Footplate calls."""

    @Slot(result="QStringList")
    def GetServerInformation(self) -> list[str]:  # noqa: N802
        return ["Test", "Footplate", "1", "1.2"]

    @Slot(str, "uint", str, str, str, "QStringList", "QVariantMap", int, result="uint")
    def Notify(  # noqa: N802, PLR0917
        self, app: str, replaces: int, icon: str, title: str, text: str, actions: list[str], hints: object, expire: int
    ) -> int:
        print(json.dumps({"app": app, "replaces": replaces, "title": title, "text": text, "actions": actions}))
        sys.stdout.flush()
        return 7


def main() -> None:
    app = QCoreApplication(sys.argv)
    bus = QDBusConnection.connectToBus(sys.argv[1], "service")
    service = NotificationService()
    assert bus.registerObject(PATH, service, QDBusConnection.RegisterOption.ExportAllSlots)
    assert bus.registerService(SERVICE)
    print("ready", flush=True)
    app.exec()


if __name__ == "__main__":
    main()
