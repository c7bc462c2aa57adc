"""The window: makes the parts, connects them, and knows nothing that is not in one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QPaintEvent
from PySide6.QtWidgets import QDialog, QMainWindow, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from engine.contract.devices import CPU, Snapshot
from engine.contract.job import Job
from gui.actions import MONITOR, RUNS, TRAIN, Actions
from gui.commands.commands import Commands, Parts
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.form.task_detection import sample_job
from gui.header import Header
from gui.page_panels import PagePanels
from gui.sources.background import in_background, reraise
from gui.sources.inspector import Inspector
from gui.sources.opened_path import Opened, read_paths
from gui.sources.settings import Settings
from gui.status_bar import StatusBar
from gui.widgets.banner import Banner
from gui.widgets.page_scroll import PageScroll
from gui.widgets.run_drag import is_of_runs
from gui.widgets.tab_order import tab

if TYPE_CHECKING:
    from engine.runs.folder import RunFolder
    from gui.help import HelpWindow
    from gui.run_control import RunControl
    from gui.tray import Tray
    from gui.workspace import Workspace

_AROUND = 80
"""Pixels of a screen's height kept for the title bar and, under Wayland, for panels, of which no desktop tells
beforehand."""


class MainWindow(QMainWindow):
    """Signals: completed() - the pages, the devices and the last run are on screen too; closed() - for good, and not
    to the tray.
    """

    completed = Signal()
    closed = Signal()

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.setWindowTitle("Footplate")
        self.setAcceptDrops(True)
        self.settings = settings or Settings()
        self.acts = Actions(self)
        self.header = Header(self.acts)
        self.job_panel = JobPanel(self.acts, self.settings)
        self.devices_holder = QWidget()
        self.devices_holder.setObjectName("panel")
        self.pages = QStackedWidget()
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.message = Banner(name="Message", close="Dismiss the message")
        self.status = StatusBar(self.acts)
        self.inspector = Inspector(self)
        self.workspace: Workspace | None = None
        self.help: HelpWindow | None = None
        self.tray: Tray | None = None
        self._closing = self._quitting = False
        self._painted = False
        self._lay_out()
        self.commands = self._make_commands()
        self._connect()
        self._restore()
        last = self.settings.last_job()
        job = last or sample_job()
        self._wanted_devices = job.devices if self.settings.job_file.is_file() else None
        self._is_first_start = last is None
        if last is None:
            self.form.show_new(job)
        else:
            self.form.set_job(job)

    @property
    def form(self) -> JobForm:
        """Form on screen."""
        return self.job_panel.form

    def show_message(self, text: str) -> None:
        """Says one line about the window itself."""
        self.message.say(text)

    def show_run(self, run: RunFolder) -> None:
        """Shows `run`, past or present, on the first page."""
        if self.workspace is not None:
            self.workspace.open_run(run)
            self.header.show_page(TRAIN)

    def show_form(self) -> None:
        """Brings the job to the front, beside the run."""
        self.header.show_page(TRAIN)
        self.acts.job_panel.setChecked(True)

    def show_help(self, page: str = "") -> None:
        """Opens the user's guide, at that page where one is named, or brings it to the front."""
        if self.help is None:
            from gui.help import HelpWindow

            self.help = HelpWindow(self)
        if page:
            self.help.open_page(page)
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
        middle = PageScroll(self.pages)
        for widget in (self.devices_holder, middle, self.job_panel):
            self.splitter.addWidget(widget)
        self.devices_holder.setMinimumWidth(290)
        middle.setMinimumWidth(360)
        self.splitter.setStretchFactor(1, 1)

    def _connect(self) -> None:
        for number, page in enumerate(self.acts.pages):
            page.on_trigger(partial(self._show_page, number))
        self.acts.devices_panel.toggled.connect(self._show_devices)
        self.acts.job_panel.toggled.connect(self._show_job)
        self.acts.help.on_trigger(self.show_help)
        self.acts.browse.on_trigger(self._browse)
        self.acts.quit.on_trigger(self.quit)
        self.job_panel.folder_chosen.connect(self._inspect)
        self.job_panel.train_requested.connect(self._remember_job)
        self.inspector.progress.connect(self.job_panel.show_progress)
        self.inspector.done.connect(self.job_panel.set_report)
        self.inspector.failed.connect(self._inspection_failed)

    def _make_commands(self) -> Commands:
        parts = Parts(
            acts=self.acts,
            job_panel=self.job_panel,
            header=self.header,
            settings=self.settings,
            show_run=self.show_run,
            show_form=self.show_form,
            show_help=self.show_help,
            show_alerts=self._show_alerts,
            say=self.show_message,
        )
        return Commands(self, parts)

    def _restore(self) -> None:
        self.resize(1280, min(800, self.screen().availableSize().height() - _AROUND))
        geometry = self.settings.bytes("geometry")
        if geometry is not None:
            self.restoreGeometry(geometry)
        sizes = self.settings.bytes("splitter")
        if sizes is not None:
            self.splitter.restoreState(sizes)
        else:
            self.splitter.setSizes([290, 605, 375])
        self.panels = PagePanels(self.acts, self.settings)
        self.acts.full_screen.setChecked(self.isFullScreen())

    def focusNextPrevChild(self, forward: bool) -> bool:
        parts = (self.header, self.devices_holder, self.pages, self.job_panel, self.message, self.status)
        return tab(self, parts, forward)

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
        from gui.run_control import RunControl
        from gui.side_pages import SidePages
        from gui.tray import Tray
        from gui.workspace import Workspace

        workspace = self.workspace = Workspace(self.settings, self)
        for page in workspace.pages:
            self.pages.addWidget(page)
        self._put_devices(workspace)
        control = RunControl(
            self, acts=self.acts, job_panel=self.job_panel, header=self.header, status=self.status, workspace=workspace
        )
        control.form_wanted.connect(self.show_form)
        control.run_wanted.connect(self.show_run)
        self.status.page_wanted.connect(self.header.show_page)
        side_pages = SidePages(self.job_panel, workspace, self.pages, self.acts, self)
        side_pages.message.connect(self.message.say)
        self._connect_workspace(workspace, control)
        self.tray = Tray(self.settings, self.acts, workspace, self)
        self.tray.show_wanted.connect(self.come_forward)
        self.tray.alerts_wanted.connect(self._show_alerts)
        if self._wanted_devices is not None:
            workspace.devices.set_selection(self._wanted_devices)
        self.commands.complete(workspace)
        self.form.set_devices(workspace.devices.selection())
        self._show_page(self.acts.page)
        control.show_status()
        if self._is_first_start:
            workspace.run.welcome.sample.setFocus()
        else:
            self.job_panel.submit_bar.focus_train()
        workspace.start()
        self.completed.emit()

    def _put_devices(self, workspace: Workspace) -> None:
        """Puts the devices where a bare panel has kept their place."""
        state, hidden = self.splitter.saveState(), self.devices_holder.isHidden()
        self.splitter.replaceWidget(self.splitter.indexOf(self.devices_holder), workspace.devices)
        self.devices_holder.deleteLater()
        self.devices_holder = workspace.devices
        self.devices_holder.setHidden(hidden)
        workspace.monitor.set_panel_shown(not hidden)
        self.splitter.restoreState(state)  # which knows the sizes of hidden panels, too

    def _connect_workspace(self, workspace: Workspace, control: RunControl) -> None:
        workspace.devices.selection_changed.connect(lambda: self.form.set_devices(workspace.devices.selection()))
        workspace.hosts.local.snapshot.connect(self._snapshot)
        for told in (workspace.hosts.snapshot, workspace.hosts.trouble, workspace.hosts.changed):
            told.connect(self._hosts_changed)
        for source in (control, workspace.monitor, workspace.run, workspace.runs):
            source.message.connect(self.message.say)
        workspace.notices.pressed.connect(self._show_alerts)
        workspace.alerts.message.connect(self._say_if_any)
        self._say_if_any(workspace.alerts.problem)
        workspace.runs.run_chosen.connect(self.show_run)
        workspace.run.welcome.sample_wanted.connect(self._train_sample)
        workspace.run.welcome.folder_wanted.connect(self._browse)
        workspace.run.welcome.monitor_wanted.connect(lambda: self.header.show_page(MONITOR))
        control.started.connect(self.show_run)
        control.started.connect(workspace.runs.refresh)
        self.job_panel.devices_requested.connect(workspace.devices.set_selection)

    # What happens

    def _snapshot(self, snapshot: Snapshot) -> None:
        if self.workspace is not None:
            self.workspace.run.set_machine(snapshot)
            self.form.set_machine(snapshot)

    def _hosts_changed(self) -> None:
        if self.workspace is not None:
            self.form.set_hosts(self.workspace.history.titles, self.workspace.hosts.troubles)
            self.workspace.run.name_devices(self.workspace.history.titles)

    def _inspect(self, job: Job | None) -> None:
        if job is not None and not self._closing:
            self.inspector.start(job)
        else:
            self.inspector.cancel()

    def _inspection_failed(self, text: str) -> None:
        self.form.card.clear(text)
        self.form.set_report(None)

    def _show_alerts(self) -> None:
        """Comes forward with the alerts, as asked for on the desktop."""
        if self.workspace is not None:
            from gui.monitor.toolbar import ALERTS

            self.header.show_page(MONITOR)
            self.workspace.monitor.show_view(ALERTS)
            self.come_forward()

    def _browse(self) -> None:
        self.show_form()
        self.job_panel.browse()

    def _train_sample(self, on_gpus: bool) -> None:
        """Starts a run of the sample, on the devices that are chosen, or on the CPU where no GPU can be used."""
        self.acts.job_panel.setChecked(True)
        self.job_panel.show_new(sample_job())
        if self.workspace is not None and not on_gpus:
            self.workspace.devices.set_selection((CPU,))
        self.form.start()

    def _show_page(self, number: int) -> None:
        self.pages.setCurrentIndex(number)
        if self.workspace is not None and number == RUNS:
            self.workspace.runs.refresh()

    def _show_job(self, shown: bool) -> None:
        self._show_panel(self.job_panel, shown)

    def _show_devices(self, shown: bool) -> None:
        self._show_panel(self.devices_holder, shown)
        if self.workspace is not None:
            self.workspace.monitor.set_panel_shown(shown)

    def _show_panel(self, panel: QWidget, shown: bool) -> None:
        """Qt would move the keyboard from a panel that is hidden to whatever comes after it."""
        focus = self.focusWidget()
        if not shown and focus is not None and panel.isAncestorOf(focus):
            self.header.tabs.setFocus()
        panel.setVisible(shown)

    # Dropping and closing

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _dropped(event):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        paths = _dropped(event)
        if paths:
            event.acceptProposedAction()
            self.open_paths(paths)

    def open_paths(self, paths: Sequence[str]) -> None:
        """Puts the first dataset folder or job file among `paths` into the form."""
        in_background(lambda: read_paths(paths), self, self._take, reraise)

    def _take(self, opened: Opened) -> None:
        self._say_if_any(opened.problem)
        if not opened.problem:
            self.show_form()
        if opened.folder:
            self.job_panel.set_dataset(opened.folder)
        elif opened.prefill is not None:
            self.job_panel.begin_prefill(opened.prefill)

    def come_forward(self, path: str = "", activation_token: str = "") -> None:
        """Shows the window before all others, as far as the desktop lets it, and opens `path` if there is one.
        `activation_token` is the desktop's leave for that.
        """
        if activation_token:
            os.environ["XDG_ACTIVATION_TOKEN"] = activation_token  # which Qt takes when it asks the desktop
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        if path:
            self.open_paths([path])

    def quit(self) -> None:
        """Closes the window for good, whether or not there is a tray."""
        self._quitting = True
        self.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self.tray is not None and self.tray.keeps_window and not self._quitting:
            event.ignore()
            self.hide()
            self.tray.explain()
            return
        self._closing = True
        self.settings.set("geometry", self.saveGeometry())
        self.settings.set("splitter", self.splitter.saveState())
        self.panels.keep()
        self._remember_job()
        self.inspector.close()
        self.commands.close()
        for dialog in self.findChildren(QDialog):
            dialog.close()
        if self.workspace is not None:
            self.workspace.close()
        if self.tray is not None:
            self.tray.close()
        super().closeEvent(event)
        self.closed.emit()

    def _remember_job(self) -> None:
        """Keeps the form's own job for the next time, where there is one."""
        try:
            if self.job_panel.own_form.job is not None:
                self.settings.remember_job(self.job_panel.own_form.job)
        except OSError as error:
            self.show_message(f"Could not save the form for next time: {error.strerror} ({error.filename}).")


def _dropped(event: QDropEvent) -> list[str]:
    """The paths of what is dragged from this machine's file manager; runs of our own have places of theirs to go to."""
    if is_of_runs(event.mimeData()):
        return []
    return [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]
