"""Pages that are created when they are requested. Most cover the page of a tab until they are closed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QStackedWidget, QWidget
from shiboken6 import isValid

from gui.actions import Action
from gui.context import AppContext
from gui.form.form import JobForm
from gui.pages import TABS, JobInForm, PageEntry
from gui.sources.launcher import with_absolute_paths
from gui.workspace import Workspace


class SidePages(QObject):
    """Controller of the pages without a tab. It shows them and passes them the job in the form.

    Attributes:
        commands: Commands that open pages, for the Tools menu.
    """

    def __init__(self, context: AppContext, workspace: Workspace, stack: QStackedWidget) -> None:
        super().__init__(context.window)
        self._context, self._workspace, self._stack = context, workspace, stack
        self._panel = panel = context.job_panel
        self._return_tab = 0  # index of the tab whose page is shown when the side page is closed
        self._return_focus: QWidget | None = None  # widget that gets the focus then
        runs = workspace.runs
        workspace.page_created.connect(self._add_page)
        panel.split_points_requested.connect(partial(self.show, "split_points"))
        panel.finder_requested.connect(self.show)
        panel.gallery_requested.connect(partial(self.show, "dataset"))
        panel.labels_requested.connect(partial(self.show, "dataset"))
        panel.inspected.connect(self._on_job_changed)
        panel.changed.connect(self._on_job_changed)
        runs.compare_requested.connect(partial(self.show, "compare"))
        runs.add_to_comparison_requested.connect(self._add_to_comparison)
        self.commands = [self._create_command(entry) for entry in workspace.entries.values() if entry.title]
        for entry in workspace.entries.values():
            if _has_tab(entry):
                context.actions.pages[entry.tab].on_trigger(partial(self._show_tab, entry.name))

    def show(self, name: str, argument: Any = None) -> None:
        """Show the page `name` of `PAGES` for the job in the form, instead of the page of its tab. Select this tab.

        `argument` is passed to the page's `show` function (see `PageEntry`). Its meaning depends on the page.
        """
        entry, page = self._workspace.entries[name], self._workspace.get_page(name)
        if self._stack.currentWidget() is not page:
            # A side page that is opened from another one returns to the tab below both.
            if self._stack.currentIndex() < len(self._context.actions.pages):
                self._return_tab = self._stack.currentIndex()
                self._return_focus = self._form.find_buttons.get(name, self._context.window.focusWidget())
            self._context.actions.pages[entry.tab].trigger()
            self._stack.setCurrentWidget(page)
        entry.show(page, self._make_job_in_form(), argument)

    def _show_tab(self, name: str) -> None:
        """Show the page of a tab as the user left it.

        If the page is new and Qt has given it the focus, focus its list.
        """
        is_new = name not in self._workspace.created
        page = self._workspace.get_page(name)
        self._stack.setCurrentWidget(page)
        if is_new and page.isAncestorOf(self._context.window.focusWidget()):
            page.show_list()

    @property
    def _form(self) -> JobForm:
        return self._panel.form

    def _make_job_in_form(self) -> JobInForm:
        """Return the job in the form with absolute paths, and its devices, report and action."""
        form = self._form
        job = with_absolute_paths(form.job) if form.job is not None else None
        names = form.device_names()
        return JobInForm(job, form.job, form.problems, form.devices, names, form.report, form.action)

    def _on_job_changed(self) -> None:
        """Pass the job in the form to all pages that have been created."""
        job = self._make_job_in_form()
        for name, page in self._workspace.created.items():
            self._workspace.entries[name].follow(page, job)

    def _add_page(self, name: str, page: QWidget) -> None:
        """Add the page `name` to the stack, pass the job to it, and connect its signals (see `PageEntry`)."""
        entry = self._workspace.entries[name]
        if _has_tab(entry):
            placeholder = self._stack.widget(entry.tab)
            assert placeholder is not None
            self._stack.insertWidget(entry.tab, page)
            self._stack.removeWidget(placeholder)
            placeholder.deleteLater()
        else:
            self._stack.addWidget(page)
        entry.follow(page, self._make_job_in_form())
        handlers = {
            "closed": self._close,
            "used": self._set_fields,
            "choice_made": self._panel.apply,
            "refused": self._panel.set_warnings,
            "job_requested": partial(self.show, name),
            "message": self._context.show_message,
            "run_chosen": self._context.show_run,
            "compare_requested": partial(self.show, "compare"),
            "train_requested": self._panel.train_requested,
            "job_opened": self._panel.set_job,
        }
        for signal, handler in handlers.items():
            if hasattr(page, signal):
                getattr(page, signal).connect(handler)

    def _create_command(self, entry: PageEntry) -> Action:
        action = Action(self._context.window, f"{entry.name}_page", entry.title, entry.tip)
        action.on_trigger(partial(self.show, entry.name))
        return action

    def _set_fields(self, values: Mapping[str, Any]) -> None:
        """Put values by field into the form. Devices are selected in the devices panel instead."""
        for name, value in values.items():
            if name == "devices":
                self._workspace.devices.set_selection(value)
            else:
                self._panel.set_field(name, value)

    def _add_to_comparison(self, run_ids: list[str]) -> None:
        self.show("compare", [*self._workspace.get_page("compare").run_ids, *run_ids])

    def _close(self) -> None:
        """Return to the tab that was visible before the page, and focus the widget that opened it."""
        self._context.actions.pages[self._return_tab].trigger()
        focus = self._return_focus
        if focus is not None and isValid(focus) and focus.isVisible():  # it may have been deleted or hidden since
            focus.setFocus()


def _has_tab(entry: PageEntry) -> bool:
    """Return True if the page is the page of its tab, and False if it covers that page."""
    return TABS[entry.tab].name == entry.name
