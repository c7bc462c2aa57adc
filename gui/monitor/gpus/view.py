"""Views of the GPUs: as tiles, as rows, or the details of one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from gui.monitor.gpus.compact import CompactView
from gui.monitor.gpus.detail import GpuDetail
from gui.monitor.gpus.tiles import TilesView
from gui.monitor.gpus.watched_gpu import EnergyCounters, LoadOrder, WatchedGpu
from gui.plots.group import PlotGroup
from gui.sources.devices.history import DeviceHistory
from gui.widgets.labels import EmptyState


class GpusView(QStackedWidget):
    """Stack of the GPU views.

    Signals:
        view_changed(): the visible view (tiles, rows, or details) or its quantities have changed.
    """

    view_changed = Signal()

    def __init__(self, history: DeviceHistory, group: PlotGroup) -> None:
        super().__init__()
        self._history, self._group = history, group
        self._load_order = LoadOrder()
        self._by_load = False  # True to show the busiest GPUs first
        self._compact = False  # True to show a row per GPU instead of tiles
        self._detail_key = ""  # key of the GPU with a detail page, or ""
        self._visible_view: tuple[QWidget | None, bool] = (None, False)  # and its `shows_activity`
        self._gpus: list[WatchedGpu] = []
        self.energy = EnergyCounters()
        self.empty = EmptyState()
        self.tiles = TilesView(group, self.energy)
        self.lines = CompactView()
        for widget in (self.empty, self.tiles, self.lines):
            self.addWidget(widget)
        self.tiles.opened.connect(self.open)
        self.lines.opened.connect(lambda index: self.open(self.lines.gpus.rows[index.row()].key))
        self.tiles.reset_energy.connect(self.reset_energy)

    @cached_property
    def detail(self) -> GpuDetail:
        """Detail view of a GPU, which is created when it is first needed."""
        detail = GpuDetail(self._group, self.energy)
        detail.reset_energy.connect(self.reset_energy)
        detail.closed.connect(self.close_detail)
        self.addWidget(detail)
        return detail

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the visible GPUs: only the GPU whose details are open, or all GPUs in the overview."""
        return (self._detail_key,) if self._detail_key else tuple(watched.key for watched in self._gpus)

    @property
    def shows_activity(self) -> bool:
        """True if the activity of multiprocessors is visible. Compact rows show it only for MIG instances."""
        if self.currentWidget() is self.lines:
            return any(watched.gpu.mig is not None for watched in self._gpus)
        return self.currentWidget() is not self.empty

    def show_gpus(self, gpus: Sequence[WatchedGpu], empty: str) -> None:
        """Show `gpus`, or the text `empty` if there are none."""
        self._gpus = self._load_order.sort(list(gpus), self._history) if self._by_load else list(gpus)
        self.empty.setText(empty)
        self._show_requested_view()

    def set_compact(self, compact: bool) -> None:
        """Show a row per GPU if `compact`, otherwise tiles. The details of a GPU are closed."""
        self._compact = compact
        self.close_detail()
        self._show_requested_view()

    def set_by_load(self, by_load: bool) -> None:
        """Sort the GPUs by load from the next call of `show_gpus` on, or stop sorting them."""
        self._by_load = by_load
        self._load_order = LoadOrder()

    def open(self, key: str) -> None:
        """Show the details of the GPU with this key."""
        self._detail_key = key
        self._show_requested_view()
        self.detail.back.setFocus()

    def close_detail(self) -> None:
        """Return to the overview and focus the GPU whose details were visible."""
        previous, self._detail_key = self._detail_key, ""
        if previous:
            self._show_requested_view()
            if self._compact:
                self.lines.setFocus()
            elif previous in self.tiles.tiles:
                self.tiles.tiles[previous].setFocus()

    def reset_energy(self, key: str = "") -> None:
        """Reset the energy counter of the GPU with this key, or of all GPUs if `key` is ""."""
        self.energy.reset(key or None)
        self._show_requested_view()

    def _show_requested_view(self) -> None:
        """Show the details of the opened GPU, the overview, or a text if there are no GPUs, with current values.

        Emits `view_changed` if another view or other quantities are visible afterwards.
        """
        opened = next((watched for watched in self._gpus if watched.key == self._detail_key), None)
        view: QWidget
        if not self._gpus:
            view = self.empty
        elif opened is not None:
            view = self.detail
            self.detail.show_gpu(opened, self._gpus, self._history)
        elif self._compact:
            view = self.lines
            self.lines.show_gpus(self._gpus)
        else:
            view = self.tiles
            self.tiles.show_gpus(self._gpus, self._history)
        self.setCurrentWidget(view)
        visible_view = view, self.shows_activity
        if visible_view != self._visible_view:
            self._visible_view = visible_view
            self.view_changed.emit()
