"""Keyboard shortcuts of the commands, including the user's changes."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QWidget

from engine.system.decode_errors import NOT_DECODED
from gui.actions import Action, Actions, chosen_keys
from gui.sources.settings import Settings

_KEY = "shortcuts"


class Keymap(QObject):
    """Shortcuts of the commands. Shortcuts that differ from the defaults are saved."""

    def __init__(self, acts: Actions, settings: Settings, parent: QObject) -> None:
        """Load the saved shortcuts into `chosen_keys`, and apply them to all existing actions.

        Actions that are created later get their shortcuts from `chosen_keys`.
        """
        super().__init__(parent)
        self._acts, self._settings = acts, settings
        chosen_keys.clear()
        try:
            saved = msgspec.json.decode(settings.text(_KEY, "{}"), type=dict[str, tuple[str, ...]])
        except NOT_DECODED:
            saved = {}
        chosen_keys.update(saved)
        for action in acts.all() if saved else ():  # the search for all actions takes a while
            if action.objectName() in saved:
                action.set_keys(saved[action.objectName()])

    def commands(self) -> list[Action]:
        """Return all commands that exist, sorted by title."""
        return sorted(self._acts.all(), key=lambda action: (action.title.lower(), action.objectName()))

    def find_conflict(self, action: Action, keys: str) -> Action | None:
        """Return another command that would react to the shortcut `keys` with the same focus, or None."""
        sequence = QKeySequence(keys)
        return next(
            (
                other
                for other in self._acts.all()
                if other is not action and sequence in other.shortcuts() and can_conflict(action, other)
            ),
            None,
        )

    def assign(self, action: Action, keys: str) -> Action | None:
        """Assign a shortcut ("" for none). If another command has it, return that command and change nothing."""
        other = self.find_conflict(action, keys) if keys else None
        if other is None:
            self._set(action, (keys,) if keys else ())
        return other

    def reset(self, action: Action) -> Action | None:
        """Restore the default shortcut. If another command has it, return that command and change nothing."""
        others = [self.find_conflict(action, keys) for keys in action.standard_keys]
        other = next(filter(None, others), None)
        if other is None:
            self._set(action, action.standard_keys)
        return other

    def reset_all(self) -> None:
        """Restore the default shortcuts of all commands, and delete the saved ones."""
        for action in self._acts.all():
            action.set_keys(action.standard_keys)
        chosen_keys.clear()
        self._settings.forget(_KEY)

    def _set(self, action: Action, keys: tuple[str, ...]) -> None:
        """Set the shortcuts of an action, update `chosen_keys` in `gui.actions`, and save these.

        `chosen_keys` has only the shortcuts that differ from the default ones.
        """
        action.set_keys(keys)
        chosen_keys.pop(action.objectName(), None)
        if keys != action.standard_keys:
            chosen_keys[action.objectName()] = keys
        self._settings.set(_KEY, msgspec.json.encode(chosen_keys).decode())


def can_conflict(first: Action, second: Action) -> bool:
    """Return True if the shortcuts of both actions can work with the same focus."""
    if Qt.ShortcutContext.WindowShortcut in (first.shortcutContext(), second.shortcutContext()):
        return True
    first_widget, second_widget = first.parent(), second.parent()
    assert isinstance(first_widget, QWidget)
    assert isinstance(second_widget, QWidget)
    is_same = first_widget is second_widget
    return is_same or first_widget.isAncestorOf(second_widget) or second_widget.isAncestorOf(first_widget)
