"""Advice after a run, and a button that puts the suggested settings into the form."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QWidget

from engine.contract.events import Verdict
from engine.contract.job import FIELDS
from gui.sources.run_data import RunData
from gui.titles import changes_words
from gui.widgets.elided_label import ElidedLabel


class VerdictCard(QFrame):
    """Hidden until the run on screen has ended with something to say.

    Signals: wanted(Verdict) - its changes are to be put into the form.
    """

    wanted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self._verdict: Verdict | None = None
        self.sentence = ElidedLabel()
        self.sentence.setObjectName("heading")
        self.sentence.setAccessibleName("What the run could do better")
        self.use = QPushButton("Use these settings")
        self.use.clicked.connect(lambda: self.wanted.emit(self._verdict))
        layout = QHBoxLayout(self)
        layout.setContentsMargins(8, 2, 2, 2)
        layout.setSpacing(8)
        layout.addWidget(self.sentence, 1)
        layout.addWidget(self.use)
        self.hide()

    def show_data(self, data: RunData) -> None:
        """Shows the verdict of the run's last execution; hides itself without one."""
        verdict = data.verdict
        if verdict == self._verdict:
            return
        self._verdict = verdict
        self.setVisible(verdict is not None)
        if verdict is None:
            return
        self.sentence.setText(verdict.sentence)
        self.sentence.setAccessibleDescription(verdict.sentence)
        self.sentence.setToolTip(verdict.sentence)
        self.use.setVisible(bool(verdict.changes) and verdict.changes.keys() <= FIELDS.keys())
        further = verdict.code == "falling"
        self.use.setText("Train further" if further else "Use these settings")
        what = "this run into the form to train it further" if further else "a new run into the form"
        self.use.setToolTip(f"Puts {what}: {changes_words(verdict.changes)}")
        self.use.setAccessibleDescription(self.use.toolTip())
