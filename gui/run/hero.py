"""Top row of a run's page: best metric, title, state, progress or facts, time, and buttons."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from PySide6.QtCore import QSize
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QSizePolicy, QWidget

from engine.contract.catalogue import Measure
from engine.contract.job import Job
from engine.runs.folder import RunFolder
from engine.system.format import duration
from engine.system.plain_text import shorten
from gui.actions import Actions, bind
from gui.format import counted, metric_value, speed
from gui.run.cards import ROW_SPACING, NextSteps, describe_result, describe_worst_class
from gui.sources.run_data import RunData
from gui.sources.run_status import FAILED_LABELS, STATE_MARKS, RunStatus, StatusLabel
from gui.style import theme
from gui.titles import describe_devices, model_title, shorten_title, strategy_title
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import ElidedLabel, muted_label
from gui.widgets.layouts import hbox, vbox

_STATE_STYLES: dict[StatusLabel, str] = {
    "Completed": "ok",
    "Failed": "error",
    "Unsaved": "error",
    "Interrupted": "warning",
    "Stopped": "muted",
    "Paused": "muted",
}
"""Style of the state label, by state."""
_LAST_LINE_HEIGHT = 16
"""Height in pixels of the line with the progress of an active run, or with facts about an ended one."""
_FIGURE_WIDTH = 96
"""Minimum width in pixels of the metric and of the time, so that changing numbers don't move other widgets."""


class RunHero(QWidget):
    """Row with a run's best metric, title, state, progress, time and buttons. Its height never changes.

    Attributes:
        next_steps: Buttons that are visible once the run has ended, instead of those that pause and stop it.
    """

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self.best = styled(QLabel(), "welcome", name=tr("Best metric"))
        self.best_note = muted_label()
        self.title = styled(ElidedLabel(), "title", name=tr("Run on screen"))
        self.state = styled(ElidedLabel(), name=tr("State of the run"))
        self.progress = styled(QProgressBar(), name=tr("Progress of the run"))
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(6)
        self.facts = styled(ElidedLabel(), "muted", name=tr("Details of the result"))
        self._last_line = QWidget()
        self._last_line.setLayout(hbox(self.progress, self.facts))
        theme.scale_with_text(self._last_line.setFixedHeight, _LAST_LINE_HEIGHT)
        self.time = styled(QLabel(), "title", name=tr("Time"))
        self.time_note = muted_label()
        self.pause = bind(QPushButton(), actions.pause, hide_disabled=True)
        self.stop = bind(QPushButton(), actions.stop, tr("Stop this run"), hide_disabled=True)
        self.next_steps = NextSteps()
        self.next_steps.hide()
        for figure in (self.best, self.time):
            theme.scale_with_text(figure.setMinimumWidth, _FIGURE_WIDTH)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setLayout(
            hbox(
                vbox(self.best, self.best_note, 1, spacing=0),
                (vbox(self.title, self.state, self._last_line, 1, spacing=3), 1),
                vbox(self.time, self.time_note, 1, spacing=0),
                self.pause,
                self.stop,
                self.next_steps,
                spacing=14,
            )
        )

    def show_run(
        self, run: RunFolder, job: Job | None, data: RunData, status: RunStatus, *, is_loading: bool = False
    ) -> None:
        """Show metric, state and progress of a run. `job` is None until it has been read.

        While `is_loading` is True, the log of the run hasn't been read in full.
        """
        _set_text(self.title, describe_run(job, data) if job is not None else run.run_id)
        is_reading = is_loading and data.finished is None and not data.last_number  # no event has been read
        text = tr("Reading the run's log…") if is_reading else _describe_state(status, data)
        _set_text(self.state, f"{STATE_MARKS.get(status.label, '')} {text}".strip())
        theme.set_kind(self.state, _STATE_STYLES.get(status.label, ""))
        metric = find_best_metric(data)
        self.best.setText(metric.value)
        self.best_note.setText(_describe_metric(metric, status))
        self._show_progress(status)
        is_over = not status.active and not is_loading
        _set_text(self.facts, describe_result(run, data) if is_over else "")
        self.facts.setVisible(is_over)
        self.next_steps.setVisible(is_over)
        if is_over:
            self.next_steps.show_run(run, data)
        self._show_time(data, status)

    def sizeHint(self) -> QSize:
        """Return the size with space for both rows of `next_steps`, even while they are hidden."""
        height = 2 * self.pause.sizeHint().height() + ROW_SPACING
        return super().sizeHint().expandedTo(QSize(0, height))

    def _show_progress(self, status: RunStatus) -> None:
        """Show the progress bar if the run is active and not queued. It is animated while the fraction is unknown."""
        is_working = status.active and status.label != "Waiting"
        self.progress.setVisible(is_working)
        # A range of 0 animates the bar while the length is unknown.
        self.progress.setRange(0, 1000 if status.fraction is not None or not is_working else 0)
        self.progress.setValue(round(1000 * (status.fraction or 0)))

    def _show_time(self, data: RunData, status: RunStatus) -> None:
        """Show the remaining time and the speed of an active run, or the duration of an ended run."""
        time, note = "", ""
        if status.active and status.label != "Waiting":
            progress = f"{100 * status.fraction:.0f}%" if status.fraction is not None else ""
            rate = speed(status.images_per_second) if status.images_per_second is not None else ""
            if status.seconds_left is not None:
                time = tr("{time} left").format(time=duration(status.seconds_left))
            note = " · ".join(filter(None, (progress, rate)))
        elif data.finished is not None and data.finished.seconds:
            time, note = duration(data.seconds(data.finished)), tr("training time")
        self.time.setText(time)
        self.time_note.setText(note)


def _describe_metric(metric: BestMetric, status: RunStatus) -> str:
    if metric.epoch is None:
        return tr("no validation yet") if status.active else tr("no validation")
    return tr("{metric}, epoch {epoch}").format(metric=metric.title, epoch=metric.epoch)


def _describe_state(status: RunStatus, data: RunData) -> str:
    """Describe the state of a run. The text for a completed run names its worst class.

    The text for a failed run doesn't contain the cause, which the page shows elsewhere.
    """
    if status.label in FAILED_LABELS:
        return status.label
    if status.label == "Completed" and status.epochs:
        return " · ".join(filter(None, (status.label, counted(status.epochs, "epoch"), describe_worst_class(data))))
    return status.text


def _set_text(label: ElidedLabel, text: str) -> None:
    """Set the text of a label, and its accessible description to the same text."""
    if text != label.text():
        label.setText(text)
        label.setAccessibleDescription(text)


def describe_run(job: Job, data: RunData) -> str:
    """Describe the model, dataset and devices of a run, as in "ResNet-18 · flowers · Single device on CPU"."""
    texts = [
        job.name,
        model_title(job.model.name),
        Path(job.data.dataset).name,
        tr("{strategy} on {devices}").format(
            strategy=strategy_title(job.resolved_strategy),
            devices=describe_devices(job.parallel.devices, data.device_names),
        ),
    ]
    return shorten(" · ".join(text for text in texts if text))


class BestMetric(NamedTuple):
    """Best value of a run's main metric, as text. The epoch is None before the first validation."""

    value: str
    title: str
    epoch: int | None = None


def find_best_metric(data: RunData) -> BestMetric:
    """Return the best value of the metric that selects the best checkpoint, or a dash before the first validation."""
    name = _find_main_metric(data)
    if not name:
        return BestMetric("–", "")
    values = data.validations.measures[name].values
    # The loss has no description, and metrics of an unknown task may have none.
    measure = data.find_measure(name) or Measure(name, name, higher_is_better=name != "loss")
    finished = data.finished
    if finished is not None and finished.best_epoch is not None and name in finished.best:
        best, epoch = finished.best[name], finished.best_epoch
    else:
        index = int(np.nanargmax(values) if measure.higher_is_better else np.nanargmin(values))
        best, epoch = float(values[index]), int(data.validations.epoch.values[index])
    return BestMetric(metric_value(best, percent=measure.percent), shorten_title(measure.title), epoch)


def _find_main_metric(data: RunData) -> str:
    """Return the id of the metric that selects the best checkpoint, if it has values.

    Otherwise, return the first metric with values that isn't the loss. If there is none, return the loss, or "" if no
    metric has values.
    """
    names = [name for name, column in data.validations.measures.items() if np.isfinite(column.values).any()]
    chosen = data.started.job.checkpoints.best_by if data.started is not None else ""
    candidates = [name for name in names if name == chosen] or [name for name in names if name != "loss"] or names
    return next(iter(candidates), "")
