"""Row for a field of a job, and a collapsible group of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLabel, QToolButton, QWidget

from engine.contract.job import Field
from engine.contract.problems import Problem, Severity
from gui.translation import tr
from gui.widgets.buttons import FoldButton, create_reset_button, styled, tool_button
from gui.widgets.editors import Editor
from gui.widgets.labeled_field import LabeledField
from gui.widgets.labels import ElidedLabel, muted_label
from gui.widgets.layouts import hbox, vbox
from gui.widgets.tab_order import keep_tab_order

_ELIDED_NOTES = ("model", "strategy", "recipe")
"""Fields whose note is limited to one line.

The note changes when other fields change, and a different number of lines would move the rows below.
"""


class FieldRow(LabeledField):
    """Row for a field of a job.

    While the field has no effect, the row is hidden and has the default value. The editor keeps its text.

    The widgets of the row are created when its section is opened, or its value is changed from the default. Most fields
    keep their defaults, and their widgets would take a tenth of the time that the window needs to start.

    Signals:
        edited(): the value may have changed.
    """

    edited = Signal()

    def __init__(self, field: Field, make_editor: Callable[[], Editor], default: Any, stacked: bool = False) -> None:
        super().__init__(field.label, stacked=stacked)
        self.field, self.default = field, default
        self._make_editor = make_editor
        self._editor: Editor | None = None
        self.standard = default
        """Value that the reset button restores and that counts as unchanged."""
        self.has_effect, self.is_filtered_out = True, False  # the row is visible only with these values
        self._is_adjustment_noted = False
        """True if the note explains why a typed value was replaced."""
        self.locked = ""
        """Reason why the field can't be changed, or "" if it can."""
        self._problems: tuple[Problem, ...] = ()
        self.reset_tip = tr("Reset to the default")

    def create_widgets(self) -> Editor:
        """Create the label, the editor and the reset button if they don't exist yet. Return the editor."""
        if self._editor is None:
            editor = self._editor = self._make_editor()
            editor.set_value(self.default)
            self.lay_out(editor, editor.control)
            self.add_button(self.reset)
            self.reset.setVisible(self.is_changed)
            self._set_accessible_texts()
            editor.edited.connect(self._on_edited)
            editor.adjusted.connect(self._on_adjusted)
        return self._editor

    @property
    def editor(self) -> Editor:
        """Editor of the value. Its first use creates the widgets of the row."""
        return self.create_widgets()

    @cached_property
    def reset(self) -> QToolButton:
        """Button that resets the field to its default, or to the value given to `set_standard`."""
        name = tr("Reset {label}").format(label=self.field.label)
        return create_reset_button(lambda: self.set_value(self.standard), name, self.reset_tip)

    def make_note(self) -> QLabel:
        """Create the label for the note below the editor. For fields with long notes, the label elides its text."""
        if self.field.name not in _ELIDED_NOTES:
            return super().make_note()
        return styled(ElidedLabel(), "muted")

    def value(self) -> Any:
        """Return the edited value, or the default while the field has no effect."""
        return self.editor_value() if self.has_effect else self.default

    def editor_value(self) -> Any:
        """Return the edited value, even while the field has no effect."""
        return self.default if self._editor is None else self._editor.value()

    def set_value(self, value: Any) -> None:
        """Set the value. The editor is created on demand, but not for the default value."""
        if self._editor is not None or value != self.default:
            self.editor.set_value(value)

    def set_effect(self, has_effect: bool) -> None:
        """Show the row if its field has an effect on the job, otherwise hide it.

        The values of other fields determine if a field has an effect.
        """
        if has_effect != self.has_effect:
            self.has_effect = has_effect
            self._update_visibility()
            self._on_edited()

    def filter_out(self, is_filtered_out: bool) -> None:
        """Hide the row if `is_filtered_out`, because the form's search doesn't match it.

        Otherwise, show it if it has an effect.
        """
        if is_filtered_out != self.is_filtered_out:
            self.is_filtered_out = is_filtered_out
            self._update_visibility()

    def set_standard(self, value: Any, reset_tip: str) -> None:
        """Make the reset button restore `value` instead of the field's default, and use `reset_tip` as its tool tip."""
        self.standard, self.reset_tip = value, reset_tip
        if self._editor is not None:
            self.reset.setToolTip(reset_tip)
        self._on_edited()

    def lock(self, reason: str) -> None:
        """Lock the field and show `reason`. An empty reason unlocks it."""
        if reason == self.locked:
            return
        self.locked = reason
        self.editor.setEnabled(not reason)
        self._set_accessible_texts()
        self._on_edited()

    @property
    def is_changed(self) -> bool:
        """Return True if an effective, unlocked field differs from the value that the reset button restores."""
        return self.has_effect and not self.locked and bool(self.value() != self.standard)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._problems

    @property
    def has_error(self) -> bool:
        return any(problem.severity == "error" for problem in self._problems)

    def show_problems(self, problems: tuple[Problem, ...]) -> None:
        """Show the problems with the field as text, color and accessible description, instead of those shown before."""
        if problems == self._problems:
            return
        self._problems = problems
        severity = "warning" if problems else ""
        self.editor.show_severity("error" if self.has_error else severity)
        self._update_description()
        super().show_problems(problems)

    def _on_adjusted(self, reason: str) -> None:
        """Show `reason`, why a typed value was replaced, in the note until the next edit."""
        self.set_note(reason)
        self._is_adjustment_noted = True

    def _update_visibility(self) -> None:
        self.setVisible(self.has_effect and not self.is_filtered_out)

    def _make_help_text(self) -> str:
        """Return the help text of the field, followed by the reason if the field is locked."""
        return f"{self.field.help}\n{self.locked}" if self.locked else self.field.help

    def _set_accessible_texts(self) -> None:
        """Set the accessible name and description of the control, and the tool tips."""
        control = self.editor.control
        control.setAccessibleName(self.field.label)
        self._update_description()
        for widget in (control, self.label):
            widget.setToolTip(self._make_help_text())

    def _update_description(self) -> None:
        """Set the accessible description to the problems of the field and its help."""
        problems = " ".join(map(str, self._problems))
        self.editor.control.setAccessibleDescription(f"{problems} {self._make_help_text()}".strip())

    def _on_edited(self) -> None:
        """Show the reset button if the value differs from the one that it restores, and emit `edited`."""
        if self._is_adjustment_noted:
            self._is_adjustment_noted = False
            self.set_note("")
        if self._editor is not None:
            self.reset.setVisible(self.is_changed)
        self.edited.emit()


class _SectionBody(QWidget):
    """Body of a section, which creates the widgets of its rows when it becomes visible."""

    def __init__(self, rows: Sequence[FieldRow]) -> None:
        super().__init__()
        self._rows = rows

    def setVisible(self, visible: bool) -> None:
        if visible:
            for row in self._rows:
                row.create_widgets()
            keep_tab_order(self)
        super().setVisible(visible)


class CollapsibleSection(QWidget):
    """Group of rows with a title, which is initially collapsed. A collapsed group shows a summary of its values."""

    def __init__(
        self, title: str, rows: Sequence[FieldRow], *others: QWidget, revealed: Sequence[Severity] = ("error",)
    ) -> None:
        """Create a collapsed section with `rows` and, below them, `others`.

        `reveal_problems` opens the section for problems whose severity is in `revealed`.
        """
        super().__init__()
        self._revealed_severities = revealed
        self._revealed_problems: list[Problem] = []
        self.title = title
        self.rows = list(rows)
        self.body = _SectionBody(self.rows)
        self.button = FoldButton(title, self.body)
        self.mark = muted_label()
        self.summary = styled(ElidedLabel(), "muted")
        self.summary.setContentsMargins(22, 0, 0, 2)  # align with the title, which follows an arrow
        self.summary.hide()
        self.reset = tool_button(
            self._reset_all, text=tr("Reset"), style="flat", name=tr("Reset all {title} options").format(title=title)
        )
        head = hbox((self.button, 1), self.mark, self.reset, spacing=4)
        self.setLayout(vbox(head, self.summary, self.body, spacing=2))
        self.body.setLayout(vbox(*self.rows, *others, spacing=6, margins=(6, 2, 0, 8)))
        self.button.toggled.connect(self._show_change_count)
        for row in self.rows:
            row.edited.connect(self._show_change_count)
        self._show_change_count()

    def set_open(self, opened: bool) -> None:
        self.button.setChecked(opened)

    @property
    def is_open(self) -> bool:
        return self.button.isChecked()

    def set_summary(self, text: str) -> None:
        """Set the summary of the values that is visible while the section is collapsed."""
        self.summary.setText(text)
        self._show_change_count()

    def reveal_problems(self) -> None:
        """Open the section if its rows show problems of a revealed severity that they didn't show at the last call."""
        # The problems of some fields are displayed outside of the section, where they are always visible.
        rows = [row for row in self.rows if row.problems and row.isAncestorOf(row.problem_label)]
        problems = [problem for row in rows for problem in row.problems]
        revealed_problems = [problem for problem in problems if problem.severity in self._revealed_severities]
        if revealed_problems != self._revealed_problems:
            self._revealed_problems = revealed_problems
            if revealed_problems:
                self.set_open(True)

    def _show_change_count(self) -> None:
        """Show how many fields were changed, and update the reset button, summary and accessible texts."""
        count = sum(row.is_changed for row in self.rows)
        self.mark.setText(tr("● {count} changed").format(count=count) if count else "")
        self.reset.setVisible(count > 0)
        self.summary.setVisible(bool(self.summary.text()) and not self.is_open)
        state = tr("{count} changed").format(count=count) if count else tr("no changes")
        # The title alone would also be the name of the fields Model, Strategy and Precision.
        self.button.setAccessibleName(tr("{section} options").format(section=self.title))
        self.button.setAccessibleDescription(
            ", ".join(filter(None, (tr("Open") if self.is_open else tr("Folded"), state, self.summary.text())))
        )

    def _reset_all(self) -> None:
        """Reset all fields that have an effect and aren't locked to the values that their reset buttons restore."""
        for row in self.rows:
            if row.has_effect and not row.locked:
                row.set_value(row.standard)
