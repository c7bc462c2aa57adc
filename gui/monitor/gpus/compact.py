"""Overview of many GPUs as a table with a row for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPainter, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QStyleOptionViewItem

from engine.contract.devices import Gpu
from engine.gpus.quantities import BY_ID
from gui.format import format_quantity, size_of
from gui.monitor.gpus.watched_gpu import WatchedGpu
from gui.sources.devices.device_format import join_states
from gui.style import theme
from gui.translation import tr
from gui.widgets.column_model import BAR, BAR_COLOR, PAD, BarDelegate, Index
from gui.widgets.row_model import Column, RowModel, RowTable

SHORT = BAR_COLOR + 1
"""Item role of the text for narrow columns."""
KEY = BAR_COLOR + 2
"""Item role of a GPU's key."""
_LEADING = 6


@dataclass(frozen=True)
class GpuColumn(Column[WatchedGpu]):
    """Column of a GPU table.

    `width` is its fraction of the table's width. `short` returns the text for a narrow column. `filled` returns the
    fraction of the cell that its bar fills, or None for no bar.
    """

    width: float = 0.0
    short: Callable[[Gpu], str] = lambda _gpu: ""
    filled: Callable[[Gpu], float | None] = lambda _gpu: None


def _make_fraction_reader(quantity_id: str) -> Callable[[Gpu], float | None]:
    """Return a function that reads a quantity as a fraction of its maximum, or as None if either is unknown."""
    quantity = BY_ID[quantity_id]

    def read_fraction(gpu: Gpu) -> float | None:
        value, highest = quantity.read(gpu), quantity.highest(gpu)
        return value / highest if value is not None and highest else None

    return read_fraction


def _make_formatter(quantity_id: str) -> Callable[[Gpu], str]:
    """Return a function that formats a quantity with its unit, or returns "" if it is unknown."""
    quantity = BY_ID[quantity_id]

    def format_value(gpu: Gpu) -> str:
        value = quantity.read(gpu)
        return "" if value is None else format_quantity(quantity, value)

    return format_value


def _utilization_text(gpu: Gpu) -> str:
    """Return the utilization of a GPU, or the activity of its multiprocessors for a MIG instance."""
    return _make_formatter("utilization_percent")(gpu) or _make_formatter("sm_active_percent")(gpu)


def _utilization_fraction(gpu: Gpu) -> float | None:
    """Return the fraction for the bar behind `_utilization_text`, or None if it is unknown."""
    fraction = _make_fraction_reader("utilization_percent")(gpu)
    return _make_fraction_reader("sm_active_percent")(gpu) if fraction is None else fraction


def _memory_text(gpu: Gpu) -> str:
    return "" if gpu.memory_used_bytes is None else size_of(gpu.memory_used_bytes, gpu.memory_total_bytes)


def _power_text(gpu: Gpu) -> str:
    if gpu.power_w is None or gpu.power_limit_w is None:
        return _make_formatter("power_w")(gpu)
    return tr("{used:.0f} of {limit:.0f} W").format(used=gpu.power_w, limit=gpu.power_limit_w)


def _states_and_users(watched: WatchedGpu) -> str:
    """Return a line with the states of a GPU, and a line with its users, if there are any."""
    return "\n".join(filter(None, (join_states(watched.states), watched.users_text)))


COLUMNS = (
    GpuColumn("GPU", lambda watched: f"{watched.title}\n{watched.gpu.name}", width=0.16),
    GpuColumn(tr("Utilization"), lambda watched: _utilization_text(watched.gpu), width=0.12, filled=_utilization_fraction),
    GpuColumn(
        tr("Memory"), lambda watched: _memory_text(watched.gpu), width=0.19,
        short=_make_formatter("memory_used_bytes"), filled=_make_fraction_reader("memory_used_bytes"),
    ),
    GpuColumn(tr("Power"), lambda watched: _power_text(watched.gpu), width=0.16, short=_make_formatter("power_w"), filled=_make_fraction_reader("power_w")),
    GpuColumn(tr("Temp."), lambda watched: _make_formatter("temperature_c")(watched.gpu), width=0.09, filled=_make_fraction_reader("temperature_c")),
    GpuColumn(tr("State"), _states_and_users),
)  # fmt: skip


class CompactModel(RowModel[WatchedGpu]):
    """Model with a row per GPU."""

    columns = COLUMNS

    def key_of(self, row: WatchedGpu) -> str:
        return row.key

    def cell_data(self, row: WatchedGpu, column: int, role: int) -> Any:
        """Return the data of a GPU's cell for a role, or None for other roles. Only the requested value is computed."""
        definition = COLUMNS[column]
        values: dict[int, Callable[[], Any]] = {
            KEY: lambda: row.key,
            BAR: lambda: definition.filled(row.gpu),
            BAR_COLOR: lambda: theme.colors().muted if row.is_outdated else theme.device_color(row.key),
            SHORT: lambda: definition.short(row.gpu),
            Qt.ItemDataRole.ForegroundRole: lambda: QColor(_text_color(row, definition)),
            Qt.ItemDataRole.ToolTipRole: lambda: "\n".join(filter(None, (row.gpu.name, _states_and_users(row)))),
        }
        read = values.get(role)
        return read() if read is not None else None


def _text_color(row: WatchedGpu, column: GpuColumn) -> str:
    """Return the color of a cell's text: a warning for alarming states and shared use, gray for outdated values."""
    scheme = theme.colors()
    if column is COLUMNS[-1]:  # the states and users
        return scheme.warning if row.is_shared or row.is_alarming else scheme.muted
    is_value = column is not COLUMNS[0]  # the first column has the title
    return scheme.muted if row.is_outdated and is_value else scheme.text


class _RowDelegate(BarDelegate):
    """Delegate that uses short texts in narrow columns, and marks each row with the color of its GPU."""

    def initStyleOption(self, option: QStyleOptionViewItem, index: Index) -> None:
        super().initStyleOption(option, index)
        short = index.data(SHORT)
        if short and option.fontMetrics.horizontalAdvance(option.text) > option.rect.width() - 2 * PAD:
            option.text = short

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        super().paint(painter, option, index)
        if index.column() == 0:
            stripe = option.rect.adjusted(0, 4, 0, -4)
            stripe.setWidth(4)
            painter.fillRect(stripe, QColor(theme.device_color(index.data(KEY))))


class CompactView(RowTable):
    """Table of GPUs. A double click or Enter opens the details of a GPU."""

    def __init__(self) -> None:
        self.gpus = CompactModel()
        super().__init__(self.gpus, tr("GPUs"), leading=_LEADING, lines=2)
        self.setItemDelegate(_RowDelegate(self))
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFrameShape(CompactView.Shape.NoFrame)
        self.horizontalHeader().setStretchLastSection(True)

    def show_gpus(self, gpus: Sequence[WatchedGpu]) -> None:
        """Show `gpus` in this order."""
        self.gpus.set_rows(gpus)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for number, column in enumerate(COLUMNS[:-1]):
            self.setColumnWidth(number, round(column.width * self.viewport().width()))
