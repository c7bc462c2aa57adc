"""Main window, which creates and connects all parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QPaintEvent
from PySide6.QtWidgets import QApplication, QDialog, QMainWindow, QSplitter, QStackedWidget, QWidget

from engine.contract.devices import CPU, Snapshot
from engine.contract.job import Job
from gui.actions import Actions
from gui.commands.commands import Commands
from gui.context import AppContext
from gui.devices.dock import DevicesDock
from gui.form.followers import create_sample_job
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.header import Header
from gui.pages import MONITOR, TABS, TRAIN
from gui.sources.background import closing, in_background, reraise
from gui.sources.inspector import Inspector
from gui.sources.resume_fork import PathContent, read_paths
from gui.sources.settings import LAST_MESSAGE, Settings
from gui.status_bar import StatusBar
from gui.train.page import TrainPage
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import styled
from gui.widgets.drop_target import FileDropTarget
from gui.widgets.layouts import PageScroll, vbox
from gui.widgets.tab_order import PaneFocus, move_focus

if TYPE_CHECKING:
    from engine.runs.folder import RunFolder
    from gui.help import HelpWindow
    from gui.tray import Tray
    from gui.workspace import Workspace

_RESERVED_HEIGHT = 80
"""Height in pixels for title bar and desktop panels, which Wayland doesn't report."""


class MainWindow(QMainWindow):
    """Window with the devices panel and the pages.

    Signals:
        completed(): the pages, the devices and the last run are visible.
        closed(): the window has been closed, and doesn't remain in the tray.
    """

    completed = Signal()
    closed = Signal()

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.setWindowTitle("Footplate")
        self.settings = settings or Settings()
        self.acts = Actions(self, [(tab.name, tab.title, tab.tip) for tab in TABS])
        self.header = Header(self.acts)
        self.job_panel = JobPanel(self.acts, self.settings)
        self.train = TrainPage(self.acts, self.job_panel, self.settings)
        self.pages = QStackedWidget()
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.message = Banner(name=tr("Message"), close=tr("Dismiss the message"))
        self.status = StatusBar(self.acts)
        self.drop_target = FileDropTarget(self, tr("Drop a dataset folder or a job file to open it"))
        tab_names = [tab.name for tab in TABS]
        self.dock = DevicesDock(
            self.splitter, self.acts, self.settings, tab_names, window=self, next_focus=self.header.tabs
        )
        self.inspector = Inspector(self)
        # Created by `add_pages`, after the first paint.
        self.workspace: Workspace | None = None
        self.tray: Tray | None = None
        self.help: HelpWindow | None = None  # created when it is first opened
        # Quitting also closes a window that the tray would keep.
        self._is_closing = self._is_quitting = self._is_painted = False
        self._requested_paths: Sequence[str] = ()  # paths of the newest request to open files
        self._lay_out()
        self._context = AppContext(
            window=self,
            settings=self.settings,
            actions=self.acts,
            header=self.header,
            job_panel=self.job_panel,
            train=self.train,
            status=self.status,
            show_message=self.show_message,
            show_run=self.show_run,
            show_form=self.show_form,
            show_help=self.show_help,
            show_alerts=self._show_alerts,
        )
        self.commands = Commands(self._context)
        self._connect()
        self._restore()
        last_job = self.settings.last_job()
        job = last_job or create_sample_job()
        self.job_panel.set_devices(job.parallel.devices)  # until the devices panel is created
        # Selected again when the devices panel is created, if the user has saved a job.
        self._initial_devices = job.parallel.devices if self.settings.job_file.is_file() else None
        self._is_first_start = last_job is None
        if last_job is None:
            self.job_panel.show_new(job)
            self.train.show_welcome()
        else:
            self.job_panel.set_job(job)

    @property
    def form(self) -> JobForm:
        """Form of the new job."""
        return self.job_panel.form

    def show_message(self, text: str, severity: str = "warning") -> None:
        """Show a message about the window, or hide it if `text` is "". A closing window saves warnings for its next start."""
        if not self._is_closing:
            self.message.show_message(text, severity)  # type: ignore[arg-type]
        elif severity == "warning":
            self.settings.set(LAST_MESSAGE, f"{self.settings.text(LAST_MESSAGE)} {text}".strip())

    def show_run(self, run: RunFolder) -> None:
        """Show a run on the Train page."""
        if self.workspace is not None:
            self.workspace.open_run(run)
            self.train.show_run()
            self.header.show_page(TRAIN)

    def show_form(self) -> None:
        """Show the form for a new job on the Train page."""
        self.header.show_page(TRAIN)
        self.train.show_job()

    def show_help(self, page: str = "") -> None:
        """Open the user guide, at `page` if it is given."""
        if self.help is None:
            from gui.help import HelpWindow

            self.help = HelpWindow(self)
        if page:
            self.help.open_page(page)
        self.help.show()
        self.help.raise_()
        self.help.activateWindow()

    def _show_problem(self, problem: str) -> None:
        if problem:
            self.show_message(problem)

    # Before the first paint

    def _lay_out(self) -> None:
        self.splitter.setHandleWidth(5)
        self.splitter.setChildrenCollapsible(False)
        central = styled(QWidget(), "window")
        central.setLayout(vbox(self.header, (self.splitter, 1), self.message, self.status, spacing=5))
        self.setCentralWidget(central)
        middle = PageScroll(self.pages)
        self.pages.addWidget(self.train)
        self.splitter.addWidget(middle)
        middle.setMinimumWidth(360)
        self.splitter.setStretchFactor(self.splitter.indexOf(middle), 1)

    def _connect(self) -> None:
        for number, page in enumerate(self.acts.pages):
            page.on_trigger(partial(self._show_page, number))
        self.drop_target.dropped.connect(self.open_paths)
        self.pages.currentChanged.connect(self._update_status_bar)
        self.acts.help.on_trigger(self.show_help)
        self.acts.browse.on_trigger(self._browse)
        panes = PaneFocus(self, self._list_areas)
        self.acts.next_pane.on_trigger(partial(panes.move, forward=True))
        self.acts.previous_pane.on_trigger(partial(panes.move, forward=False))
        self.acts.quit.on_trigger(self.quit)
        self.status.page_requested.connect(self.header.show_page)
        self.job_panel.folder_chosen.connect(self._inspect)
        self.job_panel.train_requested.connect(self._save_job)
        self.inspector.progress.connect(lambda progress: self.form.card.show_progress(progress.done, progress.total))
        self.inspector.done.connect(self.job_panel.set_report)
        self.inspector.failed.connect(self._on_inspection_failed)

    def _restore(self) -> None:
        """Restore the size, position, splitter and devices panel of the last session, or use the defaults."""
        self.resize(1280, min(800, self.screen().availableSize().height() - _RESERVED_HEIGHT))
        geometry = self.settings.bytes("geometry")
        if geometry is not None:
            self.restoreGeometry(geometry)
        sizes = self.settings.bytes("splitter")
        if sizes is not None:
            self.splitter.restoreState(sizes)
        else:
            self.splitter.setSizes([290, 985])
        self.dock.restore()
        self._update_status_bar()
        self.acts.full_screen.setChecked(self.isFullScreen())

    def _list_areas(self) -> list[QWidget]:
        """Return the parts of the window in tab order."""
        middle = self.train.areas if self.pages.currentWidget() is self.train else [self.pages]
        return [self.header, self.dock.panel, *middle, self.message, self.status]

    def focusNextPrevChild(self, forward: bool) -> bool:
        return move_focus(self, self._list_areas(), forward)

    # After the first paint

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._is_painted:  # the system requests the first frame before Qt has handled changes of layouts
            QApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)
        super().paintEvent(event)
        if not self._is_painted:
            self._is_painted = True
            QTimer.singleShot(0, self, self.add_pages)

    def add_pages(self) -> None:
        """Add the pages, graphs and devices, start their background work, and emit `completed`. Works only once.

        Importing their modules earlier would have delayed the first paint.
        """
        if self.workspace is not None or self._is_closing:
            return
        from gui.run_control import RunControl
        from gui.side_pages import SidePages
        from gui.tray import Tray
        from gui.workspace import Workspace

        workspace = self.workspace = Workspace(self.settings, self.acts, self, TABS)
        for entry in TABS[1:]:  # the Train page exists since the start
            self.pages.addWidget(workspace.tabs.get(entry.name) or QWidget())
        self.train.add_run_page(workspace.session, workspace.run_list, workspace.run)
        self.dock.put_panel(workspace.devices)
        self.dock.switched.connect(workspace.monitor.set_panel_visible)
        workspace.monitor.set_panel_visible(not self.dock.panel.isHidden())
        control = RunControl(self._context, workspace)
        side_pages = SidePages(self._context, workspace, self.pages)
        self._connect_workspace(workspace)
        workspace.run.schedule_views()
        self.tray = Tray(self.settings, self.acts, workspace, self)
        self.tray.window_requested.connect(self.bring_to_front)
        self.tray.alerts_requested.connect(self._show_alerts)
        if self._initial_devices is not None:
            workspace.devices.set_selection(self._initial_devices)
        self.commands.add_workspace(workspace, side_pages.commands)
        self.form.set_devices(workspace.devices.selection())
        self.header.show_page(self.acts.page)  # the user may have selected a tab before its page existed
        control.show_status()
        if self.train.waits_for_run:
            self.train.tabs.setFocus()
        elif self._is_first_start:
            self.train.welcome.sample.setFocus()
        else:
            self.job_panel.submit_bar.focus_train()
        workspace.start()
        if last_message := self.settings.text(LAST_MESSAGE):
            self.settings.forget(LAST_MESSAGE)
            self.show_message(last_message)
        self.completed.emit()

    def _connect_workspace(self, workspace: Workspace) -> None:
        """Connect the pages and services of `workspace` with the form, the header and the message line.

        If the settings of the alerts could not be read, this also shows the problem.
        """
        workspace.devices.selection_changed.connect(self._on_devices_selected)
        self.job_panel.devices_requested.connect(workspace.devices.set_selection)
        workspace.hosts.local.snapshot.connect(self._on_snapshot)
        for signal in (workspace.hosts.snapshot, workspace.hosts.error_changed, workspace.hosts.changed):
            signal.connect(self._on_hosts_changed)
        for source in (workspace.run, *workspace.pages):
            for name, handler in (("message", self.message.show_message), ("run_chosen", self.show_run)):
                if hasattr(source, name):  # not every page has both signals
                    getattr(source, name).connect(handler)
        workspace.alerts.message.connect(self._show_problem)
        workspace.alerts.changed.connect(self._on_alerts_changed)
        self._show_problem(workspace.alerts.problem)
        self.train.run_chosen.connect(self.show_run)
        self.train.run_closed.connect(workspace.close_run)
        self.train.settings_requested.connect(self._use_settings)
        welcome = self.train.welcome
        welcome.sample_requested.connect(self._train_sample)
        welcome.folder_requested.connect(self._browse)
        welcome.monitor_requested.connect(lambda: self.header.show_page(MONITOR))

    # Events

    def _show_page(self, number: int) -> None:
        """Show the page of a tab. When the Runs page gets the focus for the first time, focus its list of runs.

        If the hidden page had the focus, Qt moves the focus to the widget of the new page that had it last or, on the
        first visit, to the first widget.
        """
        runs = self.workspace.runs if self.workspace is not None else None
        is_first_focus = runs is not None and runs.focusWidget() is None
        self.pages.setCurrentIndex(number)
        focus = self.focusWidget()
        if runs is not None and is_first_focus and focus is not None and runs.isAncestorOf(focus):
            runs.focus_list()

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        """Pass the state of this machine to the pages and the form."""
        if self.workspace is not None:
            self.workspace.run.set_machine(snapshot)
            self.train.set_machine(snapshot)
            self.form.set_machine(snapshot)
            self.form.set_device_warnings(self.workspace.device_warnings())

    def _on_devices_selected(self) -> None:
        if self.workspace is not None:
            self.form.set_devices(self.workspace.devices.selection())
            self.form.set_device_warnings(self.workspace.device_warnings())

    def _on_hosts_changed(self) -> None:
        if self.workspace is not None:
            self.form.set_hosts(self.workspace.history.titles, self.workspace.hosts.errors)
            self.workspace.run.name_devices(self.workspace.history.titles)

    def _on_alerts_changed(self) -> None:
        if self.workspace is not None:
            self.header.show_alerts(len(self.workspace.alerts.unacknowledged))
            self.form.set_device_warnings(self.workspace.device_warnings())

    def _inspect(self, job: Job | None) -> None:
        """Inspect the dataset folder of a job, or stop inspecting if there is no job."""
        if job is not None and not self._is_closing:
            self.inspector.start(job)
        else:
            self.inspector.cancel()

    def _on_inspection_failed(self, text: str) -> None:
        self.form.card.clear(text)
        self.form.set_report(None)

    def _show_alerts(self) -> None:
        """Bring the window to the front, and show the alerts on the Monitor page."""
        if self.workspace is not None:
            from gui.monitor.toolbar import ALERTS

            self.header.show_page(MONITOR)
            self.workspace.monitor.show_view(ALERTS)
            self.bring_to_front()

    def _browse(self) -> None:
        self.show_form()
        self.job_panel.browse()

    def _use_settings(self, job: Job) -> None:
        """Put the settings of a run into the form for a new job."""
        self.job_panel.set_job(job)
        self.job_panel.devices_requested.emit(job.parallel.devices)
        self.show_form()
        self.form.focus_field("dataset")

    def _train_sample(self, on_gpus: bool) -> None:
        """Train on the sample dataset: with the checked devices if `on_gpus` is True, otherwise with the CPU."""
        self.job_panel.show_new(create_sample_job())
        if self.workspace is not None and not on_gpus:
            self.workspace.devices.set_selection((CPU,))
        self.job_panel.start()

    def _update_status_bar(self) -> None:
        """Show the status bar, except on the Train page, which shows the same information."""
        self.status.setVisible(self.pages.currentWidget() is not self.train)

    # Opening and closing

    def open_paths(self, paths: Sequence[str]) -> None:
        """Put the first dataset folder or job file in `paths` into the form, after reading it in the background."""
        self._requested_paths = paths
        in_background(lambda: read_paths(paths), self, partial(self._on_path_read, paths), reraise)

    def _on_path_read(self, paths: Sequence[str], opened: PathContent) -> None:
        """Put a dataset folder or a job into the form, or show why it can't be opened.

        The result is ignored if other paths than `paths` have been requested in the meantime.
        """
        if paths is not self._requested_paths:
            return
        self._show_problem(opened.problem)
        if not opened.problem:
            self.show_form()
        if opened.folder:
            self.job_panel.set_dataset(opened.folder)
        elif opened.prefill is not None:
            self.job_panel.begin_prefill(opened.prefill)

    def bring_to_front(self, path: str = "", activation_token: str = "") -> None:
        """Bring the window to the front, and open `path`, a dataset folder or job file, unless it is "".

        The `activation_token` from the desktop permits the window to take the focus.
        """
        if activation_token:
            os.environ["XDG_ACTIVATION_TOKEN"] = activation_token  # Qt passes the token to the desktop
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        if path:
            self.open_paths([path])

    def quit(self) -> None:
        """Close the window, even if it would otherwise remain in the tray."""
        self._is_quitting = True
        self.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Hide the window if it should remain in the tray.

        Otherwise, save its state and the job, end all work, and emit `closed`.
        """
        if self.tray is not None and self.tray.keeps_window and not self._is_quitting:
            event.ignore()
            self.hide()
            self.tray.explain()
            return
        self._is_closing = True
        self.settings.set("geometry", self.saveGeometry())
        self.settings.set("splitter", self.splitter.saveState())
        self.dock.save()
        self._save_job()
        with closing():  # limits the waits in total
            self._close_work()
        super().closeEvent(event)
        self.closed.emit()

    def _close_work(self) -> None:
        """End the background work of all parts, and close the dialogs."""
        self.train.close_work()
        self.inspector.close()
        self.job_panel.close_work()
        self.commands.close()
        for dialog in self.findChildren(QDialog):
            dialog.close()
        if self.workspace is not None:
            self.workspace.close()
        if self.tray is not None:
            self.tray.close()

    def _save_job(self) -> None:
        """Save the user's new job for the next start, if it is valid."""
        try:
            if self.job_panel.job_form.job is not None:
                self.settings.remember_job(self.job_panel.job_form.job)
        except OSError as error:
            self.show_message(
                tr("Couldn't save the form for the next start: {strerror} ({filename}).").format(
                    strerror=error.strerror, filename=error.filename
                )
            )
