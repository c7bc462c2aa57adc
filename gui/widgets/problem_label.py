"""What is wrong with something, in words beside it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QSizePolicy, QWidget

from engine.contract.problems import Problem
from engine.system.plain_text import shortened
from gui.widgets.icon_label import IconLabel


class ProblemLabel(QWidget):
    """Problems in words, with an icon each, so that colour alone never tells."""

    def __init__(self) -> None:
        super().__init__()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 1, 0, 3)
        self._grid.setHorizontalSpacing(5)
        self._grid.setVerticalSpacing(2)
        self._grid.setColumnStretch(1, 1)
        self._shown: tuple[Problem, ...] = ()
        self._lines: list[QWidget] = []
        self.hide()

    def show_problems(self, problems: tuple[Problem, ...]) -> None:
        if problems != self._shown:
            self._shown = problems
            self._paint()

    def text(self) -> str:
        return "\n".join(map(str, self._shown))

    def _paint(self) -> None:
        for line in self._lines:
            self._grid.removeWidget(line)
            line.deleteLater()
        self._lines = []
        for number, problem in enumerate(self._shown):
            mark = IconLabel(problem.severity, problem.severity, problem.severity.capitalize())
            text = QLabel(shortened(str(problem)))
            text.setObjectName(problem.severity)
            text.setWordWrap(True)
            text.setTextFormat(Qt.TextFormat.PlainText)
            text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)  # remedies may be commands
            text.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
            self._grid.addWidget(mark, number, 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(text, number, 1)
            self._lines += [mark, text]
        self.setVisible(bool(self._shown))
