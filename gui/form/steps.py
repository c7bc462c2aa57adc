"""The way from a folder to training well as a list of three: the data, the recipe, the devices, and how each stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QToolButton, QWidget

from engine.contract.job import FIELDS, deciding
from engine.contract.problems import Problem
from gui.style import icons

StepState = Literal["done", "attention", "working"]
STEPS = ("Data", "Recipe", "Devices")
_ICONS: dict[StepState, tuple[str, str]] = {
    "done": ("ok", "ok"),
    "attention": ("warning", "warning"),
    "working": ("clock", "accent"),
}
_SPOKEN: dict[StepState, str] = {"done": "done", "attention": "needs attention", "working": "working"}
_ON_DATA = {"dataset", *deciding("report")}
_ON_DEVICES = {name for name, field in FIELDS.items() if field.group == "strategy"} | {"devices", "strategy"}


def step_of(problem: Problem) -> str:
    """The step that the problem's field belongs to."""
    if problem.field in _ON_DATA:
        return "Data"
    return "Devices" if problem.field in _ON_DEVICES else "Recipe"


class StepList(QWidget):
    """A line for each step with its state in an icon and in words. Pressing it leads to the step's first field that
    is wrong, or to its first.
    """

    def __init__(self, go_to: Callable[[str, Problem | None], None]) -> None:
        super().__init__()
        self.setAccessibleName("Steps to training")
        self.lines: dict[str, QToolButton] = {}
        self.states: dict[str, StepState] = {}
        self._wrong: dict[str, list[Problem]] = {}
        self._go_to = go_to
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
            line.clicked.connect(lambda _on=False, step=step: self._pressed(step))
            layout.addWidget(line, row, 0, Qt.AlignmentFlag.AlignLeft)

    def show_steps(self, problems: Sequence[Problem], done: dict[str, str], working: dict[str, str]) -> None:
        """`done` says of each step what is chosen, `working` of some what is being looked at."""
        self._wrong = {step: [] for step in STEPS}
        for problem in problems:
            self._wrong[step_of(problem)].append(problem)
        for step, line in self.lines.items():
            wrong = self._wrong[step]
            state: StepState = "working" if step in working else "attention" if wrong else "done"
            text = working.get(step) or (_labels(wrong) if wrong else done[step])
            if state != self.states.get(step):
                self.states[step] = state
                line.setIcon(icons.icon(*_ICONS[state]))
            room = max(120, self.width() - 40)
            shown = line.fontMetrics().elidedText(f"{step}: {text}", Qt.TextElideMode.ElideRight, room)
            if shown != line.text():
                line.setText(shown)
            line.setToolTip("\n".join(map(str, wrong)) or text)
            line.setAccessibleDescription(f"{_SPOKEN[state]}: {text}")

    def _pressed(self, step: str) -> None:
        self._go_to(step, next(iter(self._wrong.get(step, ())), None))


def _labels(problems: Iterable[Problem]) -> str:
    labels = dict.fromkeys(FIELDS[each.field].label if each.field in FIELDS else "the run" for each in problems)
    return f"check {', '.join(labels)}"
