"""The runs that were interrupted, above all others: what they were doing, and what to do about each."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QVBoxLayout, QWidget

from engine.runs.folder import RunSummary
from gui.format import moment
from gui.style import icons
from gui.titles import doing, model_title, title
from gui.widgets.icon_label import IconLabel

_MOST = 2
"""So many are shown, the newest; the rest stands in the list."""


def left_lying(runs: Collection[RunSummary]) -> list[RunSummary]:
    """The interrupted runs that nobody has seen to, newest first. One that has gone on is interrupted no more; to fork it
    is not to see to it."""
    found = [run for run in runs if run.state == "interrupted" and not run.set_aside]
    return sorted(found, key=lambda run: run.started, reverse=True)


class InterruptedRuns(QFrame):
    """Hidden where there are none.

    Signals: resume(str), delete(str), set_aside(str) - the run of that id; show_all() - of more than stand here.
    """

    resume = Signal(str)
    delete = Signal(str)
    set_aside = Signal(str)
    show_all = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self.setAccessibleName("Interrupted runs")
        self._runs: list[RunSummary] = []
        self._rows: list[QWidget] = []
        self._more = QToolButton()
        self._more.setText("Show them all")
        self._more.setObjectName("flat")
        self._more.clicked.connect(self.show_all)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(12, 6, 8, 6)
        self._layout.setSpacing(2)
        self._layout.addWidget(self._more, 0, Qt.AlignmentFlag.AlignLeft)
        self.hide()

    @property
    def count(self) -> int:
        """How many have been left lying, whether or not there is room for all."""
        return len(self._runs)

    def show_runs(self, runs: Collection[RunSummary]) -> None:
        """Shows those of all `runs` that have been left lying."""
        found = left_lying(runs)
        if found != self._runs:
            self._runs = found
            self._make_rows()

    def _make_rows(self) -> None:
        for row in self._rows:
            self._layout.removeWidget(row)
            row.deleteLater()
        self._rows = [self._row(run) for run in self._runs[:_MOST]]
        for place, row in enumerate(self._rows):
            self._layout.insertWidget(place, row)
        left = len(self._runs) - _MOST
        self._more.setText(f"{left:,} more interrupted: show them all")
        self._more.setVisible(left > 0)
        self.setVisible(bool(self._runs))

    def _row(self, run: RunSummary) -> QWidget:
        named, rest = _words(run)
        text = QLabel(wordWrap=True)
        text.setTextFormat(Qt.TextFormat.PlainText)
        text.setText(f"{named}: {rest}")
        text.setToolTip(run.folder)
        resume = QPushButton("Resume")
        resume.setToolTip("Goes on from its last checkpoint, on the same devices; begins again where it has none")
        resume.clicked.connect(lambda: self.resume.emit(run.run_id))
        delete = QPushButton("Delete …")
        delete.setToolTip("Asks first, and moves the run to the trash")
        delete.clicked.connect(lambda: self.delete.emit(run.run_id))
        leave = QToolButton()
        leave.setObjectName("flat")
        leave.setIcon(icons.icon("close", "muted"))
        leave.setToolTip("Leaves it as it is; it stays in the list")
        leave.clicked.connect(lambda: self.set_aside.emit(run.run_id))
        for button, does in ((resume, "Resume"), (delete, "Delete"), (leave, "Leave as it is:")):
            button.setAccessibleName(f"{does} {named}")
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(IconLabel("warning", "warning", "Warning"))
        layout.addWidget(text, 1)
        for button in (resume, delete, leave):
            layout.addWidget(button)
        return row


def _words(run: RunSummary) -> tuple[str, str]:
    when = moment(run.started + (run.seconds or 0.0))
    return f"{title(run)} · {model_title(run.model)}", f"interrupted {when} while {doing(run)}."
