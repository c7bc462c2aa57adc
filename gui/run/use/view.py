"""View of the uses of a run's model: predictions, live video and conversion."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from engine.contract.job import Job
from engine.runs.folder import RunFolder
from gui.run.request_pages import FORM, RESULT, RequestPages
from gui.run.use.convert import ConvertForm, ConvertResult
from gui.run.use.live_view import LiveView
from gui.run.use.predict import PredictForm, PredictResult
from gui.sources.background import ignore_os_error, in_background
from gui.translation import tr
from gui.widgets.drop_target import FileDropTarget
from gui.widgets.layouts import create_tab_bar, vbox

TITLES = (tr("Predict"), tr("Watch live"), tr("Convert"))
PREDICT, LIVE, CONVERT = range(len(TITLES))


class UseView(QWidget):
    """View for using a run's model: predictions, live video and conversion. Dropped files go to the prediction form.

    Signals:
        message(str, str): the result of background work, with the severity "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.drop_target = FileDropTarget(self, tr("Drop files or folders to predict for them"))
        self.drop_target.dropped.connect(self.add_files)
        self._run: RunFolder | None = None
        self._must_load = False  # True if the forms are still about another run
        self.predict_form, self.predict_result = PredictForm(), PredictResult()
        self.convert_form, self.convert_result = ConvertForm(), ConvertResult()
        self.predict = RequestPages(
            tr("The prediction"), self.predict_form, self.predict_result, first=self.predict_form.files
        )
        self.convert = RequestPages(
            tr("The conversion"), self.convert_form, self.convert_result, first=self.convert_form.checkpoint
        )
        self.live = LiveView()
        self.tabs = create_tab_bar(tr("Uses of the model"), TITLES)
        self.stack = QStackedWidget()
        for page in (self.predict, self.live, self.convert):
            self.stack.addWidget(page)
        self.setLayout(vbox(self.tabs, (self.stack, 1)))
        self._connect()

    def show_run(self, run: RunFolder | None) -> None:
        """Offer to use the model of `run` as soon as the view is visible. None means that no run is open."""
        if run is not self._run:
            self._run, self._must_load = run, True
            if self.isVisible():
                self._refresh()

    def set_gpus(self, names: dict[str, str]) -> None:
        """Set the titles of this machine's GPUs, by UUID."""
        self.predict_form.devices.set_gpus(names)
        self.live.devices.set_gpus(names)

    def close_work(self) -> None:
        """Stop background work when the window closes."""
        self.predict.close_work()
        self.live.close_work()
        self.convert.close_work()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def add_files(self, paths: Sequence[str]) -> None:
        """Add files to the prediction form and show the form."""
        self.tabs.setCurrentIndex(PREDICT)
        if not self.predict.is_working:
            self.predict.setCurrentIndex(FORM)
        self.predict_form.add(paths)

    def _refresh(self) -> None:
        """Fill in all forms for a run that was just opened, or reload the checkpoints of the same run."""
        if self._must_load and self._run is not None:
            in_background(self._run.job, self, partial(self._fill_forms, self._run), ignore_os_error)
        elif self._run is not None:
            self.predict_form.checkpoint.refresh()
            self.live.checkpoint.refresh()
            self.convert_form.checkpoint.refresh()

    def _fill_forms(self, run: RunFolder, job: Job | None) -> None:
        """Fill in the forms for `run`, unless another run has been opened in the meantime."""
        if run is self._run:
            self._must_load = False
            self.predict_form.show_run(run, job)
            self.live.show_run(run, job)
            self.convert_form.show_run(run, job)
            self.predict.show_run(run)
            self.convert.show_run(run)

    def _show_result(self, pages: RequestPages, result: PredictResult | ConvertResult, path: str) -> None:
        """Show the results from the file `path` on the page `result`, and switch `pages` to it."""
        result.show_file(path)
        pages.setCurrentIndex(RESULT)

    def _connect(self) -> None:
        """Connect each form with the process that executes its requests, and the process with its results."""
        self.tabs.currentChanged.connect(self.stack.setCurrentIndex)
        self.live.message.connect(self.message)
        for pages, form, result in (
            (self.predict, self.predict_form, self.predict_result),
            (self.convert, self.convert_form, self.convert_result),
        ):
            form.submitted.connect(pages.start)
            pages.done.connect(partial(self._show_result, pages, result))
            pages.message.connect(self.message)
            result.more_requested.connect(pages.show_form)
