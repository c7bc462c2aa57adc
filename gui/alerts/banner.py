"""The alerts that have not been acknowledged, in one line at the top of a page."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from gui.alerts.watcher import Alerts
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.icon_label import IconLabel


class AlertBanner(QFrame):
    """Hidden while there is nothing to say. That a host does not answer is said by the page itself.

    Signals: show_wanted() - the user wants to see all alerts.
    """

    show_wanted = Signal()

    def __init__(self, alerts: Alerts, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self._alerts = alerts
        self._mark = IconLabel()
        self._text = ElidedLabel()
        self._more = QLabel()
        self._more.setObjectName("muted")
        show = QPushButton("Show")
        show.setAccessibleName("Show all alerts")
        show.clicked.connect(self.show_wanted)
        dismiss = QPushButton("Dismiss")
        dismiss.setAccessibleName("Dismiss the alerts")
        dismiss.setToolTip("Acknowledges what is in force now; it stays in the list of alerts.")
        dismiss.clicked.connect(alerts.acknowledge_all)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(10, 3, 6, 3)
        layout.setSpacing(8)
        layout.addWidget(self._mark)
        layout.addWidget(self._text, 1)
        for widget in (self._more, show, dismiss):
            layout.addWidget(widget)
        alerts.changed.connect(self._show_alerts)
        self._show_alerts()

    def text(self) -> str:
        return " ".join(filter(None, (self._text.text(), self._more.text())))

    def _show_alerts(self) -> None:
        unseen = [alert for alert in self._alerts.unseen if alert.kind != "not_answering"]
        self.setVisible(bool(unseen))
        if not unseen:
            return
        first = unseen[0]
        self._text.setText(first.sentence)
        self._text.setToolTip("\n".join(alert.sentence for alert in unseen))
        self._more.setText(f"and {len(unseen) - 1} more" if len(unseen) > 1 else "")
        self._mark.show_icon(first.severity, first.severity, first.severity.capitalize())
        self._text.setAccessibleName(f"Alert: {self.text()}")
