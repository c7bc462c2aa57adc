"""Collapsible group of fields with the number of changed ones."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QLabel, QToolButton, QWidget

from gui.form.field_row import FieldRow
from gui.translation import tr
from gui.widgets.buttons import FoldButton
from gui.widgets.layouts import hbox, vbox


class CollapsibleSection(QWidget):
    """Titled group of rows, collapsed at first."""

    def __init__(self, title: str, rows: Sequence[FieldRow]) -> None:
        super().__init__()
        self.title = title
        self.rows = list(rows)
        self.body = QWidget()
        self.button = FoldButton(title, self.body)
        self.mark = QLabel()
        self.mark.setObjectName("muted")
        self.reset = QToolButton()
        self.reset.setObjectName("flat")
        self.reset.setText(tr("Reset"))
        self.reset.setAccessibleName(tr("Reset all {title} options").format(title=title))
        self.reset.clicked.connect(self._reset_all)
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
