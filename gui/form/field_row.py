"""One field of the form: label, editor, a way back to the default, and what is wrong with it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QToolButton, QWidget

from engine.contract.job import Field
from engine.contract.problems import Problem
from gui.style import icons, theme
from gui.widgets.editors import Editor
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.problem_label import ProblemLabel

LABEL_WIDTH = 104
"""Pixels at 100 per cent."""


class FieldRow(QWidget):
    """One field of the job. A `stacked` row has its label above and leaves it to its owner to place
    `problem_label`. While the field has no effect, its row is hidden and stands for the default; what was typed
    stays for when it has one again.

    Signals: edited() - the value may have changed; chosen(Choice) - a remedy for a problem of the field.

    Attributes: standard - the value that the way back leads to, and that a change is told against: the default, but
    while another run's job is in the form; locked - why the field may not be changed now, "" where it may.
    """

    edited = Signal()
    chosen = Signal(object)

    def __init__(self, field: Field, editor: Editor, default: Any, stacked: bool = False) -> None:
        super().__init__()
        self._stacked = stacked
        self.field = field
        self.editor = editor
        self.default = default
        self.standard = default
        self.has_effect = True
        self.locked = ""
        self._problems: tuple[Problem, ...] = ()
        self.label = QLabel(field.label)
        self.label.setBuddy(editor.control)
        self.reset = self._reset_button()
        self._name_for_all()
        self._lay_out()
        editor.edited.connect(self._edited)
        self._edited()

    # A form has eighty rows, most of which have nothing to say under the editor.

    @cached_property
    def problem_label(self) -> ProblemLabel:
        """What is wrong with the field, under all else."""
        label = ProblemLabel()
        label.chosen.connect(self.chosen)
        if not self._stacked:
            self._grid.addWidget(label, 2, 0, 1, 3)  # its sentences want the whole width
        return label

    @cached_property
    def note(self) -> QLabel:
        """What is to be known of the field's value, under the editor."""
        # The strategy's also counts those that are not to be had, and would push the fields below it about.
        label = ElidedLabel() if self.field.name == "strategy" else QLabel(wordWrap=True)
        label.setObjectName("muted")
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.hide()
        if not self._stacked:
            self._grid.addWidget(label, 1, 0, 1, 3)
        return label

    def value(self) -> Any:
        return self.editor.value() if self.has_effect else self.default

    def set_value(self, value: Any) -> None:
        self.editor.set_value(value)

    def set_effect(self, has_effect: bool) -> None:
        """Whether the field changes anything, with what else is chosen in the form."""
        if has_effect != self.has_effect:
            self.has_effect = has_effect
            self.setVisible(has_effect)
            self._edited()

    def set_standard(self, value: Any, way_back: str) -> None:
        """`way_back` says where the button leads that brings `value` back."""
        self.standard = value
        self.reset.setToolTip(way_back)
        self._edited()

    def lock(self, why: str) -> None:
        """Keeps the field from being changed, for the reason `why`; "" leaves it to the user again."""
        if why == self.locked:
            return
        self.locked = why
        self.editor.setEnabled(not why)
        self._name_for_all()
        self._edited()

    @property
    def changed(self) -> bool:
        return self.has_effect and not self.locked and bool(self.value() != self.standard)

    def show_problems(self, problems: tuple[Problem, ...]) -> None:
        """Marks the field with all that is wrong, in words, colour and for assistive technologies."""
        if problems == self._problems:
            return
        self._problems = problems
        severities = {problem.severity for problem in problems}
        severity = "error" if "error" in severities else "warning" if severities else ""
        control = self.editor.control
        if control.property("severity") != severity:
            control.setProperty("severity", severity)
            control.style().unpolish(control)
            control.style().polish(control)
        self._describe()
        self.problem_label.show_problems(problems)

    def set_note(self, text: str) -> None:
        """Says under the editor what is to be known of the field's value; nothing where `text` is ""."""
        if (text or "note" in vars(self)) and text != self.note.text():
            self.note.setText(text)
            self.note.setToolTip(text)
            self.note.setVisible(bool(text))

    def _about(self) -> str:
        return f"{self.field.help}\n{self.locked}" if self.locked else self.field.help

    def _name_for_all(self) -> None:
        control = self.editor.control
        control.setAccessibleName(self.field.label)
        self._describe()
        for widget in (control, self.label):
            widget.setToolTip(self._about())

    def _describe(self) -> None:
        wrong = " ".join(map(str, self._problems))
        self.editor.control.setAccessibleDescription(f"{wrong} {self._about()}".strip())

    def _reset_button(self) -> QToolButton:
        button = QToolButton()
        button.setObjectName("flat")
        button.setIcon(icons.icon("reset", "muted"))
        button.setIconSize(QSize(14, 14))
        button.setAccessibleName(f"Reset {self.field.label}")
        button.setToolTip("Back to the default")
        button.clicked.connect(lambda: self.set_value(self.standard))
        policy = button.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        button.setSizePolicy(policy)
        return button

    def _lay_out(self) -> None:
        grid = self._grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(4)
        grid.setVerticalSpacing(2)
        if self._stacked:
            grid.addWidget(self.label, 0, 0)
            grid.addWidget(self.editor, 1, 0, 1, 2)
            grid.addWidget(self.reset, 0, 1)
            grid.setColumnStretch(0, 1)
            return
        self._fit_label()
        grid.addWidget(self.label, 0, 0)
        grid.addWidget(self.editor, 0, 1)
        grid.addWidget(self.reset, 0, 2)
        grid.setColumnStretch(1, 1)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and not self._stacked:
            self._fit_label()

    def _fit_label(self) -> None:
        width = theme.scaled(LABEL_WIDTH)
        self.label.setFixedWidth(width)
        # Only where it must be: a wrapped label makes the layout ask for heights by width.
        self.label.setWordWrap(self.fontMetrics().horizontalAdvance(self.field.label) > width - 4)

    def _edited(self) -> None:
        self.reset.setVisible(self.changed)
        self.edited.emit()
