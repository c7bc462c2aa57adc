"""The run on screen: what it is, its curves and log, how it does on each class, what it predicts, its result and what
its model is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QScrollArea, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from engine.contract.devices import Snapshot, gpu_title
from engine.runs.folder import RunFolder
from gui.actions import Action
from gui.run.classes.view import ClassesView
from gui.run.curves.charts import RunCharts, device_titles
from gui.run.curves.plot_rows import LargePlot
from gui.run.curves.time_spent import TimeSpentView
from gui.run.exporter import Exporter
from gui.run.header import CURVES, MODEL, USE, VIEW_KEYS, RunHeader
from gui.run.log_view import LogView
from gui.run.model.view import ModelView
from gui.run.predictions.view import PredictionsView
from gui.run.strategy.view import StrategyView
from gui.run.use.view import UseView
from gui.run.verdict_card import VerdictCard
from gui.sources.run_session import RunSession
from gui.sources.settings import Settings
from gui.style import theme
from gui.welcome.page import WelcomePage
from gui.widgets.file_dialogs import choose, choose_target
from gui.widgets.front_stack import FrontStack

_PREPARE_MS = 400


class RunPage(QWidget):
    """Shows what a `RunSession` follows. The plots are made a little after the page is first seen. Which of its views
    is shown stays so from run to run.

    Signals:
        next_time_wanted(str, object): a field of the job, and the value that the next run is to have for it.
        changes_requested(RunFolder, dict, bool): That run with these values is to be put into the form; True to train it
            further.
        message(str, str): in plain words, what came of exporting the run or a table of it, or that the run does not answer;
            "info" or "warning".
    """

    next_time_wanted = Signal(str, object)
    changes_requested = Signal(object, object, bool)
    message = Signal(str, str)

    def __init__(self, store: RunSession, settings: Settings | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.store = store
        self._settings = settings or Settings()
        self.charts: RunCharts | None = None
        self.header = RunHeader()
        self.log = LogView()
        self.result = self.header.result
        self.result.export_wanted.connect(self._ask_where_to)
        self.verdict = VerdictCard()
        self.verdict.requested.connect(
            lambda changes, further: self.changes_requested.emit(store.run, changes, further)
        )
        self.exporter = Exporter(self)
        self.exporter.done.connect(lambda path: self.message.emit(f"The run was exported to {path}.", "info"))
        self.exporter.failed.connect(lambda why: self.message.emit(why, "warning"))
        self.strategy = StrategyView()
        self.time = TimeSpentView()
        self.time.loader_workers_wanted.connect(store.use_loader_workers)
        self.time.next_time_wanted.connect(self.next_time_wanted)
        self.classes = ClassesView()
        self.classes.message.connect(self.message)
        self.predictions = PredictionsView()
        self._of_model: dict[int, ModelView | UseView] = {}
        self.views = FrontStack()
        self.header.tabs.currentChanged.connect(self._show_view)
        self._gpu_titles: dict[str, str] = {}
        self._titles: Mapping[str, str] = {}
        self._result_shown = False
        self._executions = 0
        self.welcome = WelcomePage()
        self.large = LargePlot()
        self._curves = QStackedWidget()
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._stack = FrontStack()
        self._stack.addWidget(self.welcome)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._stack)
        self._connect()

    def _connect(self) -> None:
        store = self.store
        self.header.remote.fetched.connect(self._look_for_models)
        self.header.elsewhere.clicked.connect(self._ask_for_another_folder)
        store.message.connect(self.message)
        store.opened.connect(self._opened)
        store.changed.connect(self._show)
        store.finished.connect(lambda _outcome: self._show())
        theme.notifier.changed.connect(self.recolor)
        for which, keys, by in zip(("previous", "next"), VIEW_KEYS, (-1, 1), strict=True):
            Action(self, f"{which}_view", f"The run's {which} view", "", keys).on_trigger(partial(self._next_view, by))
        if store.run is not None:
            self._opened()

    def set_machine(self, snapshot: Snapshot) -> None:
        """What this machine has, and what its GPUs are called."""
        self._gpu_titles = {gpu.uuid: gpu_title(gpu) for gpu in snapshot.gpus}
        self.store.name_gpus({**self._titles, **self._gpu_titles})
        for view in self._of_model.values():
            view.set_gpus(self._gpu_titles)
        self.welcome.set_machine(snapshot)

    def name_devices(self, titles: Mapping[str, str]) -> None:
        """What the devices of all machines are called, by what jobs call them."""
        self._titles = titles
        self.store.name_gpus({**titles, **self._gpu_titles})

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self.charts is None:
            # Making the plots takes a tenth of a second, which nobody should wait for when a run begins.
            QTimer.singleShot(_PREPARE_MS, self, self._built)

    def _opened(self) -> None:
        if self.store.run is None:
            self._stack.setCurrentIndex(0)
            return
        charts = self._built()
        charts.restart()
        self.classes.restart()
        self.predictions.restart()
        for view in self._of_model.values():
            view.show_run(self.store.run)
        self.log.clear()
        self._executions = 0
        self.result.hide()
        self._result_shown = False
        self._stack.setCurrentIndex(1)
        self._show()

    def _look_for_models(self) -> None:
        """There is a file more in the run's folder."""
        if self.store.run is not None:
            run = RunFolder(self.store.run.path)  # another one, which they look at anew
            for view in self._of_model.values():
                view.show_run(run)

    def _show(self) -> None:
        store = self.store
        if store.run is None or self.charts is None:
            return
        status = store.status
        self.header.show_run(store.run, store.data, status, store.loading)
        self.charts.show_data(store.data)
        more = status.active or store.loading
        self.classes.show_data(store.data, more)
        self.predictions.show_data(store.run.path, store.data, more)
        if store.data.executions != self._executions:
            # What was measured of the strategy and the time is of the workers, the curves are of the run.
            self._executions = store.data.executions
            self.strategy.restart()
            self.time.restart()
        self.verdict.show_data(store.data)
        self.time.show_data(store.data, status.active)
        before = self.strategy.maximumHeight()
        self.strategy.show_data(store.data, {**device_titles(store.data), **self._titles, **self._gpu_titles})
        if self.strategy.maximumHeight() != before:
            QTimer.singleShot(0, self, self._give_room_to_curves)  # once the splitter has laid it out
        if self.log.show_lines(store.data.lines):
            store.request_update()
        if not status.active and not store.loading and not self._result_shown:
            self._result_shown = True
            self.result.show_result(store.run, store.data)
            self.result.show()
        elif status.active and self._result_shown:
            self._result_shown = False
            self.result.hide()

    def _show_view(self, view: int) -> None:
        self.header.controls.setVisible(view == CURVES)
        if view in (MODEL, USE) and view not in self._of_model and self.charts is not None:
            self._make_view_of_model(view)
        self.views.setCurrentIndex(view)

    def _make_view_of_model(self, number: int) -> None:
        """Makes the view of how good the model is, or of what it can be used for, when it is first looked at."""
        view = self._of_model[number] = ModelView() if number == MODEL else UseView()
        view.message.connect(self.message)
        view.set_gpus(self._gpu_titles)
        view.show_run(self.store.run)
        place = self.views.widget(number)
        assert place is not None
        self.views.insertWidget(number, view)
        self.views.removeWidget(place)
        place.deleteLater()

    def _next_view(self, by: int) -> None:
        tabs = self.header.tabs
        tabs.setCurrentIndex((tabs.currentIndex() + by) % tabs.count())

    def _ask_where_to(self) -> None:
        run = self.store.run
        if run is not None:
            choose_target(self, "Export the run", f"{run.run_id}.zip", lambda path: self.export(run, path))

    def _ask_for_another_folder(self) -> None:
        choose(self, "Save the last state in", "", folder=True, chosen=self.store.save_elsewhere)

    def export(self, run: RunFolder, path: Path) -> None:
        """Writes `run` to one zip file; what came of it is told."""
        self.message.emit(f"Exporting {run.run_id}; collecting machine information takes a few seconds …", "info")
        self.exporter.start(run, path)

    def close_work(self) -> None:
        """Ends what goes on with runs and their models, for the end of the window."""
        self.exporter.close()
        self.header.remote.close_work()
        for view in self._of_model.values():
            view.close_work()

    def _give_room_to_curves(self) -> None:
        """A splitter keeps the room of a part that has become lower; the curves can use it."""
        charts, strategy, log = self._splitter.sizes()
        spare = strategy - self.strategy.maximumHeight()
        if not self.strategy.isHidden() and spare > 0:
            self._splitter.setSizes([charts + spare, strategy - spare, log])

    def _built(self) -> RunCharts:
        if self.charts is not None:
            return self.charts
        self.charts = charts = RunCharts(self._settings)
        charts.rows.enlarge_wanted.connect(self._enlarge)
        self.large.closed.connect(self._show_all_plots)
        self.header.connect_charts(charts)
        splitter = self._splitter
        splitter.setChildrenCollapsible(False)
        for widget, stretch in ((charts, 5), (self.strategy, 0), (self.log, 1)):
            splitter.addWidget(widget)
            splitter.setStretchFactor(splitter.indexOf(widget), stretch)
        self.log.setMinimumHeight(140)
        # A splitter by itself, since a layout with wrapped texts would ask for its ideal height, not its least.
        scroll = QScrollArea(widgetResizable=True)
        scroll.setObjectName("panel")
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(splitter)
        curves = QWidget()
        column = QVBoxLayout(curves)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.verdict)
        column.addWidget(self.time)
        column.addWidget(scroll, 1)
        for page in (curves, self.large):
            self._curves.addWidget(page)
        for view in (self._curves, self.classes, self.predictions, QWidget(), QWidget()):
            self.views.addWidget(view)
        self._show_view(self.header.tabs.currentIndex())
        inside = QWidget()
        layout = QVBoxLayout(inside)
        layout.setContentsMargins(14, 8, 14, 8)
        layout.setSpacing(6)
        layout.addWidget(self.header)
        layout.addWidget(self.views, 1)
        self._stack.addWidget(inside)
        return charts

    def _enlarge(self, name: str) -> None:
        if self.charts is not None and self._curves.currentWidget() is not self.large:
            self._curves.setCurrentWidget(self.large)
            self.large.show_plot(self.charts.rows.lend(name))

    def _show_all_plots(self) -> None:
        if self.charts is not None:
            self._curves.setCurrentIndex(0)
            self.charts.rows.take_back()

    def recolor(self) -> None:
        self.header.recolor()
        self.log.recolor(self.store.data.lines)
