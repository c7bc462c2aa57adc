"""Search field that hides all fields of a form that don't match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from gui.form.field_row import CollapsibleSection, FieldRow
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import IconLabel, muted_label
from gui.widgets.layouts import hbox, vbox

_KEYS = (Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_Return, Qt.Key.Key_Enter)


class SettingFilter(QWidget):
    """Search field "Find a setting" above the sections, which hides rows and sections that don't match.

    Label, name, help and section title of a field are searched. Down and Up move through the matches, Enter focuses the
    current one, and Escape shows all fields again.

    Signals:
        pointed(str): the user has moved to the match with this name.
        chosen(str): the user has pressed Enter for this field.
    """

    pointed = Signal(str)
    chosen = Signal(str)

    def __init__(self, rows: Mapping[str, FieldRow], sections: Sequence[CollapsibleSection]) -> None:
        super().__init__()
        self._rows, self._sections = rows, sections
        self._open_before: dict[CollapsibleSection, bool] = {}
        """State of each section before the search, to which it returns: True if it was open. Empty without a search."""
        self._current = ""  # name of the match that the user has moved to, or ""
        self.box = styled(
            QLineEdit(clearButtonEnabled=True),
            name=tr("Find a setting"),
            tip=tr("Search labels, names and help; Enter goes to the field, Esc shows all fields"),
        )
        self.box.setPlaceholderText(tr("Find a setting…"))
        self.box.setAcceptDrops(False)
        self.box.textChanged.connect(self._filter)
        self.box.installEventFilter(self)
        self._no_match = muted_label(word_wrap=True)
        self._no_match.hide()
        icon = IconLabel("find", "muted", tr("Find a setting"))
        icon.setBuddy(self.box)
        self.setLayout(vbox(hbox(icon, (self.box, 1), spacing=6), self._no_match, spacing=4))

    def list_matches(self) -> list[str]:
        """Return the names of matching fields that have an effect. Fields with a matching label are first."""
        terms = self.box.text().lower().split()
        matching = (
            [name for name, row in self._rows.items() if row.has_effect and _contains(row, terms)] if terms else []
        )
        return sorted(matching, key=lambda name: not _all_in(self._rows[name].field.label.lower(), terms))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Handle keys in the search field while it has text, and return True for these keys.

        Escape clears the text. The other keys act on the matches.
        """
        if not isinstance(event, QKeyEvent) or not self.box.text():
            return False
        if event.key() == Qt.Key.Key_Escape:
            if event.type() == QEvent.Type.ShortcutOverride:
                event.accept()  # otherwise Escape would also cancel a prefilled job
            elif event.type() == QEvent.Type.KeyPress:
                self.box.clear()
                return True
        elif event.type() == QEvent.Type.KeyPress and event.key() in _KEYS:
            self._on_key(Qt.Key(event.key()))
            return True
        return False

    def _on_key(self, key: Qt.Key) -> None:
        """Move through the matching fields with Up and Down, or go to the current one with Enter."""
        matching = self.list_matches()
        if not matching:
            return
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.chosen.emit(self._current if self._current in matching else matching[0])
            return
        step = 1 if key == Qt.Key.Key_Down else -1
        position = matching.index(self._current) + step if self._current in matching else 0
        self._current = matching[position % len(matching)]
        self.pointed.emit(self._current)

    def _filter(self, text: str) -> None:
        """Show the fields that contain all words of `text`.

        If it is "", restore the sections that were open before the search.
        """
        terms = text.lower().split()
        self._current = ""
        if terms and not self._open_before:
            self._open_before = {section: section.is_open for section in self._sections}
        for section in self._sections:
            self._filter_section(section, terms)
        if not terms:
            self._open_before = {}
        self._no_match.setText(tr("No setting matches “{text}”.").format(text=text.strip()))
        self._no_match.setVisible(bool(terms) and not self.list_matches())

    def _filter_section(self, section: CollapsibleSection, terms: Sequence[str]) -> None:
        """Hide the rows of a section that don't match, and the section if none does.

        If its title contains all `terms`, all rows match. Sections with matches are opened.
        """
        is_titled = bool(terms) and _all_in(section.title.lower(), terms)
        for row in section.rows:
            row.filter_out(not (is_titled or _contains(row, terms)))
        has_match = any(row.has_effect and not row.is_filtered_out for row in section.rows)
        section.setVisible(has_match)
        section.set_open(has_match if terms else self._open_before.get(section, section.is_open))


def _contains(row: FieldRow, terms: Iterable[str]) -> bool:
    """Return True if label, name and help of a field together contain all `terms`."""
    field = row.field
    return _all_in(f"{field.label} {field.name} {field.name.replace('_', ' ')} {field.help}".lower(), terms)


def _all_in(text: str, terms: Iterable[str]) -> bool:
    return all(term in text for term in terms)
