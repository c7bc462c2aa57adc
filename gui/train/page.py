"""Train page: the form for a new job, or a run, with tabs that switch between them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QSplitter, QWidget

from engine.contract.devices import Snapshot
from engine.system import paths
from gui.actions import Action, Actions
from gui.form.panel import JobPanel
from gui.sources.settings import LAST_RUN, Settings
from gui.style import theme
from gui.train.run_settings import RunSettingsView
from gui.train.tabs import RunTabs
from gui.translation import tr
from gui.welcome.page import WelcomePage
from gui.widgets.buttons import set_primary, styled
from gui.widgets.labels import muted_label
from gui.widgets.layouts import FrontStack, hbox, vbox

if TYPE_CHECKING:  # parts of a run take long to import and are created after the window's first paint
    from gui.run.page import RunPage
    from gui.sources.run_list import RunList, RunListing
    from gui.sources.run_session import RunSession

_FORM_WIDTH = 1400
"""Maximum width of the form in pixels."""
_SETTINGS_FLAG = "show_run_settings"
_RESTORE_MS = 2000
"""Maximum milliseconds to wait for the run of the last session, whose disk may not respond."""


class TrainPage(QWidget):
    """Page that shows either the form for a new job or the run that the session follows.

    Before the first run, the form shares the page with the welcome page. If the last session ended with a run on the
    page, it waits for this run instead of showing the form first.

    Signals:
        run_chosen(RunFolder): the user has selected the tab of a run.
        run_closed(RunFolder): the user has closed the tab of a run.
        settings_requested(Job): the user wants to put the settings of the run into the form.
    """

    run_chosen = Signal(object)
    run_closed = Signal(object)
    settings_requested = Signal(object)

    def __init__(self, actions: Actions, job_panel: JobPanel, settings: Settings) -> None:
        super().__init__()
        self._actions, self._job_panel, self._settings = actions, job_panel, settings
        self._session: RunSession | None = None
        self._has_read_runs = False  # True once the list of runs has been read
        self.welcome = WelcomePage()
        self.welcome.hide()
        self.is_job_chosen = False
        """True once the form has been shown for a reason other than the start of the window."""
        self.tabs = RunTabs()
        self._tab_strip = QWidget()
        self.run_settings = RunSettingsView()
        self._job_row = hbox(1, (job_panel, 100), 1, spacing=5)
        self._job_view, self._run_view, self._waiting_view = QWidget(), QSplitter(), QWidget()
        self._job_view.setLayout(self._job_row)
        theme.scale_with_text(job_panel.setMaximumWidth, _FORM_WIDTH)
        self._stack = FrontStack()
        self._lay_out()
        self._create_tab_actions()
        self._connect()
        self._update_actions()

    @property
    def shows_run(self) -> bool:
        """True if the page shows a run rather than the form."""
        return self._stack.currentWidget() is self._run_view

    @property
    def waits_for_run(self) -> bool:
        """True while the run that was on screen when the window was last closed is being loaded."""
        return self._stack.currentWidget() is self._waiting_view

    @property
    def areas(self) -> list[QWidget]:
        """Parts of the page in tab order."""
        run_areas = (self._run_view.widget(number) for number in range(self._run_view.count()))
        return [self._tab_strip, *filter(None, (self.welcome, self._job_panel, *run_areas))]

    def show_welcome(self) -> None:
        """Show the welcome page next to the form."""
        self.welcome.show()
        self._set_primary_button()

    def add_run_page(self, session: RunSession, run_list: RunList, run_page: RunPage) -> None:
        """Add `run_page`, the page of the run that `session` follows, and show the runs in `run_list` as tabs.

        The page stops waiting for the run that was last open after `_RESTORE_MS`.
        """
        self._session = session
        self._run_view.insertWidget(0, run_page)
        self._run_view.setStretchFactor(0, 1)
        QTimer.singleShot(_RESTORE_MS, self, self.stop_waiting)
        session.opened.connect(self.show_run)
        session.changed.connect(self._on_changed)
        run_list.complete.connect(self._on_runs_read)

    def show_job(self) -> None:
        """Show the form for a new job."""
        self.is_job_chosen = True
        self._set_primary_button()
        self.tabs.select_job()
        self._show_view(self._job_view)

    def stop_waiting(self) -> None:
        """Show the form if the page still waits for the run of the last session."""
        if self.waits_for_run:
            self._show_view(self._job_view)

    def close_work(self) -> None:
        """Save for the next start which run is open."""
        if self.waits_for_run:  # the setting still contains this run
            return
        run = self._session.run if self._session is not None and self.shows_run else None
        self._settings.set(LAST_RUN, str(run.path) if run is not None else "")

    def set_machine(self, snapshot: Snapshot) -> None:
        """Describe this machine on the welcome page."""
        self.welcome.set_machine(snapshot)

    def _lay_out(self) -> None:
        styled(self, "panel")
        self._run_view.setChildrenCollapsible(False)
        self._run_view.setHandleWidth(5)
        self._run_view.addWidget(self.run_settings)
        self._job_row.insertWidget(0, self.welcome, 100)
        self._waiting_view.setLayout(vbox((muted_label(tr("Opening the last run…")), 1, Qt.AlignmentFlag.AlignCenter)))
        for view in (self._job_view, self._run_view, self._waiting_view):
            self._stack.addWidget(view)
        if self._settings.text(LAST_RUN):
            self._stack.setCurrentWidget(self._waiting_view)
        self._tab_strip.setLayout(hbox((self.tabs, 1), margins=(8, 2, 8, 0)))
        self.setLayout(vbox(self._tab_strip, (self._stack, 1), spacing=0))

    def _connect(self) -> None:
        """Connect the form, the tabs and the settings of the run, which are visible if they were in the last session."""
        self._job_panel.folder_chosen.connect(lambda _job: self._set_primary_button())
        self.tabs.job_chosen.connect(self.show_job)
        self.tabs.run_chosen.connect(self.run_chosen)
        self.tabs.run_closed.connect(self.run_closed)
        self.run_settings.requested.connect(self.settings_requested)
        switch = self._actions.run_settings
        switch.toggled.connect(self._on_settings_switched)
        switch.setChecked(self._settings.flag(_SETTINGS_FLAG, False))
        self.run_settings.setVisible(switch.isChecked())

    def _create_tab_actions(self) -> None:
        """Create the actions that switch between tabs and close a tab, with their shortcuts."""
        for name, title, key, step in (
            ("next_tab", tr("Next tab"), "Ctrl+Tab", 1),
            ("previous_tab", tr("Previous tab"), "Ctrl+Shift+Tab", -1),
        ):
            action = Action(self, name, title, tr("Switch between the new job and the open runs"), key)
            action.on_trigger(partial(self._switch_tab, step))
        self.close_tab = Action(self, "close_tab", tr("Close the tab"), tr("Close the tab of a run"), "Ctrl+W")
        self.close_tab.on_trigger(self._close_current_tab)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._update_actions()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._update_actions()

    def _show_view(self, view: QWidget) -> None:
        """Show `view`, which is the form or the run's page.

        If the focus is in the page that becomes hidden, move it to the tabs.
        """
        focus = self.window().focusWidget()
        previous = self._stack.currentWidget()
        if previous is not None and previous is not view and focus is not None and previous.isAncestorOf(focus):
            self.tabs.setFocus()  # Qt would focus the next widget
        self._stack.setCurrentWidget(view)
        self._update_actions()

    def show_run(self) -> None:
        """Show the run that the session follows, or the form if there is none."""
        assert self._session is not None
        if self._session.run is None:
            self.show_job()
            return
        self.tabs.select_run(self._session.run)
        self._hide_welcome()
        self._show_view(self._run_view)
        self._on_changed()

    def _on_changed(self) -> None:
        """Update the tab, the settings and the actions after a change of the open run's state or job."""
        session = self._session
        if session is None or session.run is None:
            return
        self.tabs.show_status(session.run, session.status)
        started = session.data.started
        self.run_settings.show_job(started.job if started is not None else None)
        self._update_actions()

    def _on_runs_read(self, listing: RunListing) -> None:
        """Update the tabs from the run list. Hide the welcome page once there are runs, or show it if there are none yet."""
        if listing.runs:
            self._hide_welcome()
        elif not self._has_read_runs:
            self.show_welcome()
        self._has_read_runs = True
        self.tabs.show_runs(listing, self._session.run if self._session is not None else None)
        self._update_actions()

    def _hide_welcome(self) -> None:
        """Hide the welcome page, and make the Train button primary."""
        self.welcome.hide()
        self._set_primary_button()

    def _set_primary_button(self) -> None:
        """Make the button for the sample primary until the user has chosen a job, and then the Train button."""
        dataset = self._job_panel.form.field_value("dataset")
        is_user_job = self.is_job_chosen or self.welcome.isHidden() or dataset not in ("", str(paths.sample_dataset()))
        set_primary(self._job_panel.submit_bar.train, is_user_job)
        set_primary(self.welcome.sample, not is_user_job)

    def _switch_tab(self, step: int) -> None:
        """Select the next tab (`step` is 1) or the previous one (-1). The first follows the last."""
        self.tabs.setCurrentIndex((self.tabs.currentIndex() + step) % self.tabs.count())

    def _close_current_tab(self) -> None:
        """Close the tab of the selected run. Do nothing for the tab of the new job."""
        tab = self.tabs.current_run
        if tab is not None:
            self.tabs.close_run(tab.run)

    def _on_settings_switched(self, is_visible: bool) -> None:
        """Show or hide the settings of the run, and save this choice."""
        self.run_settings.setVisible(is_visible)
        self._settings.set(_SETTINGS_FLAG, is_visible)

    def _update_actions(self) -> None:
        """Enable the actions that fit the visible run and the selected tab. Disable the others with a reason."""
        tab = self.tabs.current_run
        is_run_visible = self.shows_run and self.isVisible()
        self._actions.run_settings.set_disabled_reason("" if is_run_visible else tr("Show a run first"))
        reason = "" if tab is not None and tab.is_closable else tr("A working run keeps its tab")
        self.close_tab.set_disabled_reason(reason if tab is not None else tr("Choose the tab of a run first"))
