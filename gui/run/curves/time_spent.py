"""Step times of a run, its bottleneck, and a button that applies the advice."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QToolButton, QWidget

from engine.contract.events import Advice
from engine.contract.job import FIELDS
from gui.run.curves.time_bar import TimeBar
from gui.sources.run_data import RunData
from gui.style import icons
from gui.translation import tr
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import hbox, vbox


class TimeSpentView(QWidget):
    """Advice on the bottleneck of a run above a foldable bar of its step time; hidden without data.

    Signals:
        loader_workers_requested(int): number of loader workers for the run on screen.
        setting_requested(str, object): field of the job and its value for the next run.
    """

    loader_workers_requested = Signal(int)
    setting_requested = Signal(str, object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._advice: Advice | None = None
        self._is_live = False
        self._applied: Advice | None = None
        self.bar = TimeBar()
        self.fold = QToolButton()
        self.fold.setObjectName("fold")
        self.fold.setCheckable(True)
        self.fold.setIcon(icons.icon("right", "muted", on="down"))
        self.fold.setAccessibleName(tr("Step time by part"))
        self.fold.setToolTip(tr("Shows the parts of each step's time"))
        self.fold.toggled.connect(self.bar.setVisible)
        self.bar.hide()
        self.label = ElidedLabel()
        self.label.setAccessibleName(tr("Bottleneck of the run"))
        self.change = QPushButton(tr("Change"))
        self.change.clicked.connect(self._apply)
        self.setLayout(vbox(hbox(self.fold, (self.label, 1), self.change), self.bar, spacing=5))
        self.restart()

    def restart(self) -> None:
        """Prepare for another run or execution."""
        self._advice = self._applied = None
        self.bar.restart()
        self.hide()

    def show_data(self, data: RunData, is_active: bool) -> None:
        """Show the latest step times; a run that `is_active` can still be changed."""
        spent = data.time_spent
        if spent is None:
            return
        self.bar.show_time(spent)
        self._show_advice(spent.advice, is_active)
        self.show()

    def _show_advice(self, advice: Advice | None, is_active: bool) -> None:
        is_live = advice is not None and advice.live and is_active
        if advice == self._advice and is_live == self._is_live:
            return
        if self._applied is not None and (
            advice is None or is_live != self._is_live or _change_of(advice) != _change_of(self._applied)
        ):
            self._applied = None
        self._advice, self._is_live = advice, is_live
        text = advice.sentence if advice is not None else tr("Time of each step")
        self.label.setText(text)
        self.label.setToolTip(text)
        self.label.setAccessibleDescription(text)
        self._label_button()

    def _label_button(self) -> None:
        advice = self._advice
        field = FIELDS.get(advice.field) if advice is not None else None
        if advice is None or field is None:
            self.change.hide()
            return
        if self._is_live:
            text, done = f"Use {advice.value} workers now", tr("Requested")
            tip = f"Sets {field.label} to {advice.value} in this run"
        else:
            text, done = tr("Use next time"), tr("Set for the next run")
            tip = f"Sets {field.label} to {advice.value} in the form"
        self.change.setText(text if self._applied is None else done)
        self.change.setEnabled(self._applied is None)
        self.change.setToolTip(tip)
        self.change.setAccessibleDescription(tip)
        self.change.show()

    def _apply(self) -> None:
        advice = self._advice
        if advice is None:
            return
        self._applied = advice
        if self._is_live:
            self.loader_workers_requested.emit(int(advice.value))
        else:
            self.setting_requested.emit(advice.field, advice.value)
        self._label_button()


def _change_of(advice: Advice) -> tuple[str, int | str]:
    return advice.field, advice.value
