"""What came of an evaluation: a page for each side of it; those without anything to show are not there."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QTabBar, QVBoxLayout, QWidget

from gui.run.model.box_errors import BoxErrorsPage, has_box_errors
from gui.run.model.calibration import CalibrationPage
from gui.run.model.classes import ClassesPage, has_classes
from gui.run.model.comparison import ComparisonPage
from gui.run.model.curves import CurvesPage, has_curves
from gui.run.model.samples.page import SamplesPage
from gui.run.model.summary import SummaryPage
from gui.sources.evaluations import OpenedEvaluation

TITLES = ("Metrics", "Classes", "Curves", "Calibration", "Errors", "Samples", "Compare")
METRICS, CLASSES, CURVES, CALIBRATION, ERRORS, SAMPLES, COMPARE = range(len(TITLES))

_Page = TypeVar("_Page", bound=QWidget)


class ResultView(QWidget):
    """Shows one evaluation. Each page is made, and given the evaluation, when it first comes into sight, since nobody
    should wait for those that are not looked at. The page on screen stays so from one evaluation to the next, where
    that has it.

    Signals: message(str, str) - in plain words, what came of saving; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.opened: OpenedEvaluation | None = None
        self._devices: tuple[str, ...] = ()
        self._stale: set[int] = set()
        self.tabs = QTabBar()
        self.tabs.setAccessibleName("Parts of the evaluation")
        self.tabs.setDrawBase(False)
        self.tabs.setExpanding(False)
        self.pages = QStackedWidget()
        self._places: list[QVBoxLayout] = []
        for title in TITLES:
            self.tabs.addTab(title)
            holder = QWidget()
            self._places.append(QVBoxLayout(holder))
            self._places[-1].setContentsMargins(0, 0, 0, 0)
            self.pages.addWidget(holder)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.tabs)
        layout.addWidget(self.pages, 1)
        self.tabs.currentChanged.connect(self._turn)

    @cached_property
    def summary(self) -> SummaryPage:
        return self._put(METRICS, SummaryPage())

    @cached_property
    def classes(self) -> ClassesPage:
        page = self._put(CLASSES, ClassesPage())
        page.cell_opened.connect(self._show_cell)
        return page

    @cached_property
    def curves(self) -> CurvesPage:
        return self._put(CURVES, CurvesPage())

    @cached_property
    def calibration(self) -> CalibrationPage:
        return self._put(CALIBRATION, CalibrationPage())

    @cached_property
    def errors(self) -> BoxErrorsPage:
        return self._put(ERRORS, BoxErrorsPage())

    @cached_property
    def samples(self) -> SamplesPage:
        page = self._put(SAMPLES, SamplesPage())
        page.message.connect(self.message)
        return page

    @cached_property
    def comparison(self) -> ComparisonPage:
        page = self._put(COMPARE, ComparisonPage())
        page.samples_wanted.connect(self._show_samples)
        return page

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """Shows `opened`, whose model is run on `devices` where that is asked for."""
        self.opened, self._devices = opened, devices
        evaluation = opened.evaluation
        there = {
            METRICS: True,
            CLASSES: has_classes(evaluation),
            CURVES: has_curves(opened),
            CALIBRATION: evaluation.calibration is not None,
            ERRORS: has_box_errors(evaluation),
            SAMPLES: len(opened.samples) > 0,
            COMPARE: True,
        }
        self._stale = {number for number, shown in there.items() if shown}
        for number, shown in there.items():
            if self.tabs.isTabVisible(number) != shown:  # else Qt forgets that the tabs before it need new places
                self.tabs.setTabVisible(number, shown)
        if not there[self.tabs.currentIndex()]:
            self.tabs.setCurrentIndex(METRICS)
        self._fill(self.tabs.currentIndex())

    def close_work(self) -> None:
        """Ends what goes on in the background, for the end of the window."""
        if "samples" in self.__dict__:
            self.samples.close_work()

    def _put(self, number: int, page: _Page) -> _Page:
        self._places[number].addWidget(page)
        return page

    def _turn(self, number: int) -> None:
        self.pages.setCurrentIndex(number)
        self._fill(number)

    def _fill(self, number: int) -> None:
        """Gives a page the evaluation, where it has not got it yet."""
        opened = self.opened
        if opened is None or number not in self._stale:
            return
        self._stale.discard(number)
        if number == SAMPLES:
            self.samples.show_evaluation(opened, self._devices)
            return
        name = {
            METRICS: "summary",
            CLASSES: "classes",
            CURVES: "curves",
            CALIBRATION: "calibration",
            ERRORS: "errors",
            COMPARE: "comparison",
        }[number]
        getattr(self, name).show_evaluation(opened)

    def _show_samples(self, paths: frozenset[str], told: str) -> None:
        opened = self.opened
        if opened is not None:
            self.tabs.setCurrentIndex(SAMPLES)
            rows = frozenset(row for row, path in enumerate(opened.samples.paths) if path in paths)
            self.samples.show_rows(rows, told)

    def _show_cell(self, true: int, predicted: int) -> None:
        self.tabs.setCurrentIndex(SAMPLES)
        self.samples.show_cell(true, predicted)
