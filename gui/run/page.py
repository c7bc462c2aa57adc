"""Page of the open run: header, curves and log, classes, predictions, model and its use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QScrollArea, QSplitter, QStackedWidget, QWidget

from engine.contract.devices import Snapshot, gpu_title
from engine.runs.folder import RunFolder
from engine.runs.index import machine_of
from gui.actions import Action, Actions
from gui.run.cards import AdviceView
from gui.run.classes.view import ClassesView
from gui.run.curves.charts import RunCharts, device_titles
from gui.run.curves.plot_rows import LargePlot
from gui.run.header import CURVES, EVALUATE, PREDICT, VIEWS, RunHeader
from gui.run.log_view import LogView
from gui.run.model.view import ModelView
from gui.run.predictions.view import PredictionsView
from gui.run.strategy.view import StrategyView
from gui.run.use import view as use_view
from gui.run.use.live_prediction import LivePrediction
from gui.run.use.view import UseView
from gui.sources.json_lines import Answer, JsonLinesProcess
from gui.sources.run_session import RunSession
from gui.sources.settings import Settings
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.drop_target import DropTarget
from gui.widgets.file_dialogs import choose, choose_files, choose_target
from gui.widgets.layouts import FrontStack, hbox, vbox

_PREPARE_MS = 400
_IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


class RunPage(QWidget):
    """Page of the run that a `RunSession` follows. The selected view remains selected for other runs.

    Signals:
        setting_requested(str, object): the user wants to set this job field to this value for the next run.
        changes_requested(RunFolder, dict, bool): the user wants to put the run with these values into the form. The
            bool is True if the same run should be trained further.
        message(str, str): the result of an export, or a run that doesn't respond, with the severity.
    """

    setting_requested = Signal(str, object)
    changes_requested = Signal(object, object, bool)
    message = Signal(str, str)

    def __init__(
        self,
        store: RunSession,
        settings: Settings | None = None,
        actions: Actions | None = None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        styled(self, "panel")
        self.setAcceptDrops(True)
        self.drop_target = DropTarget(self, tr("Drop images to predict for them"))
        self.store = store
        self._settings = settings or Settings()
        self.charts: RunCharts | None = None
        self.header = RunHeader(actions or Actions(self))
        self.log = LogView()
        self.next_steps = self.header.hero.next_steps
        self.advice = AdviceView()
        self.advice.verdict.requested.connect(
            lambda changes, continues_run: self.changes_requested.emit(store.run, changes, continues_run)
        )
        self.exporter = Exporter(self)
        self.exporter.done.connect(
            lambda path: self.message.emit(tr("The run was exported to {path}.").format(path=path), "info")
        )
        self.exporter.failed.connect(lambda reason: self.message.emit(reason, "warning"))
        self.strategy = StrategyView()
        self.advice.time.loader_workers_requested.connect(store.use_loader_workers)
        self.advice.time.setting_requested.connect(self.setting_requested)
        self.classes = ClassesView()
        self.classes.message.connect(self.message)
        self.predictions = PredictionsView()
        self.live = LivePrediction()
        self._model_views: dict[int, ModelView | UseView] = {}
        self.views = FrontStack()
        self.header.tabs.currentChanged.connect(self._show_view)
        self._gpu_titles: dict[str, str] = {}
        self._titles: Mapping[str, str] = {}
        self._executions = 0  # the strategy and time views show data of this execution
        self.large = LargePlot()
        self._curves = QStackedWidget()
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        layout = vbox(self.header, (self.views, 1), spacing=6)
        layout.setContentsMargins(14, 8, 14, 8)
        self.setLayout(layout)
        self._connect()

    def _connect(self) -> None:
        store = self.store
        self.next_steps.export_requested.connect(self._choose_export_file)
        self.next_steps.trial_requested.connect(partial(self.show_use, use_view.PREDICT))
        self.next_steps.mistakes_requested.connect(self._show_mistakes)
        self.next_steps.conversion_requested.connect(partial(self.show_use, use_view.CONVERT))
        self.header.remote.fetched.connect(self._reload_models)
        self.header.elsewhere.clicked.connect(self._choose_save_folder)
        store.message.connect(self.message)
        store.opened.connect(self._on_opened)
        store.changed.connect(self._show)
        store.finished.connect(lambda _outcome: self._show())
        theme.notifier.changed.connect(self.recolor)
        self._switches = (
            Action(self, "previous_view", tr("The run's previous view"), "", "Ctrl+PgUp"),
            Action(self, "next_view", tr("The run's next view"), "", "Ctrl+PgDown"),
        )
        for switch, step in zip(self._switches, (-1, 1), strict=True):
            switch.on_trigger(partial(self._switch_view, step))
            switch.changed.connect(self._update_view_tips)
        self._update_view_tips()
        if store.run is not None:
            self._on_opened()

    def set_machine(self, snapshot: Snapshot) -> None:
        """Set the devices of this machine, and the titles of its GPUs."""
        self._gpu_titles = {gpu.uuid: gpu_title(gpu) for gpu in snapshot.gpus}
        self.store.name_gpus({**self._titles, **self._gpu_titles})
        for view in self._model_views.values():
            view.set_gpus(self._gpu_titles)

    def name_devices(self, titles: Mapping[str, str]) -> None:
        """Set the titles of the devices on all machines, by their ids in jobs."""
        self._titles = titles
        self.store.name_gpus({**titles, **self._gpu_titles})

    def prepare(self) -> None:
        """Schedule the creation of the plots, which takes 0.1 s and should not delay the start of a run."""
        QTimer.singleShot(_PREPARE_MS, self, self._build)

    def _on_opened(self) -> None:
        """Clear all views and show the opened run."""
        if self.store.run is None:
            return
        charts = self._build()
        charts.restart()
        self.classes.restart()
        self.predictions.restart()
        for view in self._model_views.values():
            view.show_run(self.store.run)
        self.log.clear()
        self._executions = 0
        self.advice.restart()
        self._show()

    def _reload_models(self) -> None:
        """Reload the views of the model, because a file was added to the run folder."""
        if self.store.run is not None:
            run = RunFolder(self.store.run.path)  # the views reload for a new object
            for view in self._model_views.values():
                view.show_run(run)

    def _show(self) -> None:
        """Update all views from the session."""
        store = self.store
        if store.run is None or self.charts is None:
            return
        status = store.status
        self.header.show_run(store.run, store.job, store.data, status, is_loading=store.loading)
        self.charts.show_data(store.data)
        may_grow = status.active or store.loading
        self.classes.show_data(store.data, may_grow)
        self.predictions.show_data(store.run.path, store.data, may_grow)
        if store.data.executions != self._executions:
            # Strategy and step times belong to one execution, the curves to the run.
            self._executions = store.data.executions
            self.strategy.restart()
            self.advice.time.restart()
        self.live.show_data(store.run, store.data)
        self.advice.show_data(store.data, status)
        previous_height = self.strategy.maximumHeight()
        self.strategy.show_data(store.data, {**device_titles(store.data), **self._titles, **self._gpu_titles})
        if self.strategy.maximumHeight() != previous_height:
            QTimer.singleShot(0, self, self._give_room_to_curves)  # after the splitter's layout
        if self.log.show_lines(store.data.lines):  # some lines remain for the next update
            store.request_update()

    def show_view(self, view: int) -> None:
        """Show one of `VIEWS`."""
        self._build()
        self.header.tabs.setCurrentIndex(view)

    def show_use(self, use: int) -> None:
        """Show one of the uses of the model, given by its index in the use view."""
        self.show_view(PREDICT)
        view = self._model_views[PREDICT]
        assert isinstance(view, UseView)
        view.tabs.setCurrentIndex(use)

    def _show_view(self, view: int) -> None:
        self.header.show_curve_tools(view == CURVES)
        if view in (EVALUATE, PREDICT) and view not in self._model_views and self.charts is not None:
            self._make_model_view(view)
        self.views.setCurrentIndex(view)

    def _make_model_view(self, number: int) -> None:
        """Create the view of the model or of its use when it is first shown."""
        view = self._model_views[number] = ModelView() if number == EVALUATE else UseView()
        view.message.connect(self.message)
        view.set_gpus(self._gpu_titles)
        view.show_run(self.store.run)
        placeholder = self.views.widget(number)
        assert placeholder is not None
        self.views.insertWidget(number, view)
        self.views.removeWidget(placeholder)
        placeholder.deleteLater()

    def _show_mistakes(self) -> None:
        self.show_view(EVALUATE)
        view = self._model_views[EVALUATE]
        assert isinstance(view, ModelView)
        view.show_mistakes()

    def choose_image(self) -> None:
        """Open a dialog to choose an image for a prediction."""
        choose_files(self, tr("Try an image"), self.try_images)

    def try_images(self, paths: Sequence[str]) -> None:
        """Run the model on dropped images.

        While the run is active, use the first image with each new checkpoint. Otherwise, add all images to the form for
        predictions.
        """
        run, images = self.store.run, [path for path in paths if _is_image(path)]
        if run is None or not images:
            return
        if self.store.active and not machine_of(run):
            self.show_view(CURVES)
            self.live.show_image(run, images[0], self.store.data)
        else:
            self.show_use(use_view.PREDICT)
            view = self._model_views[PREDICT]
            assert isinstance(view, UseView)
            view.add_files(images)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if self.store.run is not None and _dropped_images(event):
            event.acceptProposedAction()
            self.drop_target.cover()
        else:
            event.ignore()  # the parent passes it on to the window

    def dropEvent(self, event: QDropEvent) -> None:
        event.acceptProposedAction()
        self.try_images(_dropped_images(event))

    def _update_view_tips(self) -> None:
        keys = " and ".join(
            switch.shortcut().toString() for switch in self._switches if not switch.shortcut().isEmpty()
        )
        for index, title in enumerate(VIEWS):
            tip = tr("{title} ({keys} change the view)").format(title=title, keys=keys) if keys else title
            self.header.tabs.setTabToolTip(index, tip)

    def _switch_view(self, step: int) -> None:
        tabs = self.header.tabs
        tabs.setCurrentIndex((tabs.currentIndex() + step) % tabs.count())

    def _choose_export_file(self) -> None:
        run = self.store.run
        if run is not None:
            choose_target(self, tr("Export the run"), f"{run.run_id}.zip", lambda path: self.export(run, path))

    def _choose_save_folder(self) -> None:
        choose(self, tr("Save the last state in"), self.store.save_elsewhere, folder=True)

    def export(self, run: RunFolder, path: Path) -> None:
        """Export `run` to a zip file and report the result."""
        self.message.emit(
            tr("Exporting {run_id}; collecting machine information takes a few seconds…").format(run_id=run.run_id),
            "info",
        )
        self.exporter.start(run, path)

    def close_work(self) -> None:
        """Stop background work when the window closes."""
        self.exporter.close()
        self.header.remote.close_work()
        self.live.close_work()
        for view in self._model_views.values():
            view.close_work()

    def _give_room_to_curves(self) -> None:
        """Use the height that the strategy view doesn't need for the curves."""
        charts, strategy, log = self._splitter.sizes()
        spare = strategy - self.strategy.maximumHeight()
        if not self.strategy.isHidden() and spare > 0:
            self._splitter.setSizes([charts + spare, strategy - spare, log])

    def _build(self) -> RunCharts:
        """Create the plots and the views when they are first needed."""
        if self.charts is not None:
            return self.charts
        self.charts = charts = RunCharts(self._settings)
        charts.rows.enlarge_requested.connect(self._enlarge)
        self.large.closed.connect(self._show_all_plots)
        self.header.connect_charts(charts)
        splitter = self._splitter
        splitter.setChildrenCollapsible(False)
        for widget, stretch in ((charts, 5), (self.strategy, 0), (self.log, 1)):
            splitter.addWidget(widget)
            splitter.setStretchFactor(splitter.indexOf(widget), stretch)
        self.log.setMinimumHeight(140)
        # Put the splitter into a separate scroll area, because layouts with wrapped texts take their preferred height.
        scroll = styled(QScrollArea(widgetResizable=True), "panel")
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(splitter)
        curves = QWidget()
        curves.setLayout(vbox(self.advice, (hbox((scroll, 1), self.live), 1), spacing=4))
        for page in (curves, self.large):
            self._curves.addWidget(page)
        # The views that use the model are created when they are first opened.
        for view in (self._curves, self.classes, self.predictions, QWidget(), QWidget()):
            self.views.addWidget(view)
        self._show_view(self.header.tabs.currentIndex())
        return charts

    def _enlarge(self, name: str) -> None:
        if self.charts is not None and self._curves.currentWidget() is not self.large:
            self._curves.setCurrentWidget(self.large)
            self.large.show_plot(self.charts.rows.take_plot(name))

    def _show_all_plots(self) -> None:
        if self.charts is not None:
            self._curves.setCurrentIndex(0)
            self.charts.rows.put_plot_back()

    def recolor(self) -> None:
        self.header.recolor()
        if self.log.recolor(self.store.data.lines):
            self.store.request_update()


def _is_image(path: str) -> bool:
    return Path(path).suffix.lower() in _IMAGE_SUFFIXES


def _dropped_images(event: QDropEvent) -> list[str]:
    """Return the paths of the dropped files, or an empty list unless all of them are local images."""
    paths = [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]
    return paths if all(map(_is_image, paths)) else []


class Exporter(JsonLinesProcess):
    """Child process that exports runs, one at a time. Its result is the path of the zip file.

    It is a separate process because inspecting the machine for an export takes seconds.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__("footplate", tr("Exporting the run"), bytes, parent)
        self._target = Path()

    def start(self, run: RunFolder, target: Path) -> None:
        """Export `run` to `target`, replacing an existing file."""
        self._target = target
        self.run(["export", run.run_id, "--zip", str(target), "--replace"])

    def answer_at_exit(self, code: int) -> Answer | None:
        """Return the answer if the command succeeded, otherwise None."""
        return None if code else Answer(str(self._target))
