"""Where a run's time goes, what holds it back, and a button that changes that."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QToolButton, QVBoxLayout, QWidget

from engine.contract.events import Advice
from engine.contract.job import FIELDS
from gui.run.curves.time_bar import TimeBar
from gui.sources.run_data import RunData
from gui.style import icons
from gui.widgets.elided_label import ElidedLabel


class TimeSpentView(QWidget):
    """Hidden until the run has said where its time goes.

    Signals: loader_workers_wanted(int) - the run on screen is to read with so many at once;
    next_time_wanted(str, object) - a field of the job, and the value that the next run is to have for it.
    """

    loader_workers_wanted = Signal(int)
    next_time_wanted = Signal(str, object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._advice: Advice | None = None
        self._live = False
        self._done: Advice | None = None
        self.bar = TimeBar()
        self.fold = QToolButton()
        self.fold.setObjectName("fold")
        self.fold.setCheckable(True)
        self.fold.setIcon(icons.icon("right", "muted", on="down"))
        self.fold.setAccessibleName("Where the time goes")
        self.fold.setToolTip("Shows where the time of each step goes")
        self.fold.toggled.connect(self.bar.setVisible)
        self.bar.hide()
        self.sentence = ElidedLabel()
        self.sentence.setAccessibleName("What holds the run back")
        self.change = QPushButton("Change")
        self.change.clicked.connect(self._change)
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.fold)
        top.addWidget(self.sentence, 1)
        top.addWidget(self.change)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(5)
        layout.addLayout(top)
        layout.addWidget(self.bar)
        self.restart()

    def restart(self) -> None:
        """Another run is to be shown."""
        self._advice = self._done = None
        self.bar.restart()
        self.hide()

    def show_data(self, data: RunData, active: bool) -> None:
        """Shows what the run has said last; `active` says whether it goes on, so that it can still be changed."""
        spent = data.time_spent
        if spent is None:
            return
        self.bar.show_time(spent)
        self._show_advice(spent.advice, active)
        self.show()

    def _show_advice(self, advice: Advice | None, active: bool) -> None:
        live = advice is not None and advice.live and active
        if advice == self._advice and live == self._live:
            return
        if advice is None or self._done is None or _change_of(advice) != _change_of(self._done) or live != self._live:
            self._done = None
        self._advice, self._live = advice, live
        text = advice.sentence if advice is not None else "Where the time of each step goes"
        self.sentence.setText(text)
        self.sentence.setToolTip(text)
        self.sentence.setAccessibleDescription(text)
        self._label_button()

    def _label_button(self) -> None:
        advice = self._advice
        field = FIELDS.get(advice.field) if advice is not None else None
        if advice is None or field is None:
            self.change.hide()
            return
        if self._live:
            text, done = f"Use {advice.value} workers now", "Requested"
            what = f"Sets {field.label} to {advice.value} in this run"
        else:
            text, done = "Use next time", "Set for the next run"
            what = f"Sets {field.label} to {advice.value} in the form"
        self.change.setText(text if self._done is None else done)
        self.change.setEnabled(self._done is None)
        self.change.setToolTip(what)
        self.change.setAccessibleDescription(what)
        self.change.show()

    def _change(self) -> None:
        advice = self._advice
        if advice is None:
            return
        self._done = advice
        if self._live:
            self.loader_workers_wanted.emit(int(advice.value))
        else:
            self.next_time_wanted.emit(advice.field, advice.value)
        self._label_button()


def _change_of(advice: Advice) -> tuple[str, int | str]:
    return advice.field, advice.value
