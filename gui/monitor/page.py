"""Monitor page: GPUs of this machine and of others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QFileDialog, QWidget

from engine.contract.devices import SnapshotRequest
from engine.gpus.quantities import QUANTITIES
from gui.alerts.cards import AlertBanner
from gui.alerts.view import AlertsView
from gui.alerts.watcher import Alerts
from gui.format import clock
from gui.monitor.gpus.view import GpusView
from gui.monitor.gpus.watched_gpu import LastSnapshots, list_watched_gpus
from gui.monitor.graphs import ACTIVITY, GraphsView
from gui.monitor.hosts import HostDialog, list_host_errors
from gui.monitor.processes.view import ProcessesView
from gui.monitor.toolbar import ALERTS, GPUS, GRAPHS, PROCESSES, SPANS, TOPOLOGY, MonitorToolbar
from gui.monitor.topology.view import TopologyView
from gui.plots.group import Mark, PlotGroup
from gui.sources.devices.hosts import Hosts
from gui.sources.export import copy_excerpt, save_image, save_in_background, write_csv
from gui.sources.run_intervals import RunInterval, RunIntervals
from gui.sources.settings import Settings
from gui.style import theme
from gui.titles import list_unread_runs
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import styled
from gui.widgets.file_dialogs import choose_target
from gui.widgets.layouts import FrontStack, vbox

_NO_GPU = tr("No NVIDIA GPU is installed in this machine.")
_SEARCHING = tr("Looking for GPUs…")
_NONE_MONITORED = tr("No GPU of this machine can be monitored.")
_ELSEWHERE = tr("The CPU is under Graphs. Use “Hosts…” to monitor other machines.")


class MonitorPage(QWidget):
    """Page with the devices of all hosts. All graphs share a time axis.

    A hidden page isn't refreshed. Samplers take readings that are expensive only while a view shows them.

    Signals:
        message(str, str): a text for the window's message line and its severity, "info" or "warning".
        stop_run(str): the user wants to stop the run with this id.
        settings_requested(str): the user wants to change the setting with this key.
    """

    message = Signal(str, str)
    stop_run = Signal(str)
    settings_requested = Signal(str)

    def __init__(self, hosts: Hosts, intervals: RunIntervals, alerts: Alerts, settings: Settings | None = None) -> None:
        super().__init__()
        styled(self, "panel")
        self._history = history = hosts.history
        self._hosts = hosts
        self._alerts = alerts
        self._intervals = intervals
        self._settings = settings or Settings()
        self._panel_visible = True  # True if the device cards next to this page are visible
        self._last_snapshots = LastSnapshots()
        self._dialog: HostDialog | None = None
        self.group = PlotGroup("clock", span=SPANS[0][1], parent=self)
        self.bar = MonitorToolbar()
        self.alert_banner = AlertBanner(alerts, self)
        self.errors = Banner(name=tr("Errors of the hosts"))
        self.gpus = GpusView(history, self.group)
        self.graphs = GraphsView(history, self.group, self._settings)
        # Views that may never be opened are built on demand.
        self._view_factories: dict[int, Callable[[], QWidget]] = {
            PROCESSES: self._make_processes,
            TOPOLOGY: lambda: TopologyView(hosts),
            ALERTS: self._make_alerts,
        }
        self._stack = FrontStack()
        for view in (self.gpus, self.graphs, *(QWidget() for _ in self._view_factories)):
            self._stack.addWidget(view)
        self.panes = (self._stack,)
        self.setLayout(
            vbox(self.bar, self.alert_banner, self.errors, (self._stack, 1), spacing=6, margins=(10, 6, 10, 8))
        )
        self._connect()
        self._restore()

    @property
    def request(self) -> SnapshotRequest:
        """Request that asks the samplers for the expensive readings that the visible views need."""
        visible, view = self.isVisible(), self._stack.currentIndex()
        has_activity_graph = view == GRAPHS and any(quantity in self.graphs.chosen for quantity in ACTIVITY)
        return SnapshotRequest(
            processes=self._panel_visible or (visible and view in (GPUS, PROCESSES)),
            activity=visible and (has_activity_graph or (view == GPUS and self.gpus.shows_activity)),
            details=visible,
        )

    @property
    def view(self) -> QWidget | None:
        """Visible view below the toolbar, or None before the first one has been created."""
        return self._stack.currentWidget()

    def show_view(self, view: int) -> None:
        """Open the view at an index of `toolbar.VIEWS`."""
        self.bar.show_view(view)

    def show_gpu(self, key: str) -> None:
        """Open the details of the GPU with this key."""
        self.show_view(GPUS)
        self.gpus.open(key)

    def set_panel_visible(self, visible: bool) -> None:
        """Set whether the devices panel next to this page is visible, and request the readings that its cards need."""
        self._panel_visible = visible
        self._send_request()

    def close_work(self) -> None:
        """End the background work of the views when the window closes."""
        alerts = self._stack.widget(ALERTS)
        if isinstance(alerts, AlertsView):
            alerts.runs.close_work()

    def refresh(self) -> None:
        """Show the last snapshots, errors and runs of all hosts in the visible view, unless the page is hidden."""
        if not self.isVisible():
            return
        latest = self._last_snapshots.fill(self._hosts.latest)
        unread = [list_unread_runs(self._intervals.unread)] if self._intervals.unread else []
        self.errors.show_message("\n".join([*list_host_errors(latest, self._hosts.errors), *unread]))
        all_gpus = list_watched_gpus(
            latest, self._hosts.errors, self._history.titles, self._intervals.run_names_by_gpu()
        )
        # A GPU from an older snapshot has no title once its last readings have expired.
        gpus = [watched for watched in all_gpus if watched.key in self._history.titles]
        theme.register_devices(watched.key for watched in gpus)
        self._update_marks()
        self._limit_time_range()
        if self._stack.currentWidget() is self.gpus:
            self.gpus.show_gpus(gpus, self._explain_empty_view())
        self.graphs.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()
        self._send_request()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._send_request()

    def _show_past(self) -> None:
        """Show in the toolbar which time range the graphs show, unless they follow the newest data."""
        low, high = (clock(x + self.group.origin) for x in self.group.range)
        text = "" if self.group.following else tr("Showing {low} – {high}").format(low=low, high=high)
        self.bar.show_past(text)

    def _connect(self) -> None:
        bar = self.bar
        bar.view_chosen.connect(self._show_view)
        bar.span_chosen.connect(self._choose_span)
        bar.compact_toggled.connect(self._set_compact)
        bar.load_toggled.connect(self._set_by_load)
        bar.acts["hosts"].on_trigger(self._show_hosts)
        bar.acts["csv"].on_trigger(self._save_csv)
        bar.acts["png"].on_trigger(lambda: self.ask_png(self._stack))
        bar.acts["energy"].on_trigger(self.gpus.reset_energy)
        bar.acts["newest"].on_trigger(self.group.follow)
        self.group.following_changed.connect(bar.show_following)
        for signal in (self.group.following_changed, self.group.range_changed):
            signal.connect(self._show_past)
        self.alert_banner.show_requested.connect(lambda: self.show_view(ALERTS))
        self.gpus.view_changed.connect(self._send_request)
        self.graphs.chosen_changed.connect(self._send_request)
        for source in (self._hosts.snapshot, self._hosts.error_changed, self._hosts.changed, self._intervals.changed):
            source.connect(self.refresh)

    def _restore(self) -> None:
        """Restore compact rows, sorting by load, and the time range from the last session."""
        self.bar.compact.setChecked(self._settings.flag("monitor_compact", False))
        self.bar.load.setChecked(self._settings.flag("monitor_by_load", False))
        titles = [title for title, _ in SPANS]
        saved_title = self._settings.text("monitor_span", titles[0])
        if saved_title in titles:
            self.bar.span.setCurrentIndex(titles.index(saved_title))
            self.group.set_span(self.bar.span.currentData())

    def _show_view(self, view: int) -> None:
        """Show the view at the index `view`, which is created at its first use.

        If the view of the GPUs is already visible, close the details of a GPU.
        """
        if view == GPUS and self._stack.currentIndex() == GPUS:
            self.gpus.close_detail()
        if view in self._view_factories:
            self._replace_placeholder(view, self._view_factories.pop(view)())
        self._stack.setCurrentIndex(view)
        self.refresh()
        self._send_request()

    def _replace_placeholder(self, view: int, widget: QWidget) -> None:
        current = self._stack.widget(view)
        self._stack.insertWidget(view, widget)
        if current is not None:
            self._stack.removeWidget(current)
            current.deleteLater()

    def _make_processes(self) -> ProcessesView:
        view = ProcessesView(self._hosts, self._intervals)
        view.stop_run.connect(self.stop_run)
        return view

    def _make_alerts(self) -> AlertsView:
        view = AlertsView(self._alerts)
        view.settings_requested.connect(self.settings_requested)
        return view

    def _set_compact(self, compact: bool) -> None:
        self._settings.set("monitor_compact", compact)
        self.gpus.set_compact(compact)

    def _set_by_load(self, by_load: bool) -> None:
        self._settings.set("monitor_by_load", by_load)
        self.gpus.set_by_load(by_load)
        self.refresh()

    def _choose_span(self, seconds: float) -> None:
        self._settings.set("monitor_span", self.bar.span.currentText())
        self.group.set_span(seconds)

    def _show_hosts(self) -> None:
        """Open the dialog with the list of hosts, or bring it to the front."""
        if self._dialog is None:
            self._dialog = HostDialog(self._hosts, self)
        self._dialog.show()
        self._dialog.raise_()
        self._dialog.activateWindow()
        self._dialog.name.setFocus()

    def _save_csv(self) -> None:
        """Ask for a file, and save the visible time range of the displayed devices."""
        low, high = (x + self._history.origin for x in self.group.range)
        if self._stack.currentIndex() == GRAPHS:
            self.ask_csv(self._history.devices, low, high, self.graphs.chosen)
        else:
            self.ask_csv(self.gpus.keys, low, high)

    def ask_csv(
        self, keys: Sequence[str], low: float, high: float, quantities: Sequence[str] | None = None
    ) -> QFileDialog:
        """Open a dialog for a CSV file, and write the readings of devices to the chosen file. Return the dialog.

        Args:
            keys: Keys of the devices. Devices that have vanished are left out.
            low: Start of the time range in seconds since the epoch.
            high: End of the time range.
            quantities: Ids of the quantities, or None for all.
        """
        chosen = [quantity.id for quantity in QUANTITIES] if quantities is None else quantities

        def save(path: Path) -> None:
            rows = copy_excerpt(self._history, [key for key in keys if key in self._history.titles], chosen, low, high)
            text = tr("The displayed values were saved to {path}.")
            save_in_background(lambda: write_csv(path, rows), self.message, text, self)

        return choose_target(self, tr("Save numbers"), _make_file_name("csv"), save)

    def ask_png(self, widget: QWidget) -> QFileDialog:
        """Open a dialog for a PNG file, and save an image of `widget` in the chosen file. Return the dialog."""
        return choose_target(
            self, tr("Save image"), _make_file_name("png"), lambda path: save_image(path, widget.grab(), self.message)
        )

    def _update_marks(self) -> None:
        """Show in the graphs when runs have started and ended."""
        self.group.origin = self._history.origin
        marks = [mark for run in self._intervals.intervals for mark in _create_run_marks(run, self._history.origin)]
        self.group.set_marks(marks)

    def _limit_time_range(self) -> None:
        """Limit the graphs to the time from the first to the last reading of any device."""
        devices = self._history.devices
        if devices:
            ends = [self._history.x(key)[[0, -1]] for key in devices]
            self.group.set_extent(float(min(first for first, _ in ends)), float(max(last for _, last in ends)))

    def _explain_empty_view(self) -> str:
        """Return the text for an empty view. Errors are shown in the banner above it."""
        local = self._hosts.latest.get("")
        if local is None:
            return _SEARCHING
        if local.nvml.status == "not_answering":
            return f"{_SEARCHING}\n\n{local.nvml.message}"
        return f"{_NO_GPU if local.nvml.status == 'ok' else _NONE_MONITORED}\n\n{_ELSEWHERE}"

    def _send_request(self) -> None:
        self._hosts.set_request(self.request)


def _make_file_name(suffix: str) -> str:
    """Return a name for an exported file that contains the current time and ends in `suffix`."""
    return f"footplate-{time.strftime('%Y-%m-%d-%H%M%S')}.{suffix}"


def _create_run_marks(run: RunInterval, origin: float) -> list[Mark]:
    """Return marks at the start and the end of a run, for the graphs of its devices. A waiting run has none.

    `origin` is the time at position 0 of the graphs, in seconds since the epoch.
    """
    if run.state == "waiting":
        return []
    devices = frozenset(run.devices)
    # Color the mark like the device that the run used. Colors are functions, since they change with the theme.
    color = _device_color(run.devices[0]) if len(devices) == 1 else _accent
    marks = [Mark(run.start - origin, run.name, color, of=devices)]
    if run.end is not None:
        marks.append(Mark(run.end - origin, f"{run.name}: {run.state}", _muted, ends=True, of=devices))
    return marks


@cache
def _device_color(key: str) -> Callable[[], str]:
    """Return a function that returns the color of the device with this key.

    Calls with the same key return the same function, so that marks with it compare equal.
    """
    return partial(theme.device_color, key)


def _accent() -> str:
    return theme.colors().accent


def _muted() -> str:
    return theme.colors().muted
