"""What a run's model is used for: predictions, and files for other programs."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QShowEvent
from PySide6.QtWidgets import QStackedWidget, QTabBar, QVBoxLayout, QWidget

from engine.contract.job import Job
from engine.runs.folder import RunFolder
from gui.run.order_pages import FORM, RESULT, OrderPages
from gui.run.use.convert_form import ConvertForm
from gui.run.use.convert_result import ConvertResult
from gui.run.use.live_view import LiveView
from gui.run.use.predict_form import PredictForm
from gui.run.use.predict_result import PredictResult
from gui.sources.background import ignore_os_error, in_background

TITLES = ("Predict", "Watch live", "Convert")
PREDICT, LIVE, CONVERT = range(len(TITLES))


class UseView(QWidget):
    """Predicts with the model of the run that it is given, and converts it. Files that are dropped are to be
    predicted for.

    Signals: message(str, str) - in plain words, what came of work on another run; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAcceptDrops(True)
        self._run: RunFolder | None = None
        self._stale = False
        self.predict_form, self.predict_result = PredictForm(), PredictResult()
        self.convert_form, self.convert_result = ConvertForm(), ConvertResult()
        self.predict = OrderPages(
            "The prediction", self.predict_form, self.predict_result, first=self.predict_form.files
        )
        self.convert = OrderPages(
            "The conversion", self.convert_form, self.convert_result, first=self.convert_form.checkpoint
        )
        self.live = LiveView()
        self.tabs = QTabBar()
        self.tabs.setAccessibleName("Uses of the model")
        self.tabs.setDrawBase(False)
        self.tabs.setExpanding(False)
        self.stack = QStackedWidget()
        for title, pages in zip(TITLES, (self.predict, self.live, self.convert), strict=True):
            self.tabs.addTab(title)
            self.stack.addWidget(pages)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.tabs)
        layout.addWidget(self.stack, 1)
        self._connect()

    def show_run(self, run: RunFolder | None) -> None:
        """Works with the model of `run`, once it is in sight."""
        if run is not self._run:
            self._run, self._stale = run, True
            if self.isVisible():
                self._look()

    def set_gpus(self, names: dict[str, str]) -> None:
        """What this machine's GPUs are called, by their UUIDs."""
        self.predict_form.devices.set_gpus(names)
        self.live.devices.set_gpus(names)

    def close_work(self) -> None:
        """Ends what goes on, for the end of the window."""
        self.predict.close_work()
        self.live.close_work()
        self.convert.close_work()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._look()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        paths = [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]
        if paths:
            event.acceptProposedAction()
            self.tabs.setCurrentIndex(PREDICT)
            if not self.predict.working:
                self.predict.setCurrentIndex(FORM)
            self.predict_form.add(paths)

    def _look(self) -> None:
        if self._stale and self._run is not None:
            in_background(self._run.job, self, partial(self._show, self._run), ignore_os_error)
        elif self._run is not None:
            self.predict_form.checkpoint.look()
            self.live.checkpoint.look()
            self.convert_form.checkpoint.look()

    def _show(self, run: RunFolder, job: Job | None) -> None:
        if run is self._run:
            self._stale = False
            self.predict_form.show_run(run, job)
            self.live.show_run(run, job)
            self.convert_form.show_run(run, job)
            self.predict.show_run(run)
            self.convert.show_run(run)

    def _show_result(self, pages: OrderPages, result: PredictResult | ConvertResult, path: str) -> None:
        result.show_file(path)
        pages.setCurrentIndex(RESULT)

    def _connect(self) -> None:
        self.tabs.currentChanged.connect(self.stack.setCurrentIndex)
        self.live.message.connect(self.message)
        for pages, form, result in (
            (self.predict, self.predict_form, self.predict_result),
            (self.convert, self.convert_form, self.convert_result),
        ):
            form.wanted.connect(pages.begin)
            pages.done.connect(partial(self._show_result, pages, result))
            pages.message.connect(self.message)
            result.more_wanted.connect(pages.ask)
