"""Which keys belong to which command: the user's own over the standard ones, kept from one opening to the next."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QWidget

from engine.system.decode_errors import NOT_DECODED
from gui.actions import Action, Actions, chosen_keys
from gui.sources.settings import Settings

_KEPT_UNDER = "shortcuts"


class Keymap(QObject):
    """Changes the keys of commands and remembers those that are not the standard ones."""

    def __init__(self, acts: Actions, settings: Settings, parent: QObject) -> None:
        super().__init__(parent)
        self._acts, self._settings = acts, settings
        chosen_keys.clear()
        try:
            kept = msgspec.json.decode(settings.text(_KEPT_UNDER, "{}"), type=dict[str, tuple[str, ...]])
        except NOT_DECODED:
            kept = {}
        chosen_keys.update(kept)
        for action in acts.all():
            if action.objectName() in kept:
                action.set_keys(kept[action.objectName()])

    def commands(self) -> list[Action]:
        """Every command that there is now, by its title."""
        return sorted(self._acts.all(), key=lambda action: (action.title.lower(), action.objectName()))

    def holder(self, action: Action, keys: str) -> Action | None:
        """Another command that these keys would belong to with the focus somewhere, if there is one."""
        wanted = QKeySequence(keys)
        return next(
            (
                other
                for other in self._acts.all()
                if other is not action and wanted in other.shortcuts() and overlap(action, other)
            ),
            None,
        )

    def give(self, action: Action, keys: str) -> Action | None:
        """Gives the command these keys alone, "" for none; or answers which command has them, and changes nothing."""
        other = self.holder(action, keys) if keys else None
        if other is None:
            self._set(action, (keys,) if keys else ())
        return other

    def reset(self, action: Action) -> Action | None:
        """Gives the command its standard keys back; or answers which command has one of them, and changes nothing."""
        others = [self.holder(action, keys) for keys in action.standard_keys]
        other = next(filter(None, others), None)
        if other is None:
            self._set(action, action.standard_keys)
        return other

    def reset_all(self) -> None:
        for action in self._acts.all():
            action.set_keys(action.standard_keys)
        chosen_keys.clear()
        self._settings.forget(_KEPT_UNDER)

    def _set(self, action: Action, keys: tuple[str, ...]) -> None:
        action.set_keys(keys)
        chosen_keys.pop(action.objectName(), None)
        if keys != action.standard_keys:
            chosen_keys[action.objectName()] = keys
        self._settings.set(_KEPT_UNDER, msgspec.json.encode(chosen_keys).decode())


def overlap(one: Action, other: Action) -> bool:
    """Whether the keys of both act with the focus somewhere."""
    places = one.parent(), other.parent()
    assert isinstance(places[0], QWidget)
    assert isinstance(places[1], QWidget)
    if Qt.ShortcutContext.WindowShortcut in (one.shortcutContext(), other.shortcutContext()):
        return True
    return places[0] is places[1] or places[0].isAncestorOf(places[1]) or places[1].isAncestorOf(places[0])
