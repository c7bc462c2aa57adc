"""Advice after a run, and buttons that put the suggested settings into the form."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QPushButton, QWidget

from engine.checks.weights_checks import weights_choices
from engine.contract.catalogue import load_catalogue
from engine.contract.job import FIELDS
from engine.contract.problems import Choice
from gui.sources.run_data import RunData
from gui.titles import changes_words
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import hbox


class _Advice(NamedTuple):
    """Advice text and the settings that it offers; `further` is True if they continue the same run."""

    sentence: str
    choices: tuple[Choice, ...] = ()
    further: bool = False


class VerdictCard(QFrame):
    """Advice after a run, hidden until the run has ended and there is any.

    Signals:
        requested(dict, bool): values for fields of the job; True to train the same run further.
    """

    requested = Signal(object, bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self._advice: _Advice | None = None
        self.sentence = styled(ElidedLabel(), "heading", name=tr("Advice after the run"))
        self.buttons: list[QPushButton] = []
        self._row = hbox((self.sentence, 1), margins=(8, 2, 2, 2))
        self.setLayout(self._row)
        self.hide()

    def show_data(self, data: RunData) -> None:
        """Show the advice after the run's last execution; hide without any."""
        advice = _advice(data)
        if advice == self._advice:
            return
        self._advice = advice
        for button in self.buttons:
            self._row.removeWidget(button)
            button.deleteLater()
        self.buttons = [self._button(choice, advice.further) for choice in advice.choices] if advice else []
        if advice is not None:
            self.sentence.setText(advice.sentence)
            self.sentence.setAccessibleDescription(advice.sentence)
            self.sentence.setToolTip(advice.sentence)
        self.setVisible(advice is not None)

    def _button(self, choice: Choice, further: bool) -> QPushButton:
        button = push_button(choice.title, lambda: self.requested.emit(choice.values, further))
        what = "this run into the form to train it further" if further else "a new run into the form"
        button.setToolTip(tr("Puts {what}: {values}").format(what=what, values=changes_words(choice.values)))
        button.setAccessibleDescription(button.toolTip())
        self._row.addWidget(button)
        return button


def _advice(data: RunData) -> _Advice | None:
    verdict, failure = data.verdict, data.failure
    if verdict is not None:
        further = verdict.code == "falling"
        choice = Choice(tr("Train further") if further else tr("Use these settings"), verdict.changes)
        is_known = bool(verdict.changes) and verdict.changes.keys() <= FIELDS.keys()
        return _Advice(verdict.sentence, (choice,) if is_known else (), further)
    if failure is not None and failure.field == "pretrained" and data.finished is not None and data.started is not None:
        return _Advice(tr("Other ways to train"), weights_choices(data.started.job, load_catalogue()))
    return None
