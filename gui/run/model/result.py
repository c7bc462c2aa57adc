"""Pages of one evaluation; those without content have no tab."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from gui.run.model.box_errors import BoxErrorsPage, has_box_errors
from gui.run.model.calibration import CalibrationPage
from gui.run.model.classes import ClassesPage, has_classes
from gui.run.model.comparison import ComparisonPage
from gui.run.model.curves import CurvesPage, has_curves
from gui.run.model.samples.page import SamplesPage
from gui.run.model.summary import SummaryPage
from gui.sources.evaluations import OpenedEvaluation
from gui.translation import tr
from gui.widgets.layouts import tab_bar, vbox

TITLES = (tr("Metrics"), tr("Classes"), tr("Curves"), tr("Calibration"), tr("Errors"), tr("Samples"), tr("Compare"))
METRICS, CLASSES, CURVES, CALIBRATION, ERRORS, SAMPLES, COMPARE = range(len(TITLES))

_PAGE_ATTRIBUTES = ("summary", "classes", "curves", "calibration", "errors", "samples", "comparison")
_Page = TypeVar("_Page", bound=QWidget)


class ResultView(QWidget):
    """One evaluation on several pages.

    A page is created and filled when it is first shown. The page on screen stays selected for the next evaluation if it
    has content there.

    Signals:
        message(str, str): outcome of saving; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.opened: OpenedEvaluation | None = None
        self._devices: tuple[str, ...] = ()
        self._stale: set[int] = set()
        self.tabs = tab_bar(tr("Parts of the evaluation"), TITLES)
        self.pages = QStackedWidget()
        self._holders = [vbox() for _title in TITLES]
        for layout in self._holders:
            holder = QWidget()
            holder.setLayout(layout)
            self.pages.addWidget(holder)
        self.setLayout(vbox(self.tabs, (self.pages, 1)))
        self.tabs.currentChanged.connect(self._show_page)

    @cached_property
    def summary(self) -> SummaryPage:
        return self._add_page(METRICS, SummaryPage())

    @cached_property
    def classes(self) -> ClassesPage:
        page = self._add_page(CLASSES, ClassesPage())
        page.cell_opened.connect(self._show_cell)
        return page

    @cached_property
    def curves(self) -> CurvesPage:
        return self._add_page(CURVES, CurvesPage())

    @cached_property
    def calibration(self) -> CalibrationPage:
        return self._add_page(CALIBRATION, CalibrationPage())

    @cached_property
    def errors(self) -> BoxErrorsPage:
        return self._add_page(ERRORS, BoxErrorsPage())

    @cached_property
    def samples(self) -> SamplesPage:
        page = self._add_page(SAMPLES, SamplesPage())
        page.message.connect(self.message)
        return page

    @cached_property
    def comparison(self) -> ComparisonPage:
        page = self._add_page(COMPARE, ComparisonPage())
        page.samples_requested.connect(self._show_samples)
        return page

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """Show `opened`; `devices` run its model on request."""
        self.opened, self._devices = opened, devices
        evaluation = opened.evaluation
        has_content = {
            METRICS: True,
            CLASSES: has_classes(evaluation),
            CURVES: has_curves(opened),
            CALIBRATION: evaluation.calibration is not None,
            ERRORS: has_box_errors(evaluation),
            SAMPLES: len(opened.samples) > 0,
            COMPARE: True,
        }
        self._stale = {number for number, shown in has_content.items() if shown}
        for number, shown in has_content.items():
            if (
                self.tabs.isTabVisible(number) != shown
            ):  # setting the same value again would misplace the tabs before it
                self.tabs.setTabVisible(number, shown)
        if not has_content[self.tabs.currentIndex()]:
            self.tabs.setCurrentIndex(METRICS)
        self._fill(self.tabs.currentIndex())

    def close_work(self) -> None:
        """Stop background work."""
        if "samples" in self.__dict__:
            self.samples.close_work()

    def _add_page(self, number: int, page: _Page) -> _Page:
        self._holders[number].addWidget(page)
        return page

    def _show_page(self, number: int) -> None:
        self.pages.setCurrentIndex(number)
        self._fill(number)

    def _fill(self, number: int) -> None:
        """Show the evaluation on a page, unless it is there already."""
        opened = self.opened
        if opened is None or number not in self._stale:
            return
        self._stale.discard(number)
        if number == SAMPLES:
            self.samples.show_evaluation(opened, self._devices)
        else:
            getattr(self, _PAGE_ATTRIBUTES[number]).show_evaluation(opened)

    def _show_samples(self, paths: frozenset[str], description: str) -> None:
        opened = self.opened
        if opened is not None:
            self.tabs.setCurrentIndex(SAMPLES)
            rows = frozenset(row for row, path in enumerate(opened.samples.paths) if path in paths)
            self.samples.show_rows(rows, description)

    def _show_cell(self, true: int, predicted: int) -> None:
        self.tabs.setCurrentIndex(SAMPLES)
        self.samples.show_cell(true, predicted)
