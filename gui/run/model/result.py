"""What came of an evaluation: a page for each side of it; those without anything to show are not there."""

from __future__ import annotations

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


class ResultView(QWidget):
    """Shows one evaluation. The page on screen stays so from one to the next, where that has it.

    Signals: message(str, str) - in plain words, what came of saving; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.opened: OpenedEvaluation | None = None
        self.tabs = QTabBar()
        self.tabs.setAccessibleName("Parts of the evaluation")
        self.tabs.setDrawBase(False)
        self.tabs.setExpanding(False)
        self.summary = SummaryPage()
        self.classes = ClassesPage()
        self.curves = CurvesPage()
        self.calibration = CalibrationPage()
        self.errors = BoxErrorsPage()
        self.samples = SamplesPage()
        self.comparison = ComparisonPage()
        self.pages = QStackedWidget()
        for title, page in zip(
            TITLES,
            (self.summary, self.classes, self.curves, self.calibration, self.errors, self.samples, self.comparison),
            strict=True,
        ):
            self.tabs.addTab(title)
            self.pages.addWidget(page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.tabs)
        layout.addWidget(self.pages, 1)
        self.tabs.currentChanged.connect(self._turn)
        self.comparison.samples_wanted.connect(self._show_samples)
        self.classes.cell_opened.connect(self._show_cell)
        self.samples.message.connect(self.message)

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """Shows `opened`, whose model is run on `devices` where that is asked for."""
        self.opened = opened
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
        for number, shown in there.items():
            self.tabs.setTabVisible(number, shown)
        self.tabs.update()  # a tab that has come back is not always drawn
        if not there[self.tabs.currentIndex()]:
            self.tabs.setCurrentIndex(METRICS)
        for page in (self.summary, self.classes, self.curves, self.calibration, self.errors, self.comparison):
            page.show_evaluation(opened)
        self.samples.show_evaluation(opened, devices)

    def close_work(self) -> None:
        """Ends what goes on in the background, for the end of the window."""
        self.samples.close_work()

    def _turn(self, page: int) -> None:
        self.pages.setCurrentIndex(page)
        if page == COMPARE:
            self.comparison.look()

    def _show_samples(self, paths: frozenset[str], told: str) -> None:
        opened = self.opened
        if opened is not None:
            self.tabs.setCurrentIndex(SAMPLES)
            rows = frozenset(row for row, path in enumerate(opened.samples.paths) if path in paths)
            self.samples.show_rows(rows, told)

    def _show_cell(self, true: int, predicted: int) -> None:
        self.tabs.setCurrentIndex(SAMPLES)
        self.samples.show_cell(true, predicted)
