"""The window: makes the parts, connects them, and knows nothing that is not in one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QKeySequence, QPaintEvent, QShortcut
from PySide6.QtWidgets import QMainWindow, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from engine.contract.dataset import DatasetReport
from engine.contract.devices import Snapshot
from engine.contract.job import Job
from engine.contract.problems import Problem
from gui.form.form import JobForm
from gui.form.task_detection import sample_job
from gui.header import PAGES, Header
from gui.sources.active_runs import ask_to_stop, count_going_on, run_to_show, runs_ahead
from gui.sources.background import expected_of_a_disk, in_background, raise_again
from gui.sources.inspector import Inspector
from gui.sources.settings import Settings
from gui.status_bar import PAUSE_KEY, StatusBar
from gui.widgets.message_line import MessageLine
from gui.widgets.tab_order import order_tabs

if TYPE_CHECKING:
    from engine.contract.events import Verdict
    from engine.runs.folder import RunFolder
    from gui.help import HelpWindow
    from gui.sources.launcher import Launcher
    from gui.sources.prefill import Prefill
    from gui.workspace import Workspace

TRAIN, MONITOR, RUNS = range(len(PAGES))
COUNT_EVERY_MS = 3000

_NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


class MainWindow(QMainWindow):
    """Signals: completed() - the pages, the devices and the last run are on screen too."""

    completed = Signal()

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.setWindowTitle("Footplate")
        self.setAcceptDrops(True)
        self.settings = settings or Settings()
        self.header = Header()
        self.form = JobForm()
        self.form.setAccessibleName("Job")
        self.devices_place = QWidget()
        self.devices_place.setObjectName("panel")
        self.pages = QStackedWidget()
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.message = MessageLine()
        self.status = StatusBar()
        self.inspector = Inspector(self)
        self.workspace: Workspace | None = None
        self.help: HelpWindow | None = None
        self._counter = QTimer(self)
        self._closing = False
        self._painted = False
        self._lay_out()
        self._connect()
        self._shortcuts()
        self._restore()
        last = self.settings.last_job()
        job = last or sample_job()
        self._wanted_devices = job.devices if self.settings.job_file.is_file() else None
        self.form.set_job(job)
        if last is None:
            self.form.recipes.begin()
        self.form.train.setFocus()

    def show_message(self, text: str) -> None:
        """Says one line about the window itself."""
        self.message.say(text)

    def show_run(self, run: RunFolder) -> None:
        """Shows `run`, past or present, on the first page."""
        if self.workspace is not None:
            self.workspace.open_run(run)
            self.header.show_page(TRAIN)

    def show_help(self) -> None:
        """Opens the user's guide, or brings it to the front."""
        if self.help is None:
            from gui.help import HelpWindow

            self.help = HelpWindow(self)
        self.help.show()
        self.help.raise_()
        self.help.activateWindow()

    def _say_if_any(self, problem: str) -> None:
        if problem:
            self.show_message(problem)

    # Making it

    def _lay_out(self) -> None:
        self.splitter.setHandleWidth(5)
        self.splitter.setChildrenCollapsible(False)
        for widget in (self.devices_place, self.pages, self.form):
            self.splitter.addWidget(widget)
        self.devices_place.setMinimumWidth(290)
        self.pages.setMinimumWidth(360)
        self.form.setMinimumWidth(330)
        self.splitter.setStretchFactor(1, 1)
        central = QWidget()
        central.setObjectName("window")
        layout = QVBoxLayout(central)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(5)
        layout.addWidget(self.header)
        layout.addWidget(self.splitter, 1)
        layout.addWidget(self.message)
        layout.addWidget(self.status)
        self.setCentralWidget(central)

    def _connect(self) -> None:
        self.header.page_chosen.connect(self._show_page)
        self.header.panel_toggled.connect(self._toggle_panel)
        self.header.help_wanted.connect(self.show_help)
        self.form.folder_chosen.connect(self._inspect)
        self.form.changed.connect(self._show_status)
        self.inspector.progress.connect(self.form.card.show_progress)
        self.inspector.done.connect(self._inspected)
        self.inspector.failed.connect(self._inspection_failed)
        self.status.stop_requested.connect(self._stop)
        self.status.pause_requested.connect(self._pause_or_resume)
        self.status.resume_requested.connect(self._pause_or_resume)
        self._counter.timeout.connect(self._count_running)

    def _shortcuts(self) -> None:
        for keys, act in (
            ("Ctrl+Return", self.form.start),
            ("Ctrl+Enter", self.form.start),
            (PAUSE_KEY, self._pause_or_resume),
            ("Ctrl+.", self._stop),
            ("Ctrl+O", self._browse),
            ("Ctrl+1", lambda: self.header.show_page(TRAIN)),
            ("Ctrl+2", lambda: self.header.show_page(MONITOR)),
            ("Ctrl+3", lambda: self.header.show_page(RUNS)),
            ("Ctrl+Q", self.close),
        ):
            QShortcut(QKeySequence(keys), self).activated.connect(act)

    def _restore(self) -> None:
        self.resize(1280, 800)
        geometry = self.settings.bytes("geometry")
        if geometry is not None:
            self.restoreGeometry(geometry)
        sizes = self.settings.bytes("splitter")
        if sizes is not None:
            self.splitter.restoreState(sizes)
        else:
            self.splitter.setSizes([290, 605, 375])
        self.header.devices.setChecked(self.settings.flag("show_devices", True))
        self.header.job.setChecked(self.settings.flag("show_job", True))

    # After the first paint

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._painted:
            self._painted = True
            QTimer.singleShot(0, self, self.complete)

    def complete(self) -> None:
        """Adds what costs more time to import than a window may take to show: pages, graphs and devices."""
        if self.workspace is not None or self._closing:
            return
        from gui.workspace import Workspace

        self.workspace = Workspace(self.settings, self)
        for page in self.workspace.pages:
            self.pages.addWidget(page)
        self.devices_place.setObjectName("")
        index = self.splitter.indexOf(self.devices_place)
        sizes = self.splitter.sizes()
        hidden = self.devices_place.isHidden()
        self.splitter.replaceWidget(index, self.workspace.devices)
        self.devices_place.deleteLater()
        self.devices_place = self.workspace.devices
        self.devices_place.setHidden(hidden)
        self.workspace.monitor.set_panel_shown(not hidden)
        self.splitter.setSizes(sizes)
        self._order_tabs()
        self._connect_workspace(self.workspace)
        if self._wanted_devices is not None:
            self.workspace.devices.set_selection(self._wanted_devices)
        self.form.set_devices(self.workspace.devices.selection())
        self._show_page(self.header.tabs.currentIndex())
        self.workspace.start()
        in_background(run_to_show, self, self._show_first_run, self._trouble)
        self._counter.start(COUNT_EVERY_MS)
        self.completed.emit()

    def _order_tabs(self) -> None:
        order_tabs(self, (self.header, self.devices_place, self.pages, self.form, self.message, self.status))

    def _connect_workspace(self, workspace: Workspace) -> None:
        workspace.devices.selection_changed.connect(lambda: self.form.set_devices(workspace.devices.selection()))
        workspace.hosts.local.snapshot.connect(self._snapshot)
        workspace.monitor.told.connect(self.message.say)
        workspace.monitor.stop_run.connect(self._stop_other)
        workspace.notices.pressed.connect(self._show_alerts)
        workspace.alerts.told.connect(self._say_if_any)
        self._say_if_any(workspace.alerts.problem)
        workspace.store.changed.connect(self._show_status)
        workspace.store.finished.connect(lambda _outcome: self._count_running())
        # A run's page is made when the first run is opened.
        workspace.store.opened.connect(self._order_tabs, Qt.ConnectionType.QueuedConnection)
        workspace.runs.run_chosen.connect(self.show_run)
        workspace.runs.compare_wanted.connect(self._compare)
        workspace.runs.resume_wanted.connect(self._go_on)
        workspace.runs.guest_wanted.connect(self._invite)
        workspace.runs.told.connect(self.message.say)
        workspace.run.next_time_wanted.connect(self._use_next_time)
        workspace.run.verdict_wanted.connect(self._follow_verdict)
        workspace.run.told.connect(self.message.say)
        workspace.dataset.closed.connect(self._dataset_closed)
        workspace.dataset.show_report(self.form.inspection.report)
        workspace.dataset.set_job(self.form.job)
        workspace.cut.closed.connect(self._cut_closed)
        workspace.cut.wanted.connect(self._show_cut)
        workspace.cut.used.connect(self.form.cuts.set_value)
        for field, page in workspace.finders.items():
            page.closed.connect(partial(self._finder_closed, field))
            page.wanted.connect(partial(self._show_finder, field))
            page.used.connect(partial(self.form.set_value, field))
            self.form.changed.connect(lambda page=page: page.set_job(self._cut_job()))
        workspace.launcher.started.connect(self._started)
        workspace.launcher.failed.connect(self._not_started)
        self.form.train_requested.connect(self._train)
        self.form.go_on_requested.connect(self._go_on)
        self.form.prefill_mode.devices_wanted.connect(workspace.devices.set_selection)
        self.form.touched.connect(workspace.launcher.touch)
        self.form.cut_wanted.connect(self._show_cut)
        self.form.finder_wanted.connect(self._show_finder)
        self.form.card.gallery_wanted.connect(self._show_dataset)
        self.form.inspection.changed.connect(lambda: workspace.dataset.show_report(self.form.inspection.report))
        self.form.changed.connect(lambda: workspace.cut.set_job(self._cut_job()))
        self.form.changed.connect(lambda: workspace.dataset.set_job(self.form.job))

    # What happens

    def _snapshot(self, snapshot: Snapshot) -> None:
        if self.workspace is not None:
            self.workspace.run.set_machine(snapshot)
            self.form.set_machine(snapshot)

    def _inspect(self, job: Job | None) -> None:
        if job is not None and not self._closing:
            self.inspector.start(job)
        else:
            self.inspector.cancel()

    def _inspected(self, report: DatasetReport) -> None:
        self.form.set_report(report)

    def _inspection_failed(self, text: str) -> None:
        self.form.card.clear(text)
        self.form.set_report(None)

    def _train(self, job: Job) -> None:
        launcher = self._free_launcher()
        if launcher is not None:
            launcher.start(job)
            self._remember_job()

    def _go_on(self, run: RunFolder, changes: Mapping[str, Any] = _NO_CHANGES) -> None:
        launcher = self._free_launcher()
        if launcher is not None:
            launcher.go_on(run, changes)

    def _free_launcher(self) -> Launcher | None:
        """What starts a run, after it has been said that one is made ready; None while another one is."""
        if self.workspace is None or self.workspace.launcher.busy:
            return None
        self.form.set_starting(True)
        self.status.show_idle("Starting · making the run ready")
        return self.workspace.launcher

    def _invite(self, prefill: Prefill) -> None:
        """Puts another run's job into the form, to go on with or forked."""
        self.header.job.setChecked(True)
        self.form.prefill_mode.begin(prefill)

    def _follow_verdict(self, run: RunFolder, verdict: Verdict) -> None:
        """Puts the job of a run that has ended into the form, as it would do better."""
        from gui.sources.resume_fork import to_follow

        in_background(
            lambda: to_follow(run.summary(), verdict),
            self,
            self._invite,
            lambda error: self.show_message(f"The job of {run.run_id} cannot be put into the form: {error}"),
        )

    def _started(self, run: RunFolder) -> None:
        self.form.set_started()
        self.show_run(run)
        if self.workspace is not None:
            self.workspace.store.expect()
            self.workspace.runs.refresh()

    def _not_started(self, problems: list[Problem]) -> None:
        if self.form.asked:
            self.form.set_start_problems(problems)
        else:
            self.form.set_starting(False)
            self.show_message(" ".join(map(str, problems)))
        self._show_status()

    def _show_first_run(self, run: RunFolder | None) -> None:
        if (
            run is not None
            and self.workspace is not None
            and not self.workspace.has_run
            and not self.workspace.launcher.busy
        ):
            self.workspace.open_run(run)

    def _trouble(self, error: Exception) -> None:
        self.show_message(f"The list of runs cannot be read: {error}")

    def _look_ahead(self) -> None:
        in_background(runs_ahead, self, self.form.set_ahead, expected_of_a_disk)

    def _count_running(self) -> None:
        self._look_ahead()
        in_background(count_going_on, self, lambda counts: self.header.show_running(*counts), expected_of_a_disk)

    def _stop(self) -> None:
        if self.workspace is not None and self.status.stop.isEnabled():
            self.workspace.store.stop()

    def _pause_or_resume(self) -> None:
        """Whichever of the two the status bar offers."""
        run = self.workspace.store.run if self.workspace is not None else None
        if self.workspace is None or run is None:
            return
        if not self.status.resume.isHidden():
            self._go_on(run)
        elif self.status.pause.isEnabled():
            self.workspace.store.pause()

    def _stop_other(self, run_id: str) -> None:
        """Asks a run to stop that need not be the one on screen."""
        in_background(
            lambda: ask_to_stop(run_id),
            self,
            lambda run: self.message.say(f"{run.run_id} stops after the step in hand.", "info"),
            lambda error: self.show_message(f"{run_id} could not be asked to stop: {error}"),
        )

    def _show_alerts(self) -> None:
        """Comes forward with the alerts, as asked for on the desktop."""
        if self.workspace is not None:
            from gui.monitor.toolbar import ALERTS

            self.header.show_page(MONITOR)
            self.workspace.monitor.show_view(ALERTS)
            self.raise_()
            self.activateWindow()

    def _browse(self) -> None:
        self.header.job.setChecked(True)
        self.form.browse()

    def _show_page(self, number: int) -> None:
        self.pages.setCurrentIndex(number)
        if self.workspace is not None and number == RUNS:
            self.workspace.runs.refresh()

    def _compare(self, run_ids: list[str]) -> None:
        if self.workspace is None:
            return
        page = self.workspace.comparison()
        if self.pages.indexOf(page) < 0:
            self.pages.addWidget(page)
            page.closed.connect(self._comparison_closed)
            page.told.connect(self.message.say)
            self._order_tabs()
        page.show_runs(run_ids)
        self.pages.setCurrentWidget(page)
        page.controls.over.setFocus()

    def _comparison_closed(self) -> None:
        self.header.show_page(RUNS)
        if self.workspace is not None:
            self.workspace.runs.table.setFocus()

    def _show_cut(self) -> None:
        if self.workspace is not None:
            self.workspace.cut.show_job(self._cut_job(), self.form.problems, self.form.device_names())
            self.pages.setCurrentWidget(self.workspace.cut)

    def _cut_closed(self) -> None:
        self._show_page(self.header.tabs.currentIndex())
        self.form.cuts.show_button.setFocus()

    def _show_finder(self, field: str) -> None:
        if self.workspace is not None:
            page = self.workspace.finders[field]
            page.show_job(self._cut_job(), self.form.problems)
            self.pages.setCurrentWidget(page)

    def _finder_closed(self, field: str) -> None:
        self._show_page(self.header.tabs.currentIndex())
        self.form.find_buttons[field].setFocus()

    def _show_dataset(self, place: int) -> None:
        """The dataset large, from the example at `place` on, as the form's augmentation would make it."""
        if self.workspace is not None:
            page = self.workspace.dataset
            page.show_augmented(self.form.rows["augmentation"].value() != "none")
            self.pages.setCurrentWidget(page)
            page.choose(place)

    def _dataset_closed(self) -> None:
        self._show_page(self.header.tabs.currentIndex())
        self.form.card.open.setFocus()

    def _cut_job(self) -> Job | None:
        from gui.sources.launcher import resolved

        return resolved(self.form.job) if self.form.job is not None else None

    def _use_next_time(self, field: str, value: object) -> None:
        row = self.form.rows.get(field)
        if row is not None:
            self.form.set_value(field, value)
            self.header.job.setChecked(True)
            self.message.say(f"{row.field.label} is set to {value} in the form, for the next run.", "info")

    def _toggle_panel(self, panel: str, shown: bool) -> None:
        (self.devices_place if panel == "devices" else self.form).setVisible(shown)
        if panel == "devices" and self.workspace is not None:
            self.workspace.monitor.set_panel_shown(shown)

    def _show_status(self) -> None:
        if self.workspace is not None and self.workspace.launcher.busy:
            return
        store = self.workspace.store if self.workspace is not None and self.workspace.has_run else None
        if store is not None and (store.active or not self.form.checking):
            self.status.show_run(store.status)
        elif self.form.checking:
            self.status.show_idle("Checking · looking through the dataset folder")
        else:
            ready = self.form.train.isEnabled()
            self.status.show_idle("Idle · ready to train" if ready else "Idle · the job is not ready yet")

    # Dropping and closing

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _dropped(event):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        paths = _dropped(event)
        if paths:
            event.acceptProposedAction()
            in_background(lambda: _first_folder(paths), self, self._take_folder, raise_again)

    def _take_folder(self, folder: str | None) -> None:
        if folder is not None:
            self.form.set_dataset(folder)

    def closeEvent(self, event: QCloseEvent) -> None:
        self._closing = True
        self._counter.stop()
        self.settings.set("geometry", self.saveGeometry())
        self.settings.set("splitter", self.splitter.saveState())
        self.settings.set("show_devices", self.header.devices.isChecked())
        self.settings.set("show_job", self.header.job.isChecked())
        self._remember_job()
        self.inspector.close()
        if self.help is not None:
            self.help.close()
        if self.workspace is not None:
            self.workspace.close()
        super().closeEvent(event)

    def _remember_job(self) -> None:
        """Keeps the form's own job for the next time, where there is one."""
        try:
            if self.form.prefill_mode.own_job is not None:
                self.settings.remember_job(self.form.prefill_mode.own_job)
        except OSError as error:
            self.show_message(f"The job cannot be kept for the next time: {error.strerror} ({error.filename}).")


def _dropped(event: QDropEvent) -> list[str]:
    """The paths of what is dragged from this machine's file manager."""
    return [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]


def _first_folder(paths: Sequence[str]) -> str | None:
    return next(filter(os.path.isdir, paths), None)
