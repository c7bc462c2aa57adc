"""Pages without a tab: model cuts, finders, dataset, comparison and searches."""

from __future__ import annotations

from functools import partial
from typing import Any

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QStackedWidget, QWidget

from engine.contract.job import Job
from gui.actions import PAGES, RUNS, TRAIN, with_key
from gui.context import AppContext
from gui.form.form import JobForm
from gui.sources.launcher import resolved
from gui.translation import tr
from gui.workspace import Workspace


class SidePages(QObject):
    """Shows pages below the tab that they belong to, passes the job to them, and leads back."""

    def __init__(self, context: AppContext, workspace: Workspace, stack: QStackedWidget) -> None:
        super().__init__(context.window)
        self._context, self._workspace, self._stack = context, workspace, stack
        self._panel = panel = context.job_panel
        self._opened_from = TRAIN
        cut, dataset = workspace.cut, workspace.dataset
        cut.job_requested.connect(self._show_cut)
        cut.used.connect(panel.set_cuts)
        cut.closed.connect(lambda: self._close(self._form.cuts.show_button))
        panel.cut_requested.connect(self._show_cut)
        panel.finder_requested.connect(self._show_finder)
        dataset.closed.connect(lambda: self._close(self._form.card.open))
        dataset.chosen.connect(panel.apply)
        panel.gallery_requested.connect(self._show_dataset)
        panel.labels_requested.connect(self._show_labels)
        panel.inspected.connect(lambda: dataset.show_report(self._form.report))
        panel.changed.connect(self._on_job_changed)
        workspace.runs.compare_requested.connect(self._compare)
        workspace.runs.add_to_comparison_requested.connect(
            lambda ids: self._compare([*workspace.comparison().run_ids, *ids])
        )
        workspace.runs.searches_requested.connect(self._show_searches)
        dataset.show_report(self._form.report)
        dataset.set_job(self._form.job)

    @property
    def _form(self) -> JobForm:
        return self._panel.form

    def _job(self) -> Job | None:
        return resolved(self._form.job) if self._form.job is not None else None

    def _on_job_changed(self) -> None:
        job = self._job()
        for page in self._workspace.finders.values():
            page.set_job(job)
        self._workspace.cut.set_job(job)
        self._workspace.dataset.set_job(self._form.job)
        self._pass_job_to_search()

    def _show_cut(self) -> None:
        self._workspace.cut.show_job(self._job(), self._form.problems, self._form.device_names())
        self._show(self._workspace.cut, TRAIN)

    def _show_finder(self, field: str) -> None:
        page = self._workspace.finder(field)
        if self._add(page):
            page.wanted.connect(partial(self._show_finder, field))
            page.used.connect(self._set_fields)
            page.refused.connect(self._panel.set_warnings)
            page.closed.connect(lambda: self._close(self._form.find_buttons[field]))
        page.show_job(self._job(), self._form.problems)
        self._show(page, TRAIN)

    def _set_fields(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if name == "devices":
                self._workspace.devices.set_selection(value)
            else:
                self._panel.set_field(name, value)

    def _show_dataset(self, example: int) -> None:
        """Show large, augmented training examples, starting with the one at index `example`."""
        page = self._workspace.dataset
        page.show_augmented(self._form.field_value("augmentation") != "none")
        self._show(page, TRAIN)
        page.choose(example)

    def _show_labels(self) -> None:
        """Show the dataset with its labels before the first training, without moving the keyboard focus."""
        page = self._workspace.dataset
        page.show_report(self._form.report)
        page.show_augmented(False)
        self._show(page, TRAIN)
        page.show_notice(
            tr("Check that the labels are right. Then go back and press {action} again, or press {key} here.").format(
                action=self._form.action, key=with_key("", "train").strip(" ()")
            )
        )

    def _compare(self, run_ids: list[str]) -> None:
        page = self._workspace.comparison()
        if self._add(page):
            page.closed.connect(lambda: self._close(self._workspace.runs.table))
            page.message.connect(self._context.show_message)
        page.show_runs(run_ids)
        self._show(page, RUNS)
        page.controls.axis.setFocus()

    def _show_searches(self) -> None:
        page = self._workspace.searches()
        if self._add(page):
            runs = self._workspace.runs
            page.closed.connect(lambda: self._close(runs.table))
            page.message.connect(self._context.show_message)
            page.run_chosen.connect(runs.run_chosen)
            page.compare_requested.connect(self._compare)
            page.train_requested.connect(self._panel.train_requested)
            page.job_opened.connect(self._panel.set_job)
            self._pass_job_to_search()
        self._show(page, RUNS)
        page.show_list()

    def _pass_job_to_search(self) -> None:
        form, page = self._form, self._workspace.search
        if page is not None:
            page.form.set_job(self._job(), form.problems, form.devices, form.device_names(), form.report)

    def _add(self, page: QWidget) -> bool:
        """Add a page to the stack; return False if it is there."""
        if self._stack.indexOf(page) >= 0:
            return False
        self._stack.addWidget(page)
        return True

    def _show(self, page: QWidget, tab: int) -> None:
        """Show `page` and select the tab that it belongs to."""
        if self._stack.currentWidget() is page:
            return
        self._add(page)
        if self._stack.currentIndex() < len(PAGES):
            self._opened_from = self._stack.currentIndex()
        self._context.actions.pages[tab].trigger()
        self._stack.setCurrentWidget(page)

    def _close(self, opened_by: QWidget) -> None:
        """Return to the tab from which the page was opened, with the keyboard focus on the widget that opened it."""
        self._context.actions.pages[self._opened_from].trigger()
        opened_by.setFocus()
