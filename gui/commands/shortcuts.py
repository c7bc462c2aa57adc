"""Dialog that lists and changes keyboard shortcuts."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence, QShowEvent
from PySide6.QtWidgets import (
    QDialog,
    QHeaderView,
    QKeySequenceEdit,
    QLabel,
    QLineEdit,
    QPushButton,
    QTableWidgetItem,
    QWidget,
)

from engine.contract.problems import Problem
from gui.actions import Action
from gui.commands.keymap import Keymap
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import Act, push_button, styled
from gui.widgets.column_model import create_text_table
from gui.widgets.labels import ProblemLabel, muted_label
from gui.widgets.layouts import hbox, resize_with_text, vbox

_NATIVE = QKeySequence.SequenceFormat.NativeText
_MIN_COLUMN_WIDTH = 90
"""Minimum width of a column in pixels, at a text size of 100%."""
_STANDARD = tr("Alt+arrows, Tab and typing into fields can't be reassigned.")


class ShortcutsDialog(QDialog):
    """Non-modal dialog with all commands, and a field for a new shortcut."""

    def __init__(self, keymap: Keymap, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Keyboard shortcuts"))
        styled(self, "panel")
        resize_with_text(self, 860, 600)
        self._keymap = keymap
        self._commands: list[Action] = []
        self.search = styled(QLineEdit(clearButtonEnabled=True), name=tr("Search shortcuts"))
        self.search.setPlaceholderText(tr("Search commands and keys…"))
        self.search.textChanged.connect(self._show_commands)
        self.table = create_text_table(tr("Shortcuts"), (tr("Command"), tr("Description"), tr("Keys")))
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.table.horizontalHeader().setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        self.table.horizontalHeader().setMinimumSectionSize(theme.scale_pixels(_MIN_COLUMN_WIDTH))
        self.table.currentCellChanged.connect(lambda *_cells: self._on_command_selected())
        self.keys = _KeysEdit()
        self.keys.setMaximumSequenceLength(1)
        self.keys.setClearButtonEnabled(True)
        self.keys.setAccessibleName(tr("New keys"))
        self.keys.setAccessibleDescription(tr("Record the keys that you press"))
        line = self.keys.findChild(QLineEdit)
        assert line is not None
        line.setAccessibleName(tr("New keys"))
        line.setPlaceholderText(tr("Press the new keys"))
        self.keys.keySequenceChanged.connect(lambda _keys: self._show_conflict())
        self.assign = _create_button(tr("&Assign"), tr("Assign these keys to the command"), self._assign)
        self.remove = _create_button(tr("&Remove"), tr("Remove the keys of the command"), self._remove)
        self.reset = _create_button(tr("&Default"), tr("Restore the default keys of the command"), self._reset_shortcut)
        self.reset_all = _create_button(
            tr("Reset a&ll"), tr("Restore the default keys of every command"), self._reset_all
        )
        self.problem = ProblemLabel()
        self._lay_out()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._show_commands()
        self.search.setFocus()

    @property
    def chosen(self) -> Action | None:
        """Command of the selected row, or None if no row is selected."""
        row = self.table.currentRow()
        return self._commands[row] if 0 <= row < len(self._commands) else None

    def choose(self, action_id: str) -> None:
        """Select the command with the id `action_id`."""
        for row, action in enumerate(self._commands):
            if action.objectName() == action_id:
                self.table.setCurrentCell(row, 0)

    def _lay_out(self) -> None:
        label = QLabel(tr("&Keys"))
        label.setBuddy(self.keys)
        row = hbox(label, (self.keys, 1), self.assign, self.remove, self.reset, spacing=10)
        hint = muted_label(_STANDARD, word_wrap=True)
        foot = hbox((hint, 1), self.reset_all, spacing=10)
        self.setLayout(
            vbox(self.search, (self.table, 1), row, self.problem, foot, spacing=10, margins=(14, 12, 14, 14))
        )

    def _show_commands(self) -> None:
        """List the commands that contain all words in the search field. Those with changed keys are bold."""
        terms = self.search.text().lower().split()
        previous = self.chosen
        self._commands = [
            action
            for action in self._keymap.commands()
            if all(term in f"{action.title} {action.tip} {_keys_text(action)}".lower() for term in terms)
        ]
        self.table.setRowCount(len(self._commands))
        for row, action in enumerate(self._commands):
            is_changed = action.keys != tuple(QKeySequence(key).toString() for key in action.standard_keys)
            for column, text in enumerate((action.title, action.tip, _keys_text(action))):
                item = QTableWidgetItem(text)
                item.setToolTip(text)
                font = item.font()
                font.setBold(is_changed)
                item.setFont(font)
                self.table.setItem(row, column, item)
        row = self._commands.index(previous) if previous in self._commands else 0
        self.table.setCurrentCell(row if self._commands else -1, 0)
        self._on_command_selected()

    def _on_command_selected(self) -> None:
        """Clear the field for new keys, and enable the buttons whose actions are possible for the selected command."""
        self.keys.clear()
        self.problem.show_problems(())
        self._show_conflict()

    def _show_conflict(self) -> None:
        """Show which other command has the typed shortcut, and enable the buttons whose actions are possible."""
        action, keys = self.chosen, self.keys.keySequence().toString()
        other = self._keymap.find_conflict(action, keys) if action is not None and keys else None
        self.problem.show_problems(_create_problem(other, keys))
        self.assign.setEnabled(action is not None and bool(keys) and other is None)
        self.remove.setEnabled(action is not None and bool(action.keys))
        self.reset.setEnabled(action is not None)

    def _assign(self) -> None:
        if self.chosen is not None:
            self._keymap.assign(self.chosen, self.keys.keySequence().toString())
            self._show_commands()

    def _remove(self) -> None:
        if self.chosen is not None:
            self._keymap.assign(self.chosen, "")
            self._show_commands()

    def _reset_shortcut(self) -> None:
        """Restore the default shortcut of the selected command, or show which command has it."""
        action = self.chosen
        if action is not None:
            other = self._keymap.reset(action)
            self._show_commands()  # may hide the command, whose keys no longer match the search
            self.problem.show_problems(_create_problem(other, ", ".join(action.standard_keys)))

    def _reset_all(self) -> None:
        self._keymap.reset_all()
        self._show_commands()


class _KeysEdit(QKeySequenceEdit):
    """Field that records any keys except Tab, which moves the focus, and Escape, which closes the dialog."""

    def event(self, event: QEvent) -> bool:
        """Let Tab and Shift+Tab move the focus instead of recording them."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            forward = event.key() == Qt.Key.Key_Tab
            if forward or event.key() == Qt.Key.Key_Backtab:
                return self.focusNextPrevChild(forward)
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and not event.modifiers():
            event.ignore()
        else:
            super().keyPressEvent(event)


def _create_problem(other: Action | None, keys: str) -> tuple[Problem, ...]:
    """Return a problem if the keys belong to another action, or () if `other` is None."""
    if other is None:
        return ()
    native = QKeySequence(keys).toString(_NATIVE)
    return (
        Problem(
            "keys",
            tr("{native} belongs to “{title}”.").format(native=native, title=other.title),
            tr("Press other keys, or remove it there first."),
        ),
    )


def _keys_text(action: Action) -> str:
    return ", ".join(key.toString(_NATIVE) for key in action.shortcuts())


def _create_button(text: str, tip: str, act: Act) -> QPushButton:
    button = push_button(text, act, tip=tip, description=tip)
    button.setAutoDefault(False)
    return button
