"""Dialog that asks for the name of a recipe."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QGridLayout, QLabel, QLineEdit, QWidget

from engine.contract.recipes import MAX_CHARACTERS, file_stem, recipe_path, title_problem
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import caption
from gui.widgets.layouts import vbox

Save = Callable[[str, str], None]
"""Function that saves a recipe with a title and a description.

It raises OSError, or ValueError if a field has an invalid value.
"""


class RecipeDialog(QDialog):
    """Non-modal dialog that asks for the name of a recipe and, if it is new, for a description.

    To replace a recipe with the same name, the user must press the Save button a second time. `renamed_id` is the id of
    the recipe to rename, or "" for a new one.
    """

    def __init__(self, title: str, parent: QWidget, save: Save, *, name: str = "", renamed_id: str = "") -> None:
        """Create the dialog.

        Args:
            title: Title of the window.
            parent: Widget that the dialog belongs to.
            save: Called with the name and the description. Raises OSError or ValueError if the recipe can't be saved.
            name: Initial name.
            renamed_id: Id of the recipe to rename, or "" for a new one. Renaming doesn't ask for a description.
        """
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        styled(self, "panel")
        self._save, self._renamed_id = save, renamed_id
        self._replaces = ""  # name of the recipe that saving a second time replaces
        self.name = styled(QLineEdit(name, maxLength=MAX_CHARACTERS), name=tr("Name of the recipe"))
        self.about = styled(QLineEdit(maxLength=MAX_CHARACTERS), name=tr("About the recipe"))
        self.about.setPlaceholderText(tr("When to use it, in one line"))
        self.problem = caption("", "error")
        self.problem.hide()
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Save | QDialogButtonBox.StandardButton.Cancel)
        self.buttons.accepted.connect(self._submit)
        self.buttons.rejected.connect(self.reject)
        self.name.textChanged.connect(lambda _text: self._reset())
        lines = [(tr("&Name"), self.name)]
        if not renamed_id:
            lines.append((tr("&About"), self.about))
        fields = QGridLayout()
        for row, (text, line) in enumerate(lines):
            label = QLabel(text)
            label.setBuddy(line)
            fields.addWidget(label, row, 0)
            fields.addWidget(line, row, 1)
        self.setLayout(vbox(fields, self.problem, self.buttons, spacing=10, margins=(14, 12, 14, 14)))
        self.setMinimumWidth(420)

    def _reset(self) -> None:
        """Undo the warning about a taken name, because the name has been edited."""
        self._replaces = ""
        self.problem.hide()
        self.buttons.button(QDialogButtonBox.StandardButton.Save).setText(tr("Save"))

    def _submit(self) -> None:
        """Save the recipe and close. If the name is invalid or taken, or saving fails, show why.

        Submitting a taken name a second time replaces the recipe.
        """
        title = self.name.text().strip()
        name, problem = file_stem(title), title_problem(title)
        if not problem and name not in (self._renamed_id, self._replaces) and recipe_path(name).exists():
            self._replaces = name
            self.buttons.button(QDialogButtonBox.StandardButton.Save).setText(tr("Replace"))
            problem = tr("You already have a recipe “{name}”. Replace it, or choose another name.").format(name=name)
        if not problem:
            try:
                self._save(title, self.about.text())
            except (OSError, ValueError) as error:
                problem = tr("Couldn't save the recipe: {error}").format(error=error)
        if not problem:
            self.accept()
            return
        self.problem.setText(problem)
        self.problem.show()
        self.name.setFocus()
