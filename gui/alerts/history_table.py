"""Table of the last alerts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QHeaderView, QTableView

from engine.system.format import duration
from gui.alerts.rules import KINDS
from gui.alerts.watcher import Alert
from gui.format import clock
from gui.style import theme
from gui.style.icons import icon
from gui.translation import tr
from gui.widgets.column_model import NOTHING, ColumnModel, Index, apply_table_style


@dataclass(frozen=True)
class _Column:
    title: str
    text: Callable[[Alert], str]
    widest: str
    """Longest text to make room for."""
    number: bool = False
    help: str = ""


def _lasted(alert: Alert) -> str:
    """Return "3:12 min", "active", or "–" for an event without duration."""
    if alert.ended is None:
        return "active"
    return "–" if KINDS[alert.kind].event else duration(max(0.0, alert.ended - alert.since))


COLUMNS = (
    _Column(tr("Began"), lambda alert: clock(alert.since), "21 Nov 14:02:31"),
    _Column(tr("Lasted"), _lasted, "1:00:00 h"),
    _Column(tr("Where"), lambda alert: alert.title, tr("This machine")),
    _Column(tr("What"), lambda alert: f"{alert.what}: {alert.text}", ""),
)
WHAT = 3


class HistoryModel(ColumnModel):
    """Model with a row per alert, newest first."""

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._alerts: tuple[Alert, ...] = ()

    def show_alerts(self, alerts: tuple[Alert, ...]) -> None:
        """Show `alerts`, newest first. Remaining rows keep their selection."""
        numbers = {alert.number for alert in alerts}
        for row in reversed(range(len(self._alerts))):
            if self._alerts[row].number not in numbers:
                self.beginRemoveRows(NOTHING, row, row)
                self._alerts = self._alerts[:row] + self._alerts[row + 1 :]
                self.endRemoveRows()
        new = len(alerts) - len(self._alerts)
        if new:
            self.beginInsertRows(NOTHING, 0, new - 1)
            self._alerts = alerts[:new] + self._alerts
            self.endInsertRows()
        changed = [row for row, (before, now) in enumerate(zip(self._alerts, alerts, strict=True)) if before != now]
        self._alerts = alerts
        for row in changed:
            self.row_changed(row)

    def count(self) -> int:
        return len(self._alerts)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        alert = self._alerts[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[index.column()].text(alert)
        if role == Qt.ItemDataRole.ToolTipRole:
            return alert.sentence
        if role == Qt.ItemDataRole.DecorationRole and index.column() == WHAT:
            return icon(alert.severity, "muted" if alert.ended is not None else alert.severity)
        return None


class HistoryTable(QTableView):
    """View of a `HistoryModel`."""

    def __init__(self, model: HistoryModel) -> None:
        super().__init__()
        self.setAccessibleName(tr("History of the alerts"))
        self.setModel(model)
        self.setFont(theme.tabular(self.font()))
        apply_table_style(self, padding=5, leading=10)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        for number, column in enumerate(COLUMNS):
            self.setColumnWidth(number, self.fontMetrics().horizontalAdvance(column.widest) + 26)
        self.setMinimumHeight(150)
