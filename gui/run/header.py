"""Header of a run's page: top row, notes, tabs, curve controls, and the banner of a remote run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QDialog, QMenu, QPushButton, QTabBar, QWidget

from engine.contract.events import RunStarted
from engine.contract.job import Job
from engine.contract.nodes import FetchProgress, RunFile
from engine.runs.folder import RunFolder
from engine.runs.index import machine_of
from gui.actions import Actions
from gui.format import clock, localized, size, size_of
from gui.plots.group import AxisKind
from gui.run.curves.charts import RunCharts
from gui.run.curves.plot_rows import PlotList
from gui.run.hero import RunHero
from gui.sources.background import in_background
from gui.sources.remote_runs import FileFetch, QueryFailed, list_remote_files
from gui.sources.run_data import RepeatedWarning, RunData
from gui.sources.run_status import RunStatus, first_sentence
from gui.style import icons
from gui.titles import describe_attempt, describe_devices
from gui.translation import tr
from gui.widgets.buttons import push_button, tool_button
from gui.widgets.curve_controls import CurveControls
from gui.widgets.labels import WrappingLabel, muted_label
from gui.widgets.layouts import create_tab_bar, hbox, vbox

_AXES: tuple[tuple[str, AxisKind], ...] = ((tr("Time"), "elapsed"), (tr("Steps"), "count"))
_AXIS = tr("Active time only; excludes pauses and queueing")

VIEWS = (tr("Curves"), tr("Classes"), tr("Predictions"), tr("Evaluate"), tr("Predict & export"))
CURVES, CLASSES, PREDICTIONS, EVALUATE, PREDICT = range(len(VIEWS))


class RunHeader(QWidget):
    """Header with the state of a run, the tabs of its views, and the controls for all curves.

    Attributes:
        tabs: Tabs in the order of `VIEWS`. The page shows the current view.
        options: Button that opens a popup with `controls` below it.
        controls: Controls for the curves.
        save_elsewhere: Button that saves the last state in another folder, visible if the disk can't store it.
    """

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self.hero = RunHero(actions)
        self.notes = NotesView()
        self.remote = RemoteBar()
        self.save_elsewhere = QPushButton(tr("Save elsewhere…"))
        self.save_elsewhere.setAccessibleDescription(tr("Choose another folder for the state that could not be saved"))
        self.save_elsewhere.hide()
        self.newest = QPushButton(tr("Back to newest"))
        self.newest.setAccessibleDescription(tr("Show the full run and follow the newest data"))
        self.newest.hide()
        self.tabs = _make_tabs()
        self.controls = CurveControls(_AXES)
        self.controls.axis.setToolTip(_AXIS)
        self.controls.axis.setAccessibleDescription(_AXIS)
        self.options = tool_button(
            icon=icons.icon("sliders", "text"),
            name=tr("Options of the curves"),
            tip=tr("Smoothing, axis, logarithmic loss, and which plots are shown in what order"),
        )
        self.options.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._curve_tools = QWidget()
        self._lay_out()

    def _lay_out(self) -> None:
        self._curve_tools.setLayout(hbox(self.newest, self.options, spacing=6))
        tabs = hbox((self.tabs, 1), self._curve_tools)
        parts = (self.hero, self.notes, self.remote, hbox(self.save_elsewhere, 1))
        self.setLayout(vbox(*parts, tabs, spacing=4))

    def connect_charts(self, charts: RunCharts) -> None:
        self.controls.smoothed.connect(charts.set_smoothing)
        self.controls.log_toggled.connect(charts.loss.set_log)
        self.controls.axis_chosen.connect(charts.set_axis)
        popup = CurveOptions(charts, self.controls, self.options)
        self.options.clicked.connect(popup.open_below)
        self.newest.clicked.connect(charts.group.follow)
        charts.group.following_changed.connect(lambda following: self.newest.setVisible(not following))

    def show_curve_tools(self, is_visible: bool) -> None:
        """Show the buttons that control the curves if `is_visible`, otherwise hide them.

        The row of tabs keeps its height.
        """
        self._curve_tools.setVisible(is_visible)

    def show_run(self, run: RunFolder, job: Job | None, data: RunData, status: RunStatus, *, is_loading: bool) -> None:
        """Show the state, notes and warnings of `run`. `job` is None until it has been read.

        While the log of the run is being read for the first time, `is_loading` is True.
        """
        self.remote.show_run(run)
        self.hero.show_run(run, job, data, status, is_loading=is_loading)
        self.notes.show_data(data)
        self.save_elsewhere.setVisible(data.unsaved and status.active and not machine_of(run))


class CurveOptions(QDialog):
    """Popup with the controls for the curves and the list of plots. A click elsewhere or Escape closes it."""

    def __init__(self, charts: RunCharts, controls: CurveControls, below: QWidget) -> None:
        super().__init__(below, Qt.WindowType.Popup)
        self._charts, self._below = charts, below
        self._list: PlotList | None = None
        self.setWindowTitle(tr("Options of the curves"))
        hint = muted_label(tr("Drag to reorder (Alt+Up, Alt+Down)"))
        self._column = vbox(controls, hint, spacing=6, margins=(10, 8, 10, 8))
        self.setLayout(self._column)

    def open_below(self) -> None:
        """Recreate the list of plots, because their titles may have changed, and open the popup below its button."""
        if self._list is not None:
            self._column.removeWidget(self._list)
            self._list.deleteLater()
        self._list = PlotList(self._charts.rows)
        self._list.chosen.connect(self._charts.rows.choose)
        self._column.insertWidget(1, self._list)
        self.adjustSize()
        corner = self._below.mapToGlobal(QPoint(self._below.width(), self._below.height()))
        self.move(corner.x() - self.width(), corner.y() + 2)
        self.show()


def _make_tabs() -> QTabBar:
    tabs = create_tab_bar(tr("Views of the run"), [title.replace("&", "&&") for title in VIEWS])
    tabs.setUsesScrollButtons(False)
    tabs.setElideMode(Qt.TextElideMode.ElideNone)
    return tabs


_MAX_WARNINGS = 3
"""Maximum number of visible warnings. The log contains all."""

_SHOWN_FIRST = ("out_of_memory", "step_skipped", "steps_passed_over")
"""Ids of warnings about changes to the training. They are shown first, and then the newest other warnings."""


@dataclass(frozen=True)
class Note:
    """Note about the run, shown as a line of text in the header. A "warning" has a sign before the text."""

    kind: Literal["muted", "warning"]
    text: str


def list_notes(data: RunData) -> list[Note]:
    """Return the notes about a run: resumes and restarts, then its most important warnings."""
    history = [Note("muted", text) for text in (_describe_resume(data), _describe_restart(data)) if text]
    newest_first = reversed(data.warnings.values())
    displayed = sorted(newest_first, key=lambda warnings: warnings.newest.code not in _SHOWN_FIRST)[:_MAX_WARNINGS]
    return history + [Note("warning", _describe_warning(each)) for each in displayed]


class NotesView(QWidget):
    """View of the notes about a run. It is hidden if there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[Note] = []
        self._labels: list[WrappingLabel] = []
        self._layout = vbox(spacing=2)
        self.setLayout(self._layout)
        self.hide()

    def show_data(self, data: RunData) -> None:
        """Show the notes on a run, one per line, if they have changed. Labels are reused, not deleted."""
        new_notes = list_notes(data)
        if new_notes == self._notes:
            return
        self._notes = new_notes
        while len(self._labels) < len(new_notes):
            self._labels.append(WrappingLabel())
            self._layout.addWidget(self._labels[-1])
        for label, note in zip(self._labels, new_notes, strict=False):
            label.setText(f"⚠ {note.text}" if note.kind == "warning" else note.text)
            label.setObjectName(note.kind)
            label.style().polish(label)
        for index, label in enumerate(self._labels):
            label.setVisible(index < len(new_notes))
        self.setVisible(bool(new_notes))


def _describe_resume(data: RunData) -> str:
    """Describe the last resume, as in "Resumed at 14:05 on GPU 0", or return "" for a run that was never resumed."""
    if data.executions < 2 or data.started is None:
        return ""
    text = (
        tr("Resumed at {time} on {devices}")
        if data.executions == 2
        else tr("Resumed {count} times, last at {time} on {devices}")
    )
    return text.format(
        count=data.executions - 1, time=clock(data.started.time), devices=_describe_devices(data.started)
    )


def _describe_restart(data: RunData) -> str:
    """Describe the last automatic restart and its cause. Return "" if there was none or while one is underway."""
    if not data.restarts or data.restarting is not None:  # the status line already shows a current restart
        return ""
    last_restart = data.restarts[-1]
    text = (
        tr("Restarted once at step {step}")
        if len(data.restarts) == 1
        else tr("Restarted {count} times, last at step {step}")
    ).format(count=len(data.restarts), step=localized(last_restart.step or 0))
    if last_restart.changes or last_restart.devices:
        text = tr("{restart} (since then {changes})").format(restart=text, changes=describe_attempt(last_restart))
    return f"{text}: {first_sentence(last_restart.cause)}"


def _describe_warning(warnings: RepeatedWarning) -> str:
    """Return the text of the newest of several warnings with the same code, and their number."""
    text = warnings.newest.message.rstrip(".")
    return tr("{warning} ({count} times)").format(warning=text, count=warnings.count) if warnings.count > 1 else text


def _describe_devices(started: RunStarted) -> str:
    """Return the devices of an execution as text."""
    return describe_devices(started.job.parallel.devices, {device.id: device.name for device in started.devices})


class RemoteBar(QWidget):
    """Banner for a run on another machine.

    Signals:
        fetched(): a file of the run has been downloaded.
    """

    fetched = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._run: RunFolder | None = None
        self._path = ""  # file that is being fetched
        self.label = muted_label(word_wrap=True)
        self.label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.button = QPushButton(tr("Fetch file…"))
        self.button.setToolTip(tr("Copy a checkpoint or a log of this run to this machine"))
        self.cancel = push_button(tr("Cancel"), self._cancel, tip=tr("Keep the partial data"))
        self.file_fetch = FileFetch(self)
        self.setLayout(hbox((self.label, 1), self.button, self.cancel))
        self.button.clicked.connect(self._list_files)
        self.file_fetch.progress.connect(self._show_progress)
        self.file_fetch.done.connect(self._on_done)
        self.file_fetch.refused.connect(self._show_state)
        self.file_fetch.failed.connect(self._show_state)
        self.hide()
        self.cancel.hide()

    def show_run(self, run: RunFolder) -> None:
        """Show the banner if `run` is on another machine, otherwise hide it.

        Cancel the download of another run's file.
        """
        if run is not self._run:
            self._run = run
            self.file_fetch.cancel()
            self._show_state()
            self.setVisible(bool(machine_of(run)))

    def fetch(self, path: str) -> None:
        """Download the file of the run at `path`, which is relative to the run folder, and show the progress."""
        assert self._run is not None
        self._path = path
        self._show_state(tr("Fetching {path}…").format(path=path))
        self.file_fetch.start(machine_of(self._run), self._run.run_id, path)
        self.cancel.show()
        self.button.hide()

    def close_work(self) -> None:
        self.file_fetch.close()

    def _list_files(self) -> None:
        """Ask the other machine for the files of the run on a worker thread, then show them in a menu."""
        assert self._run is not None
        run = self._run
        in_background(
            partial(list_remote_files, machine_of(run), run.run_id),
            self,
            partial(self._show_menu, run),
            partial(self._show_error, run),
        )

    def _show_menu(self, run: RunFolder, files: list[RunFile]) -> None:
        """Open a menu that downloads one of `files`, unless another run has been opened in the meantime."""
        if run is not self._run:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for file in files:
            action = menu.addAction(f"{file.path} · {size(file.size_bytes)}".replace("&", "&&"))
            action.triggered.connect(lambda _on=False, path=file.path: self.fetch(path))
        if not files:
            menu.addAction(tr("No files to fetch")).setEnabled(False)
        menu.popup(self.button.mapToGlobal(self.button.rect().bottomLeft()))

    def _show_error(self, run: RunFolder, error: Exception) -> None:
        """Show why the files of `run` can't be listed, unless another run has been opened in the meantime."""
        if not isinstance(error, QueryFailed):
            raise error
        if run is self._run:
            self._show_state(str(error))

    def _cancel(self) -> None:
        """Stop the download. The data that was received is kept for the next attempt."""
        self.file_fetch.cancel()
        self._show_state()

    def _show_progress(self, progress: FetchProgress) -> None:
        self.label.setText(
            tr("Fetching {path}: {done_bytes}").format(
                path=self._path, done_bytes=size_of(progress.done_bytes, progress.total_bytes)
            )
        )

    def _on_done(self, path: str) -> None:
        """Show where the downloaded file is, and emit `fetched`."""
        self._show_state(tr("{file} is in {path}.").format(file=self._path, path=path))
        self.fetched.emit()

    def _show_state(self, text: str = "") -> None:
        """Show `text`, by default the run's machine, and replace the Cancel button by the one for fetching files."""
        machine = machine_of(self._run) if self._run is not None else ""
        self.label.setText(
            text or tr("This run is on {machine}. Closing the window doesn't affect it.").format(machine=machine)
        )
        self.cancel.hide()
        self.button.show()
