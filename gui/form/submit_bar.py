"""Submit bar below the form: steps, problems, queued runs, and the buttons that start the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QPushButton, QSizePolicy, QToolButton, QWidget

from engine.contract.devices import CPU
from engine.contract.job import FIELDS, fields_with_trait
from engine.contract.problems import Problem
from engine.system.format import listed
from gui.actions import Actions, bind
from gui.form.environment import QueuedRuns
from gui.format import format_roughly
from gui.style import icons
from gui.titles import describe_device_use, device_title
from gui.translation import tr
from gui.widgets.buttons import set_primary, styled
from gui.widgets.labels import ElidedLabel, IconLabel, ProblemLabel
from gui.widgets.layouts import hbox, vbox

_TIPS = {
    tr("Train"): tr("Start the training"),
    tr("Add to queue"): tr("Start the training when its devices are free"),
    tr("Resume"): tr("Resume the run with these changes"),
    tr("Train further"): tr("Train the run for more epochs"),
}
_NAMED_RUNS = 2
"""Maximum number of queued runs that are named. The others are only counted."""


def describe_queue(queued: QueuedRuns, devices: Sequence[str], names: Mapping[str, str], at_once: bool) -> str:
    """Describe the runs that use or wait for `devices`, or return "" if there are none.

    `names` contains titles of GPUs by UUID. If `at_once` is True, the job starts without waiting for its devices.
    Otherwise, the text contains the estimated wait if the remaining time of each run is known.
    """
    busy = [device for device in dict.fromkeys(devices) if queued.get(device)]
    runs = list(dict.fromkeys(run for device in busy for run in queued[device]))
    if not runs:
        return ""
    others = listed([describe_device_use(run.title, has_ended=run.has_ended) for run in runs], most=_NAMED_RUNS)
    if at_once:
        device_text = listed(
            tr("the CPU") if device == CPU else names.get(device) or device_title(device) for device in busy
        )
        return tr("Shares {where} with {others}; sharing slows every run down.").format(
            where=device_text, others=others
        )
    remaining_s = [run.left_s for run in runs if run.left_s is not None]
    if len(remaining_s) < len(runs):
        return tr("Starts after {others}.").format(others=others)
    wait_s = max(remaining_s)  # the runs train at the same time
    return tr("Starts after {others}, in about {wait}.").format(others=others, wait=format_roughly(wait_s))


class SubmitBar(QWidget):
    """Bar with the steps of the form, blocking problems, queued runs, and buttons that start or copy the job."""

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
        set_primary(self.train, True)
        self.copy = bind(QPushButton(), actions.copy_command)
        self.estimate = styled(ElidedLabel(), "muted", name=tr("Estimated time and memory"))
        self.estimate.hide()
        self._column, self._queue_row = QWidget(), QWidget()
        self._focus_train_when_enabled = False
        self._lay_out()
        self.show_queue("", can_start_at_once=False)
        self.show_action(tr("Train"))

    def set_width(self, width: int) -> None:
        """Limit the contents to the width in pixels of the form's first column."""
        self._column.setMaximumWidth(width)

    def show_action(self, action: str) -> None:
        """Set the text of the button that starts the job to `action`, and set the matching tool tip."""
        self._actions.train.set_appearance(action, _TIPS[action])

    def show_queue(self, text: str, *, can_start_at_once: bool) -> None:
        """Show a message about queued runs, or hide the line if `text` is empty.

        The button that starts the job at once is visible if `can_start_at_once` is True.
        """
        self.queue.setText(text)
        self.queue.setAccessibleDescription(text)
        self._queue_row.setVisible(bool(text))
        self.at_once.setVisible(can_start_at_once)

    def show_estimate(self, text: str, tip: str) -> None:
        """Show the estimated time and memory of the job. `tip` describes their origin.

        Hide the line if `text` is empty.
        """
        self.estimate.setText(text)
        self.estimate.setToolTip("\n".join(filter(None, (text, tip))))
        self.estimate.setAccessibleDescription(self.estimate.toolTip())
        self.estimate.setVisible(bool(text))

    def show_ready(self, disabled_reason: str, problems: tuple[Problem, ...]) -> None:
        """Show `problems` above the buttons, and enable the buttons unless there is a `disabled_reason`."""
        self._enable(disabled_reason)
        self.reason.show_problems(problems)

    def focus_train(self) -> None:
        """Focus the Train button, now or as soon as it is enabled."""
        self._focus_train_when_enabled = not self._actions.train.ready
        # A disabled button can't have the focus, so the next one has it in the meantime.
        (self.copy if self._focus_train_when_enabled else self.train).setFocus()

    def _lay_out(self) -> None:
        self._queue_row.setLayout(
            hbox(
                IconLabel("clock", "muted", tr("Queued")),
                (self.queue, 1),
                self.at_once,
                spacing=6,
            )
        )
        buttons = hbox((self.train, 1), self.copy, spacing=6)
        self._column.setLayout(vbox(self.steps, self.reason, self.estimate, self._queue_row, buttons, spacing=6))
        self.setLayout(hbox((self._column, 100), 1, margins=(14, 8, 14, 12)))

    def _enable(self, disabled_reason: str) -> None:
        """Enable the buttons unless there is a `disabled_reason`.

        If the Train button had the focus before it was disabled, it gets the focus again unless the user has moved it.
        """
        window = self.window()  # its focus widget is known even before the window is active
        if window.focusWidget() in (self.train, self.at_once) and disabled_reason:
            self._focus_train_when_enabled = True
        self._actions.train.set_disabled_reason(disabled_reason)
        self._actions.start_at_once.set_disabled_reason(disabled_reason)
        if self._focus_train_when_enabled and not disabled_reason:
            self._focus_train_when_enabled = False
            if window.focusWidget() in (self.copy, None):
                self.train.setFocus()


StepState = Literal["done", "attention", "working", "to do"]
DATA, RECIPE, DEVICES = STEPS = (tr("Data"), tr("Recipe"), tr("Devices"))
_ICONS: dict[StepState, tuple[str, str]] = {
    "done": ("ok", "ok"),
    "attention": ("warning", "warning"),
    "working": ("clock", "accent"),
    "to do": ("info", "muted"),
}
_SPOKEN: dict[StepState, str] = {
    "done": tr("done"),
    "attention": tr("needs attention"),
    "working": tr("working"),
    "to do": tr("to do"),
}
_DATA_FIELDS = {"dataset", *fields_with_trait("report")}
_DEVICE_FIELDS = {name for name, field in FIELDS.items() if field.group == "parallel"} | {"devices", "strategy"}


def find_step(problem: Problem) -> str:
    """Return the step of the form that contains the problem's field: `DATA`, `RECIPE` or `DEVICES`."""
    if problem.field in _DATA_FIELDS:
        return DATA
    return DEVICES if problem.field in _DEVICE_FIELDS else RECIPE


class StepList(QWidget):
    """List of the steps, each with its state as an icon and a text.

    Signals:
        pressed(str, Problem | None): the user has pressed this step. The second argument is the most severe problem of
            the step, or None.
    """

    pressed = Signal(str, object)

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName(tr("Steps to training"))
        # All by step.
        self.lines: dict[str, QToolButton] = {}
        self.states: dict[str, StepState] = {}
        self._problems: dict[str, list[Problem]] = {}  # errors first
        self._texts: dict[str, str] = {}  # full texts of the lines, which are elided
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

    def show_steps(
        self, problems: Sequence[Problem], done: dict[str, str], working: dict[str, str], to_do: dict[str, str]
    ) -> None:
        """Show the state of each step. The mappings have the names of steps as keys.

        Args:
            problems: Problems of the job. A step with problems needs attention.
            done: Choices that were made, for all steps.
            working: Activities of the steps that are in progress.
            to_do: Requests to the user for the steps that haven't been started.
        """
        self._problems = {step: [] for step in STEPS}
        for problem in sorted(problems, key=lambda problem: problem.severity != "error"):
            self._problems[find_step(problem)].append(problem)
        for step, line in self.lines.items():
            step_problems = self._problems[step]
            state: StepState
            if step in to_do:
                state, text = "to do", to_do[step]
            elif step in working:
                state, text = "working", working[step]
            elif step_problems:
                state, text = "attention", step_problems[0].message
            else:
                state, text = "done", done[step]
            if state != self.states.get(step):
                self.states[step] = state
                line.setIcon(icons.icon(*_ICONS[state]))
            self._texts[step] = f"{step}: {text}"
            line.setToolTip("\n".join(map(str, step_problems)) or text)
            line.setAccessibleDescription(f"{_SPOKEN[state]}: {text}")
        self._elide()
        layout = self.layout()
        assert layout is not None
        layout.activate()  # at the start, the window is painted before the next event updates the layout

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()

    def _elide(self) -> None:
        """Fit the texts of the steps to the width."""
        for step, text in self._texts.items():
            line = self.lines[step]
            line.setText(line.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, max(120, self.width() - 40)))

    def _on_clicked(self, step: str, _checked: bool = False) -> None:
        """Emit `pressed` with the step and its most severe problem, or None if it has none."""
        self.pressed.emit(step, next(iter(self._problems.get(step, ())), None))
