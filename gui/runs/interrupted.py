"""The runs that were interrupted, above all others: what they were doing, and what to do about each."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QToolButton, QVBoxLayout, QWidget

from engine.runs.folder import RunSummary
from gui.format import localised, moment
from gui.titles import doing, model_title, run_title
from gui.widgets.banner import Banner

_MOST = 2
"""The most interrupted runs shown, newest first; the list has all."""


def left_lying(runs: Collection[RunSummary]) -> list[RunSummary]:
    """The interrupted runs that nobody has seen to, newest first. One that has gone on is interrupted no more; to
    fork it is not to see to it.
    """
    found = [run for run in runs if run.state == "interrupted" and not run.set_aside]
    return sorted(found, key=lambda run: run.started, reverse=True)


class InterruptedRuns(QWidget):
    """Hidden where there are none.

    Signals: resume(str), delete(str), set_aside(str) - the run of that id; show_all() - of more than stand here.
    """

    resume = Signal(str)
    delete = Signal(str)
    set_aside = Signal(str)
    show_all = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Interrupted runs")
        self._runs: list[RunSummary] = []
        self._rows: list[Banner] = []
        self._more = QToolButton()
        self._more.setText("Show them all")
        self._more.setObjectName("flat")
        self._more.clicked.connect(self.show_all)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(4)
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
        self._rows = []
        for index, run in enumerate(self._runs[:_MOST]):
            row = self._row(run)
            self._rows.append(row)
            self._layout.insertWidget(index, row)
            row.say(_words(run))  # it shows itself, and so not before it has its place
        left = len(self._runs) - _MOST
        self._more.setText(f"{localised(left)} more interrupted: show them all")
        self._more.setVisible(left > 0)
        self.setVisible(bool(self._runs))

    def _row(self, run: RunSummary) -> Banner:
        named = _named(run)
        resume = QPushButton("Resume")
        resume.setToolTip("Resumes from its last checkpoint on the same devices; starts over if it has none")
        resume.clicked.connect(lambda: self.resume.emit(run.run_id))
        delete = QPushButton("Delete …")
        delete.setToolTip("Asks first, then moves the run to the trash")
        delete.clicked.connect(lambda: self.delete.emit(run.run_id))
        for button, does in ((resume, "Resume"), (delete, "Delete")):
            button.setAccessibleName(f"{does} {named}")
        row = Banner(resume, delete, close=f"Leave as it is: {named}")
        row.closed.connect(lambda: self.set_aside.emit(run.run_id))
        row.label.setToolTip(run.folder)
        return row


def _named(run: RunSummary) -> str:
    return f"{run_title(run)} · {model_title(run.model)}"


def _words(run: RunSummary) -> str:
    return f"{_named(run)}: interrupted {moment(run.started + (run.seconds or 0.0))} while {doing(run)}."
