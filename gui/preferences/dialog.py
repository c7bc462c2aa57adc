"""Settings dialog with all settings by section, and a search."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from PySide6.QtCore import QSignalBlocker, Qt, QTimer
from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QDialog, QLabel, QLineEdit, QWidget

from engine.contract.problems import Problem
from engine.system.format import with_unit
from gui.format import significant
from gui.preferences.declared import SETTINGS, Setting, Value, list_sections
from gui.preferences.store import Preferences
from gui.sources.background import in_background, reraise
from gui.style import icons, theme
from gui.translation import tr
from gui.widgets.buttons import create_reset_button, styled
from gui.widgets.editors import BoolEditor, ChoiceEditor, Editor, FloatEditor, PathEditor, TextEditor
from gui.widgets.labeled_field import LabeledField
from gui.widgets.labels import muted_label
from gui.widgets.layouts import hbox, resize_with_text, scroll_panel, vbox, with_layout


class PreferencesDialog(QDialog):
    """Non-modal dialog whose changes take effect immediately."""

    def __init__(self, preferences: Preferences, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Settings"))
        styled(self, "panel")
        resize_with_text(self, 700, 640)
        self.search = styled(QLineEdit(clearButtonEnabled=True), name=tr("Search settings"))
        self.search.setPlaceholderText(tr("Search settings…"))
        self.search.textChanged.connect(self._apply_search)
        self.rows = {setting.key: SettingRow(setting, preferences) for setting in SETTINGS}
        self._headings = {title: QLabel(title) for title in list_sections()}
        self._no_match = muted_label()
        self._no_match.hide()
        self._lay_out()
        QShortcut(QKeySequence(QKeySequence.StandardKey.Find), self).activated.connect(self._focus_search)
        preferences.changed.connect(lambda key: self.rows[key].show_value())

    def showEvent(self, event: QShowEvent) -> None:
        """Reload the settings' values, which other windows and the terminal may have changed."""
        super().showEvent(event)
        for row in self.rows.values():
            row.show_value()
        self._focus_search()

    def choose(self, key: str) -> None:
        """Clear the search, which might hide the setting `key`, scroll to the setting and focus it."""
        self.search.clear()
        row = self.rows[key]
        self._scroll.ensureWidgetVisible(row, 0, 60)
        row.editor.control.setFocus()

    def _lay_out(self) -> None:
        column = vbox(spacing=14, margins=(14, 4, 14, 14))
        for title, heading in self._headings.items():
            heading.setObjectName("section")
            heading.setIndent(0)
            column.addWidget(heading)
            for row in self.rows.values():
                if row.setting.section == title:
                    column.addWidget(row)
        column.addWidget(self._no_match)
        column.addStretch(1)
        self._scroll = scroll_panel(with_layout(column))
        top = vbox(self.search, margins=(14, 0, 14, 0))
        self.setLayout(vbox(top, (self._scroll, 1), margins=(0, 12, 0, 0)))

    def _apply_search(self, text: str) -> None:
        """Show only the settings that contain all words of `text`, and the headings of their sections."""
        terms = text.lower().split()
        for row in self.rows.values():
            row.setVisible(row.matches(terms))
        for title, heading in self._headings.items():
            heading.setVisible(any(row.matches(terms) for row in self.rows.values() if row.setting.section == title))
        has_match = any(row.matches(terms) for row in self.rows.values())
        self._no_match.setText(tr("No setting matches “{text}”.").format(text=text.strip()))
        self._no_match.setVisible(not has_match)

    def _focus_search(self) -> None:
        self.search.setFocus()
        self.search.selectAll()


TITLE_WIDTH = 210
_NUMBER_WIDTH = 110
_TYPING_MS = 250
"""Milliseconds without typing after which a folder is checked."""


class SettingRow(LabeledField):
    """Editor for a setting.

    Choices are saved immediately, typed values on Enter or when the field loses the focus. Invalid values aren't saved.
    """

    def __init__(self, setting: Setting, preferences: Preferences) -> None:
        self.setting, self._preferences = setting, preferences
        self.editor = _create_editor(setting)
        control = self.editor.control
        control.setAccessibleName(setting.title)
        self.reset = create_reset_button(self._reset, tr("Reset {title}").format(title=setting.title), tip="")
        self.reset.setIcon(icons.icon("reset", "accent"))
        self.reset.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        super().__init__(setting.title, self._create_content(), control=control, label_width=TITLE_WIDTH, indented=True)
        self.add_button(self.reset)
        self.set_note(setting.help)
        self.show_value()
        self._check_timer = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._check_timer.timeout.connect(lambda: self._check_folder(self._show_folder_problem))
        # Texts are committed when editing ends, other values at once.
        if isinstance(self.editor, TextEditor):
            self.editor.line.editingFinished.connect(self.commit)
            self.editor.edited.connect(self._show_entered_problem)
            if isinstance(self.editor, PathEditor):
                self.editor.edited.connect(self._on_path_edited)
        else:
            self.editor.edited.connect(self.commit)

    def matches(self, terms: list[str]) -> bool:
        """Return True if the row contains all of these words, which are in lower case."""
        searched_text = f"{self.setting.section} {self.setting.title} {self.setting.help}".lower()
        searched_text += " ".join(self.setting.titled_choices().values()).lower()
        return all(term in searched_text for term in terms)

    def show_value(self) -> None:
        """Show the stored value. If it isn't the default, the title is bold and a button resets it.

        If the setting has no effect, disable the editor and show the reason.
        """
        value = self._preferences.value(self.setting.key)
        with QSignalBlocker(self.editor):
            if self.editor.value() != value:
                self.editor.set_value(value)
        ineffective_reason = self.setting.find_ineffective_reason()
        self.editor.setEnabled(not ineffective_reason)
        self.editor.control.setAccessibleDescription(ineffective_reason or self.setting.help)
        self._show_problem(ineffective_reason, "warning")
        is_standard = self._preferences.is_standard(self.setting.key)
        self.label.setObjectName("" if is_standard else "heading")
        self.label.style().polish(self.label)
        self.reset.setVisible(not is_standard and not ineffective_reason)
        self.reset.setToolTip(
            tr("Reset to the default ({standard})").format(standard=self._format_value(self.setting.standard))
        )

    def commit(self) -> None:
        """Save the value of the editor, or show its problem. A folder is checked in the background first."""
        entered = self._entered_value()
        if self.setting.kind == "folder" and entered:
            self._check_timer.stop()
            self._check_folder(self._save)
        else:
            self._save(entered, self.setting.find_problem(entered))

    def _save(self, value: Value, problem: str) -> None:
        """Save a value that was checked and has no `problem`. Otherwise show the problem or the error."""
        problem = problem or self._preferences.save(self.setting.key, value)
        if problem:
            self._show_problem(problem, "error")
        else:
            self.show_value()

    def _entered_value(self) -> Value:
        """Return the value in the editor, as an integer where the setting is one."""
        value: Any = self.editor.value()
        if self.setting.kind == "whole" and isinstance(value, float) and value.is_integer():
            return int(value)
        return value

    def _show_entered_problem(self) -> None:
        """Show the problem with the typed value. Folders are checked in the background when typing pauses."""
        if self.setting.kind == "folder":
            self._check_timer.start()
        else:
            self._show_problem(self.setting.find_problem(self._entered_value()), "error")

    def _check_folder(self, done: Callable[[Value, str], None]) -> None:
        """Call `done` with the typed folder and its problem, unless the text has changed in the meantime."""
        entered = self._entered_value()

        def on_checked(problem: str) -> None:
            if entered == self._entered_value() and not self.setting.find_ineffective_reason():
                done(entered, problem)

        in_background(partial(self.setting.find_problem, entered), self, on_checked, reraise)

    def _show_folder_problem(self, _folder: Value, problem: str) -> None:
        self._show_problem(problem, "error")

    def _on_path_edited(self) -> None:
        """Save a path that was chosen in the file dialog. A typed path is left to `editingFinished`."""
        is_typed = self.editor.control.hasFocus()
        if not is_typed:
            self.commit()

    def _reset(self) -> None:
        """Save the default value."""
        self.editor.set_value(self.setting.standard)
        self.commit()
        self.editor.control.setFocus()

    def _show_problem(self, text: str, severity: str) -> None:
        """Show the problem `text`, or none if `text` is "".

        The first sentence is the message, and the rest is the remedy.
        """
        message, _, remedy = text.partition(". ")
        problem = Problem(self.setting.key, message.rstrip(".") + ".", remedy, severity)  # type: ignore[arg-type]
        self.show_problems((problem,) if text else ())
        self.editor.show_severity(severity if text else "")

    def _format_value(self, value: Value) -> str:
        """Format a value of the setting as its editor shows it."""
        if isinstance(value, bool):
            return tr("on") if value else tr("off")
        if isinstance(value, str):
            return self.setting.titled_choices().get(value, value) or tr("empty")
        return with_unit(significant(value), self.setting.unit)

    def _create_content(self) -> QWidget:
        """Return the editor or, for a number, a row with the editor and its unit."""
        if self.setting.kind not in ("number", "whole"):
            return self.editor
        self.editor.setFixedWidth(theme.scale_pixels(_NUMBER_WIDTH))
        return with_layout(hbox(self.editor, QLabel(self.setting.unit), 1, spacing=6))


def _create_editor(setting: Setting) -> Editor:
    """Create the editor for a setting by its kind. Texts and commands get a text field."""
    match setting.kind:
        case "switch":
            return BoolEditor()
        case "choice":
            return ChoiceEditor([(value, title, "") for value, title in setting.titled_choices().items()])
        case "number" | "whole":
            return FloatEditor()
        case "folder":
            return PathEditor(
                tr("the {folder}").format(folder=f"{setting.title[:1].lower()}{setting.title[1:]}"),
                folder=True,
                placeholder=tr("the default folder"),
            )
    return TextEditor(tr("none"))
