"""The parts that are made after the first paint: the pages, the devices and what feeds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from engine.contract.devices import Snapshot
from engine.runs.folder import RunFolder
from gui.alerts.notifications import DesktopNotices
from gui.alerts.watcher import Alerts
from gui.cut.page import CutPage
from gui.dataset.page import DatasetPage
from gui.devices.panel import DevicesPanel
from gui.monitor.page import MonitorPage
from gui.run.page import RunPage
from gui.runs.page import RunsPage
from gui.sources.devices.hosts import Hosts
from gui.sources.launcher import Launcher
from gui.sources.remote_runs import FollowedRun
from gui.sources.run_intervals import RunIntervals
from gui.sources.run_list import RunList
from gui.sources.run_session import RunSession
from gui.sources.settings import Settings
from gui.sources.slurm_watch import SlurmWatch

if TYPE_CHECKING:
    from gui.compare.page import ComparePage
    from gui.finders.page import FinderPage
    from gui.search.page import SearchPage


class Workspace(QObject):
    """Owns the run on screen, what watches the devices, and the launcher."""

    def __init__(self, settings: Settings, parent: QObject) -> None:
        super().__init__(parent)
        self.hosts = Hosts(self)
        self.history = self.hosts.history
        self.run_list = RunList(self)
        self.marks = RunIntervals(self)
        self.alerts = Alerts(self)
        self.notices = DesktopNotices(self.alerts, self)
        self.devices = DevicesPanel(self.history)
        self.devices.set_hosts(self.hosts.names)
        self.store = RunSession(self)
        self.followed = FollowedRun(self)
        self.launcher = Launcher(self)
        self.run = RunPage(self.store, settings)
        self.monitor = MonitorPage(self.hosts, self.marks, self.alerts, settings)
        self.runs = RunsPage(self.run_list)
        self.cut = CutPage()
        self.finders: dict[str, FinderPage] = {}
        self.dataset = DatasetPage()
        self.compare: ComparePage | None = None
        self.search: SearchPage | None = None
        self.has_run = False
        self.hosts.snapshot.connect(self._seen)
        self.hosts.trouble.connect(self._troubled)
        self.hosts.changed.connect(lambda: self.devices.set_hosts(self.hosts.names))

        self.hosts.removed.connect(self.alerts.forget_host)
        self.run_list.complete.connect(lambda read: self.marks.show(read.intervals, read.unread))
        self.slurm = SlurmWatch(self)
        self.run_list.complete.connect(self.slurm.poll)
        self.slurm.changed.connect(self.run_list.refresh)
        self.store.opened.connect(self.run_list.refresh)
        self.store.finished.connect(lambda _outcome: self.run_list.refresh())

    @property
    def pages(self) -> tuple[QWidget, ...]:
        """Those that the header leads to, in its order, then the cut and the dataset."""
        return self.run, self.monitor, self.runs, self.cut, self.dataset

    def start(self) -> None:
        """Begins to watch the devices, has a warm parent made ready and looks for runs that were interrupted."""
        self.hosts.start()
        self.launcher.touch()
        self.run_list.start()
        self.runs.look_around()

    def open_run(self, run: RunFolder) -> None:
        if self.followed.run is not None and run is not self.followed.run:
            self.followed.close()
        self.store.open(run)
        self.has_run = True

    def finder(self, field: str) -> FinderPage:
        """The page that finds a value for `field` by trials, which is made when it is first asked for."""
        if field not in self.finders:
            from gui.advice.page import AdvicePage
            from gui.finders.batch_size import BatchPage
            from gui.finders.learning_rate import RatePage

            makers: dict[str, Callable[[], FinderPage]]
            makers = {"learning_rate": RatePage, "batch_size": BatchPage, "strategy": AdvicePage}
            self.finders[field] = makers[field]()
        return self.finders[field]

    def comparison(self) -> ComparePage:
        """The page that compares runs, which is made when it is first asked for."""
        from gui.compare.page import ComparePage

        self.compare = self.compare or ComparePage()
        return self.compare

    def searches(self) -> SearchPage:
        """The page of searches, which is made when it is first asked for."""
        from gui.search.page import SearchPage

        self.search = self.search or SearchPage()
        return self.search

    def close(self) -> None:
        """Ends what belongs to the window alone; runs go on."""
        self.store.finish()
        self.store.close()
        self.followed.close()
        self.hosts.stop()
        self.run_list.close()
        self.slurm.close()
        self.monitor.close_work()
        self.runs.close_reading()
        if self.compare is not None:
            self.compare.close_reading()
        if self.search is not None:
            self.search.close_reading()
        self.cut.planner.close()
        for page in self.finders.values():
            page.child.close()
        self.dataset.renderer.close()
        self.run.close_work()
        self.launcher.close()

    def _seen(self, host: str, snapshot: Snapshot) -> None:
        self.devices.update_snapshot(snapshot, host)
        if not host:
            self.runs.orphans.set_machine(snapshot)
        self.alerts.consider(host, snapshot, self.marks.holding())

    def _troubled(self, host: str, words: str) -> None:
        self.devices.show_trouble(words, host)
        self.alerts.trouble(host, words)
