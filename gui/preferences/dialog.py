"""Settings dialog with a search and all settings by section."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QDialog, QLabel, QLineEdit, QVBoxLayout, QWidget

from gui.preferences.declared import SETTINGS, sections
from gui.preferences.rows import SettingRow
from gui.preferences.store import Preferences
from gui.translation import tr
from gui.widgets.layouts import vbox
from gui.widgets.scroll_panel import scroll_panel


class PreferencesDialog(QDialog):
    """Non-modal dialog whose changes apply at once."""

    def __init__(self, preferences: Preferences, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Settings"))
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.resize(700, 640)
        self.search = QLineEdit(clearButtonEnabled=True)
        self.search.setPlaceholderText(tr("Search settings…"))
        self.search.setAccessibleName(tr("Search settings"))
        self.search.textChanged.connect(self._search)
        self.rows = {setting.key: SettingRow(setting, preferences) for setting in SETTINGS}
        self._headings = {title: QLabel(title) for title in sections()}
        self._no_match = QLabel()
        self._no_match.setObjectName("muted")
        self._no_match.hide()
        self._lay_out()
        QShortcut(QKeySequence(QKeySequence.StandardKey.Find), self).activated.connect(self._focus_search)
        preferences.changed.connect(lambda key: self.rows[key].show_value())

    def showEvent(self, event: QShowEvent) -> None:
        """Refresh the values, which other windows and the terminal may have changed."""
        super().showEvent(event)
        for row in self.rows.values():
            row.show_value()
        self._focus_search()

    def choose(self, key: str) -> None:
        """Scroll a setting into view and focus it."""
        self.search.clear()
        row = self.rows[key]
        self._scroll.ensureWidgetVisible(row, 0, 60)
        row.editor.control.setFocus()

    def _lay_out(self) -> None:
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(14, 4, 14, 14)
        column.setSpacing(14)
        for title, heading in self._headings.items():
            heading.setObjectName("section")
            heading.setIndent(0)
            column.addWidget(heading)
            for row in self.rows.values():
                if row.setting.section == title:
                    column.addWidget(row)
        column.addWidget(self._no_match)
        column.addStretch(1)
        self._scroll = scroll_panel(inside)
        top = vbox(self.search, margins=(14, 0, 14, 0))
        self.setLayout(vbox(top, (self._scroll, 1), margins=(0, 12, 0, 0)))

    def _search(self, text: str) -> None:
        words = text.lower().split()
        for row in self.rows.values():
            row.setVisible(row.matches(words))
        for title, heading in self._headings.items():
            heading.setVisible(any(row.matches(words) for row in self.rows.values() if row.setting.section == title))
        found = any(row.matches(words) for row in self.rows.values())
        self._no_match.setText(tr("No setting matches “{text}”.").format(text=text.strip()))
        self._no_match.setVisible(not found)

    def _focus_search(self) -> None:
        self.search.setFocus()
        self.search.selectAll()
