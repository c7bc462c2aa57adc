"""Model of the comparison table, and tables that are written to CSV files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from PySide6.QtCore import QAbstractTableModel, QObject, Qt
from PySide6.QtGui import QFont

from gui.compare.compared_run import ComparedRun
from gui.compare.comparison import Row, create_rows, list_measures
from gui.compare.legend import draw_swatch
from gui.sources.columns import Floats
from gui.sources.run_data import Steps, Validations
from gui.translation import tr
from gui.widgets.column_model import NOTHING, Index

BEST = "★ "


def _list_headers(runs: Sequence[ComparedRun], rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Return the ids of the runs, which are the columns of the table, and the titles of its rows."""
    return [run.summary.run_id for run in runs], [row.title for row in rows]


class CompareModel(QAbstractTableModel):
    """Model of the comparison table. The best value in a row is bold, with a star in front of it."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.runs: Sequence[ComparedRun] = ()
        self.rows: list[Row] = []
        self._bold = QFont()
        self._bold.setBold(True)

    def show_runs(self, runs: Sequence[ComparedRun]) -> None:
        """Show `runs`. If runs and rows are the same as before, selection and scroll position don't change."""
        new_rows = create_rows(runs)
        if _list_headers(runs, new_rows) == _list_headers(self.runs, self.rows):
            self.runs, self.rows = runs, new_rows
            if new_rows:
                self.dataChanged.emit(self.index(0, 0), self.index(len(new_rows) - 1, len(runs) - 1))
            return
        self.beginResetModel()
        self.runs, self.rows = runs, new_rows
        self.endResetModel()

    def rowCount(self, parent: Index = NOTHING) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = NOTHING) -> int:
        return 0 if parent.isValid() else len(self.runs)

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid() or self.rows[index.row()].heading:
            return Qt.ItemFlag.NoItemFlags
        return super().flags(index)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation == Qt.Orientation.Horizontal:
            return self._get_column_header(self.runs[section], role) if section < len(self.runs) else None
        return self._get_row_header(self.rows[section], role) if section < len(self.rows) else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's data. The best values of a row are bold and have a mark."""
        if not index.isValid():
            return None
        row, column_index = self.rows[index.row()], index.column()
        if row.heading:
            return None
        is_best = column_index in row.best
        value: Any = None
        if role == Qt.ItemDataRole.DisplayRole:
            value = f"{BEST if is_best else ''}{row.texts[column_index]}"
        elif role == Qt.ItemDataRole.FontRole and is_best:
            value = self._bold
        elif role == Qt.ItemDataRole.AccessibleTextRole:
            text = row.texts[column_index]
            value = tr("{value}, the best").format(value=text) if is_best else text
        elif role == Qt.ItemDataRole.ToolTipRole and row.tips:
            value = row.tips[column_index] or None
        return value

    @staticmethod
    def _get_column_header(run: ComparedRun, role: int) -> Any:
        """Return the data of a column header: title, line style and folder of a run."""
        if role == Qt.ItemDataRole.DisplayRole:
            return run.title
        if role == Qt.ItemDataRole.DecorationRole:
            return draw_swatch(run.series)
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{run.title}\n{run.summary.folder}"
        return None

    def _get_row_header(self, row: Row, role: int) -> Any:
        """Return the data of a row header. Headings of sections are bold."""
        if role == Qt.ItemDataRole.DisplayRole:
            return row.title
        if role == Qt.ItemDataRole.FontRole:
            return self._bold if row.heading else None
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.help or None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        return None


STEP_FIGURES = ("loss", "accuracy", "learning_rate", "images_per_second", "data_wait_s", "compute_s")
_DIGITS = 9


def generate_curve_rows(runs: Sequence[ComparedRun]) -> Iterator[list[str]]:
    """Yield CSV rows of the curves: column titles, and one row for every logged step and validation of each run.

    Unknown values are empty. `epoch` is fractional and starts at 0.
    """
    names = list_measures(runs)
    yield ["run", "name", "step", "epoch", "time_s", *STEP_FIGURES, *(f"validation_{name}" for name in names)]
    for run in runs:
        head = [run.summary.run_id, run.summary.name]
        steps, validations = run.data.steps, run.data.validations
        step_figures = [getattr(steps, name).values for name in STEP_FIGURES]
        for position, values in _generate_points(run, steps, step_figures):
            yield [*head, *position, *values, *("" for _ in names)]
        unknown = [float("nan")] * len(validations.step)
        measures = validations.measures
        metrics = [measures[name].values if name in measures else unknown for name in names]
        for position, values in _generate_points(run, validations, metrics):
            yield [*head, *position, *("" for _ in STEP_FIGURES), *values]


def generate_comparison_rows(runs: Sequence[ComparedRun], rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield CSV rows of the comparison: ids and names of the runs, and one row for each figure or field in `rows`.

    Each run has a column.
    """
    yield ["", *(run.summary.run_id for run in runs)]
    yield [tr("Name"), *(run.summary.name for run in runs)]
    for row in rows:
        if not row.heading:
            yield [row.title, *row.texts]


class _Point(NamedTuple):
    position: list[str]  # step, epoch and seconds
    values: list[str]


def _generate_points(
    run: ComparedRun, logged: Steps | Validations, figures: Sequence[Floats | list[float]]
) -> Iterator[_Point]:
    """Yield the step, epoch, time in seconds and `figures` of each step or validation in `logged`, as texts for CSV.

    Each of the `figures` has a value for each step or validation.
    """
    epochs = run.compute_x(logged, "epoch")
    columns = (
        logged.step.values,
        epochs if len(epochs) else [float("nan")] * len(logged.step),
        logged.seconds.values,
        *figures,
    )
    for cells in zip(*columns, strict=True):
        texts = [_format_number(value) for value in cells]
        yield _Point(texts[:3], texts[3:])


def _format_number(value: float) -> str:
    """Format a number, or return "" for NaN."""
    return "" if math.isnan(value) else f"{value:.{_DIGITS}g}"
