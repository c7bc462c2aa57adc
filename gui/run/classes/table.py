"""Table with the metrics of each class at a validation, which can be sorted and exported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QEvent, QObject, Qt
from PySide6.QtWidgets import QHeaderView

from gui.format import localized
from gui.sources.run_series import ClassMetrics
from gui.style import theme
from gui.translation import tr
from gui.widgets.column_model import (
    BAR,
    INTERVAL,
    LEFT,
    NOTHING,
    PAD,
    RIGHT,
    VALUE,
    Index,
    NumberRows,
    RowView,
    style_number_table,
)

_COUNT = tr("Count")
_MIN_NAME_WIDTH, _MAX_NAME_WIDTH = 110, 240
"""Limits of the width that is reserved for the names, in pixels."""
_MAX_MIN_WIDTH = 580
"""Maximum width that the table may require, in pixels at a text size of 100%."""
_WIDEST_NUMBER = "100.0%"


def class_names(classes: Sequence[str], count: int) -> list[str]:
    """Return the names of `count` classes. Names that are missing in `classes` are generated, such as "class 3".

    If only the last name is missing, it is "none of them": a confusion matrix may have such an additional row and
    column.
    """
    if count == len(classes) + 1:
        return [*classes, tr("none of them")]
    return [*classes[:count], *(tr("class {number}").format(number=number) for number in range(len(classes), count))]


class ClassModel(QAbstractTableModel):
    """Model with a row for each class: name, metrics as fractions, and number of samples if it is known."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.names: list[str] = []
        self.titles: list[str] = []
        self._columns: list[np.ndarray] = []
        self._intervals: dict[str, np.ndarray] = {}

    def show_metrics(self, classes: Sequence[str], metrics: ClassMetrics | None) -> None:
        """Show the metrics of each class, and its number of samples if a confusion matrix has them.

        If `metrics` is None, clear the table. If rows and columns are unchanged, selection and scroll position are
        retained.
        """
        titles = list(metrics.measures) if metrics is not None else []
        columns = list(metrics.measures.values()) if metrics is not None else []
        rows = max((len(column) for column in columns), default=0)
        if metrics is not None and metrics.confusion is not None and len(metrics.confusion) >= rows:
            titles.append(_COUNT)
            counts = metrics.confusion.sum(1).astype(np.float64)
            # The matrix may have more rows, such as "none of them". Without metrics, it defines the rows.
            columns.append(counts[:rows] if rows else counts)
            rows = len(columns[-1])
        names = class_names(classes, rows)
        self._intervals = dict(metrics.intervals) if metrics is not None else {}
        if (names, titles) == (self.names, self.titles):
            self._columns = columns
            if names and titles:
                self.dataChanged.emit(self.index(0, 1), self.index(len(names) - 1, len(titles)))
            return
        self.beginResetModel()
        self.names, self.titles, self._columns = names, titles, columns
        self.endResetModel()

    def value(self, row: int, column: int) -> float:
        """Return the number in a cell, or NaN if there is none."""
        values = self._columns[column - 1]
        return float(values[row]) if row < len(values) else math.nan

    def interval(self, row: int, column: int) -> tuple[float, float] | None:
        """Return the 95% confidence interval of the metric in a cell, or None if it has none."""
        bounds = self._intervals.get(self.titles[column - 1]) if column else None
        if bounds is None or row >= len(bounds) or np.isnan(bounds[row]).any():
            return None
        return float(bounds[row, 0]), float(bounds[row, 1])

    def is_fraction(self, column: int) -> bool:
        """Return True if a column contains fractions, which are the metrics. Others are class names or counts."""
        return column > 0 and self.titles[column - 1] != _COUNT

    def rowCount(self, parent: Index = NOTHING) -> int:
        return 0 if parent.isValid() else len(self.names)

    def columnCount(self, parent: Index = NOTHING) -> int:
        return 0 if parent.isValid() else 1 + len(self.titles)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return [tr("Class"), *self.titles][section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if section else LEFT
        if role == Qt.ItemDataRole.ToolTipRole and section > 0 and not self.is_fraction(section):
            return tr("Images, pixels, points or boxes of this class in the split")
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return a cell's data. The first column has names, which are sorted by class number."""
        row, column = index.row(), index.column()
        value = self.value(row, column) if column else float(row)
        if role == Qt.ItemDataRole.DisplayRole:
            return self._format_value(column, value) if column else self.names[row]
        unknown = tr("This class isn't in the split and was never predicted")
        interval, bounds = self.interval(row, column), None
        if interval is not None:
            low, high = (localized(100 * bound, 1) for bound in interval)
            bounds = tr("95% interval: {low} to {high}%").format(low=low, high=high)
        values: dict[int, object] = {
            VALUE: value,
            BAR: value if self.is_fraction(column) else None,
            INTERVAL: interval,
            Qt.ItemDataRole.TextAlignmentRole: RIGHT if column else LEFT,
            Qt.ItemDataRole.ToolTipRole: unknown if math.isnan(value) else bounds,
            Qt.ItemDataRole.AccessibleTextRole: f"{self._format_value(column, value)}, {bounds}" if bounds else None,
        }
        return values.get(role)

    def _format_value(self, column: int, value: float) -> str:
        """Format a value: a percentage for fractions, otherwise a number, and a dash for NaN."""
        if math.isnan(value):
            return "–"
        return f"{localized(100 * value, 1)}%" if self.is_fraction(column) else localized(value)


class ClassTable(RowView):
    """Table of classes, with a bar below each fraction."""

    def __init__(self) -> None:
        super().__init__()
        self.model_ = ClassModel(self)
        self.rows = NumberRows(self)
        self.rows.setSourceModel(self.model_)
        self.rows.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self.rows.setDynamicSortFilter(True)
        self.setModel(self.rows)
        style_number_table(self)
        self.setAccessibleName(tr("Metrics of each class"))
        self.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        self.setMinimumHeight(120)

    def show_metrics(self, classes: Sequence[str], metrics: ClassMetrics | None) -> None:
        """Show the metrics of each class, or an empty table if `metrics` is None.

        The sort order and the selection stay.

        The widths of new columns are fitted to their contents.
        """
        titles_before = self.model_.titles
        self.model_.show_metrics(classes, metrics)
        if self.model_.titles != titles_before and self.model_.titles:
            self._fit_columns()

    def selected_class(self) -> int | None:
        """Return the index of the selected class, or None if no class is selected."""
        rows = self.selectionModel().selectedRows()
        return self.rows.mapToSource(rows[0]).row() if rows else None

    def choose(self, number: int) -> None:
        """Select the class with index `number` if it is listed."""
        index = self.rows.mapFromSource(self.model_.index(number, 0))
        if index.isValid() and self.selected_class() != number:
            self.setCurrentIndex(index)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and self.model_.titles:
            self._fit_columns()

    def _fit_columns(self) -> None:
        """Fit the columns to their titles and numbers, and the minimum width of the table to the columns.

        The names get the remaining width.
        """
        header = self.horizontalHeader()
        advance = self.fontMetrics().horizontalAdvance
        longest_name = max(map(advance, self.model_.names), default=0) + 2 * PAD + 24
        table_width = min(_MAX_NAME_WIDTH, max(_MIN_NAME_WIDTH, longest_name)) + 2 * self.frameWidth()
        for column in range(1, self.model_.columnCount()):
            width = max(header.sectionSizeHint(column), advance(_WIDEST_NUMBER) + 2 * PAD)
            header.setSectionResizeMode(column, QHeaderView.ResizeMode.Interactive)
            header.resizeSection(column, width)
            table_width += width
        self.setMinimumWidth(min(table_width, theme.scale_pixels(_MAX_MIN_WIDTH)))


def make_class_metric_rows(classes: Sequence[str], metrics: ClassMetrics) -> Iterator[list[str]]:
    """Yield CSV rows with the metrics of each class, as fractions from 0 to 1. Values of absent classes are empty."""
    columns = metrics.measures
    rows = max(map(len, columns.values()), default=0)
    yield ["class", *columns]
    for number, name in enumerate(class_names(classes, rows)):
        yield [
            name,
            *(format_number(column[number]) if number < len(column) else "" for column in columns.values()),
        ]


def make_confusion_rows(classes: Sequence[str], counts: Sequence[Sequence[int]] | np.ndarray) -> Iterator[list[str]]:
    """Yield CSV rows of the confusion matrix: one for each true class, with a column for each predicted class."""
    names = class_names(classes, len(counts))
    yield [tr("true class"), *names]
    for name, row in zip(names, counts, strict=True):
        yield [name, *map(str, row)]


def format_number(value: float | None) -> str:
    """Format a number for a CSV file with 9 significant digits, or return "" for None and NaN."""
    return "" if value is None or math.isnan(value) else f"{value:.9g}"
