"""Asks what a recipe of the user's is to be called."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QGridLayout, QLabel, QLineEdit, QVBoxLayout, QWidget

from engine.contract.recipes import MOST_LINE, name_of_file, path_of, title_problem

Save = Callable[[str, str], None]
"""Keeps a recipe under a title, with a line about it. Raises OSError, and ValueError where a field's value is wrong."""


class RecipeDialog(QDialog):
    """Not modal. `but` is the id of the recipe that is renamed, "" where a new one is made, which is also asked for a
    line about it. A name that is taken is asked for twice.
    """

    def __init__(self, title: str, parent: QWidget, save: Save, *, name: str = "", but: str = "") -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._save, self._but = save, but
        self._replaces = ""
        self.name, self.about = QLineEdit(name), QLineEdit()
        self.name.setMaxLength(MOST_LINE)
        self.about.setMaxLength(MOST_LINE)
        self.name.setAccessibleName("Name of the recipe")
        self.about.setAccessibleName("About the recipe")
        self.about.setPlaceholderText("When to use it, in one line")
        self.problem = QLabel(wordWrap=True)
        self.problem.setObjectName("error")
        self.problem.setTextFormat(Qt.TextFormat.PlainText)
        self.problem.hide()
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Save | QDialogButtonBox.StandardButton.Cancel)
        self.buttons.accepted.connect(self._try)
        self.buttons.rejected.connect(self.reject)
        self.name.textChanged.connect(lambda _text: self._ask_anew())
        fields = QGridLayout()
        for row, (text, line) in enumerate((("&Name", self.name), ("&About", self.about))[: 1 if but else 2]):
            label = QLabel(text)
            label.setBuddy(line)
            fields.addWidget(label, row, 0)
            fields.addWidget(line, row, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 12, 14, 14)
        layout.setSpacing(10)
        layout.addLayout(fields)
        layout.addWidget(self.problem)
        layout.addWidget(self.buttons)
        self.setMinimumWidth(420)

    def _ask_anew(self) -> None:
        self._replaces = ""
        self.problem.hide()
        self.buttons.button(QDialogButtonBox.StandardButton.Save).setText("Save")

    def _try(self) -> None:
        title = self.name.text().strip()
        name, problem = name_of_file(title), title_problem(title, self._but)
        if not problem and name not in (self._but, self._replaces) and path_of(name).exists():
            self._replaces = name
            self.buttons.button(QDialogButtonBox.StandardButton.Save).setText("Replace")
            problem = f"You already have a recipe “{name}”. Replace it, or choose another name."
        if not problem:
            try:
                self._save(title, self.about.text())
            except (OSError, ValueError) as error:
                problem = f"The recipe can't be saved: {error}"
        if not problem:
            self.accept()
            return
        self.problem.setText(problem)
        self.problem.show()
        self.name.setFocus()
