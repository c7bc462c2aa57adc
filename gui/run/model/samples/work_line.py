"""What is being made of a sample, and how far it has come, in one line."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QVBoxLayout, QWidget

from engine.contract.inference.messages import Progress
from engine.contract.problems import Problem
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.problem_label import ProblemLabel


class WorkLine(QWidget):
    """Hidden while nothing is being made and nothing went wrong."""

    def __init__(self, name: str) -> None:
        """`name` is what screen readers call the progress."""
        super().__init__()
        self.progress = QProgressBar()
        self.progress.setAccessibleName(name)
        self.progress.setRange(0, 100)
        self.progress.setFixedSize(90, 12)
        self.progress.setTextVisible(False)
        self.what = ElidedLabel()
        self.what.setObjectName("muted")
        self.trouble = ProblemLabel()
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.progress)
        row.addWidget(self.what, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addLayout(row)
        layout.addWidget(self.trouble)
        self.rest()

    def tell(self, progress: Progress) -> None:
        """How far it has come."""
        self.progress.setValue(round(100 * progress.fraction))
        self.what.setText(f"{progress.what} …")
        for widget in (self.progress, self.what, self):
            widget.show()

    def rest(self, *problems: Problem) -> None:
        """Nothing is being made any more; `problems` say why nothing came of it."""
        self.progress.hide()
        self.what.hide()
        self.trouble.show_problems(problems)
        self.setVisible(bool(problems))
