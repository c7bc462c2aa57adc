"""Checklist of three steps to training: data, recipe, devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QToolButton, QWidget

from engine.contract.job import FIELDS, fields_with
from engine.contract.problems import Problem
from gui.style import icons
from gui.translation import tr

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
