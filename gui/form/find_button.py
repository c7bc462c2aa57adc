"""The way from a field to the page on which a value for it is found by trying the job."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QToolButton

from gui.form.field_row import FieldRow
from gui.style import icons

FOUND = {
    "batch_size": "Finds the largest batch size that fits and measures the speed of each size",
    "learning_rate": "Finds a learning rate with a short training at a rising rate",
}
"""The fields that have a finder, with what it does."""


class FindButton(QToolButton):
    """A magnifying glass beside the editor of `row`."""

    def __init__(self, row: FieldRow) -> None:
        super().__init__()
        self.setAccessibleName(f"Find {row.field.label.lower()}")
        self.setToolTip(FOUND[row.field.name])
        self.setIconSize(QSize(14, 14))
        self.setIcon(icons.icon("find", "muted"))
        layout = row.editor.layout()
        assert layout is not None
        layout.addWidget(self)
