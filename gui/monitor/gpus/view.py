"""All GPUs at a glance, as tiles or as lines, and one of them in detail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from gui.monitor.gpus.compact import CompactView
from gui.monitor.gpus.detail import GpuDetail
from gui.monitor.gpus.energy import EnergyMarks
from gui.monitor.gpus.tiles import TilesView
from gui.monitor.gpus.watched_gpu import LoadOrder, WatchedGpu
from gui.plots.group import PlotGroup
from gui.sources.devices.history import DeviceHistory
from gui.widgets.empty_state import EmptyState


class GpusView(QStackedWidget):
    """Signals: looked_at() - another of its faces is shown (tiles, lines, or a detail), or it shows other
    quantities.
    """

    looked_at = Signal()

    def __init__(self, history: DeviceHistory, group: PlotGroup, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._history, self._group = history, group
        self._order = LoadOrder()
        self._by_load = False
        self._compact = False
        self._opened = ""
        self._looked_at: tuple[QWidget | None, bool] = (None, False)
        self._gpus: list[WatchedGpu] = []
        self.energy = EnergyMarks()
        self.empty = EmptyState()
        self.tiles = TilesView(group, self.energy)
        self.lines = CompactView()
        for widget in (self.empty, self.tiles, self.lines):
            self.addWidget(widget)
        for view in (self.tiles, self.lines):
            view.opened.connect(self.open)
        self.tiles.count_anew.connect(self.count_anew)

    @cached_property
    def detail(self) -> GpuDetail:
        """The face of one GPU, made when it is first looked at."""
        detail = GpuDetail(self._group, self.energy)
        detail.count_anew.connect(self.count_anew)
        detail.closed.connect(self.close_detail)
        self.addWidget(detail)
        return detail

    @property
    def keys(self) -> tuple[str, ...]:
        """The GPUs in sight."""
        return (self._opened,) if self._opened else tuple(each.key for each in self._gpus)

    @property
    def shows_activity(self) -> bool:
        """Whether the figures of SMs and tensor cores have a place in what is shown: among the lines, for MIG
        instances, which tell no utilization.
        """
        if self.currentWidget() is self.lines:
            return any(each.gpu.mig is not None for each in self._gpus)
        return self.currentWidget() is not self.empty

    def show_gpus(self, gpus: Sequence[WatchedGpu], empty: str) -> None:
        """Shows `gpus`; where there are none, `empty` says why."""
        self._gpus = self._order.sort(list(gpus), self._history) if self._by_load else list(gpus)
        self.empty.setText(empty)
        self._show()

    def set_compact(self, compact: bool) -> None:
        self._compact = compact
        self.close_detail()
        self._show()

    def set_by_load(self, by_load: bool) -> None:
        self._by_load = by_load
        self._order = LoadOrder()

    def open(self, key: str) -> None:
        """Shows the detail of one GPU."""
        self._opened = key
        self._show()
        self.detail.back.setFocus()

    def close_detail(self) -> None:
        """Goes back to all GPUs, and to the one that was shown."""
        was, self._opened = self._opened, ""
        if was:
            self._show()
            there = self.lines.rows if self._compact else self.tiles.tiles
            if was in there:
                there[was].setFocus()

    def count_anew(self, key: str = "") -> None:
        """Counts the energy of one GPU, or of all, from now on."""
        self.energy.start_anew(key or None)
        self._show()

    def _show(self) -> None:
        """Brings the face that is wanted to the front, and up to date."""
        opened = next((each for each in self._gpus if each.key == self._opened), None)
        face: QWidget
        if not self._gpus:
            face = self.empty
        elif opened is not None:
            face = self.detail
            self.detail.show_gpu(opened, self._gpus, self._history)
        elif self._compact:
            face = self.lines
            self.lines.show_gpus(self._gpus)
        else:
            face = self.tiles
            self.tiles.show_gpus(self._gpus, self._history)
        self.setCurrentWidget(face)
        looked_at = face, self.shows_activity
        if looked_at != self._looked_at:
            self._looked_at = looked_at
            self.looked_at.emit()
