"""Submit bar below the form with the steps to training, and the decision to start the job on screen."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from PySide6.QtCore import QElapsedTimer, Qt, Signal
from PySide6.QtWidgets import QApplication, QGridLayout, QLabel, QPushButton, QSizePolicy, QToolButton, QWidget

from engine.contract.dataset import DatasetReport
from engine.contract.devices import CPU
from engine.contract.job import FIELDS, Job, fields_with
from engine.contract.problems import Problem
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import listed
from gui.actions import Actions, bind
from gui.form.environment import QueuedRuns
from gui.sources.resume_fork import Prefill
from gui.sources.settings import Settings
from gui.style import icons
from gui.titles import device_title
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import IconLabel, ProblemLabel
from gui.widgets.layouts import hbox, vbox

_TIPS = {
    tr("Train"): tr("Starts the training"),
    tr("Add to queue"): tr("Starts the training when its devices are free"),
    tr("Resume"): tr("Resumes the run with these changes"),
    tr("Train further"): tr("Trains the run for more epochs"),
}
_NAMED_RUNS = 2
"""Queued runs that are named; further ones are counted."""


def queue_message(queued: QueuedRuns, devices: Sequence[str], names: Mapping[str, str], at_once: bool) -> str:
    """Return a sentence about the runs that hold or wait for `devices`; "" if there are none.

    Args:
        queued: Runs by device.
        devices: Devices of the job.
        names: Titles of GPUs by UUID.
        at_once: The job starts without waiting for its devices.
    """
    busy = [device for device in dict.fromkeys(devices) if queued.get(device)]
    runs = list(dict.fromkeys(run for device in busy for run in queued[device]))
    if not runs:
        return ""
    where = listed("the CPU" if device == CPU else names.get(device) or device_title(device) for device in busy)
    others = listed([f"“{title}”" for title in runs], most=_NAMED_RUNS)
    if at_once:
        return tr("Shares {where} with {others}; sharing slows every run down.").format(where=where, others=others)
    return tr("Waits for {where}, behind {others}.").format(where=where, others=others)


class SubmitBar(QWidget):
    """Steps to training, blocking problems, queued runs, and the buttons that start or copy the job."""

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self._actions = actions
        styled(self, "panel")
        self.steps = StepList()
        self.reason = ProblemLabel()
        self.queue = styled(QLabel(wordWrap=True), "muted", name=tr("When the run starts"))
        self.queue.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.at_once = bind(QToolButton(), actions.start_at_once)
        self.train = bind(QPushButton(), actions.train)
        self.train.setObjectName("primary")
        self.copy = bind(QPushButton(), actions.copy_command)
        self._queue_row = QWidget()
        self._focus_train_when_enabled = False
        self._lay_out()
        self.show_queue("", can_start_at_once=False)
        self.show_action(tr("Train"))

    def show_action(self, action: str) -> None:
        """Label the button that starts the job."""
        self._actions.train.set_appearance(action, _TIPS[action])

    def show_queue(self, text: str, *, can_start_at_once: bool) -> None:
        """Show a message about queued runs; hide the line if `text` is empty."""
        self.queue.setText(text)
        self.queue.setAccessibleDescription(text)
        self._queue_row.setVisible(bool(text))
        self.at_once.setVisible(can_start_at_once)

    def show_ready(self, disabled_reason: str, problems: tuple[Problem, ...]) -> None:
        """Enable the buttons, or disable them for a reason, and list `problems` above them."""
        self._enable(disabled_reason)
        self.reason.show_problems(problems)

    def focus_train(self) -> None:
        """Move the keyboard to the Train button, now or as soon as it is enabled."""
        self._focus_train_when_enabled = not self._actions.train.ready
        (self.copy if self._focus_train_when_enabled else self.train).setFocus()

    def _lay_out(self) -> None:
        self._queue_row.setLayout(
            hbox(
                (IconLabel("clock", "muted", tr("Queued")), 0, Qt.AlignmentFlag.AlignTop),
                (self.queue, 1),
                (self.at_once, 0, Qt.AlignmentFlag.AlignTop),
                spacing=6,
            )
        )
        buttons = hbox((self.train, 1), self.copy, spacing=6)
        self.setLayout(vbox(self.steps, self.reason, self._queue_row, buttons, spacing=6, margins=(14, 8, 14, 12)))

    def _enable(self, disabled_reason: str) -> None:
        """Enable or disable the actions, and give the keyboard back to Train unless the user moved it meanwhile."""
        window = self.window()  # its focus widget is known even before the window is active
        if window.focusWidget() in (self.train, self.at_once) and disabled_reason:
            self._focus_train_when_enabled = True
        self._actions.train.allow(disabled_reason)
        self._actions.start_at_once.allow(disabled_reason)
        if self._focus_train_when_enabled and not disabled_reason:
            self._focus_train_when_enabled = False
            if window.focusWidget() in (self.copy, None):
                self.train.setFocus()


class JobSignals(QWidget):
    """Signals of a form, and of the panel of all forms.

    Signals:
        changed(): The job or its problems changed.
        train_requested(Job): Start a new run.
        resume_requested(RunFolder, dict): Resume a run with these changes of its job.
        labels_requested(): Show the labels of the dataset before the first training.
        folder_chosen(Job | None): Inspect the dataset folder of this job, or cancel the inspection.
        user_edited(): The user edits the job and may start a run soon.
        cut_requested(): Show the page of the model's cuts.
        finder_requested(str): Find a value for this field by trials.
    """

    changed = Signal()
    train_requested = Signal(object)
    resume_requested = Signal(object, object)
    labels_requested = Signal()
    folder_chosen = Signal(object)
    user_edited = Signal()
    cut_requested = Signal()
    finder_requested = Signal(str)

    def relay(self, form: JobSignals) -> None:
        """Emit the signals of `form`, too."""
        for name, signal in vars(JobSignals).items():
            if isinstance(signal, Signal):
                getattr(form, name).connect(getattr(self, name))


class Submission:
    """Start of the job in one form: waits until the job is validated, then requests the run by the form's signals."""

    def __init__(self, label_check: LabelCheck, prefill: Prefill | None, form: JobSignals) -> None:
        self._form = form
        self.is_requested_here = False
        """The run that is being created was requested by this form."""
        self.start_problems: list[Problem] = []
        """Problems of the last start; dropped at the next edit."""
        self._label_check, self._prefill = label_check, prefill
        self._pending: dict[str, Any] | None = None

    def schedule(self, extra: dict[str, Any]) -> None:
        """Request the run with the `extra` fields after the next complete validation."""
        self._pending = extra

    def cancel(self) -> None:
        """Drop a pending request and old start problems, because the user edits the form."""
        self._pending, self.start_problems = None, []

    def submit(self, job: Job | None, values: dict[str, Any], report: DatasetReport | None) -> None:
        """Request the pending run. Does nothing without a pending request or a valid `job`."""
        extra, self._pending = self._pending, None
        if extra is None or job is None:
            return
        prefill = self._prefill
        run = prefill.run if prefill is not None else None
        if run is None and self._label_check.holds_back(job.data.dataset, report):
            self._form.labels_requested.emit()
            return
        self.is_requested_here = True
        if prefill is not None and run is not None:
            self._form.resume_requested.emit(run, prefill.changes(values) | extra)
        else:
            self._form.train_requested.emit(job.with_fields(**extra))


StepState = Literal["done", "attention", "working"]
STEPS = (tr("Data"), tr("Recipe"), tr("Devices"))
_ICONS: dict[StepState, tuple[str, str]] = {
    "done": ("ok", "ok"),
    "attention": ("warning", "warning"),
    "working": ("clock", "accent"),
}
_SPOKEN: dict[StepState, str] = {"done": "done", "attention": "needs attention", "working": "working"}
_DATA_FIELDS = {"dataset", *fields_with("report")}
_DEVICE_FIELDS = {name for name, field in FIELDS.items() if field.group == "parallel"} | {"devices", "strategy"}


def step_of(problem: Problem) -> str:
    """Return the step that the problem's field belongs to."""
    if problem.field in _DATA_FIELDS:
        return tr("Data")
    return tr("Devices") if problem.field in _DEVICE_FIELDS else tr("Recipe")


class StepList(QWidget):
    """Line for each step with its state as an icon and in words.

    Signals:
        pressed(str, Problem | None): The user pressed a step; its first problem.
    """

    pressed = Signal(str, object)

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName(tr("Steps to training"))
        self.lines: dict[str, QToolButton] = {}
        self.states: dict[str, StepState] = {}
        self._problems: dict[str, list[Problem]] = {}
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setVerticalSpacing(0)
        for row, step in enumerate(STEPS):
            line = self.lines[step] = QToolButton()
            line.setObjectName("flat")
            line.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
            line.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            line.setStyleSheet("min-height: 16px; padding: 0;")
            line.setAccessibleName(step)
            line.clicked.connect(partial(self._on_clicked, step))
            layout.addWidget(line, row, 0, Qt.AlignmentFlag.AlignLeft)

    def show_steps(self, problems: Sequence[Problem], done: dict[str, str], working: dict[str, str]) -> None:
        """Show the state of each step.

        Args:
            problems: Problems of the job; a step with problems needs attention.
            done: Choice made in each step.
            working: Activity of the steps that are in progress.
        """
        self._problems = {step: [] for step in STEPS}
        for problem in problems:
            self._problems[step_of(problem)].append(problem)
        for step, line in self.lines.items():
            wrong = self._problems[step]
            state: StepState = "working" if step in working else "attention" if wrong else "done"
            text = working.get(step) or (_labels(wrong) if wrong else done[step])
            if state != self.states.get(step):
                self.states[step] = state
                line.setIcon(icons.icon(*_ICONS[state]))
            room = max(120, self.width() - 40)
            elided = line.fontMetrics().elidedText(f"{step}: {text}", Qt.TextElideMode.ElideRight, room)
            if elided != line.text():
                line.setText(elided)
            line.setToolTip("\n".join(map(str, wrong)) or text)
            line.setAccessibleDescription(f"{_SPOKEN[state]}: {text}")

    def _on_clicked(self, step: str, _checked: bool = False) -> None:
        self.pressed.emit(step, next(iter(self._problems.get(step, ())), None))


def _labels(problems: Iterable[Problem]) -> str:
    labels = dict.fromkeys(FIELDS[each.field].label if each.field in FIELDS else "the run" for each in problems)
    return f"check {', '.join(labels)}"


_KEY = "labels_seen"
_REMEMBERED = 500


class LabelCheck:
    """Holds the first training back on a folder that was not recognized with certainty, once for each format.

    Datasets are remembered in the settings, if there are any.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings
        self._seen = _load(settings)
        self._pressed = QElapsedTimer()

    def holds_back(self, folder: str, report: DatasetReport | None) -> bool:
        """Return True if the labels are to be shown instead of starting; they count as seen then.

        Without examples there are none to show. Presses that follow within the time of a double click count as one.
        """
        if report is None or not report.format or report.certain or not report.examples:
            return False
        dataset = (os.path.abspath(os.path.expanduser(folder)), report.format)
        if dataset not in self._seen:
            self._remember(dataset)
            self._pressed.start()
            return True
        if self.is_pausing:
            self._pressed.start()
            return True
        return False

    @property
    def is_pausing(self) -> bool:
        """Return True shortly after the labels were shown."""
        return self._pressed.isValid() and self._pressed.elapsed() < QApplication.doubleClickInterval()

    def _remember(self, dataset: tuple[str, str]) -> None:
        self._seen = [*_load(self._settings), *self._seen]  # other windows may have added some
        self._seen = [*dict.fromkeys((*self._seen, dataset))][-_REMEMBERED:]
        if self._settings is not None:
            self._settings.set(_KEY, msgspec.json.encode(self._seen).decode())


def _load(settings: Settings | None) -> list[tuple[str, str]]:
    """Return the remembered datasets; none if they can't be read."""
    try:
        text = settings.text(_KEY, "[]") if settings is not None else "[]"
        return msgspec.json.decode(text, type=list[tuple[str, str]])
    except NOT_DECODED:
        return []
