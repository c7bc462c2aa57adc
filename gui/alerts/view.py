"""View of the alerts: active ones, history, and rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QSizePolicy,
    QWidget,
)

from engine.system.format import duration
from gui.alerts.cards import AlertCards
from gui.alerts.rule_row import RuleRow
from gui.alerts.rules import KINDS, KindId
from gui.alerts.run_notifications import RunNotifications
from gui.alerts.watcher import Alert, Alerts
from gui.format import clock, counted
from gui.style import theme
from gui.style.icons import icon
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import push_button, styled
from gui.widgets.column_model import RowView, apply_table_style
from gui.widgets.labels import ElidedLabel, heading_label, muted_label
from gui.widgets.layouts import hbox, scroll_panel, vbox, with_layout
from gui.widgets.row_model import Column, RowModel

SIDE_BY_SIDE = 980
"""Minimum width for placing the rules next to the alerts, in pixels at a text size of 100%."""
_MIN_HISTORY_HEIGHT = 150
"""Minimum height of the table of past alerts, in pixels at a text size of 100%."""


class AlertsView(QWidget):
    """View of the active and past `alerts`. Users can acknowledge them and edit the alert rules.

    Signals:
        settings_requested(str): the user wants to change the setting with this key.
    """

    settings_requested = Signal(str)

    def __init__(self, alerts: Alerts) -> None:
        super().__init__()
        styled(self, "panel")
        self._alerts = alerts
        self.history = HistoryModel(self)
        self.table = HistoryTable(self.history)
        self.rows: dict[KindId, RuleRow] = {}  # filled by `_lay_out`
        self.runs = RunNotifications()
        self.runs.settings.clicked.connect(lambda: self.settings_requested.emit("ended"))
        self._count = muted_label()
        self._history_count = muted_label()
        self._problem = Banner(parent=self)
        self._test_result = styled(ElidedLabel(), "muted")
        self.acknowledge_all = push_button(tr("Acknowledge all"), alerts.acknowledge_all)
        self.test = QPushButton(tr("Test notification"))
        self.test.setToolTip(tr("Send a notification to this desktop"))
        self.test.clicked.connect(lambda: alerts.test_requested.emit(self._show_tested))
        self._halves = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._lay_out()
        alerts.changed.connect(self._show_alerts)
        alerts.rules_changed.connect(self._show_rules)
        alerts.message.connect(self._problem.show_message)
        theme.notifier.changed.connect(self._align_rules)
        self._show_alerts()
        self._problem.show_message(alerts.problem)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        is_side_by_side = self.width() >= theme.scale_pixels(SIDE_BY_SIDE)
        direction = QBoxLayout.Direction.LeftToRight if is_side_by_side else QBoxLayout.Direction.TopToBottom
        if self._halves.direction() != direction:
            self._halves.setDirection(direction)
            self._set_stretch_factors()

    def _set_stretch_factors(self) -> None:
        """Divide the space between the two columns.

        Columns side by side are equally wide. If they are stacked, the history table gets the remaining height.
        """
        has_table = not self.table.isHidden()
        if self._halves.direction() == QBoxLayout.Direction.LeftToRight:
            stretch_factors = (1, 1, 0)
        else:
            stretch_factors = (1, 0, 0) if has_table else (0, 0, 1)
        for index, stretch in enumerate(stretch_factors):  # of the alerts, the rules and the empty space after them
            self._halves.setStretch(index, stretch)

    def _lay_out(self) -> None:
        """Build the layout, and create a row for each alert rule in `rows`."""
        alerts = vbox(_create_heading_row(tr("Active"), self._count, self.acknowledge_all), AlertCards(self._alerts))
        alerts.addSpacing(6)
        alerts.addLayout(_create_heading_row(tr("History"), self._history_count))
        alerts.addWidget(self.table, 1)
        alerts.addStretch(0)
        rules = vbox(_create_heading_row(tr("Rules"), self._test_result, self.test), self._problem, spacing=3)
        for kind in KINDS.values():
            row = self.rows[kind.id] = RuleRow(kind, self._alerts.rules[kind.id])
            row.edited.connect(self._alerts.set_rule)
            rules.addWidget(row)
        self._align_rules()
        rules.addSpacing(10)
        hint = muted_label(tr("also while the window is closed"))
        rules.addLayout(_create_heading_row(tr("Runs"), hint, self.runs.settings, self.runs.test))
        rules.addWidget(self.runs)
        rules.addStretch(1)
        for half in (alerts, rules):
            half.setContentsMargins(0, 0, 0, 0)
            widget = with_layout(half)
            widget.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
            self._halves.addWidget(widget)
        self._halves.addStretch(0)
        self._halves.setSpacing(20)
        self._halves.setContentsMargins(14, 10, 14, 10)
        self.setLayout(vbox(scroll_panel(with_layout(self._halves))))

    def _align_rules(self) -> None:
        """Give the names of all rules the same width, which fits the current text size."""
        widest = max(row.on.sizeHint().width() for row in self.rows.values())
        for row in self.rows.values():
            row.on.setFixedWidth(widest)

    def _show_alerts(self) -> None:
        """Show active alerts, history and the devices that rules can cover."""
        active = self._alerts.active_alerts
        self._count.setText(counted(len(active), "alert") if active else "")
        self.acknowledge_all.setEnabled(bool(self._alerts.unacknowledged))
        past = self._alerts.history
        self._history_count.setText(
            counted(len(past), "alert") if past else tr("No alerts since this window was opened")
        )
        self.table.setVisible(bool(past))
        self._set_stretch_factors()
        self.history.set_rows(past)
        for row in self.rows.values():
            row.set_devices(self._alerts.devices)

    def _show_rules(self) -> None:
        for id_, row in self.rows.items():
            row.show_rule(self._alerts.rules[id_])

    def _show_tested(self, text: str) -> None:
        self._test_result.setText(text)
        self._test_result.setToolTip(text)


def _create_heading_row(title: str, label_after: QLabel, *buttons: QPushButton) -> QHBoxLayout:
    """Create a row with a heading, a label that takes the remaining width, and buttons."""
    row = hbox(heading_label(title), (label_after, 1), spacing=10)
    for button in buttons:
        row.addWidget(button)
    return row


@dataclass(frozen=True)
class _Column(Column[Alert]):
    """Column of the table of past alerts."""

    longest_text: str = ""
    """Text that must fit into the column."""


def _format_duration(alert: Alert) -> str:
    """Return the duration of an alert, as in "3:12 min".

    Returns "active" if the alert hasn't ended, and "–" for an event.
    """
    if alert.ended is None:
        return tr("active")
    return "–" if KINDS[alert.kind].event else duration(max(0.0, alert.ended - alert.since))


COLUMNS = (
    _Column(tr("Began"), lambda alert: clock(alert.since), longest_text="21 Nov 14:02:31"),
    _Column(tr("Lasted"), _format_duration, longest_text="1:00:00 h"),
    _Column(tr("Where"), lambda alert: alert.title, longest_text=tr("This machine")),
    _Column(tr("What"), lambda alert: f"{alert.counted_title}: {alert.text}"),
)
WHAT = 3


class HistoryModel(RowModel[Alert]):
    """Model with a row for each active or past alert, newest first."""

    columns = COLUMNS

    def key_of(self, row: Alert) -> int:
        return row.number

    def cell_data(self, row: Alert, column: int, role: int) -> Any:
        """Return the tool tip or the icon of a cell, depending on `role`, or None for other roles.

        The tool tip is the full sentence. The icon shows the severity, and is muted after the alert's end.
        """
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.sentence
        if role == Qt.ItemDataRole.DecorationRole and column == WHAT:
            return icon(row.severity, "muted" if row.ended is not None else row.severity)
        return None


class HistoryTable(RowView):
    """Table of active and past alerts."""

    def __init__(self, model: HistoryModel) -> None:
        super().__init__()
        self.setAccessibleName(tr("History of the alerts"))
        self.setModel(model)
        self.setFont(theme.with_tabular_digits(self.font()))
        apply_table_style(self, leading=10)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        theme.notifier.changed.connect(self._fit)
        self._fit()
        theme.scale_with_text(self.setMinimumHeight, _MIN_HISTORY_HEIGHT)

    def _fit(self) -> None:
        """Fit the columns to their longest texts at the current text size."""
        for number, column in enumerate(COLUMNS):
            self.setColumnWidth(number, self.fontMetrics().horizontalAdvance(column.longest_text) + 26)
