"""Row of one field: label, editor, reset button, note and problems; and a collapsible group of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from PySide6.QtCore import QEvent, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from engine.contract.job import Field
from engine.contract.problems import Problem
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import FoldButton, reset_button, tool_button
from gui.widgets.editors import Editor
from gui.widgets.labels import ElidedLabel, ProblemLabel, muted_label
from gui.widgets.layouts import hbox, vbox

LABEL_WIDTH = 104
"""Pixels at a text size of 100 %."""


class FieldRow(QWidget):
    """Field of a job.

    A `stacked` row has its label above the editor, and its owner places `problem_label`. While the field has no effect,
    the row is hidden and its value is the default; the editor keeps what was typed.

    Signals:
        edited(): The value may have changed.
        chosen(Choice): The user chose a remedy for a problem.
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
        """Value that the reset button restores and that counts as unchanged."""
        self.has_effect = True
        self.locked = ""
        """Reason why the field can't be changed now, "" if it can."""
        self._problems: tuple[Problem, ...] = ()
        self.label = QLabel(field.label)
        self.label.setBuddy(editor.control)
        self.reset = reset_button(
            lambda: self.set_value(self.standard),
            tr("Reset {label}").format(label=field.label),
            tr("Reset to the default"),
        )
        self._set_accessible_texts()
        self._lay_out()
        editor.edited.connect(self._edited)
        self._edited()

    # Created on demand: most of a form's eighty rows never show one.

    @cached_property
    def problem_label(self) -> ProblemLabel:
        """Problems of the field, at the bottom of the row."""
        label = ProblemLabel()
        label.chosen.connect(self.chosen)
        if not self._stacked:
            self._grid.addWidget(label, 2, 0, 1, 3)  # sentences need the full width
        return label

    @cached_property
    def note(self) -> QLabel:
        """Note about the value, under the editor."""
        # The strategy's note changes with the devices; wrapped, it would move the fields below.
        label = ElidedLabel() if self.field.name == "strategy" else QLabel(wordWrap=True)
        label.setObjectName("muted")
        label.hide()
        if not self._stacked:
            self._grid.addWidget(label, 1, 0, 1, 3)
        return label

    def value(self) -> Any:
        return self.editor.value() if self.has_effect else self.default

    def set_value(self, value: Any) -> None:
        self.editor.set_value(value)

    def set_effect(self, has_effect: bool) -> None:
        """Show or hide the field, which has no effect with some values of other fields."""
        if has_effect != self.has_effect:
            self.has_effect = has_effect
            self.setVisible(has_effect)
            self._edited()

    def set_standard(self, value: Any, reset_tip: str) -> None:
        """Let the reset button restore `value`, with this tool tip."""
        self.standard = value
        self.reset.setToolTip(reset_tip)
        self._edited()

    def lock(self, reason: str) -> None:
        """Lock the field for a reason; "" unlocks it."""
        if reason == self.locked:
            return
        self.locked = reason
        self.editor.setEnabled(not reason)
        self._set_accessible_texts()
        self._edited()

    @property
    def changed(self) -> bool:
        return self.has_effect and not self.locked and bool(self.value() != self.standard)

    def show_problems(self, problems: tuple[Problem, ...]) -> None:
        """Show problems in words, in color and to assistive technologies."""
        if problems == self._problems:
            return
        self._problems = problems
        severities = {problem.severity for problem in problems}
        self.editor.show_severity("error" if "error" in severities else "warning" if severities else "")
        self._describe()
        self.problem_label.show_problems(problems)

    def set_note(self, text: str) -> None:
        """Show a note under the editor; "" hides it."""
        if (text or "note" in vars(self)) and text != self.note.text():
            self.note.setText(text)
            self.note.setToolTip(text)
            self.note.setVisible(bool(text))

    def _help(self) -> str:
        return f"{self.field.help}\n{self.locked}" if self.locked else self.field.help

    def _set_accessible_texts(self) -> None:
        control = self.editor.control
        control.setAccessibleName(self.field.label)
        self._describe()
        for widget in (control, self.label):
            widget.setToolTip(self._help())

    def _describe(self) -> None:
        problems = " ".join(map(str, self._problems))
        self.editor.control.setAccessibleDescription(f"{problems} {self._help()}".strip())

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
        # Only if needed, because wrapped labels make layouts compute heights by width.
        self.label.setWordWrap(self.fontMetrics().horizontalAdvance(self.field.label) > width - 4)

    def _edited(self) -> None:
        self.reset.setVisible(self.changed)
        self.edited.emit()


class CollapsibleSection(QWidget):
    """Titled group of rows, collapsed at first."""

    def __init__(self, title: str, rows: Sequence[FieldRow]) -> None:
        super().__init__()
        self.title = title
        self.rows = list(rows)
        self.body = QWidget()
        self.button = FoldButton(title, self.body)
        self.mark = muted_label()
        self.reset = tool_button(
            self._reset_all, text=tr("Reset"), style="flat", name=tr("Reset all {title} options").format(title=title)
        )
        self._lay_out()
        self.button.toggled.connect(self._count)
        for row in self.rows:
            row.edited.connect(self._count)
        self._count()

    def set_open(self, opened: bool) -> None:
        self.button.setChecked(opened)

    def reveal_problem(self) -> None:
        """Open the section if one of its fields has an error."""
        if any(row.editor.control.property("severity") == "error" for row in self.rows):
            self.set_open(True)

    def _lay_out(self) -> None:
        head = hbox((self.button, 1), self.mark, self.reset, spacing=4)
        self.setLayout(vbox(head, self.body, spacing=2))
        self.body.setLayout(vbox(*self.rows, spacing=6, margins=(6, 2, 0, 8)))

    def _count(self) -> None:
        count = sum(row.changed for row in self.rows)
        self.mark.setText(tr("● {count} changed").format(count=count) if count else "")
        self.reset.setVisible(count > 0)
        state = f"{count} changed" if count else "no changes"
        # The title alone would also be the name of the fields Model, Strategy and Precision.
        self.button.setAccessibleName(f"{self.title} options")
        self.button.setAccessibleDescription(f"{'Open' if self.button.isChecked() else 'Folded'}, {state}")

    def _reset_all(self) -> None:
        for row in self.rows:
            if row.has_effect and not row.locked:
                row.set_value(row.standard)
