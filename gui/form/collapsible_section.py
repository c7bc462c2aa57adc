"""Collapsible group of fields with the number of changed ones."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from gui.form.field_row import FieldRow
from gui.translation import tr
from gui.widgets.buttons import FoldButton


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
        head = QHBoxLayout()
        head.setSpacing(4)
        head.addWidget(self.button, 1)
        head.addWidget(self.mark)
        head.addWidget(self.reset)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addLayout(head)
        layout.addWidget(self.body)
        inner = QVBoxLayout(self.body)
        inner.setContentsMargins(6, 2, 0, 8)
        inner.setSpacing(6)
        for row in self.rows:
            inner.addWidget(row)

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
