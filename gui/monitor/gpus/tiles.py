"""Tiles of the GPUs, laid out to show all of them at once if possible."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QScrollArea, QWidget

from gui.monitor.gpus.tile import MIN_HEIGHT, MIN_WIDTH, Tile
from gui.monitor.gpus.watched_gpu import EnergyCounters, WatchedGpu
from gui.plots.group import PlotGroup
from gui.sources.devices.history import DeviceHistory
from gui.widgets.tab_order import order_tabs

GAP = 8
SHAPE = 2.2
"""Best ratio of a tile's width to its height."""


def columns_for(count: int, width: int, height: int) -> int:
    """Return the number of columns that makes `count` tiles largest, or the most that fit side by side."""
    max_columns = max(1, min(count, (width + GAP) // (MIN_WIDTH + GAP)))
    best, best_size = max_columns, 0.0
    for columns in range(1, max_columns + 1):
        rows = -(-count // columns)
        tile_height = (height + GAP) / rows - GAP
        tile_width = (width + GAP) / columns - GAP
        size = min(tile_width / SHAPE, tile_height)
        if tile_height >= MIN_HEIGHT and size > best_size:
            best, best_size = columns, size
    return best


class TilesView(QScrollArea):
    """Grid of tiles.

    Signals:
        opened(str): the user wants the detail of the GPU of this key.
        reset_energy(str): the user wants to reset its energy counter.
    """

    opened = Signal(str)
    reset_energy = Signal(str)

    def __init__(self, group: PlotGroup, energy: EnergyCounters, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._group = group
        self._energy = energy
        self.tiles: dict[str, Tile] = {}
        self._gpus: dict[str, WatchedGpu] = {}
        self._history: DeviceHistory | None = None
        self._columns = 0
        self._inside = QWidget()
        self._grid = QGridLayout(self._inside)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(GAP)
        self.setWidget(self._inside)
        group.cursor_changed.connect(self._read_cursor)

    def show_gpus(self, gpus: Sequence[WatchedGpu], history: DeviceHistory) -> None:
        """Show `gpus` in this order."""
        self._history = history
        order = list(self._gpus)
        self._gpus = {each.key: each for each in gpus}
        if list(self._gpus) != order:
            self._arrange()
        for each in gpus:
            self.tiles[each.key].show_gpu(each, history)

    @property
    def columns(self) -> int:
        return self._columns

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._gpus and self._columns_now() != self._columns:
            self._arrange()

    def _columns_now(self) -> int:
        return columns_for(len(self._gpus), self.viewport().width(), self.viewport().height())

    def _arrange(self) -> None:
        """Create and remove tiles, and place them."""
        for key in [key for key in self.tiles if key not in self._gpus]:
            self.tiles.pop(key).deleteLater()
        for key, each in self._gpus.items():
            if key not in self.tiles:
                tile = self.tiles[key] = Tile(each, self._group, self._energy)
                tile.opened.connect(self.opened)
                tile.reset_energy.connect(self.reset_energy)
        before = self._columns
        self._columns = self._columns_now()
        for index, key in enumerate(self._gpus):
            self._grid.addWidget(self.tiles[key], index // self._columns, index % self._columns)
        for column in range(max(before, self._columns)):
            self._grid.setColumnStretch(column, int(column < self._columns))
        order_tabs(self._inside, [self.tiles[key] for key in self._gpus])

    def _read_cursor(self) -> None:
        if self._history is None or not self.isVisible():
            return
        for key, each in self._gpus.items():
            self.tiles[key].show_figures(each, self._history)
