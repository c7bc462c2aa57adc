"""Banner of the unacknowledged alerts at the top of a page."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QWidget

from gui.alerts.watcher import Alerts
from gui.widgets.banner import Banner


class AlertBanner(Banner):
    """Banner with the first unacknowledged alert and their number; the page itself reports silent hosts.

    Signals:
        show_requested(): the user wants to see all alerts.
    """

    show_requested = Signal()

    def __init__(self, alerts: Alerts, parent: QWidget | None = None) -> None:
        show, dismiss = QPushButton("Show"), QPushButton("Dismiss")
        super().__init__(show, dismiss, parent=parent)
        self._alerts = alerts
        show.setAccessibleName("Show all alerts")
        show.clicked.connect(self.show_requested)
        dismiss.setAccessibleName("Dismiss the alerts")
        dismiss.setToolTip("Acknowledges the active alerts; they stay in the list.")
        dismiss.clicked.connect(alerts.acknowledge_all)
        alerts.changed.connect(self._show_alerts)
        self._show_alerts()

    def _show_alerts(self) -> None:
        unseen = [alert for alert in self._alerts.unseen if alert.kind != "not_answering"]
        if not unseen:
            self.say("")
            return
        more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
        self.say(f"{unseen[0].sentence}{more}", unseen[0].severity)
        self.label.setToolTip("\n".join(alert.sentence for alert in unseen))
        self.label.setAccessibleName(f"Alert: {self.text()}")
