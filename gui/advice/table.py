"""Sortable table of the candidates that were tried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QHeaderView

from engine.contract.advice import Candidate
from gui.advice import advice_format
from gui.style import icons, theme
from gui.translation import tr
from gui.widgets.column_model import (
    BAR,
    INTERVAL,
    LEFT,
    PAD,
    RIGHT,
    VALUE,
    ColumnModel,
    Index,
    NumberRows,
    RowView,
    select_row,
    style_number_table,
)
from gui.widgets.row_model import Column

COLUMNS: tuple[Column[Candidate], ...] = (
    Column(tr("Candidate"), advice_format.format_name, help=tr("Order of the answer")),
    Column(
        tr("Images/s"),
        advice_format.format_speed,
        lambda candidate: candidate.images_per_second,
        is_numeric=True,
        help=tr("Images per second over all devices, with the interval of the median"),
        tip=advice_format.describe_interval,
    ),
    Column(
        tr("Memory (GiB)"),
        lambda candidate: advice_format.format_memory(candidate).removesuffix(" GiB"),
        lambda candidate: candidate.memory_bytes if candidate.memory_bytes is not None else candidate.estimated_bytes,
        is_numeric=True,
        help=tr("Peak memory per device (≈ estimated)"),
        tip=advice_format.describe_memory_origin,
    ),
    Column(
        tr("Whole job"),
        advice_format.format_duration,
        lambda candidate: candidate.time.total_s if candidate.time is not None else None,
        is_numeric=True,
        help=tr("Estimated duration of the job"),
        tip=advice_format.describe_duration,
    ),
    Column(
        tr("Efficiency"),
        advice_format.format_efficiency,
        lambda candidate: candidate.efficiency,
        is_numeric=True,
        help=tr("Speed per device, relative to the best on one device"),
    ),
    Column(
        tr("Energy"),
        advice_format.format_energy,
        lambda candidate: candidate.joules_per_thousand_images,
        is_numeric=True,
        help=tr("Energy of the GPUs per thousand images"),
    ),
    Column(tr("Note"), advice_format.format_note),
)
NAME, SPEED, ENERGY = 0, 1, 5
"""Indices of columns."""
MARKS = {"trying": ("resume", "accent"), "too_large": ("warning", "warning"), "failed": ("error", "error")}
"""Icons of candidate states. Other states have no icon."""
_MAX_ROWS = 14
_MIN_NAME_WIDTH = 170
"""Minimum width of the name column, in pixels at a text size of 100%."""
_NAME_FRACTION = 0.4
"""Maximum width of the name column, as a fraction of the table's width."""


class AdviceModel(ColumnModel):
    """Model with a row for each candidate, best first. The recommended one is bold and has a star."""

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.candidates: Sequence[Candidate] = ()
        self._has_advice = False  # True if the first row is the advice
        self._bold = QFont()
        self._bold.setBold(True)

    def show_candidates(self, candidates: Sequence[Candidate], *, has_advice: bool) -> None:
        """Show candidates. If `has_advice`, the first one is the recommendation."""
        self.beginResetModel()
        self.candidates, self._has_advice = candidates, has_advice
        self.endResetModel()

    def count(self) -> int:
        return len(self.candidates)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return the text, value, alignment, tool tip or font of a cell, depending on `role`.

        Names also have an icon, and speeds a bar. The name and speed of the recommended candidate are bold.
        """
        if not index.isValid():
            return None
        candidate, column = self.candidates[index.row()], COLUMNS[index.column()]
        is_advised = self._has_advice and index.row() == 0
        value = column.key(candidate) if column.is_numeric else float(index.row())
        roles: dict[int, Any] = {
            Qt.ItemDataRole.DisplayRole: column.text(candidate),
            VALUE: math.nan if value is None else float(value),
            Qt.ItemDataRole.TextAlignmentRole: RIGHT if column.is_numeric else LEFT,
            Qt.ItemDataRole.ToolTipRole: column.tip(candidate) or column.text(candidate),
            Qt.ItemDataRole.FontRole: self._bold if is_advised and index.column() in (NAME, SPEED) else None,
        }
        if index.column() == NAME:
            roles |= self._make_name_data(candidate, is_advised=is_advised)
        elif index.column() == SPEED:
            roles |= self._make_bar_data(candidate)
        return roles.get(role)

    def _make_name_data(self, candidate: Candidate, *, is_advised: bool) -> dict[int, Any]:
        """Return the icon and the accessible text of a candidate's name, by item data role."""
        icon_name, color = ("star", "accent") if is_advised else MARKS.get(candidate.state, ("", ""))
        text = ", ".join(filter(None, (advice_format.format_name(candidate), advice_format.format_note(candidate))))
        return {
            Qt.ItemDataRole.DecorationRole: icons.icon(icon_name, color) if icon_name else None,
            Qt.ItemDataRole.AccessibleTextRole: tr("Advised: {candidate}").format(candidate=text)
            if is_advised
            else text,
        }

    def _make_bar_data(self, candidate: Candidate) -> dict[int, Any]:
        """Return a candidate's speed and its interval as fractions of the highest speed, by item data role.

        Returns {} if the speed is unknown.
        """
        highest = max((each.high or each.images_per_second or 0.0 for each in self.candidates), default=0.0)
        if candidate.images_per_second is None or not highest:
            return {}
        interval = None
        if candidate.low is not None and candidate.high is not None:
            interval = (candidate.low / highest, candidate.high / highest)
        return {BAR: candidate.images_per_second / highest, INTERVAL: interval}


class AdviceTable(RowView):
    """Table of candidates, with a bar below each speed. Its height fits its rows, up to `_MAX_ROWS` of them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.model_ = AdviceModel(self)
        self.rows = NumberRows(self)
        self.rows.setSourceModel(self.model_)
        self.setModel(self.rows)
        style_number_table(self)
        self.setAccessibleName(name)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # the ends of names differ
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(NAME, QHeaderView.ResizeMode.Interactive)
        header.setSortIndicatorClearable(True)
        header.setStretchLastSection(True)
        self.sortByColumn(-1, Qt.SortOrder.AscendingOrder)  # unsorted: the best candidates first
        theme.notifier.changed.connect(self._fit)

    def show_candidates(self, candidates: Sequence[Candidate], *, has_advice: bool = False) -> None:
        """Show `candidates`. If `has_advice`, the first one is the recommendation.

        A selected candidate remains selected if it is among them. Otherwise, the first row is selected.
        """
        previous = self.chosen()
        self.model_.show_candidates(candidates, has_advice=has_advice)
        self.setColumnHidden(ENERGY, all(each.joules_per_thousand_images is None for each in candidates))
        self._fit()
        names = [each.name for each in candidates]
        if names:
            number = names.index(previous.name) if previous is not None and previous.name in names else 0
            select_row(self, self.rows.mapFromSource(self.model_.index(number, 0)).row())

    def chosen(self) -> Candidate | None:
        """Return the selected candidate, or None if none is selected."""
        rows = self.selectionModel().selectedRows()
        return self.model_.candidates[self.rows.mapToSource(rows[0]).row()] if rows else None

    def list_texts(self) -> list[list[str]]:
        """Return the column titles and then the cell texts of each row, for the visible columns only."""
        visible = [column for column in range(len(COLUMNS)) if not self.isColumnHidden(column)]
        rows = [[self.rows.index(row, column).data() for column in visible] for row in range(self.rows.rowCount())]
        return [[COLUMNS[column].title for column in visible], *rows]

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Fit the name column to its texts, within limits, and the height to up to `_MAX_ROWS` rows."""
        needed = self.sizeHintForColumn(NAME) + 2 * PAD
        widest = round(_NAME_FRACTION * self.viewport().width())
        self.setColumnWidth(NAME, max(theme.scale_pixels(_MIN_NAME_WIDTH), min(needed, widest)))
        rows = min(_MAX_ROWS, max(1, self.rows.rowCount())) * self.verticalHeader().defaultSectionSize()
        bar = self.horizontalScrollBar()
        scroll = bar.sizeHint().height() if bar.maximum() else 0
        self.setFixedHeight(rows + self.horizontalHeader().sizeHint().height() + scroll + 2 * self.frameWidth() + 2)
