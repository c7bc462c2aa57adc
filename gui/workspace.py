"""Services and pages that are created after the first paint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import QObject, Signal

from engine.contract.devices import Snapshot
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from gui.actions import Actions
from gui.alerts.notifications import DesktopNotices
from gui.alerts.watcher import Alerts
from gui.devices.panel import DevicesPanel
from gui.devices.warnings import collect_warnings
from gui.monitor.page import MonitorPage
from gui.pages import PAGES, TABS, TabEntry
from gui.run.page import RunPage
from gui.runs.page import RunsPage
from gui.sources.devices.hosts import Hosts
from gui.sources.launcher import Launcher
from gui.sources.remote_runs import RunFollower
from gui.sources.run_intervals import RunIntervals
from gui.sources.run_list import RunList, SlurmWatch
from gui.sources.run_session import RunSession
from gui.sources.settings import Settings


class Workspace(QObject):
    """Owner of the open run, the monitored devices, the launcher and the pages.

    Attributes:
        entries: Pages that are created when they are first requested, by name; see `gui.pages`.
        created: Pages in `entries` that have been opened.

    Signals:
        page_created(str, QWidget): one of the `entries` has been opened for the first time.
    """

    page_created = Signal(str, object)

    def __init__(self, settings: Settings, actions: Actions, parent: QObject, tabs: Sequence[TabEntry] = TABS) -> None:
        super().__init__(parent)
        self.settings = settings
        self.hosts = Hosts(self)
        self.history = self.hosts.history
        self.run_list = RunList(self)
        self.intervals = RunIntervals(self)
        self.alerts = Alerts(self)
        self.notices = DesktopNotices(self.alerts, self)
        self.devices = DevicesPanel(self.history)
        self.devices.set_hosts(self.hosts.names)
        self.session = RunSession(self)
        self.followed = RunFollower(self)
        self.launcher = Launcher(self)
        self.run = RunPage(self.session, settings, actions)
        self.tabs: dict[str, Any] = {tab.name: tab.create(self) for tab in tabs if tab.factory}
        self.monitor: MonitorPage = self.tabs["monitor"]
        self.runs: RunsPage = self.tabs["runs"]
        self.entries = {entry.name: entry for entry in PAGES}
        self.created: dict[str, Any] = {}
        self.hosts.snapshot.connect(self._on_snapshot)
        self.hosts.error_changed.connect(self._on_host_problem)
        self.hosts.changed.connect(lambda: self.devices.set_hosts(self.hosts.names))
        self.hosts.removed.connect(self.alerts.forget_host)
        self.run_list.complete.connect(lambda listing: self.intervals.replace(listing.intervals, listing.unread))
        self.slurm = SlurmWatch(self)
        self.run_list.complete.connect(self.slurm.poll)
        self.slurm.changed.connect(self.run_list.refresh)
        self.session.opened.connect(self.run_list.refresh)
        self.session.finished.connect(lambda _outcome: self.run_list.refresh())

    @property
    def pages(self) -> tuple[Any, ...]:
        """Pages of the tabs after Train, in their order."""
        return tuple(self.tabs.values())

    def start(self) -> None:
        """Start monitoring devices and polling the runs folder, and preload the process that starts runs."""
        self.hosts.start()
        self.launcher.preload()
        self.run_list.start()

    def device_warnings(self) -> Mapping[str, tuple[Problem, ...]]:
        """Return the warnings about devices for the next run, by device id."""
        alerts, machine = self.alerts.device_warnings, self.hosts.latest.get("")
        if machine is None:
            return alerts
        return collect_warnings(alerts, machine, self.intervals.run_names_by_gpu(), self.devices.selection())

    def open_run(self, run: RunFolder) -> None:
        """Show a run on the Train page."""
        self.session.open(run)

    def close_run(self, run: RunFolder) -> None:
        """Stop showing a run. If it is on another machine, stop following it."""
        if self.followed.run is not None and run.path == self.followed.run.path:
            self.followed.close(wait=False)
        if self.session.run is not None and run.path == self.session.run.path:
            self.session.close()

    def get_page(self, name: str) -> Any:
        """Return the page of the entry with this name. If it is new, create it and emit `page_created`."""
        if name not in self.created:
            self.created[name] = self.entries[name].create(self)
            self.page_created.emit(name, self.created[name])
        return self.created[name]

    def close(self) -> None:
        """End the window's background work and child processes. Runs continue.

        Waits for work that must be completed, such as sending pending commands and creating a requested run.
        """
        self.session.finish()
        self.session.close()
        self.followed.close()
        self.hosts.stop()
        self.run_list.close()
        self.slurm.close()
        for page in (*self.pages, self.run, *self.created.values()):
            page.close_work()
        self.notices.close_work()
        self.launcher.close()

    def _on_snapshot(self, host: str, snapshot: Snapshot) -> None:
        self.devices.update_snapshot(snapshot, host)
        self.alerts.evaluate(host, snapshot, self.intervals.run_names_by_gpu())

    def _on_host_problem(self, host: str, text: str) -> None:
        self.devices.show_error(text, host)
        self.alerts.set_connection_error(host, text)
