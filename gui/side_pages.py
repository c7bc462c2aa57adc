"""The pages that have no tab: the cut of the model, the finders of values, the dataset large, compared runs, and
searches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from engine.contract.job import Job
from gui.actions import PAGES, RUNS, TRAIN, Actions
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.sources.launcher import resolved
from gui.workspace import Workspace

if TYPE_CHECKING:
    from gui.search.page import SearchPage


class SidePages(QObject):
    """Shows them under the header's page that they belong to, keeps them at the form's job, and leads back to where
    they were asked for.

    Signals: message(str, str) - in plain words, what one has done or why not; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(
        self, job_panel: JobPanel, workspace: Workspace, stack: QStackedWidget, acts: Actions, window: QObject
    ) -> None:
        super().__init__(window)
        self._job_panel, self._workspace, self._stack, self._acts = job_panel, workspace, stack, acts
        self._asked_from = TRAIN
        cut, dataset = workspace.cut, workspace.dataset
        cut.wanted.connect(self._show_cut)
        cut.used.connect(job_panel.set_cuts)
        cut.closed.connect(lambda: self._close(self._form.cuts.show_button))
        job_panel.cut_requested.connect(self._show_cut)
        job_panel.finder_requested.connect(self._show_finder)
        dataset.closed.connect(lambda: self._close(self._form.card.open))
        dataset.chosen.connect(job_panel.apply)
        job_panel.gallery_requested.connect(self._show_dataset)
        job_panel.labels_requested.connect(self._show_labels)
        job_panel.inspected.connect(lambda: dataset.show_report(self._form.report))
        job_panel.changed.connect(self._follow)
        workspace.runs.compare_wanted.connect(self._compare)
        workspace.runs.compare_also.connect(lambda ids: self._compare([*workspace.comparison().run_ids, *ids]))
        workspace.runs.searches_wanted.connect(self._show_searches)
        dataset.show_report(self._form.report)
        dataset.set_job(self._form.job)

    @property
    def _form(self) -> JobForm:
        return self._job_panel.form

    def _follow(self) -> None:
        job = self._job()
        for page in self._workspace.finders.values():
            page.set_job(job)
        self._workspace.cut.set_job(job)
        self._workspace.dataset.set_job(self._form.job)
        if self._workspace.search is not None:
            self._show_job_to(self._workspace.search)

    def _job(self) -> Job | None:
        return resolved(self._form.job) if self._form.job is not None else None

    def _show_cut(self) -> None:
        self._workspace.cut.show_job(self._job(), self._form.problems, self._form.device_names())
        self._show(self._workspace.cut, TRAIN)

    def _show_finder(self, field: str) -> None:
        page = self._workspace.finder(field)
        if self._stack.indexOf(page) < 0:
            self._stack.addWidget(page)
            page.wanted.connect(partial(self._show_finder, field))
            page.used.connect(self._set)
            page.refused.connect(self._job_panel.set_warnings)
            page.closed.connect(lambda: self._close(self._form.find_buttons[field]))
        page.show_job(self._job(), self._form.problems)
        self._show(page, TRAIN)

    def _set(self, values: dict[str, Any]) -> None:
        """Puts values into the form, and devices into their panel."""
        for name, value in values.items():
            if name == "devices":
                self._workspace.devices.set_selection(value)
            else:
                self._job_panel.set_field(name, value)

    def _show_dataset(self, example: int) -> None:
        """The dataset large, from that example on, as the form's augmentation would make it."""
        page = self._workspace.dataset
        page.show_augmented(self._form.field_value("augmentation") != "none")
        self._show(page, TRAIN)
        page.choose(example)

    def _show_labels(self) -> None:
        """Show the dataset with its labels before the first training; the keyboard stays where it is."""
        page = self._workspace.dataset
        page.show_report(self._form.report)
        page.show_augmented(False)
        self._show(page, TRAIN)
        page.show_notice(f"Check that the labels are right, then press {self._form.action} again.")

    def _compare(self, run_ids: list[str]) -> None:
        page = self._workspace.comparison()
        if self._stack.indexOf(page) < 0:
            self._stack.addWidget(page)
            page.closed.connect(lambda: self._close(self._workspace.runs.table))
            page.message.connect(self.message)
        page.show_runs(run_ids)
        self._show(page, RUNS)
        page.controls.axis.setFocus()

    def _show_searches(self) -> None:
        page = self._workspace.searches()
        if self._stack.indexOf(page) < 0:
            self._stack.addWidget(page)
            runs = self._workspace.runs
            page.closed.connect(lambda: self._close(runs.table))
            page.message.connect(self.message)
            page.run_chosen.connect(runs.run_chosen)
            page.compare_wanted.connect(self._compare)
            page.train_wanted.connect(self._job_panel.train_requested)
            page.job_opened.connect(self._job_panel.set_job)
            self._show_job_to(page)
        self._show(page, RUNS)
        page.show_list()

    def _show_job_to(self, page: SearchPage) -> None:
        form = self._form
        page.set_job(self._job(), form.problems, form.devices, form.device_names(), form.report)

    def _show(self, page: QWidget, below: int) -> None:
        """Brings `page` forward, with the tab that it belongs to chosen."""
        if self._stack.currentWidget() is page:
            return
        if self._stack.currentIndex() < len(PAGES):
            self._asked_from = self._stack.currentIndex()
        self._acts.pages[below].trigger()
        self._stack.setCurrentWidget(page)

    def _close(self, asked_by: QWidget) -> None:
        self._acts.pages[self._asked_from].trigger()
        asked_by.setFocus()
