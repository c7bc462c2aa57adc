"""Line that shows the progress of background work, and problems with it."""

from __future__ import annotations

from PySide6.QtWidgets import QProgressBar, QWidget

from engine.contract.messages import Progress
from engine.contract.problems import Problem
from gui.run.request_pages import InferenceChild
from gui.widgets.buttons import styled
from gui.widgets.labels import ElidedLabel, ProblemLabel
from gui.widgets.layouts import hbox, vbox


class ProgressLine(QWidget):
    """Line with a progress bar and a text, or with problems. It is hidden if there is neither work nor a problem."""

    def __init__(self, name: str) -> None:
        """Create the line. `name` is the accessible name of the progress bar."""
        super().__init__()
        self.progress = styled(QProgressBar(), name=name)
        self.progress.setRange(0, 100)
        self.progress.setFixedSize(90, 12)
        self.progress.setTextVisible(False)
        self.activity = styled(ElidedLabel(), "muted")
        self.problems = ProblemLabel()
        self.setLayout(vbox(hbox(self.progress, (self.activity, 1)), self.problems, spacing=2))
        self.end()

    def follow(self, child: InferenceChild) -> None:
        """Show progress, refusals and failures of `child`. The owner calls `end` when the work is done."""
        child.progress.connect(self.show_progress)
        child.refused.connect(lambda problems: self.end(*problems))
        child.failed.connect(lambda text: self.end(Problem("", text)))

    def show_progress(self, progress: Progress) -> None:
        """Show the activity and the progress bar."""
        self.progress.setValue(round(100 * progress.fraction))
        self.activity.setText(f"{progress.what}…")
        for widget in (self.progress, self.activity, self):
            widget.show()

    def end(self, *problems: Problem) -> None:
        """Hide the progress and show the `problems` that stopped the work."""
        self.progress.hide()
        self.activity.hide()
        self.problems.show_problems(problems)
        self.setVisible(bool(problems))
