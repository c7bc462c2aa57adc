"""Cards of the active alerts, and the banner for unacknowledged ones."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QPushButton, QSizePolicy, QWidget

from gui.alerts.rules import KINDS
from gui.alerts.watcher import Alert, Alerts
from gui.format import clock
from gui.style import theme
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import styled
from gui.widgets.labels import IconLabel
from gui.widgets.layouts import vbox


class AlertCard(QFrame):
    """Card of an active alert: cause, start and remedy."""

    def __init__(self, alerts: Alerts, alert: Alert) -> None:
        super().__init__()
        self.setObjectName("card")
        self._alert = alert
        self._severity = IconLabel()
        self._title = _create_label("heading")
        self._since = _create_label("muted")
        self._since.setFont(theme.with_tabular_digits(self._since.font()))
        self._text = _create_label("")
        self._remedy = _create_label("muted")
        self.acknowledge = QPushButton(tr("Acknowledge"))
        self.acknowledge.setToolTip(tr("Hide the banner; the alert stays listed while it is active"))
        self.acknowledge.clicked.connect(lambda: alerts.acknowledge(self._alert.number))
        for label in (self._text, self._remedy):
            label.setWordWrap(True)
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        grid = QGridLayout(self)
        grid.setContentsMargins(10, 7, 8, 7)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(2)
        grid.addWidget(self._severity, 0, 0)
        grid.addWidget(self._title, 0, 1)
        grid.addWidget(self._since, 0, 2, Qt.AlignmentFlag.AlignRight)
        grid.addWidget(self.acknowledge, 0, 3, 3, 1, Qt.AlignmentFlag.AlignVCenter)
        grid.addWidget(self._text, 1, 1, 1, 2)
        grid.addWidget(self._remedy, 2, 1, 1, 2)
        grid.setColumnStretch(1, 1)
        self.show_alert(alert)

    def show_alert(self, alert: Alert) -> None:
        """Show the cause, start and remedy of `alert`. An acknowledged alert has no button."""
        self._alert = alert
        self._title.setText(f"{alert.title} · {alert.counted_title}")
        since = tr("since {time} · acknowledged") if alert.acknowledged else tr("since {time}")
        self._since.setText(since.format(time=clock(alert.since)))
        self._text.setText(alert.text)
        self._remedy.setText(KINDS[alert.kind].remedy)
        self.acknowledge.setVisible(not alert.acknowledged)
        self.acknowledge.setAccessibleName(
            tr("Acknowledge {title}, {what}").format(title=alert.title, what=alert.counted_title)
        )
        color = "muted" if alert.acknowledged else alert.severity
        self._severity.show_icon(alert.severity, color, alert.severity.capitalize())


class AlertCards(QWidget):
    """List with a card for each active alert, or a text if there is none."""

    def __init__(self, alerts: Alerts) -> None:
        super().__init__()
        self._alerts = alerts
        self._cards: dict[int, AlertCard] = {}  # by number of the alert
        self._no_alerts_label = _create_label("muted")
        self._no_alerts_label.setText(tr("No active alerts"))
        self._layout = vbox(self._no_alerts_label, spacing=6)
        self.setLayout(self._layout)
        alerts.changed.connect(self._show_alerts)
        self._show_alerts()

    def _show_alerts(self) -> None:
        """Add, update, order and remove cards to match the active alerts."""
        alerts = self._alerts.active_alerts
        active_numbers = {alert.number for alert in alerts}
        for number in [number for number in self._cards if number not in active_numbers]:
            self._cards.pop(number).deleteLater()
        for index, alert in enumerate(alerts):
            card = self._cards.get(alert.number)
            if card is None:
                card = self._cards[alert.number] = AlertCard(self._alerts, alert)
            else:
                card.show_alert(alert)
            if self._layout.indexOf(card) != index + 1:  # the label for no alerts is first
                self._layout.insertWidget(index + 1, card)
        self._no_alerts_label.setVisible(not alerts)


def _create_label(style: str) -> QLabel:
    """Create a label whose text can be selected, in a style of the style sheet."""
    label = styled(QLabel(), style)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


class AlertBanner(Banner):
    """Banner with the first unacknowledged alert, and the number of all of them.

    It doesn't show alerts about hosts that don't respond, because the Monitor page does.

    Signals:
        show_requested(): the user wants to see all alerts.
    """

    show_requested = Signal()

    def __init__(self, alerts: Alerts, parent: QWidget | None = None) -> None:
        show, dismiss = QPushButton(tr("Show")), QPushButton(tr("Dismiss"))
        super().__init__(show, dismiss, parent=parent)
        self._alerts = alerts
        show.setAccessibleName(tr("Show all alerts"))
        show.clicked.connect(self.show_requested)
        dismiss.setAccessibleName(tr("Dismiss the alerts"))
        dismiss.setToolTip(tr("Acknowledge the active alerts; they stay in the list"))
        dismiss.clicked.connect(alerts.acknowledge_all)
        alerts.changed.connect(self._show_alerts)
        self._show_alerts()

    def _show_alerts(self) -> None:
        """Show the first unacknowledged alert, or hide the banner if there is none."""
        unacknowledged = [alert for alert in self._alerts.unacknowledged if KINDS[alert.kind].has_devices]
        if not unacknowledged:
            self.show_message("")
            return
        text = unacknowledged[0].sentence
        if len(unacknowledged) > 1:
            text = tr("{alert} ({count} more)").format(alert=text, count=len(unacknowledged) - 1)
        self.show_message(text, unacknowledged[0].severity)
        self.label.setToolTip("\n".join(alert.sentence for alert in unacknowledged))
        self.label.setAccessibleName(tr("Alert: {text}").format(text=self.text()))
