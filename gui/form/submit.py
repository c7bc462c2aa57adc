"""Submit bar below the form, and the decision to start the job on screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QSizePolicy, QToolButton, QWidget

from engine.contract.dataset import DatasetReport
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.system.format import listed
from gui.actions import Actions, bind
from gui.form.environment import QueuedRuns
from gui.form.label_check import LabelCheck
from gui.form.steps import StepList
from gui.sources.prefill import Prefill
from gui.titles import device_title
from gui.translation import tr
from gui.widgets.labels import IconLabel
from gui.widgets.layouts import hbox, vbox
from gui.widgets.problem_label import ProblemLabel

_TIPS = {
    "Train": tr("Starts the training"),
    "Resume": tr("Resumes the run with these changes"),
    "Train further": tr("Trains the run for more epochs"),
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
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.steps = StepList()
        self.reason = ProblemLabel()
        self.queue = QLabel(wordWrap=True)
        self.queue.setTextFormat(Qt.TextFormat.PlainText)
        self.queue.setObjectName("muted")
        self.queue.setAccessibleName(tr("When the run starts"))
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


class Submission(QObject):
    """Start of the job in one form: waits until the job is validated, then requests the run.

    Signals:
        train_requested(Job): Start a new run.
        resume_requested(RunFolder, dict): Resume a run with these changes of its job.
        labels_requested(): Show the labels of the dataset before the first training.
    """

    train_requested = Signal(object)
    resume_requested = Signal(object, object)
    labels_requested = Signal()

    def __init__(self, label_check: LabelCheck, prefill: Prefill | None, parent: QObject) -> None:
        super().__init__(parent)
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
            self.labels_requested.emit()
            return
        self.is_requested_here = True
        if prefill is not None and run is not None:
            self.resume_requested.emit(run, prefill.changes(values) | extra)
        else:
            self.train_requested.emit(job.with_fields(**extra))
