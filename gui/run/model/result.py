"""Pages of an evaluation. A page without content has no tab."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from engine.contract.inference.evaluation import Evaluation
from engine.contract.problems import Problem
from engine.system.plain_text import shorten
from gui.format import localized
from gui.run.classes.confusion_matrix import ConfusionMatrix
from gui.run.model.classes import (
    BoxErrorsPage,
    CalibrationPage,
    ClassesPage,
    find_confusion,
)
from gui.run.model.comparison import ComparisonPage
from gui.run.model.curves import CurvesPage
from gui.run.model.samples.page import SamplesPage
from gui.run.model.widgets import (
    PlainTable,
    describe_samples,
    describe_skipped,
    format_interval,
    format_value,
    list_metrics,
)
from gui.sources.evaluations import OpenedEvaluation
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import ProblemLabel, caption, heading_label
from gui.widgets.layouts import create_tab_bar, hbox, make_scroll_area, vbox

TITLES = (
    tr("Summary"),
    tr("Per class"),
    tr("PR and ROC"),
    tr("Calibration"),
    tr("Errors"),
    tr("Samples"),
    tr("Compare with"),
)
SUMMARY, CLASSES, CURVES, CALIBRATION, ERRORS, SAMPLES, COMPARE = range(len(TITLES))

_PAGE_ATTRIBUTES = ("summary", "classes", "curves", "calibration", "errors", "samples", "comparison")
_Page = TypeVar("_Page", bound=QWidget)


class ResultView(QWidget):
    """View of an evaluation on several pages. Each page is created when it is first shown.

    The current page remains selected for the next evaluation if it has content there.

    Signals:
        message(str, str): the result of saving a file, with the severity "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.opened: OpenedEvaluation | None = None
        self._devices: tuple[str, ...] = ()
        self._stale: set[int] = set()  # pages that are filled when they are opened
        self.tabs = styled(create_tab_bar(tr("Parts of the evaluation"), TITLES), "parts")
        self.pages = QStackedWidget()
        self._holders = [vbox() for _title in TITLES]  # layouts for the pages, which are created on demand
        for layout in self._holders:
            holder = QWidget()
            holder.setLayout(layout)
            self.pages.addWidget(holder)
        self.setLayout(vbox(self.tabs, (self.pages, 1)))
        self.tabs.currentChanged.connect(self._show_page)

    @cached_property
    def summary(self) -> SummaryPage:
        page = self._add_page(SUMMARY, SummaryPage())
        page.cell_opened.connect(self._show_cell)
        return page

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
        """Show the results of an evaluation. Its model runs on `devices` for drawings and heat maps.

        Tabs without content are hidden. Only the current page is updated, the others when they are opened.
        """
        self.opened, self._devices = opened, devices
        evaluation = opened.evaluation
        has_content = {
            SUMMARY: True,
            CLASSES: bool(evaluation.per_class or evaluation.confusion),
            CURVES: bool(opened.curves.classes),
            CALIBRATION: evaluation.calibration is not None,
            ERRORS: bool(evaluation.box_errors or evaluation.sizes),
            SAMPLES: len(opened.samples) > 0,
            COMPARE: True,
        }
        self._stale = {number for number, is_offered in has_content.items() if is_offered}
        if not has_content[self.tabs.currentIndex()]:  # hiding its tab would select the next one
            self.tabs.setCurrentIndex(SUMMARY)
        for number, is_offered in has_content.items():
            # Setting the same value again would misplace the tabs before it.
            if self.tabs.isTabVisible(number) != is_offered:
                self.tabs.setTabVisible(number, is_offered)
        self._show_on_page(self.tabs.currentIndex())

    def show_all_samples(self) -> None:
        """Show the page with the samples, if the evaluation has any."""
        if self.tabs.isTabVisible(SAMPLES):
            self.tabs.setCurrentIndex(SAMPLES)

    def close_work(self) -> None:
        """Stop background work when the window closes."""
        if "samples" in self.__dict__:  # otherwise, the page hasn't been created
            self.samples.close_work()

    def _add_page(self, number: int, page: _Page) -> _Page:
        """Put a new page into the stack at the index `number`, and return the page."""
        self._holders[number].addWidget(page)
        return page

    def _show_page(self, number: int) -> None:
        """Show the page of the selected tab, and the evaluation on it."""
        self.pages.setCurrentIndex(number)
        self._show_on_page(number)

    def _show_on_page(self, number: int) -> None:
        """Show the evaluation on the page with the index `number`, unless the page already shows it."""
        opened = self.opened
        if opened is None or number not in self._stale:
            return
        self._stale.discard(number)
        if number == SAMPLES:
            self.samples.show_evaluation(opened, self._devices)
        else:
            getattr(self, _PAGE_ATTRIBUTES[number]).show_evaluation(opened)

    def _show_samples(self, paths: frozenset[str], description: str) -> None:
        """Show only the samples at `paths` on the page of samples. `description` describes them."""
        opened = self.opened
        if opened is not None:
            self.tabs.setCurrentIndex(SAMPLES)
            rows = frozenset(row for row, path in enumerate(opened.samples.paths) if path in paths)
            self.samples.show_rows(rows, description)

    def _show_cell(self, true: int, predicted: int) -> None:
        """Show the samples in a cell of the confusion matrix, given by indices of true and predicted class."""
        self.tabs.setCurrentIndex(SAMPLES)
        self.samples.show_cell(true, predicted)


_WIDE = 1300
"""Minimum width in pixels for the confusion matrix in the summary, at a text size of 100%."""


class SummaryPage(QWidget):
    """Page with the metrics and warnings of an evaluation and, in a wide window, its confusion matrix.

    Signals:
        cell_opened(int, int): the user wants to see the samples with these indices of true and predicted class.
    """

    cell_opened = Signal(int, int)

    def __init__(self) -> None:
        super().__init__()
        self.matrix = ConfusionMatrix()
        self.matrix.setToolTip(tr("Click a cell or press Enter to show its samples"))
        self.matrix.cell_opened.connect(self.cell_opened)
        self._has_matrix = False
        self.about = caption()
        self.metrics = PlainTable(tr("Metrics"), (tr("Metric"), tr("Value"), tr("95% interval")))
        self.no_intervals = caption(tr("Too few samples for intervals."))
        self.warnings = ProblemLabel()
        self.confident = heading_label(tr("Confident predictions only"))
        self.thresholds = PlainTable(
            tr("Confident predictions only"),
            (tr("Minimum confidence"), tr("Predicted"), tr("Precision"), tr("Recall"), "F1"),
        )
        content = vbox(self.about, self.warnings, self.metrics, self.no_intervals, self.confident, self.thresholds, 1)
        self.setLayout(hbox((make_scroll_area(content), 1), (self.matrix, 1), spacing=24))

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        """Show metrics, warnings, confusion matrix and the metrics of confident predictions.

        Parts without data are hidden.
        """
        evaluation = opened.evaluation
        confusion = find_confusion(evaluation)
        self._has_matrix = confusion is not None
        self.matrix.show_counts(evaluation.classes, confusion)
        self._arrange()
        self.about.setText(
            shorten(
                tr("{samples}, with {checkpoint}").format(
                    samples=describe_samples(evaluation), checkpoint=evaluation.checkpoint
                )
            )
        )
        rows = [
            (
                entry.title,
                format_value(value.value, percent=entry.percent),
                format_interval(value, percent=entry.percent),
            )
            for entry, value in list_metrics(evaluation)
        ]
        self.metrics.show_rows(rows)
        self.no_intervals.setVisible(not any(interval for _title, _value, interval in rows))
        self.warnings.show_problems(tuple(_list_warnings(evaluation)))
        self.thresholds.show_rows(
            [
                (localized(row.threshold, 2), *map(format_value, (row.share, row.precision, row.recall, row.f1)))
                for row in evaluation.thresholds
            ]
        )
        self.confident.setVisible(bool(evaluation.thresholds))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """Show the confusion matrix if there is one and the page is wide enough for it."""
        self.matrix.setVisible(self._has_matrix and self.width() >= theme.scale_pixels(_WIDE))


def _list_warnings(evaluation: Evaluation) -> list[Problem]:
    """Return the warnings of the evaluation, and those about skipped files."""
    texts = list(evaluation.warnings)
    if evaluation.skipped:
        texts.append(describe_skipped(evaluation.skipped, len(evaluation.skipped), "unreadable file"))
    return [Problem("", text, severity="warning") for text in texts]
