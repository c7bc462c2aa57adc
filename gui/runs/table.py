"""Table of runs, and its model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from PySide6.QtCore import QMimeData, QModelIndex, QObject, Qt, Signal
from PySide6.QtGui import QFocusEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QLineEdit

from engine.runs.folder import RunSummary
from engine.runs.metrics import format_best_metric, headline_metric
from engine.system.format import NOT_KNOWN, duration
from engine.system.plain_text import shorten
from gui.format import format_date_and_time, metric_value
from gui.runs.actions import ACTIVE_STATES
from gui.style import theme
from gui.style.icons import icon
from gui.titles import describe_devices, model_title, run_title, strategy_title
from gui.translation import tr
from gui.widgets.column_model import Index, select_row
from gui.widgets.row_model import Column, RowModel, RowTable
from gui.widgets.run_drag import make_drag_data

_ICONS = {
    "completed": ("ok", "ok"),
    "failed": ("error", "error"),
    "unsaved": ("error", "error"),
    "interrupted": ("warning", "warning"),
    "paused": ("pause", "text"),
    "stopped": ("stop", "muted"),
    "waiting": ("clock", "accent"),
    "running": ("right", "accent"),
    "starting": ("right", "accent"),
}


@dataclass(frozen=True)
class RunFilter:
    """Filter for the list of runs. Empty fields have no effect.

    Attributes:
        text: Words that must all occur in the name, model, dataset, strategy, state, tags, notes or id.
        since: Earliest start in seconds since the epoch.
    """

    text: str = ""
    state: str = ""
    model: str = ""
    strategy: str = ""
    tag: str = ""
    favorites: bool = False
    since: float | None = None

    def matches(self, run: RunSummary) -> bool:
        """Return True if the run passes all filters and contains all words of `text`."""
        if (
            (self.state and run.state != self.state)
            or (self.model and run.model != self.model)
            or (self.strategy and run.strategy != self.strategy)
            or (self.tag and self.tag not in run.tags)
            or (self.favorites and not run.favorite)
            or (self.since is not None and run.started < self.since)
        ):
            return False
        if not self.text:
            return True
        searched_text = _make_searched_text(run)
        return all(term in searched_text for term in self.text.lower().split())


def _make_searched_text(run: RunSummary) -> str:
    """Return all texts of a run that the search considers, in lower case."""
    parts = (
        run_title(run),
        model_title(run.model),
        run.model,
        Path(run.dataset).name,
        strategy_title(run.strategy),
        run.state,
        *run.tags,
        run.notes,
        run.run_id,
    )
    return "\n".join(parts).lower()


def _get_best_value(run: RunSummary) -> float:
    """Return the best value of the run's main metric, or negative infinity if there is none."""
    best = headline_metric(run)
    if best is None:
        return float("-inf")
    _metric, value = best
    return value


def format_state(run: RunSummary) -> str:
    """Return the title of a run's state, such as "Completed" or "Waiting in SLURM"."""
    return (
        tr("{state} in SLURM").format(state=run.state.capitalize())
        if run.slurm and run.state in ACTIVE_STATES
        else run.state.capitalize()
    )


COLUMNS: tuple[Column[RunSummary], ...] = (
    Column(tr("Name"), run_title, lambda run: run_title(run).lower()),
    Column(tr("State"), format_state, lambda run: run.state),
    Column(tr("Best"), lambda run: format_best_metric(run, metric_value), _get_best_value, is_numeric=True),
    Column(tr("Model"), lambda run: model_title(run.model), lambda run: model_title(run.model).lower()),
    Column(tr("Strategy"), lambda run: strategy_title(run.strategy), lambda run: strategy_title(run.strategy)),
    Column(tr("Devices"), lambda run: describe_devices(run.devices), lambda run: describe_devices(run.devices)),
    Column(
        tr("Duration"),
        lambda run: duration(run.seconds) if run.seconds is not None else NOT_KNOWN,
        lambda run: run.seconds if run.seconds is not None else -1.0,
        is_numeric=True,
    ),
    Column(tr("Started"), lambda run: format_date_and_time(run.started), lambda run: run.started),
    Column(tr("Tags"), lambda run: ", ".join(run.tags), lambda run: ", ".join(run.tags).lower()),
)
NAME, STATE, MODEL, STRATEGY, DEVICES, STARTED = 0, 1, 3, 4, 5, 7


class RunsModel(RowModel[RunSummary]):
    """Model of the runs that pass the filter.

    Signals:
        renamed(str, str): the user has renamed the run with this id. The model shows the new name when it has been
            stored.
    """

    renamed = Signal(str, str)
    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._all: dict[str, RunSummary] = {}  # by id, also of runs that the filter hides
        self._filter = RunFilter()
        self.sort_column, self.sort_order = STARTED, Qt.SortOrder.DescendingOrder

    @property
    def runs(self) -> Collection[RunSummary]:
        """All runs, including those that the filter hides."""
        return self._all.values()

    def key_of(self, row: RunSummary) -> str:
        return row.run_id

    def find(self, run_id: str) -> RunSummary | None:
        """Return the run with this id, even if the filter hides it, or None if it doesn't exist."""
        return self._all.get(run_id)

    def merge(self, runs: Iterable[RunSummary]) -> None:
        """Add new runs and update changed ones."""
        changed = {run.run_id: run for run in runs if self._all.get(run.run_id) != run}
        if changed:
            self._all |= changed
            self._update_rows()

    def keep_only(self, run_ids: Iterable[str]) -> None:
        """Remove all runs whose ids aren't in `run_ids`."""
        remaining = set(run_ids)
        if not self._all.keys() <= remaining:
            self._all = {run_id: run for run_id, run in self._all.items() if run_id in remaining}
            self._update_rows()

    def set_filter(self, run_filter: RunFilter) -> None:
        self._filter = run_filter
        self._update_rows()

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Return item flags that let the user drag runs and edit their names."""
        flags = super().flags(index)
        if index.isValid():
            flags |= Qt.ItemFlag.ItemIsDragEnabled
            if index.column() == NAME:
                flags |= Qt.ItemFlag.ItemIsEditable
        return flags

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        """Return the drag data of the runs in the rows of `indexes`."""
        return make_drag_data(self.rows[row] for row in sorted({index.row() for index in indexes}))

    def cell_data(self, row: RunSummary, column: int, role: int) -> Any:
        """Return a run's editable text, its tool tip, or the icon of its state or favorite mark, by role."""
        if role == Qt.ItemDataRole.EditRole:
            return row.name if column == NAME else COLUMNS[column].text(row)
        if role == Qt.ItemDataRole.ToolTipRole:
            facts = (row.cause, row.slurm, row.notes, shorten(row.dataset), ", ".join(row.devices), row.folder)
            return "\n".join(filter(None, facts))
        if role == Qt.ItemDataRole.AccessibleTextRole and column == NAME and row.favorite:
            return tr("{run}, favorite").format(run=run_title(row))
        if role == Qt.ItemDataRole.DecorationRole and column == STATE:
            return icon(*_ICONS[row.state])
        if role == Qt.ItemDataRole.DecorationRole and column == NAME and row.favorite:
            return icon("star", "warning")
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Emit `renamed` if the user has changed the name of a run.

        Return True for names, False for other cells and roles.
        """
        if role != Qt.ItemDataRole.EditRole or not index.isValid() or index.column() != NAME:
            return False
        run = self.rows[index.row()]
        if str(value) != run.name:
            self.renamed.emit(run.run_id, str(value))
        return True

    def _update_rows(self) -> None:
        self.set_rows(self.sorted_rows(run for run in self._all.values() if self._filter.matches(run)))


_MAX_COLUMN_WIDTH = 400
_MIN_WIDTHS = {NAME: 130, MODEL: 96, STRATEGY: 96, DEVICES: 96}
"""Minimum widths of text columns in pixels at a text size of 100%. If the table is narrow, longer texts are elided."""


class RunsTable(RowTable):
    """Table of runs. Users can edit names, and drag rows."""

    def __init__(self, model: RunsModel) -> None:
        super().__init__(model, tr("Runs"), leading=14)
        self._model = model
        self._is_fitting = False  # True while `fit` sets column widths
        self._has_user_widths = False  # True once the user has changed a column width
        self.setSortingEnabled(True)
        self.sortByColumn(STARTED, Qt.SortOrder.DescendingOrder)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragOnly)
        self.setDefaultDropAction(Qt.DropAction.CopyAction)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.horizontalHeader().setStretchLastSection(True)
        self.horizontalHeader().sectionResized.connect(self._on_section_resized)

    def selected(self) -> list[RunSummary]:
        """Return the selected runs from top to bottom."""
        return [self._model.rows[row] for row in self.selected_rows()]

    def rename(self) -> None:
        """Open an editor for the name of the current run."""
        index = self.currentIndex()
        if index.isValid():
            self.edit(self._model.index(index.row(), NAME))
            for editor in self.viewport().findChildren(QLineEdit):
                editor.setAccessibleName(tr("Name of the run"))

    @contextmanager
    def holding_position(self) -> Iterator[None]:
        """Keep the topmost visible row in place while rows change in this context, unless the list is at its top."""
        top = self.rowAt(0)
        run_id = self._model.rows[top].run_id if top > 0 else None
        yield
        row = self._model.position(run_id)
        if row is not None and row != self.rowAt(0):
            self.scrollTo(self._model.index(row, 0), QAbstractItemView.ScrollHint.PositionAtTop)

    def fit(self) -> None:
        """Fit the columns to their contents, unless the user has changed a column width.

        If the table is too narrow for them, shrink the columns with texts down to their minimum widths.
        """
        if self._has_user_widths or not self._model.rowCount():
            return
        header, last = self.horizontalHeader(), self._model.columnCount() - 1
        widths = [min(self.content_width(column), theme.scale_pixels(_MAX_COLUMN_WIDTH)) for column in range(last)]
        # If the table is too narrow, shrink the text columns in proportion to what they have above their minimum.
        missing = sum(widths) + header.sectionSizeHint(last) - self.viewport().width()
        shrinkable = [
            max(0, width - theme.scale_pixels(_MIN_WIDTHS.get(column, width))) for column, width in enumerate(widths)
        ]
        fraction = min(1.0, max(0, missing) / max(1, sum(shrinkable)))
        self._is_fitting = True
        for column, width in enumerate(widths):
            self.setColumnWidth(column, width - ceil(fraction * shrinkable[column]))
        header.setStretchLastSection(False)  # otherwise it would keep the width that it had in a wider table
        header.resizeSection(last, header.sectionSizeHint(last))
        header.setStretchLastSection(True)
        self._is_fitting = False

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Select the current row if the focus comes from Tab.

        In a table with a single row, arrow keys couldn't select it.
        """
        super().focusInEvent(event)
        is_by_tab = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        if is_by_tab and self.currentIndex().isValid() and not self.selectionModel().hasSelection():
            select_row(self, self.currentIndex().row())

    def _on_section_resized(self, column: int, _before: int, _now: int) -> None:
        if not self._is_fitting and column < self._model.columnCount() - 1:  # the last column stretches
            self._has_user_widths = True
