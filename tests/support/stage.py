"""Complete window with synthetic content on each page, for tests and screenshots of all pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QDialog, QWidget

from engine.contract.dataset import DatasetReport
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.contract.model_split import ModelSplit
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.system import paths
from gui.advice.answer_view import AnswerView
from gui.alerts.rule_row import RuleRow
from gui.main_window import MainWindow
from gui.monitor.processes.view import ProcessesView
from gui.monitor.toolbar import ALERTS, GPUS, PROCESSES
from gui.monitor.toolbar import VIEWS as MONITOR_VIEWS
from gui.pages import MONITOR, RUNS, SEARCHES, TRAIN
from gui.run.header import CURVES, EVALUATE
from gui.run.header import VIEWS as RUN_VIEWS
from gui.run.model.result import SummaryPage
from tests.gui.advice.test_advice_page import an_answer
from tests.gui.compare.runs import make_accuracy_change, make_run
from tests.gui.finders.test_batch_size import FOUND as SIZES_FOUND
from tests.gui.finders.test_learning_rate import make_curve
from tests.gui.run.evaluated_run import make_predicted_run
from tests.gui.run.model.saved_evaluations import make_dataset, save_evaluation
from tests.gui.split_points.example import make_split
from tests.support.made_searches import make_search
from tests.support.unclear_dataset import UNCERTAIN, UNCLEAR

CHECKING = "Checking…"
"""Reason why a search can't be started while its form is validated."""
SECOND = "run-curves"
"""Name of the first page in `pages` that shows a run."""
ACCURACIES = ((0.3, 0.5, 0.6, 0.62), (0.4, 0.6, 0.7, 0.74))
SAMPLE = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, batch_size=32)
TRAINED = SAMPLE.with_fields(epochs=2000)
PIPELINE = Job.from_fields(
    dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, strategy="pipeline", devices=("cpu", "cpu")
)
TOO_LARGE = Problem(
    "batch_size",
    "U-Net with a ResNet-34 encoder needs about 41.6 GiB for a batch of 64 images of 512 x 512 pixels on 2 CPU workers, and "
    "this machine has 15.6 GiB of memory of which 9.8 GiB are free.",
    "Choose a smaller batch size or image size, or checkpoint activations.",
)


class Stage:
    """Main window with synthetic content. Each `show_` method opens a page and returns the widget that shows it."""

    def __init__(self, window: MainWindow) -> None:
        """Prepare a window that was started with the GPUs of the NVML profile "everything"."""
        self.window = window
        window.show()
        process_events_until(lambda: window.workspace is not None)
        assert window.workspace is not None
        self.workspace = window.workspace
        process_events_until(lambda: len(self.workspace.history.devices) >= 8 and bool(self.window.train.welcome.rows))
        process_events_until(lambda: bool(window.form.submit_bar.estimate.text()))

    def create_contents(self, folder: Path) -> None:
        """Create runs and searches, and open one of the runs. Only the welcome page can be shown without them."""
        dataset = make_dataset(folder / "trees")
        self.run = make_predicted_run(dataset=str(dataset))
        (self.run.checkpoints / "best.pt").write_bytes(b"weights")
        save_evaluation(self.run, dataset)
        self.others = [make_run(dataset=str(dataset), change=make_accuracy_change(*many)) for many in ACCURACIES]
        make_search("flowers", 40, running=2)
        make_search("both goals", 40, goals=2)
        self.window.show_run(RunFolder(self.run.path))
        process_events_until(lambda: not self.workspace.session.loading)

    def pages(self) -> dict[str, Callable[[], QWidget]]:
        """Return functions by the name of a page, each of which opens its page and returns its widget.

        The functions must be called in this order. `create_contents` must be called before the function of the page
        `SECOND`.
        """
        acts = self.window.acts
        pages_by_name: dict[str, Callable[[], QWidget]] = {"first-start": lambda: self.window}
        for number, name in enumerate(RUN_VIEWS):
            pages_by_name[f"run-{name.split()[0].lower()}"] = partial(self.show_run, number)
        for number, name in enumerate(MONITOR_VIEWS):
            pages_by_name[f"monitor-{name.lower()}"] = partial(self.show_monitor, number)
        pages_by_name |= {
            "runs": self.show_runs,
            "compare": self.show_comparison,
            "searches": self.show_searches,
            "search": partial(self.show_search, "flowers"),
            "search-two-goals": partial(self.show_search, "both goals"),
            "search-new": self.show_new_search,
            "advice": self.show_advice,
            "learning-rate": partial(self.show_finder, "learning_rate", make_curve()),
            "batch-size": partial(self.show_finder, "batch_size", SIZES_FOUND),
            "split-points": self.show_split,
            "split-points-refused": self.show_refused_split,
            "dataset-unclear": partial(self.show_dataset, UNCLEAR),
            "dataset-notice": partial(self.show_dataset, UNCERTAIN, "Check that the labels are right."),
            "dataset": lambda: self.show_dataset(self.window.form.inspection.report),
        }
        for action in (acts.preferences, acts.shortcuts, acts.palette, acts.about):
            pages_by_name[action.objectName()] = partial(self.show_dialog, action.trigger)
        return pages_by_name | {"help": self.show_help}

    def expanded_pages(self) -> dict[str, Callable[[], QWidget]]:
        """Return functions by name, each of which opens a page, expands the page's sections and returns its widget."""
        sections, time = self.window.form.sections, self.workspace.run.advice.time
        return {
            "new-job": self.show_form,
            "form-unfolded": lambda: self._expand(self.show_form(), *(each.button for each in sections)),
            "run-settings": self.show_run_settings,
            "run-unfolded": lambda: self._expand(self.show_run(CURVES), time.fold),
            "alerts-unfolded": lambda: self._expand(
                self.show_monitor(ALERTS), *(row.fold for row in self.window.findChildren(RuleRow))
            ),
            "advice-unfolded": lambda: self._expand(
                self.show_advice(), *(view.fold for view in self.window.findChildren(AnswerView))
            ),
        }

    def _expand(self, page: QWidget, *folds: QAbstractButton) -> QWidget:
        for fold in folds:
            fold.setChecked(True)
        QTest.qWait(1)  # the next events update the layout
        return page

    def show_page(self, page: QWidget) -> QWidget:
        self.window.header.show_page(TRAIN)
        self.window.pages.setCurrentWidget(page)
        return self.window

    def show_run(self, view: int) -> QWidget:
        self.window.header.show_page(TRAIN)
        run = self.workspace.session.run
        if run is not None:
            self.window.show_run(run)
        self.workspace.run.header.tabs.setCurrentIndex(view)
        if view == EVALUATE:
            process_events_until(lambda: bool(self.window.findChildren(SummaryPage)))
        return self.window

    def show_form(self) -> QWidget:
        self.window.show_form()
        return self.window

    def show_run_settings(self) -> QWidget:
        self.show_run(CURVES)
        self.window.acts.run_settings.setChecked(True)
        return self.window

    def show_monitor(self, view: int) -> QWidget:
        self.window.header.show_page(MONITOR)
        self.workspace.monitor.show_view(view)
        tiles = self.workspace.monitor.gpus.tiles.tiles
        process_events_until(lambda: len(tiles) >= 8)
        if view == GPUS:  # activity is measured only while it is visible
            process_events_until(lambda: all("SMs active" in tile.accessibleDescription() for tile in tiles.values()))
        if view == PROCESSES:
            process_events_until(lambda: self.window.findChildren(ProcessesView)[0].rows.rowCount() > 0)
        return self.window

    def show_runs(self) -> QWidget:
        self.window.header.show_page(RUNS)
        process_events_until(lambda: self.workspace.runs.table.model().rowCount() >= 3)
        return self.window

    def show_comparison(self) -> QWidget:
        self.workspace.runs.compare_requested.emit([run.run_id for run in (self.run, *self.others)])
        return self.window

    def show_searches(self) -> QWidget:
        self.window.header.show_page(SEARCHES)
        self.workspace.get_page("search").show_list()
        return self.window

    def show_search(self, name: str) -> QWidget:
        self.show_searches()
        page = self.workspace.get_page("search")
        page.show_search(name)
        process_events_until(lambda: page.view.data is not None and page.view.data.search.name == name)
        process_events_until(lambda: not page.view.plots.pending)
        return self.window

    def show_new_search(self) -> QWidget:
        self.show_searches()
        page = self.workspace.get_page("search")
        page.new.trigger()
        process_events_until(lambda: page.form.start.disabled_reason != CHECKING)
        return self.window

    def show_advice(self) -> QWidget:
        return self.show_finder("strategy", an_answer(), PIPELINE)

    def show_finder(self, field: str, found: object, job: Job = SAMPLE) -> QWidget:
        """Open the finder page for `field` of `job`, with the result `found`, and return it."""
        self.window.form.finder_requested.emit(field)
        page = self.workspace.get_page(field)
        page.show_job(job, [])
        page.child.cancel()
        page.child.done.emit(found)
        return self.show_page(page)

    def show_split(self) -> QWidget:
        return self._show_split(make_split())

    def show_refused_split(self) -> QWidget:
        return self._show_split(TOO_LARGE)

    def _show_split(self, answer: ModelSplit | Problem) -> QWidget:
        page = self.workspace.get_page("split_points")
        page.show_job(PIPELINE, [], {})
        page.child.cancel()
        if isinstance(answer, Problem):
            page.child.refused.emit((answer,))
        else:
            page.child.done.emit(answer)
        return self.show_page(page)

    def show_dataset(self, report: DatasetReport | None, notice: str = "") -> QWidget:
        page = self.workspace.get_page("dataset")
        page.show_report(report)
        page.show_notice(notice)
        return self.show_page(page)

    def show_dialog(self, show: Callable[[], object]) -> QWidget:
        for dialog in self.window.findChildren(QDialog):
            dialog.close()
        show()
        return next(dialog for dialog in self.window.findChildren(QDialog) if dialog.isVisible())

    def show_help(self) -> QWidget:
        for dialog in self.window.findChildren(QDialog):
            dialog.close()
        self.window.show_help()
        assert self.window.help is not None
        return self.window.help

    def show_training(self) -> QWidget:
        """Start a run on the CPU that trains until it is stopped, and show its curves."""
        store = self.workspace.session
        if not store.active:
            self.window.show_form()
            self.window.form.set_job(TRAINED)
            self.workspace.devices.set_selection((CPU,))
            process_events_until(self.window.acts.train.isEnabled)
            self.window.form.start()
            process_events_until(lambda: store.active and len(store.data.validations.step) > 2, seconds=240.0)
        return self.show_run(CURVES)

    def stop_training(self) -> None:
        if self.workspace.session.active:
            self.window.acts.stop.trigger()
            process_events_until(lambda: not self.workspace.session.active)


def process_events_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Process events until `condition` returns True. Raise TimeoutError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain")
        QTest.qWait(20)
