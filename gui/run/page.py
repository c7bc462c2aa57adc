"""Page of the open run: header, curves and log, classes, predictions, model and its use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QScrollArea, QSplitter, QStackedWidget, QWidget

from engine.contract.devices import Snapshot, gpu_title
from engine.runs.folder import RunFolder
from engine.runs.index import machine_of
from engine.system.format import listed
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
from gui.widgets.drop_target import FileDropTarget
from gui.widgets.file_dialogs import choose_files, choose_path, choose_target
from gui.widgets.layouts import FrontStack, hbox, vbox

_VIEWS_DELAY_MS = 400
_IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


class RunPage(QWidget):
    """Page of the run that a `RunSession` follows. The selected view remains selected for other runs.

    Signals:
        setting_requested(str, object): the user wants to set this job field to this value for the next run.
        changes_requested(RunFolder, dict, bool): the user wants to put the run with these values into the form. The
            bool is True if the same run should be trained further.
        message(str, str): a sentence about an export or a run that doesn't respond, and its severity.
    """

    setting_requested = Signal(str, object)
    changes_requested = Signal(object, object, bool)
    message = Signal(str, str)

    def __init__(self, session: RunSession, settings: Settings | None = None, actions: Actions | None = None) -> None:
        super().__init__()
        styled(self, "panel")
        self.drop_target = FileDropTarget(self, tr("Drop images to predict for them"), self._accepts_files)
        self.drop_target.dropped.connect(self.try_images)
        self.session = session
        self._settings = settings or Settings()
        self.charts: RunCharts | None = None
        self.header = RunHeader(actions or Actions(self))
        self.log = LogView()
        self.next_steps = self.header.hero.next_steps
        self.advice = AdviceView()
        self.advice.verdict.requested.connect(
            lambda changes, continues_run: self.changes_requested.emit(session.run, changes, continues_run)
        )
        self.exporter = Exporter(self)
        self.exporter.done.connect(
            lambda path: self.message.emit(tr("The run was exported to {path}.").format(path=path), "info")
        )
        self.exporter.failed.connect(lambda reason: self.message.emit(reason, "warning"))
        self.strategy = StrategyView()
        self.advice.time.loader_workers_requested.connect(session.use_loader_workers)
        self.advice.time.setting_requested.connect(self.setting_requested)
        self.classes = ClassesView()
        self.classes.message.connect(self.message)
        self.predictions = PredictionsView()
        self.live_prediction = LivePrediction()
        self._model_views: dict[int, ModelView | UseView] = {}  # by index of the tab, once opened
        self.views = FrontStack()
        self.header.tabs.currentChanged.connect(self._show_view)
        self._gpu_titles: dict[str, str] = {}  # of this machine's GPUs, by UUID
        self._device_titles: Mapping[str, str] = {}  # of the devices of all machines, by their ids in jobs
        self._execution_count = 0  # the strategy and time views show data of the last of these executions
        self.large_plot = LargePlot()
        self._curves = QStackedWidget()
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._scroll = _CurvesArea()
        self.panes = (self.views,)
        self.setLayout(vbox(self.header, (self.views, 1), spacing=6, margins=(14, 8, 14, 8)))
        self._create_view_actions()
        self._connect()
        if session.run is not None:
            self._on_opened()

    def _create_view_actions(self) -> None:
        """Create the actions that switch between the views of the run, with their shortcuts."""
        self._view_actions = (
            Action(self, "previous_view", tr("The run's previous view"), "", "Ctrl+PgUp"),
            Action(self, "next_view", tr("The run's next view"), "", "Ctrl+PgDown"),
        )
        for action, step in zip(self._view_actions, (-1, 1), strict=True):
            action.on_trigger(partial(self._switch_view, step))
            action.changed.connect(self._update_view_tips)
        self._update_view_tips()

    def _connect(self) -> None:
        session = self.session
        self.next_steps.export_requested.connect(self._choose_export_file)
        self.next_steps.trial_requested.connect(partial(self.show_use, use_view.PREDICT))
        self.next_steps.mistakes_requested.connect(self._show_mistakes)
        self.next_steps.conversion_requested.connect(partial(self.show_use, use_view.CONVERT))
        self.header.remote.fetched.connect(self._reload_models)
        self.header.save_elsewhere.clicked.connect(self._choose_save_folder)
        session.message.connect(self.message)
        session.opened.connect(self._on_opened)
        session.changed.connect(self._show_data)
        theme.notifier.changed.connect(self.recolor)

    def set_machine(self, snapshot: Snapshot) -> None:
        """Show the titles of this machine's GPUs in the views and in the forms that offer devices."""
        self._gpu_titles = {gpu.uuid: gpu_title(gpu) for gpu in snapshot.gpus}
        self.session.name_gpus({**self._device_titles, **self._gpu_titles})
        for view in self._model_views.values():
            view.set_gpus(self._gpu_titles)

    def name_devices(self, titles: Mapping[str, str]) -> None:
        """Set the titles of the devices on all machines, by their ids in jobs. Titles of local GPUs take precedence."""
        self._device_titles = titles
        self.session.name_gpus({**titles, **self._gpu_titles})

    def schedule_views(self) -> None:
        """Schedule the creation of the views. It takes 0.1 s, which would otherwise delay the start of a run."""
        QTimer.singleShot(_VIEWS_DELAY_MS, self, self._create_views)

    def _on_opened(self) -> None:
        """Clear all views and show the run that the session has opened. Do nothing if it has closed its run."""
        if self.session.run is None:
            return
        charts = self._create_views()
        charts.reset()
        self.classes.reset()
        self.predictions.reset()
        for view in self._model_views.values():
            view.show_run(self.session.run)
        self.log.clear()
        self._execution_count = 0
        self.advice.reset()
        self._show_data()

    def _reload_models(self) -> None:
        """Reload the views of the model, because a file was added to the run folder."""
        if self.session.run is not None:
            run = RunFolder(self.session.run.path)  # the views reload for a new object
            for view in self._model_views.values():
                view.show_run(run)

    def _show_data(self) -> None:
        """Show the open run's current data and status in all views.

        If the log has more new lines than one update adds, request another update.
        """
        session = self.session
        if session.run is None or self.charts is None:
            return
        status = session.status
        self.header.show_run(session.run, session.job, session.data, status, is_loading=session.loading)
        self.charts.show_data(session.data)
        can_grow = status.active or session.loading
        self.classes.show_data(session.data, can_grow)
        self.predictions.show_run(session.run.path, session.data, can_grow)
        if session.data.executions != self._execution_count:
            # Strategy and step times belong to one execution, the curves to the run.
            self._execution_count = session.data.executions
            self.strategy.reset()
            self.advice.time.reset()
        self.live_prediction.show_data(session.run, session.data)
        self.advice.show_data(session.data, status)
        previous_height = self.strategy.maximumHeight()
        self.strategy.show_data(
            session.data, {**device_titles(session.data), **self._device_titles, **self._gpu_titles}
        )
        if self.strategy.maximumHeight() != previous_height:
            QTimer.singleShot(0, self, self._give_room_to_curves)  # after the splitter's layout
        if self.log.show_lines(session.data.lines):  # some lines remain for the next update
            session.request_update()

    def scroll_to_top(self) -> None:
        """Scroll to the plots of loss and utilization."""
        self._scroll.verticalScrollBar().setValue(0)

    def show_view(self, view: int) -> None:
        """Show the view of the run at this index of `VIEWS`."""
        self._create_views()
        self.header.tabs.setCurrentIndex(view)

    def show_use(self, use: int) -> None:
        """Show one of the uses of the model, given by the index of its tab in `UseView`."""
        self.show_view(PREDICT)
        view = self._model_views[PREDICT]
        assert isinstance(view, UseView)
        view.tabs.setCurrentIndex(use)

    def _show_view(self, view: int) -> None:
        """Show the view of the selected tab, after creating it if it uses the model and is shown for the first time."""
        self.header.show_curve_tools(view == CURVES)
        has_placeholders = self.charts is not None  # see `_create_views`
        if view in (EVALUATE, PREDICT) and view not in self._model_views and has_placeholders:
            self._make_model_view(view)
        self.views.setCurrentIndex(view)

    def _make_model_view(self, number: int) -> None:
        """Replace the placeholder of the view with the index `number`, `EVALUATE` or `PREDICT`, by the actual view."""
        view = self._model_views[number] = ModelView() if number == EVALUATE else UseView()
        view.message.connect(self.message)
        view.set_gpus(self._gpu_titles)
        view.show_run(self.session.run)
        placeholder = self.views.widget(number)
        assert placeholder is not None
        self.views.insertWidget(number, view)
        self.views.removeWidget(placeholder)
        placeholder.deleteLater()

    def _show_mistakes(self) -> None:
        """Show the samples that the model gets wrong, which may require an evaluation first."""
        self.show_view(EVALUATE)
        view = self._model_views[EVALUATE]
        assert isinstance(view, ModelView)
        view.show_mistakes()

    def choose_image(self) -> None:
        """Open a dialog to choose an image for a prediction."""
        choose_files(self, tr("Try an image"), self.try_images)

    def try_images(self, paths: Sequence[str]) -> None:
        """Run the model on the images among `paths`, or do nothing if there is no run or no image.

        While the run is active on this machine, use the first image with each new checkpoint. Otherwise, add all images
        to the form for predictions.
        """
        run, images = self.session.run, [path for path in paths if _is_image(path)]
        if run is None or not images:
            return
        if self.session.active and not machine_of(run):
            self.show_view(CURVES)
            self.live_prediction.show_image(run, images[0], self.session.data)
        else:
            self.show_use(use_view.PREDICT)
            view = self._model_views[PREDICT]
            assert isinstance(view, UseView)
            view.add_files(images)

    def _accepts_files(self, paths: list[str]) -> bool:
        """Return True if the files at `paths` can be dropped on the page: a run is open, and all of them are images.

        Other files can be dropped on the window.
        """
        return self.session.run is not None and all(map(_is_image, paths))

    def _update_view_tips(self) -> None:
        """Show the current shortcuts for switching between views in the tool tips of the tabs."""
        keys = [action.shortcut().toString() for action in self._view_actions if not action.shortcut().isEmpty()]
        for index, title in enumerate(VIEWS):
            tip = tr("{title} ({keys} change the view)").format(title=title, keys=listed(keys)) if keys else title
            self.header.tabs.setTabToolTip(index, tip)

    def _switch_view(self, step: int) -> None:
        """Show the next view (`step` is 1) or the previous one (-1). The first follows the last."""
        tabs = self.header.tabs
        tabs.setCurrentIndex((tabs.currentIndex() + step) % tabs.count())

    def _choose_export_file(self) -> None:
        run = self.session.run
        if run is not None:
            choose_target(self, tr("Export the run"), f"{run.run_id}.zip", lambda path: self.export(run, path))

    def _choose_save_folder(self) -> None:
        choose_path(self, tr("Save the last state in"), self.session.save_elsewhere, folder=True)

    def export(self, run: RunFolder, path: Path) -> None:
        """Export `run` to the zip file `path` in a child process. Emit `message` at the start and with the result."""
        self.message.emit(
            tr("Exporting {run_id}; collecting machine information takes a few seconds…").format(run_id=run.run_id),
            "info",
        )
        self.exporter.start(run, path)

    def close_work(self) -> None:
        """Stop all background work of the views when the window closes."""
        self.exporter.close()
        self.header.remote.close_work()
        self.live_prediction.close_work()
        self.predictions.close_work()
        for view in self._model_views.values():
            view.close_work()

    def _give_room_to_curves(self) -> None:
        """Give the height that the strategy view doesn't need to the curves above it."""
        charts, strategy, log = self._splitter.sizes()
        spare = strategy - self.strategy.maximumHeight()
        if not self.strategy.isHidden() and spare > 0:
            self._splitter.setSizes([charts + spare, strategy - spare, log])

    def _create_views(self) -> RunCharts:
        """Create the plots and the views unless they exist, and return the plots."""
        if self.charts is not None:
            return self.charts
        self.charts = charts = RunCharts(self._settings)
        charts.rows.enlarge_requested.connect(self._enlarge)
        self.large_plot.closed.connect(self._show_all_plots)
        self.header.connect_charts(charts)
        splitter = self._splitter
        splitter.setChildrenCollapsible(False)
        for widget, stretch in ((charts, 5), (self.strategy, 0), (self.log, 1)):
            splitter.addWidget(widget)
            splitter.setStretchFactor(splitter.indexOf(widget), stretch)
        self.log.setMinimumHeight(140)
        self._scroll.resized.connect(charts.rows.set_visible_height)
        self._scroll.setWidget(splitter)
        curves = QWidget()
        curves.setLayout(vbox(self.advice, (hbox((self._scroll, 1), self.live_prediction), 1), spacing=4))
        for page in (curves, self.large_plot):
            self._curves.addWidget(page)
        # The views that use the model are created when they are first opened.
        for view in (self._curves, self.classes, self.predictions, QWidget(), QWidget()):
            self.views.addWidget(view)
        self._show_view(self.header.tabs.currentIndex())
        return charts

    def _enlarge(self, name: str) -> None:
        """Show only the plot `name`, unless a plot is already enlarged."""
        if self.charts is not None and self._curves.currentWidget() is not self.large_plot:
            self._curves.setCurrentWidget(self.large_plot)
            self.large_plot.show_plot(self.charts.rows.take_plot(name))

    def _show_all_plots(self) -> None:
        """Return from an enlarged plot to all plots, the strategy and the log."""
        if self.charts is not None:
            self._curves.setCurrentIndex(0)  # the page with all plots
            self.charts.rows.put_plot_back()

    def recolor(self) -> None:
        """Write the lines of the log again in the colors of the new scheme."""
        if self.log.recolor(self.session.data.lines):
            self.session.request_update()


def _is_image(path: str) -> bool:
    return Path(path).suffix.lower() in _IMAGE_SUFFIXES


class _CurvesArea(QScrollArea):
    """Scroll area for plots and log.

    Signals:
        resized(int): this height in pixels is visible.
    """

    resized = Signal(int)

    def __init__(self) -> None:
        super().__init__(widgetResizable=True)
        self.setObjectName("panel")
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.resized.emit(self.viewport().height())


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

    def on_exit(self, code: int) -> Answer | None:
        """Return the path of the zip file as the answer, or None if the exit code isn't 0."""
        return None if code else Answer(str(self._target))
