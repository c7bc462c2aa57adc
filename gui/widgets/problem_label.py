"""List of problems, for the widget that they belong to."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QPushButton, QWidget

from engine.contract.problems import Problem
from engine.system.plain_text import shortened
from gui.widgets.flow_layout import FlowLayout
from gui.widgets.labels import IconLabel, WrappingLabel


class ProblemLabel(QWidget):
    """List of problems, each with an icon, since color alone tells nothing, and a button for each of its choices.

    Signals:
        chosen(Choice): The user pressed the button of a choice.
    """

    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 1, 0, 3)
        self._grid.setHorizontalSpacing(5)
        self._grid.setVerticalSpacing(2)
        self._grid.setColumnStretch(1, 1)
        self._problems: tuple[Problem, ...] = ()
        self._lines: list[QWidget] = []
        self.hide()

    def show_problems(self, problems: tuple[Problem, ...]) -> None:
        if problems != self._problems:
            self._problems = problems
            self._paint()

    def text(self) -> str:
        return "\n".join(map(str, self._problems))

    def _paint(self) -> None:
        for line in self._lines:
            self._grid.removeWidget(line)
            line.deleteLater()
        self._lines = []
        for problem in self._problems:
            mark = IconLabel(problem.severity, problem.severity, problem.severity.capitalize())
            text = WrappingLabel(shortened(problem.message if problem.choices else str(problem)), problem.severity)
            text.setToolTip(str(problem) if problem.choices else "")
            text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)  # remedies may be commands
            row = len(self._lines)
            self._grid.addWidget(mark, row, 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(text, row, 1)
            self._lines += [mark, text]
            if problem.choices:
                self._lines.append(self._buttons(problem))
                self._grid.addWidget(self._lines[-1], row + 1, 1)
        self.setVisible(bool(self._problems))

    def _buttons(self, problem: Problem) -> QWidget:
        """Return the buttons of the problem's choices, in as many lines as they need."""
        holder = QWidget()
        flow = FlowLayout(holder, spacing=6)
        for choice in problem.choices:
            button = QPushButton(choice.title)
            button.setAccessibleDescription(str(problem))
            button.clicked.connect(lambda _on=False, choice=choice: self.chosen.emit(choice))
            flow.addWidget(button)
        return holder
